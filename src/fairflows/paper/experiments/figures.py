"""How the figures look: one size, one palette that colour-blind readers can tell apart, no display needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def new_figure(
    n_columns: int = 1, n_rows: int = 1, width: float = 4.2, height: float = 3.4
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """An empty figure that needs no display, and its axes as an array (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def frontier_figure(summary: pd.DataFrame, measures: Mapping[str, str]) -> Figure:
    """Balanced accuracy against each measure, with 95 % intervals: one panel per measure, one curve per dataset.

    `measures` maps columns of the summary to the names of their axes.
    """
    figure, axes = new_figure(len(measures))
    accuracy, half_width = summary["balanced_accuracy"], summary["balanced_accuracy ±"].fillna(0)
    for ax, (measure, title) in zip(axes[0], measures.items(), strict=True):
        for (name, part), colour in zip(summary.groupby("data", sort=False), COLOURS, strict=False):
            ax.errorbar(
                part[measure],
                accuracy[part.index],
                xerr=part[f"{measure} ±"].fillna(0),
                yerr=half_width[part.index],
                marker="o",
                capsize=2,
                color=colour,
                label=str(name),
            )
        ax.set(xlabel=title, ylabel="balanced accuracy")
    axes[0, 0].legend()
    return figure


def bounds_figure(
    table: pd.DataFrame,
    panels: Mapping[str, tuple[str, str]],
    *,
    xlabel: str,
    ylabel: str,
    least: float,
    radius: float | None = None,
) -> Figure:
    """What adversaries reach against the bound, which holds below the diagonal: one colour per dataset.

    Parameters
    ----------
    table
        One row per model.
    panels
        For each panel's title, the columns of the bound and of what was reached.
    xlabel, ylabel
        Names of the axes, the same in all panels.
    least
        Where the diagonal begins; it ends at 1.
    radius
        Half-width of the interval around the bound.
    """
    figure, axes = new_figure(len(panels))
    for ax, (title, (bound, reached)) in zip(axes[0], panels.items(), strict=True):
        for (name, part), colour in zip(table.groupby("data", sort=False), COLOURS, strict=False):
            ax.errorbar(part[bound], part[reached], xerr=radius, fmt="o", ms=4, color=colour, label=str(name))
        ax.plot([least, 1], [least, 1], "k--", lw=1)
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes[0, 0].legend(fontsize=7)
    return figure
