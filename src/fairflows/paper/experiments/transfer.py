"""Transfer: an encoder trained for the Charlson index, reused to predict primary condition groups, on Health."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch

from fairflows.bounds import statistical_distance
from fairflows.paper.datasets import HealthLabel, load_health
from fairflows.paper.experiments import problems
from fairflows.paper.experiments.adversaries import balanced_accuracy, latents, predicted, trained_networks
from fairflows.paper.experiments.problems import changed, labels_of
from fairflows.paper.experiments.result import Result, Setting

GAMMAS = (0.0, 0.95)
PAPER_DELTA = {0.0: 0.99, 0.95: 0.31}
PAPER_ACCURACY: dict[HealthLabel, tuple[float, float]] = {"MSC2a3": (73.8, 73.8), "METAB3": (75.4, 73.1)}


def run(setting: Setting) -> Result:
    """Train encoders once; train heads on z for the other labels."""
    problem = replace(problems.health().at(setting), load=partial(load_health, "transfer"))
    encoder = problem.encoder if setting.quick else changed(problem.encoder, n_epochs=60, ramp_epochs=5)
    train, test = problem.tables()
    seeds = setting.seed_list(full=5, quick=1)
    fitted = encoder.fit_many(train, strengths=GAMMAS, seeds=seeds)
    delta = np.array([statistical_distance(model.log_density_table(20_000)) for model in fitted])
    z, z_test = (latents(fitted, part, setting.device) for part in (train, test))
    gamma = np.repeat(GAMMAS, len(seeds))
    right = [(model.predict(test) == labels_of(test)).mean() for model in fitted]
    own = np.reshape(right, (len(GAMMAS), -1)).mean(axis=1)
    rows = []
    for label, paper in PAPER_ACCURACY.items():
        same_rows = replace(problem, load=partial(load_health, "transfer", label)).tables()
        y, y_test = (labels_of(part) for part in same_rows)
        network = trained_networks(
            z,
            torch.as_tensor(y, device=z.device),
            hidden=(100, 50, 20),
            epochs=10 if setting.quick else 20,
            seeds=list(range(len(fitted))),
            learning_rate=0.001,
            balanced=False,
        )
        guess = predicted(network, z_test)
        accuracy = (guess == y_test).mean(axis=1)
        balanced = balanced_accuracy(guess, y_test, test.a.to_numpy())
        for j, g in enumerate(GAMMAS):
            mine = gamma == g
            rows.append(
                {
                    "label": label,
                    "gamma": g,
                    "Δ": delta[mine].mean(),
                    "paper: Δ": PAPER_DELTA[g],
                    "accuracy": 100 * accuracy[mine].mean(),
                    "accuracy, sd over seeds": 100 * accuracy[mine].std(ddof=1) if len(seeds) > 1 else np.nan,
                    "paper: accuracy": paper[j],
                    "balanced accuracy": 100 * balanced[mine].mean(),
                }
            )
    notes = [
        "Δ is of the encoder and does not depend on the label: the same number in both lines by construction.",
        "Charlson index, which the encoder was trained for: accuracy "
        + ", ".join(f"{accuracy:.3f} at γ = {g:g}" for g, accuracy in zip(GAMMAS, own, strict=True)),
    ]
    return Result(pd.DataFrame(rows), problem.describe(train, test), notes)
