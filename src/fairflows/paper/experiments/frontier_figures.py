"""Tables and figures of frontiers: mean over seeds with 95 % intervals, one curve a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fairflows.exceptions import DataError
from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.models import Trained, trained
from fairflows.paper.experiments.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def all_trained(names: Sequence[str], setting: Setting) -> tuple[dict[str, Trained], list[str]]:
    """The frontiers of all datasets at hand, and a note for each that is not."""
    found, notes = {}, []
    for name in names:
        try:
            found[name] = trained(name, setting)
        except DataError as error:
            notes.append(f"{name} was skipped: {error}")
    if not found:
        raise DataError(" ".join(notes))
    return found, notes


def summaries(models: Mapping[str, Trained]) -> pd.DataFrame:
    """One line a dataset and γ: means over seeds and half-widths of 95 % intervals."""
    parts = []
    for model in models.values():
        summary = model.frontier.summary().reset_index()
        summary.insert(0, "data", model.problem.name)
        parts.append(summary)
    return pd.concat(parts, ignore_index=True)


def every_model(models: Mapping[str, Trained]) -> pd.DataFrame:
    """One line a model."""
    return pd.concat(
        [model.frontier.to_frame().assign(data=model.problem.name) for model in models.values()], ignore_index=True
    )


def described(models: Mapping[str, Trained]) -> str:
    """Which data, for the reader."""
    return "; ".join(model.data for model in models.values())


def frontier_figure(
    summary: pd.DataFrame, measures: Mapping[str, str], y: str = "balanced_accuracy"
) -> tuple[Figure, Any]:
    """A panel a measure, a curve a dataset."""
    figure, axes = new_figure(len(measures))
    for ax, (measure, title) in zip(axes[0], measures.items(), strict=True):
        for (name, part), colour in zip(summary.groupby("data", sort=False), COLOURS, strict=False):
            errors = {f"{d}err": part[f"{m} ±"].fillna(0) for d, m in (("x", measure), ("y", y))}
            ax.errorbar(part[measure], part[y], **errors, marker="o", capsize=2, color=colour, label=str(name))
        ax.set_xlabel(title)
        ax.set_ylabel(y.replace("_", " "))
    axes[0, 0].legend()
    return figure, axes
