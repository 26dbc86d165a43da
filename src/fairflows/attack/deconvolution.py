r"""The adversary who knows the noise: z decoded by every group's inverse, and judged by the values behind the noise.

An encoder may hide a column's grid and heaps under noise: u within the step of a value, and σ·N(0, 1) in model space.
The law of the noise is no secret, so the law of a noisy column follows from that of the column: each value v of a
group's reference rows stands for an interval of model space, blurred by σ,

.. math:: q_{bj}(x) = \sum_v P_b(v) \int_{low_v}^{high_v} \frac{N(x; t, \sigma_j^2)}{high_v - low_v} \, dt.

Only the true group's inverse lands where q_b is large, unless the noise covers all that the density p̂_b gets wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.ndimage import gaussian_filter1d
from scipy.special import logsumexp

from fairflows.codec import OutsideValues
from fairflows.encoder.base import Inversion
from fairflows.encoder.fair_flow import FlowLaw
from fairflows.table.persons import Persons

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_BINS = 2**12  # of each column's law; about a thousandth of the training range wide
_DRAWS = 100_000  # from each density, whose columns are compared with the rows'
_SMOOTHEST = 4  # bins: a density's columns are not resolved further
_MOST_ROWS = 5_000  # of each group, whose noise kernels make up its law of rows
_AT_A_TIME = 2_000  # rows whose distances from all of these are computed together


@dataclass(frozen=True)
class ColumnLaw:
    """The law of one column of noisy rows in model space, as a histogram."""

    edges: FloatArray
    log_density: FloatArray

    @classmethod
    def of(cls, edges: FloatArray, cumulative: FloatArray, bandwidth: float) -> ColumnLaw:
        """Blur a law, given by its distribution function at the edges of bins."""
        width = edges[1] - edges[0]
        mass = gaussian_filter1d(np.diff(cumulative), bandwidth / width, mode="constant", truncate=6)
        least = 1e-3 / len(mass)  # so that no value is impossible
        return cls(edges, np.log((mass + least * mass.mean()) / width))

    def log_prob(self, x: FloatArray) -> FloatArray:
        """Return the log-density of values; outside of the bins that of the outermost one."""
        place = np.searchsorted(self.edges, x, side="right") - 1
        return self.log_density[np.clip(place, 0, len(self.log_density) - 1)]


class NoiseModel:
    """The knowledge of one group's noisy rows that follows from its reference rows and the law of the noise."""

    def __init__(self, law: FlowLaw, group: int, rows: pd.DataFrame, seed: int) -> None:
        codec = law.codec
        low, high = codec.intervals(rows, Persons.unnamed(len(rows)), OutsideValues(len(rows)))
        sigma, step = codec.smoothing_, (high - low).mean(axis=0)
        draws = law.draw(group, _DRAWS, seed)
        self.columns = {}  # the laws of column j among rows, and among draws from the density
        for j in np.flatnonzero((sigma > 0) | (step > 0)):
            margin = 6 * sigma[j] + 1e-6
            edges = np.linspace(low[:, j].min() - margin, high[:, j].max() + margin, _BINS + 1)
            bin_width = edges[1] - edges[0]
            real = ColumnLaw.of(edges, _distribution(low[:, j], high[:, j], edges), sigma[j])
            drawn = np.searchsorted(np.sort(draws[:, j]), edges) / len(draws)
            blur = max(0.3 * sigma[j], _SMOOTHEST * bin_width)
            self.columns[int(j)] = real, ColumnLaw.of(edges, drawn, blur)
        some = np.random.default_rng(seed).permutation(len(rows))[:_MOST_ROWS]
        self._scale = np.sqrt(sigma**2 + step**2 / 12 + 1e-8)
        self._centres = (low[some] + high[some]) / 2 / self._scale

    def column_ratios(self, x: FloatArray) -> FloatArray:
        """Return log q_bj − log p̂_bj of each noisy column: the fine structure that the density lacks, (n, columns)."""
        found = [real.log_prob(x[:, j]) - drawn.log_prob(x[:, j]) for j, (real, drawn) in self.columns.items()]
        return np.column_stack(found) if found else np.empty((len(x), 0))

    def log_prob_of_rows(self, x: FloatArray) -> FloatArray:
        """Return the log-density of rows, up to a constant: each reference row under the noise as a normal law."""
        scaled, found = x / self._scale, []
        of_centres = 0.5 * (self._centres**2).sum(axis=1)
        for part in np.array_split(scaled, max(1, len(x) // _AT_A_TIME)):
            near = part @ self._centres.T - of_centres - 0.5 * (part**2).sum(axis=1, keepdims=True)
            found.append(logsumexp(near, axis=1))
        return np.concatenate(found) - np.log(len(self._centres)) - np.log(self._scale).sum()


def _distribution(low: FloatArray, high: FloatArray, at: FloatArray) -> FloatArray:
    """Return the distribution function of values that are spread evenly over intervals that do not overlap."""
    starts, first, counts = np.unique(low, return_index=True, return_counts=True)
    after = np.cumsum(counts) / len(low)
    knots = np.column_stack([starts, np.maximum(high[first], starts + 1e-12)]).ravel()
    return np.interp(at, knots, np.column_stack([after - counts / len(low), after]).ravel(), left=0, right=1)


@dataclass(frozen=True)
class Deconvolved:
    """The result of taking the noise off rows z."""

    scores: dict[str, FloatArray]  # (n, K) each, of adversaries that learn nothing
    features: FloatArray  # (n, F): for a learner


def deconvolve(models: list[NoiseModel], inversions: list[Inversion], z: FloatArray) -> Deconvolved:
    """Judge every group's inverse of z by the values behind the noise."""
    by_columns, by_rows, parts = [], [], [z]
    for model, inversion in zip(models, inversions, strict=True):
        ratios = model.column_ratios(inversion.x)
        likelihood = inversion.log_prob + inversion.log_det
        of_rows = model.log_prob_of_rows(inversion.x)
        by_columns.append(likelihood + ratios.sum(axis=1))
        by_rows.append(of_rows + inversion.log_det)
        parts += [ratios, np.column_stack([likelihood, of_rows, of_rows - inversion.log_prob, inversion.log_det])]
    scores = {"deconvolved columns": np.column_stack(by_columns), "deconvolved rows": np.column_stack(by_rows)}
    differences = [s[:, 1:] - s[:, :1] for s in scores.values()]
    return Deconvolved(scores, np.concatenate([*parts, *differences], axis=1))
