"""Figure 3: how well the group is recovered from the four blobs, over many seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fairflows.bounds import statistical_distance
from fairflows.compute.devices import chosen_device
from fairflows.encoder.fair_flow import FairFlow
from fairflows.paper.baselines.adversarial import AdversarialEncoder
from fairflows.paper.experiments.adversaries import adversary_accuracies
from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import FIRST_SEED, Setting, labels_of
from fairflows.table.synthetic import make_gaussians
from fairflows.table.table import Table

GAMMA = 0.5
N_EPOCHS = 60


def run(setting: Setting) -> Result:
    """Train both methods with every seed in one run each, and attack every model with a fresh 2×50 network."""
    seeds = setting.seed_list(full=100, quick=5)
    train, known = make_gaussians(2048, random_state=FIRST_SEED)
    test, _ = make_gaussians(2048, random_state=FIRST_SEED + 1)
    where = {"X": train.X, "y": train.y, "sensitive_features": train.a, "seeds": seeds}
    flow = FairFlow(
        bijection="spline",
        density=known,
        n_restarts=3,
        n_epochs=N_EPOCHS,
        ramp_epochs=N_EPOCHS,
        batch_size=128,
        weight_decay=0,
        device=setting.device,
    )
    methods: dict[str, list[Any]] = {
        "adversarial": AdversarialEncoder(device=setting.device).fit_many(strengths=[GAMMA], **where),
        "FNF": flow.fit_many(strengths=[GAMMA], **where),
    }
    rows = []
    for method, encoders in methods.items():
        recovered = adversary_accuracies(
            encoders, train, test, epochs=20 if setting.quick else 100, device=chosen_device(setting.device)
        )
        for seed, encoder, rate in zip(seeds, encoders, recovered, strict=True):
            rows.append({"method": method, "seed": seed, "recovery": rate, "accuracy": _accuracy(encoder, test)})
            if method == "FNF":
                rows[-1]["bound"] = (1 + statistical_distance(encoder.log_density_table(20_000))) / 2
    models = pd.DataFrame(rows)
    by_method = models.groupby("method")
    table = (
        pd.DataFrame(
            {
                "recovery, lowest": by_method["recovery"].min(),
                "recovery, median": by_method["recovery"].median(),
                "recovery, highest": by_method["recovery"].max(),
                "seeds below .55": by_method["recovery"].apply(lambda r: (r < 0.55).mean()),
                "accuracy, mean": by_method["accuracy"].mean(),
                "paper: recovery": {"adversarial": "spread from .5 to 1", "FNF": "about .5 every time"},
            }
        )
        .rename_axis("method")
        .reset_index()
    )

    figure, ((ax,),) = new_figure()
    for (method, part), colour in zip(by_method, COLOURS[::-1][-2:], strict=False):
        ax.hist(part["recovery"], bins=np.linspace(0.45, 1, 23), alpha=0.6, color=colour, label=str(method))
    ax.set_xlabel("recovery rate of the sensitive attribute")
    ax.set_ylabel("seeds")
    ax.legend()
    return Result(
        table,
        f"drawn: the four blobs, 2,048 rows to train and to test; {len(seeds)} seeds",
        [
            "FNF knows the densities. Its encoders are splines, the best of three starts: hiding a and keeping y takes "
            "a turn by 180°, and RealNVP with four blocks stays in a local optimum in most seeds (Δ .4, accuracy .85).",
            "γ = 0.5 for both methods.",
        ],
        figure,
        {"models": models},
    )


def _accuracy(encoder: Any, test: Table) -> float:
    return float((encoder.predict(test.X, sensitive_features=test.a) == labels_of(test)).mean())
