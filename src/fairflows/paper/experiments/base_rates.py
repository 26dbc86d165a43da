"""Table 5: base rates on Crime, and the error that they force on any classifier of a fair representation."""

from __future__ import annotations

import pandas as pd

from fairflows.bounds import error_lower_bound
from fairflows.paper.experiments.models import trained
from fairflows.paper.experiments.problems import labels_of
from fairflows.paper.experiments.result import Result, Setting

PAPER = {0: (0.29, 0.71), 1: (0.82, 0.18)}


def run(setting: Setting) -> Result:
    """Base rates of the training rows; the bound of Zhao and Gordon for every γ of figure 4a, and what is reached."""
    models = trained("crime", setting)
    table = models.problem.load()
    train, _, _ = table.paper_split()
    rows = []
    for group, paper in PAPER.items():
        rate = float(labels_of(train)[train.a == group].mean())
        ours = {"P(y = 0 | a)": 1 - rate, "P(y = 1 | a)": rate}
        rows.append({"a": group, **ours, "paper: y = 0": paper[0], "paper: y = 1": paper[1]})
    rates = [row["P(y = 1 | a)"] for row in rows]
    summary = models.summary()
    costs = pd.DataFrame(
        {
            "gamma": summary["gamma"],
            "Δ": summary["delta"],
            "err0 + err1 ≥": [error_lower_bound(rates, float(delta)) for delta in summary["delta"].clip(0, 1)],
            "err0 + err1, reached": 2 * (1 - summary["balanced_accuracy"]),
        }
    )
    notes = [
        f"γ = {gamma:g}: Δ = {delta:.2f}, so err0 + err1 ≥ {least:.3f}; reached on test rows: {reached:.3f}"
        for gamma, delta, least, reached in costs.to_numpy()
    ]
    notes.append("err0 + err1 ≥ |P(y = 1 | a = 0) − P(y = 1 | a = 1)| − Δ (Zhao and Gordon, 2019).")
    return Result(pd.DataFrame(rows), models.data, notes, details={"costs": costs})
