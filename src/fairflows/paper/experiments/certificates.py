"""Beyond the paper: bounds for the true distribution from cells, ours and FARE's, as rows and cells grow."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fairflows.bounds import cell_upper_bound, fare_upper_bound, total_variation, weissman_upper_bound
from fairflows.paper.baselines.fare import FARE
from fairflows.paper.experiments.outcome import COLOURS, FIRST_SEED, Outcome, Setting, new_figure
from fairflows.paper.experiments.problems import cells_by_group
from fairflows.paper.experiments.trained_heads import plain_accuracy
from fairflows.table.examples import load_adult

DISTANCE, DELTA = 0.1, 0.05
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
CELLS = (2, 10, 50, 200)
BOUNDS = ("ours", "Weissman", "FARE")


def run_true_bounds(setting: Setting) -> Outcome:
    """Simulate cells with Δ = 0.1 between the groups, and certify FARE's trees on Adult both ways."""
    trials = 50 if setting.quick else 500
    rng = np.random.default_rng(FIRST_SEED)
    table = pd.DataFrame([simulated(n, k, trials, rng) for n in ROWS for k in CELLS])
    trees = on_adult()
    notes = [
        f"Held-out rows of two equal groups, true Δ = {DISTANCE}, δ = {DELTA}: means over {trials} draws. FARE parts "
        "the rows in three equal sets, as it must.",
        "missed: the share of draws in which a bound was below the true Δ; at most δ is allowed.",
        "FARE's trees on Adult: its own bound uses training, validation and test rows, ours test rows alone.",
    ]
    data = f"drawn; and Adult ({len(load_adult()):,} rows)"
    return Outcome(table, data, notes, _bounds_of_cells_figure(table), {"adult": trees})


def simulated(n: int, k: int, trials: int, rng: np.random.Generator) -> dict[str, float]:
    """Return mean bounds from n rows in k cells, and how often each missed."""
    tilt = np.where(np.arange(k) < k // 2, 1, -1) * DISTANCE
    laws = np.stack([(1 + tilt) / k, (1 - tilt) / k])
    laws /= laws.sum(axis=1, keepdims=True)
    truth = 0.5 * np.abs(laws[0] - laws[1]).sum()
    counts = np.stack([rng.multinomial(n // 2, law, size=trials) for law in laws], axis=1)  # (trials, 2, k)
    thirds = np.stack([np.stack([rng.multinomial(n // 6, law, size=trials) for law in laws], axis=1) for _ in range(3)])
    bounds = {
        "ours": cell_upper_bound(counts, DELTA),
        "Weissman": weissman_upper_bound(counts, DELTA),
        "FARE": fare_upper_bound(thirds[0].sum(-1), thirds[1], thirds[2].sum(-2), DELTA),
    }
    means = {name: float(np.mean(values)) for name, values in bounds.items()}
    missed = {f"{name} missed": float(np.mean(np.asarray(values) < truth)) for name, values in bounds.items()}
    return {"rows": n, "cells": k, "true Δ": truth, **means, **missed}


def on_adult() -> pd.DataFrame:
    """Grow FARE's trees of several γ and sizes: accuracy, the distance observed, and both bounds."""
    train, validation, test = load_adult().paper_split()
    rows = []
    for gamma in (0.0, 0.5, 0.8, 0.9):
        for max_leaves in (4, 16, 64):
            tree = FARE(gamma, max_leaves=max_leaves).fit(train)
            counts = cells_by_group(tree, test)
            rows.append(
                {
                    "gamma": gamma,
                    "cells": tree.n_cells_,
                    "accuracy": plain_accuracy(tree, test),
                    "Δ observed": float(total_variation(counts / counts.sum(axis=1, keepdims=True)).max()),
                    "ours": float(cell_upper_bound(counts, DELTA)),
                    "FARE": tree.own_upper_bound(train, validation, test, DELTA),
                }
            )
    return pd.DataFrame(rows)


def _bounds_of_cells_figure(table: pd.DataFrame) -> Figure:
    figure, axes = new_figure(2)
    parts = (("rows", table[table["cells"] == 50]), ("cells", table[table["rows"] == 10_000]))
    for ax, (column, part) in zip(axes[0], parts, strict=True):
        for name, colour in zip(BOUNDS, COLOURS, strict=False):
            ax.plot(part[column], part[name], "o-", color=colour, label=name)
        ax.axhline(DISTANCE, color="k", ls="--", lw=1)
        ax.set(xscale="log", xlabel=column, ylabel="certified Δ ≤")
        ax.set_title("50 cells" if column == "rows" else "10,000 rows")
    axes[0, 0].legend()
    return figure
