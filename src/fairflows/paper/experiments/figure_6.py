"""Figure 6: demographic parity, equalized odds and equal opportunity against accuracy."""

from __future__ import annotations

import pandas as pd

from fairflows.paper.experiments.frontier_figures import all_trained, described, frontier_figure, summaries
from fairflows.paper.experiments.models import fit_crime
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import CONTINUOUS_GAMMAS, Setting

MEASURES = {
    "parity": "demographic parity distance",
    "odds": "equalized odds distance",
    "opportunity": "equal opportunity distance",
}


def run(setting: Setting) -> Result:
    """The models of figure 4a by three criteria, and Crime trained for equalized odds and for equal opportunity."""
    models, notes = all_trained(("crime", "law") if setting.quick else ("crime", "law", "health"), setting)
    summary = summaries(models)
    summary["trained for"] = "demographic parity"
    seeds = setting.seed_list(full=5, quick=1)
    others = []
    for criterion in ("equalized_odds", "equal_opportunity"):
        found = fit_crime(setting, seeds, CONTINUOUS_GAMMAS, criterion=criterion).frontier.summary().reset_index()
        others.append(found.assign(data="Crime", **{"trained for": criterion.replace("_", " ")}))
    figure, _ = frontier_figure(summary, MEASURES)
    table = pd.concat([summary, *others], ignore_index=True)
    shown = ["data", "trained for", "gamma", "accuracy", "balanced_accuracy", *MEASURES, "delta"]
    notes.append("The paper shows curves only: all three distances fall as γ grows.")
    return Result(table[shown], described(models), notes, figure)
