"""What an adversary who holds the encoders can compute from a released z.

"Any adversary" includes one who runs every group's inverse: only the true group's gives back a real row. So besides z
there are, for every group b, the row f_b⁻¹(z) in the table's own units, how far it lies from the columns' grids and
from training rows, whether it is out of range, breaks a rule of the table or is a cell nobody saw, and log p̂_b of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.spatial import cKDTree

from fairflows.encoder.base import Encoder, Inversion
from fairflows.encoder.cell_model import KnownCells, cells_of_encoded
from fairflows.encoder.fair_matching import inverse_map
from fairflows.table.columns import is_number, numbers
from fairflows.table.grid import Grid, find_grid
from fairflows.table.persons import content_hashes

FloatArray = npt.NDArray[np.float64]
Constraint = Callable[[pd.DataFrame], Any]

_OFF_GRID = 1e-4  # of a step: rounding in a flow stays far below
_MOST_NEIGHBOURS_OF = 5_000  # reference rows that distances are measured to
_MOST_COLUMNS = 30  # in more dimensions all rows are far from each other, and the search is slow
_MOST_VALUES = 500  # of all groups' inverses of a row; of more, learners see what is computed from them
_UNKNOWN = -50.0  # log-probability where there is none


@dataclass(frozen=True)
class WhiteBox:
    """The knowledge that the encoders give about rows z."""

    features: FloatArray  # (n, F): everything that can be computed, for a learner to use
    # (n, K) each, of adversaries that learn nothing: log p̂_Zb(z), the model's own likelihood ratio; and for flows minus
    # the share of columns in which f_b⁻¹(z) is off the column's grid.
    scores: dict[str, FloatArray]


class Reference:
    """Real rows that the adversary holds: their grids, ranges, values and combinations of values.

    Parameters
    ----------
    rows : DataFrame
        Rows of any group, none of which is attacked or learnt from.
    constraints : sequence of callable
        Functions of a frame that are true of every real row.
    """

    def __init__(self, rows: pd.DataFrame, constraints: Sequence[Constraint] = ()) -> None:
        self.rows = rows
        self.constraints = constraints
        self.seen = content_hashes(rows, b"reference")
        self.grids: dict[str, Grid] = {}
        self.ranges: dict[str, tuple[float, float]] = {}
        self.scale: dict[str, float] = {}
        for name in rows:
            if not is_number(rows[name].dtype) or not rows[name].notna().any():
                continue
            values = numbers(rows[name].dropna())
            grid = find_grid(values)
            if grid is not None:
                self.grids[str(name)] = grid
            self.ranges[str(name)] = float(values.min()), float(values.max())
            self.scale[str(name)] = float(np.std(values)) or 1.0

    def off_grid(self, values: FloatArray, names: Sequence[str]) -> FloatArray:
        """Return the distance of values from their columns' grids, in steps, (n, columns that have one)."""
        distances = [
            _distance_to_grid(values[:, j], self.grids[name]) for j, name in enumerate(names) if name in self.grids
        ]
        return np.column_stack(distances) if distances else np.empty((len(values), 0))

    def outside(self, values: FloatArray, names: Sequence[str]) -> FloatArray:
        """Return how far values are outside the range of real ones, in standard deviations, (n, number columns)."""
        found = []
        for j, name in enumerate(names):
            if name in self.ranges:
                low, high = self.ranges[name]
                found.append(np.maximum(np.maximum(low - values[:, j], values[:, j] - high), 0) / self.scale[name])
        return np.column_stack(found) if found else np.empty((len(values), 0))

    def to_nearest(self, rows: pd.DataFrame) -> FloatArray:
        """Return the distance of each row from the nearest real one, over number columns in standard deviations."""
        names = [name for name in self.scale if name in rows]
        if not names or len(names) > _MOST_COLUMNS:
            return np.zeros(len(rows))
        scale = np.array([self.scale[name] for name in names])
        real = self.rows[names].iloc[:_MOST_NEIGHBOURS_OF].fillna(0).to_numpy(dtype=np.float64) / scale
        return cKDTree(real).query(rows[names].fillna(0).to_numpy(dtype=np.float64) / scale)[0]

    def was_seen(self, rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return whether exactly this row is among the real ones."""
        return np.isin(content_hashes(rows[list(self.rows)], b"reference"), self.seen)

    def broken(self, rows: pd.DataFrame) -> FloatArray:
        """Count the declared constraints that each row breaks."""
        kept = [np.asarray(constraint(rows), dtype=bool) for constraint in self.constraints]
        return (~np.stack(kept)).sum(axis=0).astype(np.float64) if kept else np.zeros(len(rows))


def white_box(encoder: Encoder, Z: pd.DataFrame, reference: Reference) -> WhiteBox | None:
    """Return all features that the encoders give about rows z; None for a model that cannot be inverted."""
    law = encoder.latent_law()
    if law is None:
        return None
    inversions, known = law.inversions(Z), law.known_cells()
    if inversions is not None:
        return _of_flow(inversions, Z, reference)
    return None if known is None else _of_cells(known, Z, reference)


def _of_flow(inversions: list[Inversion], Z: pd.DataFrame, reference: Reference) -> WhiteBox:
    names = [str(name) for name in inversions[0].names]
    shows_values = len(inversions) * len(names) <= _MOST_VALUES
    parts, likelihood, on_grid = [Z.to_numpy(dtype=np.float64)], [], []
    for inversion in inversions:
        off = reference.off_grid(inversion.values, names)
        outside = reference.outside(inversion.values, names)
        rows = inversion.rows
        of_row = [reference.to_nearest(rows), reference.was_seen(rows), reference.broken(rows)]
        parts += [inversion.values, off] if shows_values else [off.sum(axis=1, keepdims=True)]
        parts += [outside.sum(axis=1, keepdims=True), np.column_stack(of_row)]
        parts += [np.column_stack([inversion.log_prob, inversion.log_det])]
        likelihood.append(inversion.log_prob + inversion.log_det)
        on_grid.append(-(off > _OFF_GRID).mean(axis=1) if off.shape[1] else np.zeros(len(Z)))
    log_likelihood = _finite(np.column_stack(likelihood))
    ratios = log_likelihood[:, 1:] - log_likelihood[:, :1]
    scores = {"likelihood ratio": log_likelihood, "grid test": np.column_stack(on_grid)}
    return WhiteBox(_finite(np.concatenate([*parts, ratios], axis=1)), scores)


def _of_cells(known_cells: KnownCells, Z: pd.DataFrame, reference: Reference) -> WhiteBox:
    model, codec = known_cells.model, known_cells.model.codec
    cells = cells_of_encoded(codec, Z)
    place, known = model.place(cells)
    place = np.where(known, place, 0)
    with np.errstate(divide="ignore"):
        log_laws = np.where(known[:, None], np.log(known_cells.laws).T[place], 0)
    seen = np.unique(codec.encode(reference.rows))
    parts: list[FloatArray] = [codec.levels_of(cells).astype(np.float64), _finite(log_laws)]
    shows_values = sum(map(len, known_cells.maps)) * parts[0].shape[1] <= _MOST_VALUES
    for sent in known_cells.maps:
        for b, f in enumerate(sent):
            before = inverse_map(f)[place]
            cell = before if model.support is None else model.support[before]
            if shows_values:
                parts.append(np.where(known[:, None], codec.levels_of(cell), -1).astype(np.float64))
            of_cell = [np.where(known, model.log_p[b][before], _UNKNOWN), np.isin(cell, seen)]
            parts.append(np.column_stack(of_cell))
    return WhiteBox(_finite(np.concatenate(parts, axis=1)), {"likelihood ratio": _finite(log_laws)})


def _distance_to_grid(values: FloatArray, grid: Grid) -> FloatArray:
    steps = (values - grid.origin / 10.0**grid.decimals) / grid.quantum
    return np.abs(steps - np.rint(steps))


def _finite(values: FloatArray) -> FloatArray:
    return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
