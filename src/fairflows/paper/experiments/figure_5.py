"""Figure 5: the certified bound (1 + Δ)/2 of every model against trained adversaries.

Twice: with the paper's adversary (a 2×50 network), and with our whole suite, whose lower bounds are rigorous; a model
whose bound an actual adversary beats with confidence is REFUTED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fairflows.bounds import statistical_distance_upper_bound
from fairflows.bounds.paper import hoeffding_radius
from fairflows.compute.devices import chosen_device
from fairflows.paper.experiments.adversaries import adversary_accuracies
from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.frontier_figures import all_trained, described
from fairflows.paper.experiments.models import Trained, audited
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = ("crime", "law", "health", "adult", "compas")
N_DRAWS = 10_000


def run(setting: Setting) -> Result:
    """Attack every model of figure 4."""
    models, notes = all_trained(("crime", "adult", "compas") if setting.quick else DATA, setting)
    if setting.quick:
        notes.append("quick: Crime, Adult and Compas, first seed, with the suite's quick adversaries.")
    table = pd.concat([attacked(model, setting) for model in models.values()], ignore_index=True)
    held = (table["2×50 adversary"] <= table["bound"] + hoeffding_radius(N_DRAWS, 0.05) / 2).mean()
    refuted = (table["status"] == "REFUTED").mean()
    notes += [
        f"The paper's adversary stays under the bound (within its Hoeffding bar) in {100 * held:.0f} % of the models; "
        "in the paper, in all.",
        f"The suite refutes {100 * refuted:.0f} % of the models: an adversary beats the bound with 95 % confidence.",
    ]
    return Result(table, described(models), notes, _figure(table), {})


def attacked(model: Trained, setting: Setting) -> pd.DataFrame:
    """Bound, the paper's adversary, and the suite's lower bound, of every model of a frontier."""
    frame = model.frontier.to_frame()
    if setting.quick:
        frame = frame[frame["seed"] == frame["seed"].min()]
    encoders = [model.frontier.encoders[i] for i in frame.index]
    reached = adversary_accuracies(
        encoders, model.train, model.test, epochs=model.problem.adversary_epochs, device=chosen_device(setting.device)
    )
    rows = []
    for (i, line), encoder, accuracy in zip(frame.iterrows(), encoders, reached, strict=True):
        upper = statistical_distance_upper_bound(encoder.log_density_table(N_DRAWS, random_state=1), 0.001)
        found = audited(model, int(i), setting.quick)
        black = max((attack for attack in found.attacks if attack.box == "black"), key=lambda attack: attack.expected)
        rows.append(
            {
                "data": model.problem.name,
                "gamma": line["gamma"],
                "seed": int(line["seed"]),
                "bound": (1 + upper) / 2,
                "2×50 adversary": accuracy,
                "black box ≥": (1 + black.lower) / 2,
                "suite ≥": (1 + found.attack_lower) / 2,
                "by": found.best,
                "status": "REFUTED" if found.attack_lower > upper else "not refuted",
            }
        )
    return pd.DataFrame(rows)


def _figure(table: pd.DataFrame) -> Figure:
    figure, axes = new_figure(2)
    titles = {"2×50 adversary": "the paper's adversary", "suite ≥": "our suite (lower bounds, 95 %)"}
    radius = hoeffding_radius(N_DRAWS, 0.05) / 2
    for ax, (column, title) in zip(axes[0], titles.items(), strict=True):
        for (name, part), colour in zip(table.groupby("data", sort=False), COLOURS, strict=False):
            ax.errorbar(part["bound"], part[column], xerr=radius, fmt="o", ms=4, color=colour, label=str(name))
        ax.plot([0.5, 1], [0.5, 1], "k--", lw=1)
        ax.set_xlabel("bound (1 + Δ)/2")
        ax.set_ylabel("balanced accuracy of the adversary")
        ax.set_title(title)
    axes[0, 0].legend(fontsize=7)
    return figure
