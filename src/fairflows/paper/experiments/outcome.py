"""What experiments share: a setting, tasks side by side in processes, and what they give back: tables and figures."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataWarning
from fairflows.table.keys import Key
from fairflows.table.ledger import Ledger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Item = TypeVar("Item")
Found = TypeVar("Found")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # colour-blind readers can tell them apart
FIRST_SEED = 200  # no setting was chosen by looking at a result with seed 200 or above


@dataclass(frozen=True)
class Setting:
    """How an experiment is to be run: quickly or in full, with how many seeds, where, and how many tasks at once."""

    quick: bool = False
    seeds: int | None = None
    device: str = "auto"
    n_jobs: int = 1

    def seed_list(self, full: int = 5, quick: int = 1) -> list[int]:
        """Return the seeds: as many as were asked for, else `full` of them, or `quick` in a quick run."""
        n = self.seeds or (quick if self.quick else full)
        return list(range(FIRST_SEED, FIRST_SEED + n))


def new_pool(n_processes: int) -> ProcessPoolExecutor:
    """Start new processes, since one that has used a GPU cannot be copied. Data warnings are off in them."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n_processes, context, warnings.simplefilter, ("ignore", DataWarning))


def in_processes(work: Callable[[Item], Found], items: Iterable[Item], n_processes: int) -> list[Found]:
    """Map by several processes, in order; in this process where one is enough."""
    if n_processes == 1:
        return [work(item) for item in items]
    # As bytes: torch would lend tensors between processes instead of copying them, and the lender may be gone first.
    packed = [_packed((work, item)) for item in items]
    with new_pool(max(1, min(n_processes, len(packed)))) as pool:
        return [pickle.loads(found) for found in pool.map(_work_on_bytes, packed)]


def _work_on_bytes(packed: bytes) -> bytes:
    work, item = pickle.loads(packed)
    return _packed(work(item))


class _Packer(pickle.Pickler):
    """Pickle models with their keys and ledgers, for another of our processes; the pickle is not kept."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Key):
            return Key, (bytes(value),)
        return (Ledger, (value.key, value.used)) if isinstance(value, Ledger) else NotImplemented


def _packed(value: object) -> bytes:
    with io.BytesIO() as stream:
        _Packer(stream).dump(value)
        return stream.getvalue()


@dataclass
class Outcome:
    """The outcome of one experiment.

    Attributes
    ----------
    table : DataFrame
        Our numbers, the paper's beside them where it has any.
    data : str
        Which rows it ran on.
    notes : list of str
        What to know when comparing.
    figure : Figure, default=None
        The paper's figure, from our own numbers.
    details : dict of DataFrame
        Further tables, saved beside the first.
    skipped : str
        Why it did not run; empty when it did.
    failed : str
        The error that it broke off with, where others were to go on.
    """

    table: pd.DataFrame
    data: str
    notes: list[str] = field(default_factory=list)
    figure: Figure | None = None
    details: dict[str, pd.DataFrame] = field(default_factory=dict)
    skipped: str = ""
    failed: str = ""
    id: str = ""
    title: str = ""
    seconds: float = 0.0
    setting: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.id}: {self.title}"]
        if self.skipped:
            return "\n".join([*lines, f"  skipped: {self.skipped}"])
        if self.failed:
            return "\n".join([*lines, f"  failed: {self.failed}"])
        setting = ", ".join(f"{name} {value}" for name, value in self.setting.items())
        lines.append(f"  data: {self.data}; {setting}; {self.seconds:.0f} s")
        shown = self.table.to_string(float_format=lambda value: f"{value:.3f}", na_rep="–", index=False)
        lines += ["", shown, ""]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """Return plain values, as JSON holds them."""
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


def new_figure(
    n_columns: int = 1, n_rows: int = 1, width: float = 4.2, height: float = 3.4
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """Return an empty figure that needs no display, and its axes as an array (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def frontier_figure(summary: pd.DataFrame) -> Figure:
    """Draw balanced accuracy against the statistical distance, one curve per dataset."""
    figure, axes = new_figure()
    draw_frontiers(axes[0], summary, {"distance": "Δ, statistical distance"}, by="data")
    axes[0, 0].legend()
    return figure


def draw_frontiers(
    axes: npt.NDArray[np.object_], summary: pd.DataFrame, measures: Mapping[str, str], *, by: str
) -> None:
    """Draw balanced accuracy against each measure in a panel, with 95 % intervals: one curve per value of a column.

    Measures are columns of the summary, with the names of their axes.
    """
    for ax, (measure, title) in zip(axes, measures.items(), strict=True):
        for (name, part), colour in zip(summary.groupby(by, sort=False), COLOURS, strict=False):
            ax.errorbar(
                part[measure],
                part["balanced_accuracy"],
                xerr=part[f"{measure} ±"].fillna(0),
                yerr=part["balanced_accuracy ±"].fillna(0),
                marker="o",
                capsize=2,
                color=colour,
                label=str(name),
            )
        ax.set(xlabel=title, ylabel="balanced accuracy")


def bounds_figure(
    table: pd.DataFrame,
    panels: Mapping[str, tuple[str, str]],
    *,
    xlabel: str,
    ylabel: str,
    least: float,
    radius: float | None = None,
) -> Figure:
    """Draw what adversaries reach against the bound, which holds below the diagonal: one colour per dataset.

    The table has one row per model; each panel's title stands for the columns of the bound, within `radius`, and of
    what was reached. The diagonal goes from `least` to 1.
    """
    figure, axes = new_figure(len(panels))
    for ax, (title, (bound, reached)) in zip(axes[0], panels.items(), strict=True):
        for (name, part), colour in zip(table.groupby("data", sort=False), COLOURS, strict=False):
            ax.errorbar(part[bound], part[reached], xerr=radius, fmt="o", ms=4, color=colour, label=str(name))
        ax.plot([least, 1], [least, 1], "k--", lw=1)
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes[0, 0].legend(fontsize=7)
    return figure
