"""Figure 1: two one-dimensional densities, before and after encoding."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairflows.bounds import statistical_distance
from fairflows.encoder.fair_flow import FairFlow
from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import FIRST_SEED, Setting
from fairflows.table.table import Table

MEANS = (0.0, 4.0)


def run(setting: Setting) -> Result:
    """Encode N(0, 1) and N(4, 1), both known, with γ = 0.9; the label is the upper half of each group."""
    import torch
    from torch.distributions import Independent, Normal

    rng = np.random.default_rng(FIRST_SEED)
    a = np.repeat([0, 1], 2000)
    x = rng.normal(np.array(MEANS)[a])
    y = (x > np.array(MEANS)[a]).astype(int)
    table = Table({"x": x, "a": a, "y": y}, sensitive="a", label="y", name="two Gaussians")
    known = [Independent(Normal(torch.tensor([m], dtype=torch.float64), torch.ones(1).double()), 1) for m in MEANS]
    raw, fair = FairFlow(density=known, n_epochs=60, device=setting.device).fit_many(
        table, strengths=[0.0, 0.9], seeds=[FIRST_SEED]
    )
    rows = []
    for name, encoder in (("γ = 0", raw), ("γ = 0.9", fair)):
        delta = statistical_distance(encoder.log_density_table(100_000))
        accuracy = (encoder.predict(table.X, sensitive_features=table.a) == table.y).mean()
        rows.append({"encoder": name, "Δ": delta, "best adversary": (1 + delta) / 2, "accuracy": accuracy})
    before = 2 * 0.9772498680518208 - 1  # 2Φ(2) − 1: means four apart
    rows.insert(0, {"encoder": "none (x itself)", "Δ": before, "best adversary": (1 + before) / 2})

    figure, ((left, right),) = new_figure(2)
    grid = np.linspace(-4, 8, 400)
    z = np.sort(fair.transform(table.X, sensitive_features=table.a).to_numpy().ravel())
    z_grid = np.linspace(z[10], z[-11], 400)
    sides = fair.inversions(pd.DataFrame({"z0": z_grid}))
    for group, colour in zip((0, 1), COLOURS, strict=False):
        p_x = np.exp(-((grid - MEANS[group]) ** 2) / 2) / np.sqrt(2 * np.pi)
        p_z = np.exp(sides[group].log_prob + sides[group].log_det)
        for ax, place, p, letter in ((left, grid, p_x, "x"), (right, z_grid, p_z, "z")):
            ax.plot(place, p, color=colour, label=f"$p_{group}({letter})$")
            ax.fill_between(place, p, alpha=0.2, color=colour)
    for ax, letter in ((left, "x"), (right, "z")):
        ax.set_xlabel(letter)
        ax.set_yticks([])
        ax.legend()
    return Result(pd.DataFrame(rows), "drawn: N(0, 1) and N(4, 1), 2,000 rows each, densities known", figure=figure)
