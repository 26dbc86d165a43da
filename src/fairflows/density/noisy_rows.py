r"""The law of noisy rows, from the values behind the noise.

A codec hides a column's grid and heaps under noise: u within the step of a value, and σ·N(0, 1) in model space. The law
of the noise is no secret, so the law of a noisy column follows from the values: each stands for an interval of model
space, blurred by σ,

.. math:: q_j(x) = \sum_v P(v) \int_{low_v}^{high_v} \frac{N(x; t, \sigma_j^2)}{high_v - low_v} \, dt.

A density p̂ that is too smooth misses what the noise does not cover; log q_j − log p̂_j shows it, column by column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float
from scipy.ndimage import gaussian_filter1d
from scipy.special import logsumexp

from fairflows.arrays import NDArray

FloatArray = NDArray[np.float64]

N_DRAWS = 50_000
"""From each density, whose columns are compared with the rows'."""
_BINS = 2**12  # of each column's law; about a thousandth of the training range wide
_SMOOTHEST = 12  # bins: a density's columns are not resolved further
_MOST_ROWS = 5_000  # whose noise kernels make up the law of whole rows
_AT_A_TIME = 2_000  # rows whose distances from all of these are computed together


@dataclass(frozen=True)
class ColumnLaw:
    """The law of one column of noisy rows in model space, as a histogram."""

    edges: Float[FloatArray, " n_edges"]
    log_density: Float[FloatArray, " n_bins"]

    @classmethod
    def of(cls, edges: Float[FloatArray, " n_edges"], cumulative: Float[FloatArray, " n_edges"], blur: float) -> Self:
        """Blur a law, given by its distribution function at the edges of bins."""
        width, mass = edges[1] - edges[0], np.diff(cumulative)
        if blur > 0:
            mass = gaussian_filter1d(mass, blur / width, mode="constant", truncate=6)
        possible = mass + 1e-3 * mass.mean() / len(mass)  # no value is impossible
        return cls(edges, np.log(possible / width))

    def log_prob(self, x: Float[FloatArray, " n"]) -> Float[FloatArray, " n"]:
        """Return the log-density of values; outside of the bins that of the outermost one."""
        place = np.searchsorted(self.edges, x, side="right") - 1
        return self.log_density[np.clip(place, 0, len(self.log_density) - 1)]


class NoisyRows:
    """The law of one group's noisy rows, beside the density that was fitted to it.

    Parameters
    ----------
    low, high : ndarray of shape (n, D)
        The interval of model space that each value of real rows stands for.
    sigma : ndarray of shape (D,)
        The deviation of the normal noise.
    draws : ndarray of shape (N, D)
        Draws from the density.
    seed : int
        Seed of the choice among many rows.
    """

    def __init__(
        self,
        low: Float[FloatArray, "n D"],
        high: Float[FloatArray, "n D"],
        sigma: Float[FloatArray, " D"],
        draws: Float[FloatArray, "N D"],
        seed: int = 0,
    ) -> None:
        step = (high - low).mean(axis=0)
        self._columns = {}
        for j in np.flatnonzero((sigma > 0) | (step > 0)):
            first, last = low[:, j].min(), high[:, j].max()
            margin = 6 * sigma[j] + 0.03 * (last - first)  # wider than the blur, which would lose mass at the ends
            edges = np.linspace(first - margin, last + margin, _BINS + 1)
            real = ColumnLaw.of(edges, _distribution(low[:, j], high[:, j], edges), sigma[j])
            drawn = np.searchsorted(np.sort(draws[:, j]), edges) / len(draws)
            blur = max(0.3 * sigma[j], _SMOOTHEST * (edges[1] - edges[0]))
            self._columns[int(j)] = real, ColumnLaw.of(edges, drawn, blur)
        some = np.random.default_rng(seed).permutation(len(low))[:_MOST_ROWS]
        self._scale = np.sqrt(sigma**2 + step**2 / 12 + 1e-8)
        self._centres = (low[some] + high[some]) / 2 / self._scale

    def column_ratios(self, x: Float[FloatArray, "n D"]) -> Float[FloatArray, "n columns"]:
        """Return log q_j − log p̂_j of each noisy column."""
        found = [real.log_prob(x[:, j]) - drawn.log_prob(x[:, j]) for j, (real, drawn) in self._columns.items()]
        return np.column_stack(found) if found else np.zeros((len(x), 1))

    def log_prob_of_rows(self, x: Float[FloatArray, "n D"]) -> Float[FloatArray, " n"]:
        """Return the log-density of whole rows: each real row under the noise, which is taken for normal."""
        scaled, found = x / self._scale, []
        of_centres = 0.5 * (self._centres**2).sum(axis=1)
        for part in np.array_split(scaled, max(1, len(x) // _AT_A_TIME)):
            near = part @ self._centres.T - of_centres - 0.5 * (part**2).sum(axis=1, keepdims=True)
            found.append(logsumexp(near, axis=1))
        constant = np.log(len(self._centres)) + np.log(self._scale).sum() + 0.5 * x.shape[1] * np.log(2 * np.pi)
        return np.concatenate(found) - constant


def _distribution(
    low: Float[FloatArray, " n"], high: Float[FloatArray, " n"], at: Float[FloatArray, " m"]
) -> Float[FloatArray, " m"]:
    """Return the distribution function of values that are spread evenly over intervals that do not overlap."""
    starts, first, counts = np.unique(low, return_index=True, return_counts=True)
    after = np.cumsum(counts) / len(low)
    knots = np.column_stack([starts, np.maximum(high[first], starts + 1e-12)]).ravel()
    return np.interp(at, knots, np.column_stack([after - counts / len(low), after]).ravel(), left=0, right=1)
