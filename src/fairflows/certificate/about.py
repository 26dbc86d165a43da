"""Who issues a release, for whom and for what: the fields of a certificate that its issuer states."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from fairflows.exceptions import DataError
from fairflows.table.json_text import read_as, read_text

UNTIL_REFUTED = "until refuted"


@dataclass(frozen=True, kw_only=True)
class Population:
    """The population that the persons of the table come from.

    Attributes
    ----------
    period, place : str
        When and where they were observed.
    frame : str
        The list or rule that they were drawn by.
    """

    period: str = ""
    place: str = ""
    frame: str = ""


@dataclass(frozen=True, kw_only=True)
class About:
    """Statements of the issuer about a release; nothing of this is computed.

    Attributes
    ----------
    issuer, contact : str
        Who issues the release, and where to ask.
    purpose : str
        What it is released for.
    recipient : str
        Who receives it, and what they are assumed to hold.
    population : Population
        The population that the persons come from, and that persons to come must come from.
    valid_until : str
        The last day of use, as 2027-12-31, or "until refuted".
    """

    issuer: str = ""
    contact: str = ""
    purpose: str = ""
    recipient: str = ""
    population: Population = field(default_factory=Population)
    valid_until: str = UNTIL_REFUTED

    def __post_init__(self) -> None:
        if self.valid_until != UNTIL_REFUTED:
            try:
                is_day = date.fromisoformat(self.valid_until).isoformat() == self.valid_until
            except ValueError:
                is_day = False
            if not is_day:
                raise DataError(
                    f"valid_until must be a day such as 2027-12-31, or {UNTIL_REFUTED!r}; got {self.valid_until!r}."
                )

    @classmethod
    def read(cls, path: str | Path) -> About:
        r"""Read the statements from a TOML file, whose keys are the attributes.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "about.toml"
        ...     _ = path.write_text('purpose = "teaching"\n[population]\nplace = "Ulm"')
        ...     About.read(path).population
        Population(period='', place='Ulm', frame='')
        """
        try:
            values: dict[str, Any] = tomllib.loads(read_text(Path(path)))
        except tomllib.TOMLDecodeError as error:
            raise DataError(f"{path}: is not TOML: {error}.") from None
        if isinstance(values.get("valid_until"), date):  # as TOML writes days
            values["valid_until"] = values["valid_until"].isoformat()
        try:
            return read_as(values, cls, "the file")
        except ValueError as error:
            known = ", ".join(f.name for f in fields(cls))
            raise DataError(f"{path}: {error} It may state {known}.") from None

    @property
    def is_over(self) -> bool:
        """Whether the last day of use has passed."""
        return self.valid_until != UNTIL_REFUTED and self.valid_until < date.today().isoformat()

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The statements that are made, by their names."""
        where = ", ".join(filter(None, vars(self.population).values()))
        said = {**vars(self), "population": where, "valid_until": self.valid_until}
        return [(name.replace("_", " "), text) for name, text in said.items() if text]
