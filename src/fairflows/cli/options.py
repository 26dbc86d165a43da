"""Options that several commands share, their names in messages, and the group for reading files."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairflows.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

    from fairflows.table.grouping import Grouping
    from fairflows.table.linked import LinkedTables
    from fairflows.table.reading import TextFormat
    from fairflows.table.table import Table

Command = Callable[..., None]

_SAME_NAMES = (
    "again categorical date decimal delta drop encoding engine extend groups household keep label merge_small method "
    "missing_group missing_label most_rows output replace sample sensitive separator sheet target time uncut unit"
)
_OPTIONS = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME_NAMES.split()},
    "cuts": "--groups",
    "dates": "--date",
    "identifier": "--id",
    "keep_numbers": "--keep-number",
    "kinds": "--categorical",
    "rules": "--rule",
}
"""The option of each parameter that a message may name."""

_NAMED = re.compile(rf"\b({'|'.join(_OPTIONS)}) must")
_VALUE = r"""\[.*?\]|\{.*?\}|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\.\.\.|\w+(?:\.\d+)?"""
_STATED = re.compile(rf"\b({'|'.join(_OPTIONS)})=({_VALUE})")


def with_options(message: str, own: Collection[str] | None = None) -> str:
    """Return a message in one line and in the words of the command, followed by options that it names otherwise.

    Those that are not among the command's `own` options are options of `share`.

    Examples
    --------
    >>> with_options("key names the rows. Drop it (drop=['key']), or make it the identifier (identifier='key').")
    'key names the rows. Drop it (--drop key), or make it the identifier (--id key).'
    """

    def of(option: str) -> str:
        return option if own is None or option in own else f"{option} of `share`"

    options = dict.fromkeys(_OPTIONS[name] for name in _NAMED.findall(message))
    said = in_options(message, of)
    if named := [of(option) for option in options]:
        said += f" ({'option' if len(named) == 1 else 'options'} {', '.join(named)})"
    return " ".join(said.split())


def in_options(text: str, of: Callable[[str], str] = str) -> str:
    """Return a text with options in the place of parameters with their values: `--id key` for identifier='key'."""

    def typed(found: re.Match[str]) -> str:
        option, value = _OPTIONS[found[1]], _typed(found[2])
        said = f"{option} {value}".strip()
        return said + of(option).removeprefix(option)

    return _STATED.sub(typed, text)


def _typed(value: str) -> str:
    """Return a value, as Python writes it, as it is typed after an option."""
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    if given in (..., True):
        return "" if given is True else "..."
    if isinstance(given, dict):  # of one column
        given = [f"{column}:{_joined(of)}" for column, of in given.items()]
    return shlex.quote(_joined(given))


def _joined(given: object) -> str:
    return ",".join(map(str, given)) if isinstance(given, list) else "tab" if given == "\t" else str(given)


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
File = Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file.", show_default=False)]
HeldOut = Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file of rows that the model has not seen.")]
Folder = Annotated[Path, typer.Argument(help="Folder that `share` wrote.", show_default=False)]
Delta = Annotated[float, typer.Option(help="Probability that the certificate is wrong.")]
MostRows = Annotated[
    int | None, typer.Option("--most-rows", min=1, help="Most rows of a person; by default as in training.")
]
Quick = Annotated[bool, typer.Option("--quick", help="No attacks and no measurements; every statement.")]

_about_file = functools.partial(typer.Option, rich_help_panel="The table, and how its file is read")


@dataclass(frozen=True)
class FileFormat:
    """The options of a `TextFormat`."""

    separator: Annotated[str | None, _about_file(help="Between two fields of CSV; by default as in the header.")] = None
    encoding: Annotated[str | None, _about_file(help="How CSV is encoded; by default utf-8.")] = None
    decimal: Annotated[Literal[".", ","] | None, _about_file(help="By default a comma with ;, else a point.")] = None
    sheet: Annotated[str | None, _about_file(help="Sheet of an Excel file; by default the first.")] = None

    @property
    def text_format(self) -> TextFormat:
        """How the file is written."""
        from fairflows.table.reading import TextFormat

        separator = {"tab": "\t", "\\t": "\t"}.get(self.separator or "", self.separator)
        return TextFormat(separator, self.encoding, self.decimal, self.sheet)


@dataclass(frozen=True, kw_only=True)
class Reading(FileFormat):
    """The options by which `describe` and `share` make a `Table` of a file."""

    sensitive: Annotated[list[str], typer.Option(help="Sensitive column; several, a,b, make intersectional groups.")]
    label: Annotated[list[str] | None, typer.Option(help="Label column, or several: a,b, or repeated.")] = None
    identifier: Annotated[str | None, typer.Option("--id", help="Column that names the person of a row.")] = None
    household: Annotated[
        str | None, _about_file(help="Column that names a household or firm, whose own values are not shared.")
    ] = None
    time: Annotated[str | None, typer.Option(help="Column that orders the rows of a person.")] = None
    categorical: Annotated[
        list[str] | None, _about_file(help="Columns whose numbers are categories: a,b, or repeated.")
    ] = None
    missing_label: Annotated[
        Literal["drop", "keep"] | None, _about_file(help="Rows without a label; by default an error.")
    ] = None
    missing_group: Annotated[
        Literal["drop", "group"] | None, _about_file(help="Rows without a group; by default an error.")
    ] = None
    groups: Annotated[
        list[str] | None, _about_file(help="Cut a sensitive column of numbers: AGE:40 or AGE:30,50; may be repeated.")
    ] = None
    merge_small: Annotated[
        int | None,
        _about_file(min=1, help="Merge groups of fewer persons into one, 'other'; it hides no difference in it."),
    ] = None
    dates: Annotated[
        list[str] | None,
        _about_file(
            "--date",
            help="Column of dates, and their form: BORN:%d.%m.%Y; without a form the one that fits all values.",
        ),
    ] = None
    uncut: Annotated[
        bool, _about_file("--uncut", help="Hide the rank of the sensitive column, which is not cut into groups.")
    ] = False
    drop: Annotated[list[str] | None, _about_file(help="Columns to leave out: a,b, or repeated.")] = None
    keep_numbers: Annotated[
        list[str] | None,
        _about_file(
            "--keep-number",
            help="Columns of numbers that look like names of rows, and are measurements: a,b, or repeated.",
        ),
    ] = None
    rules: Annotated[
        list[str] | None, _about_file("--rule", help="True in every row, such as 'start <= end'; may be repeated.")
    ] = None
    most_rows: Annotated[
        int | None, _about_file(min=1, help="Most rows that a person may have; by default as in the file.")
    ] = None
    sample: Annotated[
        int | None,
        _about_file(min=1, help="For a file larger than memory: fit to about so many rows, stream all of them."),
    ] = None

    @property
    def text_format(self) -> TextFormat:
        """How the file is written, with the forms of its dates."""
        return replace(super().text_format, dates=dict(map(_date_of, self.dates or [])))

    def frame(self, path: Path, *, is_linked: bool = False) -> tuple[pd.DataFrame, dict[str, str]]:
        """Read all columns of a file, or those rows of it that `sample` asks for; and how it writes its times.

        Of two linked files each has some of the columns of dates.
        """
        from fairflows.table.reading import open_table, read_with_formats
        from fairflows.table.sample import sampled_persons

        if self.sample is not None:
            if self.identifier is None:
                raise DataError("sample needs the column that names persons (identifier=...): they keep their cell.")
            return sampled_persons(path, self.identifier, self.sample, self.text_format)
        text_format = self.text_format
        if is_linked:
            columns = open_table(path, super().text_format).columns
            text_format = replace(text_format, dates={n: f for n, f in text_format.dates.items() if n in columns})
        return read_with_formats(path, identifier=self.identifier, text_format=text_format)

    def table(self, frame: pd.DataFrame, name: str, grouping: Grouping | None = None) -> Table:
        """Return the table of a frame, by default with groups of its own."""
        from fairflows.table.grouping import read_cuts
        from fairflows.table.table import Table

        if grouping is not None and self.groups and read_cuts(self.groups) != grouping.cuts:
            raise DataError(
                f"groups must be those of the earlier release, cut at {grouping.cuts}; got {read_cuts(self.groups)}. "
                "Leave them out."
            )
        if grouping is not None and self.merge_small:
            raise DataError(
                f"merge_small must be left out: groups are those of the earlier release; got {self.merge_small}."
            )
        return Table(frame, name=name, **self._roles(list(frame), grouping))

    def linked_tables(self, frames: dict[str, pd.DataFrame]) -> LinkedTables:
        """Return two linked tables, by their names."""
        from fairflows.table.linked import LinkedTables

        if self.identifier is None:
            raise DataError("Two tables are linked by the column that names persons in both (identifier=...).")
        return LinkedTables(frames, **self._roles([name for frame in frames.values() for name in frame], None))

    def _roles(self, columns: list[str], grouping: Grouping | None) -> dict[str, Any]:
        """Return the roles of columns, as parameters of `Table`."""
        from fairflows.table.grouping import read_cuts

        sensitive = listed(self.sensitive, columns)
        return {
            "sensitive": sensitive if len(sensitive) > 1 else sensitive[0],
            "label": listed(self.label, columns) or None,
            "identifier": self.identifier,
            "household": self.household,
            "time": self.time,
            "cuts": read_cuts(self.groups or []) if grouping is None else grouping,
            "merge_small": self.merge_small or 0,
            "uncut": sensitive if self.uncut and grouping is None else (),
            "kinds": dict.fromkeys(listed(self.categorical, columns), "categorical"),
            "drop": listed(self.drop, columns),
            "keep_numbers": listed(self.keep_numbers, columns),
            "missing_group": self.missing_group or "error",
            "missing_label": self.missing_label or "error",
        }


def listed(given: list[str] | None, columns: Collection[str]) -> list[str]:
    """Return the columns that an option names, which is repeated, or has commas between them."""
    return [name for text in given or [] for name in ([text] if text in columns else text.split(","))]


def _date_of(text: str) -> tuple[str, str]:
    """Return column and form of dates: "BORN:%d.%m.%Y", or "BORN" alone."""
    before, mark, rest = text.partition("%")
    column, _, begin = before.rpartition(":") if mark else (before, "", "")
    if not column:
        raise DataError(f"dates must be COLUMN or COLUMN:FORM, such as BORN:%d.%m.%Y; got {text!r}.")
    return column, begin + mark + rest


def with_group(group: type[FileFormat]) -> Callable[[Command], Command]:
    """Let a command take the options of a group, which it gets as its argument `reading`."""

    def decorate(command: Command) -> Command:
        signature, keyword = inspect.signature(command, eval_str=True), inspect.Parameter.KEYWORD_ONLY
        first, *own = (each.replace(kind=keyword) for each in signature.parameters.values() if each.name != "reading")
        stated = inspect.signature(group, eval_str=True).parameters
        options = {name: each.replace(kind=keyword) for name, each in stated.items()}
        parameters = [first, *options.values(), *own]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            reading = group(**{name: given.pop(name) for name in options})
            command(**given, reading=reading)

        run.__dict__["__signature__"] = signature.replace(parameters=parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
