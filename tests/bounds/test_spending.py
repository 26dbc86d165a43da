"""Spending a target: the best rates, by brute force over a grid."""

import numpy as np
import pytest

from fairflows.bounds.spending import best_rates


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
