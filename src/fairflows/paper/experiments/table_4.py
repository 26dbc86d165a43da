"""Table 4: accuracy of a network before and after dropping features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from fairflows.compute.devices import chosen_device
from fairflows.exceptions import DataError
from fairflows.paper import datasets
from fairflows.paper.experiments.adversaries import balanced_accuracy, predicted, trained_networks
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import Setting, labels_of
from fairflows.release.numeric_view import NumericView
from fairflows.table.table import Table

LOADERS: dict[str, Callable[..., Table]] = {
    "Adult": datasets.load_adult,
    "Compas": datasets.load_compas,
    "Crime": datasets.load_crime,
    "Health": datasets.load_health,
    "Law School": datasets.load_law_school,
}
PAPER = {
    "Adult": (85.0, 84.4),
    "Compas": (65.3, 65.0),
    "Crime": (85.5, 85.2),
    "Health": (80.1, 76.1),
    "Law School": (88.2, 86.4),
}
NETWORK: dict[str, Any] = {"hidden": (100, 100), "learning_rate": 0.001, "weight_decay": 1e-4, "balanced": False}


def run(setting: Setting) -> Result:
    """Train the same network on all features and on those the paper keeps."""
    seeds = setting.seed_list(full=5, quick=2)
    rows, notes = [], []
    for name, load in LOADERS.items():
        try:
            found = [accuracies(load(features), seeds, setting) for features in ("all", "paper")]
        except DataError as error:
            notes.append(f"{name} was skipped: {error}")
            continue
        row: dict[str, object] = {"data": name}
        for j, part in enumerate(("all features", "the paper's features")):
            mean, spread = 100 * np.mean(found[j]), 100 * np.std(found[j])
            row |= {part: mean, f"± {part}": spread, f"paper: {part}": PAPER[name][j]}
        rows.append(row)
    notes.append("Balanced over the two groups; ± is the standard deviation over seeds.")
    notes.append("Law School is the subset of 13 schools where the complete file is not at hand.")
    if setting.quick:
        notes.append("quick: at most 20,000 training rows, and few epochs.")
    return Result(pd.DataFrame(rows), ", ".join(str(row["data"]) for row in rows), notes)


def accuracies(table: Table, seeds: list[int], setting: Setting) -> np.ndarray:
    """Balanced test accuracy of a network for each seed."""
    train, test = (np.flatnonzero(table.parts != "test"), np.flatnonzero(table.parts == "test"))
    if setting.quick and len(train) > 20_000:
        train = np.random.default_rng(0).choice(train, 20_000, replace=False)
    learn, judge = table.take(train), table.take(test)
    view = NumericView.fit(learn.X, None, 0)
    device = chosen_device(setting.device)
    z, z_test = (torch.as_tensor(view.features(p.X), dtype=torch.float32, device=device)[None] for p in (learn, judge))
    # About 4,000 steps for any size of table: small ones need many passes, large ones few.
    epochs = int(np.clip((500 if setting.quick else 4000) * 256 / len(learn), 5, 60))
    y = torch.as_tensor(labels_of(learn), device=device)
    network = trained_networks(z, y, seeds=seeds, epochs=epochs, **NETWORK)
    return balanced_accuracy(predicted(network, z_test), labels_of(judge), judge.a.to_numpy())
