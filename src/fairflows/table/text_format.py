"""How a CSV file is written: the three settings that a file may need to be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairflows.exceptions import DataError


@dataclass(frozen=True)
class TextFormat:
    r"""How a CSV file is written.

    Parameters
    ----------
    separator : str, default=None
        The character between two fields. By default, the one of ``,`` ``;`` tab ``|`` that the header line has.
    encoding : str, default="utf-8"
        The encoding of the text, by any name that Python knows: ``"cp1252"``, ``"utf-16"``.
    decimal : {".", ","}, default=None
        The decimal mark. By default ``","`` if fields are separated by ``";"``, else ``"."``.
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            raise DataError(f"separator must be one ASCII character; got {self.separator!r}.")
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise DataError(f"encoding must be one that Python knows; got {self.encoding!r}.") from None


def tab_by_name(path: Path) -> str | None:
    """Return a tab if the file's name ends in .tsv."""
    return "\t" if ".tsv" in map(str.lower, path.suffixes) else None


def own_format(path: Path) -> TextFormat:
    """Return how fairflows itself writes a CSV file."""
    return TextFormat(tab_by_name(path) or ",", "utf-8", ".")
