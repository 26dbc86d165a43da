"""The adversary who takes the noise off: z is decoded by every group's inverse, and judged by the values behind it.

Only the true group's inverse lands where this group's values lie, blurred by the noise, whose law is no secret. So an
encoding reveals the group wherever the noise does not cover what the densities get wrong: heaps, coarse grids, edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairflows.density.noisy_rows import N_DRAWS, FloatArray, NoisyRows
from fairflows.encoder.base import Inversion
from fairflows.encoder.fitted_flow import FlowLaw
from fairflows.table.persons import Persons


@dataclass(frozen=True)
class Deconvolved:
    """What an adversary computes from rows z after taking the noise off."""

    scores: dict[str, FloatArray]  # (n, K) each, of adversaries that learn nothing
    features: FloatArray  # (n, F): for a learner


def noisy_rows_of(law: FlowLaw, group: int, rows: pd.DataFrame) -> NoisyRows:
    """Return the law of a group's noisy rows, from some real rows of it."""
    codec = law.codec
    low, high = codec.intervals(rows, Persons.unnamed(len(rows)))
    return NoisyRows(low, high, codec.smoothing_, law.draw(group, N_DRAWS, random_state=group), seed=group)


def deconvolve(laws: Sequence[NoisyRows], inversions: Sequence[Inversion], z: FloatArray) -> Deconvolved:
    """Judge every group's inverse of rows z by the law of this group's noisy rows.

    Columns: the density p̂_a, corrected column by column. Rows: the real rows under the noise, whatever the density.
    """
    by_columns, by_rows, parts = [], [], [z]
    for law, inversion in zip(laws, inversions, strict=True):
        ratios, of_rows = law.column_ratios(inversion.x), law.log_prob_of_rows(inversion.x)
        by_columns.append(inversion.log_prob + inversion.log_det + ratios.sum(axis=1))
        by_rows.append(of_rows + inversion.log_det)
        parts += [ratios, np.column_stack([inversion.log_prob, of_rows, inversion.log_det])]
    scores = {"deconvolved columns": np.column_stack(by_columns), "deconvolved rows": np.column_stack(by_rows)}
    differences = [score[:, 1:] - score[:, :1] for score in scores.values()]
    return Deconvolved(scores, np.concatenate([*parts, *differences], axis=1))
