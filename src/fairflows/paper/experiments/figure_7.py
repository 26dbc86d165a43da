"""Figure 7: convex and Chebyshev scalarisation on Crime, and the area under each curve."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.models import fit_crime
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import Setting

GAMMAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0)
PAPER = {"convex": 0.6036, "chebyshev": 0.6051}


def run(setting: Setting) -> Result:
    """Train a wide range of γ both ways."""
    seeds = setting.seed_list(full=5, quick=1)
    figure, ((ax,),) = new_figure()
    rows, models, data = [], [], ""
    for scheme, colour in zip(PAPER, COLOURS, strict=False):
        fitted = fit_crime(setting, seeds, GAMMAS, scalarisation=scheme)
        data = fitted.data
        frame = fitted.frontier.to_frame()
        models.append(frame.assign(scalarisation=scheme))
        areas = [area(part["delta"], part["balanced_accuracy"]) for _, part in frame.groupby("seed")]
        rows.append({"scalarisation": scheme, "area": np.mean(areas), "paper: area": PAPER[scheme]})
        means = frame.groupby("gamma")[["delta", "balanced_accuracy"]].mean().sort_values("delta")
        ax.plot(means["delta"], means["balanced_accuracy"], "o-", color=colour, label=scheme)
    ax.set_xlabel("Δ, statistical distance")
    ax.set_ylabel("balanced accuracy")
    ax.legend()
    note = (
        "The area is by the trapezoidal rule over Δ, from the least Δ reached. The paper names neither its γ nor the "
        "ends of its curve, so the areas compare between schemes, not with the paper's."
    )
    return Result(pd.DataFrame(rows), data, [note], figure, {"models": pd.concat(models, ignore_index=True)})


def area(delta: pd.Series, accuracy: pd.Series) -> float:
    """Area under accuracy as a function of Δ."""
    order = np.argsort(delta.to_numpy())
    return float(np.trapezoid(accuracy.to_numpy()[order], delta.to_numpy()[order]))
