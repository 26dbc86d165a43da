"""Spending a target: the best rates, by brute force over a grid."""

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.bounds import blocks_upper_bound
from fairflows.bounds.spending import best_rates
from fairflows.encoder import fair_tree


@pytest.mark.parametrize("spend", [0.0, 0.1, 0.3])
def test_rates_differ_by_what_is_spent(spend):
    """How a tree keeps to them is tested in tests/release/test_two_cuts.py."""
    rng = np.random.default_rng(0)
    eta = [rng.beta(2, 4, 500), rng.beta(4, 2, 300)]

    def accuracy(rates):
        chosen = [np.arange(len(e)) < round(r * len(e)) for e, r in zip(eta, rates, strict=True)]
        return np.concatenate(
            [np.where(c, -np.sort(-e), 1 + np.sort(-e)) for c, e in zip(chosen, eta, strict=True)]
        ).mean()

    grid = np.linspace(0, 1, 101)
    rates = best_rates(eta, spend)
    assert rates.max() - rates.min() <= spend + 1e-9
    tried = [accuracy((a, b)) for a in grid for b in grid if abs(a - b) <= spend + 1e-9]
    assert accuracy(rates) >= max(tried) - 0.003


def test_small_groups_lie_nearer_to_the_middle_and_large_ones_decide():
    """The best label for one group is at the top, for another at the bottom, and for two at either end."""
    eta = [np.full(1000, 0.9), np.full(1000, 0.1), np.full(50, 0.9), np.full(50, 0.1)]
    chance = np.array([0.01, 0.01, 0.06, 0.9])
    plain, careful = best_rates(eta, 0.2), best_rates(eta, 0.2, chance)
    low, high = careful[1], careful[0]
    assert high - low == pytest.approx(0.2), "the groups of many persons keep the whole range"
    assert plain[2] == plain[0], "without chance all lie at the ends"
    assert careful[2] == pytest.approx(high - 0.05)
    assert careful[3] == pytest.approx((low + high) / 2), "no group goes beyond the middle"


def test_a_tree_bounds_less_where_small_groups_spend_less(monkeypatch):
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b", "c"], [4000, 4000, 160])
    x = rng.normal(size=len(group)) + np.select([group == "a", group == "b"], [1.0, -1.0], -1.0)
    rows = pd.DataFrame({"x": x, "y": (x + rng.normal(size=len(x)) > 0).astype(int)})
    table = ff.Table(rows, sensitive=pd.Series(group, name="group"), label="y", identifier=np.arange(len(rows)))
    careful = ff.FairTree(2, spend=0.2).fit(table)
    monkeypatch.setattr(fair_tree, "best_rates", lambda eta, spend, chance: best_rates(eta, spend))
    plain = ff.FairTree(2, spend=0.2).fit(table)
    bounds = [blocks_upper_bound(tree.blocks_, 0.01) for tree in (careful, plain)]
    assert bounds[0] < bounds[1] - 0.03, bounds
