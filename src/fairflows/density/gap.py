"""The distance of a fitted density from the truth, as a classifier finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from sklearn.ensemble import HistGradientBoostingClassifier

from fairflows.density.base import Density
from fairflows.density.noisy_rows import N_DRAWS, FloatArray, NoisyRows
from fairflows.threads import one_thread

_MOST_LEARNT = 20_000  # rows that a density is told from
_QUANTILE = 1.645  # of the normal law: a gap is larger than the lower bound with 95 % confidence


@dataclass(frozen=True)
class Gap:
    """The distance of a density from the truth that a classifier found."""

    distance: float  # its advantage on held-out rows, an estimate of a lower bound on TV(p̂_a, p_a)
    lower: float  # the distance is larger than this with 95 % confidence

    @classmethod
    def measure(
        cls,
        density: Density,
        low: Float[FloatArray, "n D"],
        high: Float[FloatArray, "n D"],
        sigma: Float[FloatArray, " D"],
        x: Float[FloatArray, "n D"],
        held: Float[FloatArray, "_ D"],
    ) -> Self:
        """Tell rows x, whose values stand for intervals, from draws; judge it on held-out rows.

        Half of the rows are the values behind the noise, from the others a classifier learns.
        """
        half = len(x) // 2
        n_draws = min(_MOST_LEARNT, half), min(_MOST_LEARNT, len(held))
        with torch.no_grad():
            draws = density.sample(max(N_DRAWS, sum(n_draws)), torch.Generator().manual_seed(1)).double().numpy()
        law = NoisyRows(low[:half], high[:half], sigma, draws)

        def told(rows: Float[FloatArray, "n D"]) -> Float[FloatArray, "n features"]:
            with torch.no_grad():
                log_p = density.log_prob(torch.as_tensor(rows, dtype=torch.float32)).numpy()
            ratios = law.column_ratios(rows)
            return np.column_stack([rows, ratios, ratios.sum(axis=1), log_p])

        real, drawn = told(x[half:][: n_draws[0]]), told(draws[: n_draws[0]])
        with one_thread():
            trees = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0)
            trees.fit(np.concatenate([real, drawn]), np.repeat([1, 0], [len(real), len(drawn)]))
            says_real = [
                trees.predict(told(part)).mean() for part in (held[: n_draws[1]], draws[n_draws[0] : sum(n_draws)])
            ]
        distance = float(says_real[0] - says_real[1])
        variance = sum(p * (1 - p) for p in says_real) / n_draws[1]
        return cls(max(0.0, distance), max(0.0, distance - _QUANTILE * variance**0.5))
