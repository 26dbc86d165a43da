"""What an experiment is given, a setting, and what it gives back: a table of our numbers beside the paper's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST_SEED = 100  # the paper's seeds are 100, 101, …


@dataclass(frozen=True)
class Setting:
    """How an experiment is to be run: quickly or in full, with how many seeds, and where."""

    quick: bool = False
    seeds: int | None = None
    device: str = "auto"

    def seed_list(self, full: int = 5, quick: int = 1) -> list[int]:
        """The seeds: as many as were asked for, else `full` of them, or `quick` in a quick run."""
        n = self.seeds or (quick if self.quick else full)
        return list(range(FIRST_SEED, FIRST_SEED + n))


@dataclass
class Result:
    """The outcome of one experiment.

    Attributes
    ----------
    table : DataFrame
        Our numbers, the paper's beside them where it has any.
    data : str
        Which rows it ran on.
    notes : list of str
        What to know when comparing.
    figure : Figure, optional
        The paper's figure, from our own numbers.
    details : dict of DataFrame
        Further tables, saved beside the first.
    skipped : str
        Why it did not run; empty when it did.
    """

    table: pd.DataFrame
    data: str
    notes: list[str] = field(default_factory=list)
    figure: Figure | None = None
    details: dict[str, pd.DataFrame] = field(default_factory=dict)
    skipped: str = ""
    id: str = ""
    title: str = ""
    seconds: float = 0.0
    setting: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.id}: {self.title}"]
        if self.skipped:
            return "\n".join([*lines, f"  skipped: {self.skipped}"])
        setting = ", ".join(f"{name} {value}" for name, value in self.setting.items())
        lines.append(f"  data: {self.data}; {setting}; {self.seconds:.0f} s")
        shown = self.table.to_string(float_format=lambda value: f"{value:.3f}", na_rep="–", index=False)
        lines += ["", shown, ""]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """Plain values, as JSON holds them."""
        tables = {"table": self.table, **self.details}
        return {
            "id": self.id,
            "title": self.title,
            "data": self.data,
            "setting": self.setting,
            "seconds": round(self.seconds, 1),
            "skipped": self.skipped,
            "notes": self.notes,
            **{name: json.loads(frame.to_json(orient="records")) for name, frame in tables.items()},
        }

    def save(self, folder: Path) -> list[Path]:
        """Write the tables (CSV), everything (JSON) and the figure (PNG), and return the paths."""
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / f"{self.id}.json"]
        written[0].write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n")
        for name, frame in {"": self.table, **self.details}.items():
            written.append(folder / f"{self.id}{'-' * bool(name)}{name}.csv")
            frame.to_csv(written[-1], index=False)
        if self.figure is not None:
            written.append(folder / f"{self.id}.png")
            self.figure.savefig(written[-1], dpi=150, bbox_inches="tight")
        return written
