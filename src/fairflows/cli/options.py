"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from fairflows.table.text_format import TextFormat

_about_file = functools.partial(typer.Option, rich_help_panel="How a CSV file is written")
_OPTIONS = {
    "separator": Annotated[str | None, _about_file(help="Between two fields; by default as in the header.")],
    "encoding": Annotated[str | None, _about_file(help="How text is encoded; by default utf-8.")],
    "decimal": Annotated[Literal[".", ","] | None, _about_file(help="By default a comma with ;, else a point.")],
}
_NAMES = {"tab": "\t", "\\t": "\t"}


def distinct(names: list[str] | None) -> list[str] | None:
    """The values of a repeated option without duplicates."""
    return list(dict.fromkeys(names)) if names else names


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the result.")]
Folder = Annotated[Path, typer.Argument(help="The folder that `fit` wrote, or a saved model.", show_default=False)]
Sensitive = Annotated[
    list[str],
    typer.Option(help="Sensitive column; several make intersectional groups.", show_default=False, callback=distinct),
]
SensitiveIfNotKnown = Annotated[
    list[str] | None,
    typer.Option("--sensitive", help="Sensitive column, where the model does not say.", callback=distinct),
]
Label = Annotated[str | None, typer.Option(help="Label column.")]
Identifier = Annotated[str | None, typer.Option("--id", help="Column that names the person of a row.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.", callback=distinct)]
Missing = Annotated[Literal["error", "category", "drop"], typer.Option(help="What to do with missing values.")]
Multiclass = Annotated[bool, typer.Option("--multiclass", help="Accept a label with more than two values.")]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        help="Cut a sensitive column of numbers: AGE:40, AGE:30,50 or AGE:quantiles=4; may be repeated.",
        callback=distinct,
    ),
]
MergeSmall = Annotated[
    int, typer.Option("--merge-small", min=0, help="Groups of fewer persons become one group, 'other'.")
]
MaxAccuracy = Annotated[
    float | None, typer.Option("--max-adversary-accuracy", help="How often a guess of the group may be right.")
]
Target = Annotated[
    float | None,
    typer.Option(
        "--target", "--max-parity", help="How far the groups may be apart: the distance Δ, or any rate's gap."
    ),
]
MostRows = Annotated[
    int | None, typer.Option("--most-rows", min=1, help="The most rows of a person; as in training when not given.")
]
Delta = Annotated[float, typer.Option(help="Probability that the certificate is wrong.")]


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the options of a `TextFormat`, handed to it as one."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "text_format"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**given: object) -> None:
        stated = {name: cast(str | None, given.pop(name)) for name in _OPTIONS}
        text_format = TextFormat(**{name: _NAMES.get(value or "", value) for name, value in stated.items()})
        command(**given, text_format=text_format)

    run.__dict__["__signature__"] = signature.replace(parameters=[*own, *options])
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *options)}
    return run
