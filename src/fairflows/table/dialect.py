"""How a text file writes a table: what separates fields, how text is encoded, how numbers look."""

from __future__ import annotations

import codecs
from dataclasses import asdict, dataclass
from pathlib import Path

from fairflows.exceptions import DataError

_SEPARATORS = {",": "comma separated", "\t": "tab separated"}
_MARKS = {",": "comma", ".": "point", " ": "blank", "'": "apostrophe"}
_ENCODINGS = {"cp1252": "Windows-1252", "iso8859-1": "Latin-1"}


@dataclass(frozen=True)
class Dialect:
    r"""How a file writes its table. What is None is recognised when the file is read.

    Parameters
    ----------
    separator : str, optional
        The character between two fields of a row: ``","``, ``";"``, ``"\t"``, ``"|"``.
    encoding : str, optional
        How text is encoded, by any name that Python knows: ``"utf-8"``, ``"cp1252"``, ``"utf-16"``.
    decimal : {".", ","}, optional
        The decimal mark.
    thousands : {"", ",", ".", " ", "'"}, optional
        What groups the digits of large numbers; "" where nothing does. A blank stands for a no-break space too.
    sheet : str, optional
        The sheet of an Excel workbook; all else is said by the workbook itself.

    Examples
    --------
    >>> print(Dialect(separator=";", encoding="cp1252", decimal=",", thousands="."))
    ; separated, decimal comma, thousands point, Windows-1252
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        separator = self.separator
        if separator is not None and (len(separator) != 1 or not separator.isascii() or separator.isalnum()):
            raise DataError(f"separator must be one character that is no letter or digit; got {separator!r}.")
        if separator in ('"', "'", "\n", "\r", ".", "+", "-"):
            raise DataError(f"separator must not be a quote, a line end, a sign or a point; got {separator!r}.")
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _canonical(self.encoding))
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        if self.thousands not in (None, "", *_MARKS):
            raise DataError(
                f"thousands must be ',', '.', a blank, an apostrophe, or '' for none; got {self.thousands!r}."
            )
        if self.decimal is not None and self.decimal == self.thousands:
            raise DataError(f"decimal and thousands must differ; both are {self.decimal!r}.")

    @property
    def is_stated(self) -> bool:
        """Whether anything is stated, and not all left to be recognised."""
        return self != Dialect()

    @property
    def reads_plain_numbers(self) -> bool:
        """Whether numbers are written as Python writes them: decimal points, and nothing between thousands."""
        return self.decimal in (None, ".") and not self.thousands

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, for files."""
        return asdict(self)

    def __str__(self) -> str:
        words = [] if self.separator is None else [_SEPARATORS.get(self.separator, f"{self.separator} separated")]
        if self.decimal == ",":
            words.append("decimal comma")
        if self.thousands:
            words.append(f"thousands {_MARKS[self.thousands]}")
        if self.encoding is not None:
            words.append(_ENCODINGS.get(self.encoding, self.encoding.upper()))
        return ", ".join([*words, *([] if self.sheet is None else [f"sheet {self.sheet!r}"])])


def own_dialect(name: Path) -> Dialect:
    """How fairflows itself writes a text file: UTF-8, decimal points, commas, or tabs where the name ends in .tsv."""
    return Dialect("\t" if is_tab_separated(name) else ",", "utf-8", ".", "")


def is_tab_separated(name: Path) -> bool:
    """Whether a file's name says that tabs separate its fields."""
    return ".tsv" in [suffix.lower() for suffix in name.suffixes]


def _canonical(encoding: str) -> str:
    try:
        "".encode(encoding)  # looking a codec up would also find those that are not about text
    except LookupError:
        rule = "must be an encoding of text that Python knows, such as 'utf-8' or 'cp1252'"
        raise DataError(f"encoding {rule}; got {encoding!r}.") from None
    name = codecs.lookup(encoding).name
    return "utf-8" if name == "utf-8-sig" else name
