"""The knowledge behind `FairMatching`: a law of cells for each group, and the label that each cell suggests."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.linear_model import LogisticRegression

from fairflows.bounds.arguments import checked_draws
from fairflows.codec import CellCodec, one_hot
from fairflows.density.cell_counts import CellCounts, CellDensity, SmoothedCounts
from fairflows.encoder.base import EncodedColumns, FloatArray, Groups, IntArray, LatentLaw
from fairflows.encoder.rows import TrainingRows
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import Schema, shown

if TYPE_CHECKING:
    from fairflows.encoder.fair_matching import FairMatching

_HELD_OUT = 0.2
_MOST_LEVELS = 10_000  # a density keeps a number for every pair of levels, in each group
_ROWS_PER_CHUNK = 2**18


@dataclass(frozen=True)
class CellModel:
    """Laws of K groups over the m cells that an encoder works on."""

    codec: CellCodec  # table rows to cells and back
    densities: list[CellDensity]  # the K densities p̂_a
    # (m,): the cells that the laws are about: those observed in training, where there are too many to list them all
    support: IntArray | None
    log_p: FloatArray  # (K, m): log p̂_a of each of them
    tails: FloatArray  # (K,): the probability that p̂_a puts on all other cells
    scores: FloatArray | None  # (m, C): the classifier's probability of each class in each cell
    classifier: LogisticRegression | None  # which made them, from one-hot columns
    shares: FloatArray  # (K,): the groups' shares of the training rows
    held_out_log_likelihood: FloatArray  # (K,): mean log p̂_a of rows that it was not fitted on

    def place(self, cells: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Each cell's place among the m, and which cells are among them."""
        if self.support is None:
            return cells, np.ones(len(cells), dtype=bool)
        place = np.minimum(np.searchsorted(self.support, cells), len(self.support) - 1)
        return place, self.support[place] == cells

    @property
    def log_reference(self) -> FloatArray:
        """The law that all groups are sent to: that of the largest group."""
        return self.log_p[int(self.shares.argmax())]

    def score(self, cells: IntArray) -> FloatArray:
        """Return the classifier's class probabilities in any cells, (n, C)."""
        if self.classifier is None:
            raise DataError("The cells were fitted without a label, and so without a classifier.")
        return classes_in_cells(self.classifier, self.codec, cells)

    def sample_rows(self, n: int, random_state: int) -> list[pd.DataFrame]:
        """n rows of each group drawn from its density."""
        rng = np.random.default_rng(random_state)
        return [self.codec.from_levels(density.sample(n, rng)) for density in self.densities]


@dataclass(frozen=True)
class KnownCells:
    """The knowledge of an adversary who holds the encoder, about encoded cells."""

    model: CellModel  # the groups' laws over cells before encoding
    laws: FloatArray  # (K, m): the law of the encoded cell in each group
    maps: tuple[IntArray, ...] = ()  # (K, m) each: the bijections that a coin chooses from; none for random maps


@dataclass(frozen=True)
class ExactLaw(LatentLaw):
    """Laws over finitely many values."""

    laws: FloatArray  # (K, m)
    cells: KnownCells | None = None  # what the values are, where they are cells of a table

    def exact(self) -> FloatArray:
        """Return the laws."""
        return self.laws

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> FloatArray:
        """Draw from every group's law; return the log-probabilities under every group."""
        checked_draws(n, len(self.laws))
        generator = np.random.default_rng(random_state)
        draws = [
            np.minimum(np.searchsorted(row, generator.random(n) * row[-1], side="right"), self.laws.shape[1] - 1)
            for row in np.cumsum(self.laws, axis=1)
        ]
        with np.errstate(divide="ignore"):
            log_laws = np.log(self.laws)
        return np.stack([log_laws[:, values].T for values in draws], axis=1)

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """Draw n rows of the table from each group's density of cells."""
        return None if self.cells is None else self.cells.model.sample_rows(n, random_state)

    def known_cells(self) -> KnownCells | None:
        """Return the laws and the bijections of cells."""
        return self.cells


def fit_cell_model(settings: FairMatching, rows: TrainingRows, y: Groups | None) -> CellModel:
    """Fit every group's density and the classifier; evaluate both on all cells, or on observed ones."""
    codec = CellCodec(n_bins=settings.n_bins, unseen=settings.unseen, missing=rows.missing)
    codec.fit(rows.X, settings.kinds)
    K, cells = len(rows.groups), codec.encode(rows.X)
    weight = np.ones(len(cells)) if rows.weight is None else rows.weight
    support = _support(codec, np.unique(cells), K, settings)
    densities, held_out = _fit_densities(settings, codec.shape_, cells, weight, rows.group)
    listed = np.arange(codec.n_cells_) if support is None else support
    log_p = np.stack([density.log_prob(listed) for density in densities])
    tails = np.zeros(K) if support is None else np.maximum(0.0, 1.0 - np.exp(log_p).sum(axis=1))
    scores = classifier = None
    if y is not None:
        classifier = _fit_classifier(codec, cells, weight, rows.group, y, K)
        scores = classes_in_cells(classifier, codec, listed)
    shares = np.bincount(rows.group, minlength=K) / len(rows.group)
    return CellModel(codec, densities, support, log_p, tails, scores, classifier, shares, held_out)


def _support(codec: CellCodec, observed: IntArray, n_groups: int, settings: FairMatching) -> IntArray | None:
    """Return the observed cells, or None where all cells can be listed."""
    if not callable(settings.density) and sum(codec.shape_) > _MOST_LEVELS:
        raise DataError(
            f"A density of cells takes at most {_MOST_LEVELS:,} levels in all columns; got {sum(codec.shape_):,}: join "
            "rare levels, or leave out the column with the most of them."
        )
    if codec.n_cells_ * n_groups <= settings.max_cells:
        return None
    warn_user(
        f"{codec.n_cells_:,} cells in each of {n_groups} groups are more than max_cells={settings.max_cells:,}: "
        "only observed cells are used, with a tail."
    )
    return observed


def check_labels(group: Groups, y: Groups, groups: list[Hashable], classes: np.ndarray) -> None:
    """Refuse a table in which a group lacks a label: nothing could be matched to it there."""
    counts = np.zeros((len(groups), len(classes)), dtype=np.int64)
    np.add.at(counts, (group, y), 1)
    if (counts == 0).any():
        a, label = np.argwhere(counts == 0)[0]
        raise DataError(
            f"Every group needs rows of every label; group {shown(groups[a])} has none with label "
            f"{shown(classes[label])}."
        )


def classes_in_cells(classifier: LogisticRegression, codec: CellCodec, cells: IntArray) -> FloatArray:
    """Return the classifier's class probabilities in each cell, in chunks."""
    parts = [
        classifier.predict_proba(one_hot(codec.levels_of(cells[start : start + _ROWS_PER_CHUNK]), codec.shape_))
        for start in range(0, len(cells), _ROWS_PER_CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(classifier.classes_)))


def encoded_columns(codec: CellCodec) -> EncodedColumns:
    """Return the columns of encoded cells: the table's own categories, and the names of bins."""
    parts = {str(name): part for name, part in codec.decoded_levels.items()}
    dtypes = {name: part.dtype for name, part in parts.items()}
    return EncodedColumns(dtypes, Schema({name: part.kind for name, part in parts.items()}))


def cells_of_encoded(codec: CellCodec, frame: pd.DataFrame) -> IntArray:
    """Return the cells behind encoded rows."""
    levels = [part.codes(frame.iloc[:, j]) for j, part in enumerate(codec.decoded_levels.values())]
    return codec.cells_of(levels)


def _fit_densities(
    settings: FairMatching, levels: Sequence[int], cells: IntArray, weight: FloatArray, group: Groups
) -> tuple[list[CellDensity], FloatArray]:
    """Fit a density of each group's cells, and its held-out likelihood."""
    rng, data = np.random.default_rng(settings.random_state), []
    for a in range(int(group.max()) + 1):
        counted = np.flatnonzero((group == a) & (weight > 0))  # rows without weight are not held out either
        parts = (counted[part] for part in _held_out(len(counted), rng))
        data.append([CellCounts.of(cells[part], weight[part]) for part in parts])
    densities = [_density(settings, levels) for _ in data]
    if settings.density == "made":
        from fairflows.density.estimated import CategoricalMADE, fit_together

        fit_together([density for density in densities if isinstance(density, CategoricalMADE)], data)
    else:
        for density, (fitted, held) in zip(densities, data, strict=True):
            density.fit(fitted, held)
    scores = [held.mean(density.log_prob(held.codes)) for density, (_, held) in zip(densities, data, strict=True)]
    return densities, np.array(scores)


def _density(settings: FairMatching, levels: Sequence[int]) -> CellDensity:
    """Return a density to be fitted, by its name or by the function that makes one."""
    if callable(settings.density):
        return settings.density(levels)
    if settings.density == "made":
        from fairflows.density.estimated import CategoricalMADE

        return CategoricalMADE(levels, settings.hidden, random_state=settings.random_state, device=settings.device)
    if settings.density == "counts":
        return SmoothedCounts(levels)
    raise DataError(f"density must be 'made', 'counts' or a function of levels; got {settings.density!r}.")


def _held_out(n: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return training rows and a held-out fifth, which a density is tuned by; of few rows, all of them twice."""
    if n < 10:
        return np.arange(n), np.arange(n)
    order = rng.permutation(n)
    cut = max(1, round(_HELD_OUT * n))
    return np.sort(order[cut:]), np.sort(order[:cut])


def _fit_classifier(
    codec: CellCodec, cells: IntArray, weight: FloatArray, group: Groups, y: Groups, n_groups: int
) -> LogisticRegression:
    """Fit a classifier of the label from one-hot columns; all groups weigh the same."""
    columns = one_hot(codec.levels_of(cells), codec.shape_)
    total = np.bincount(group, weights=weight, minlength=n_groups)
    balanced = weight * (weight.sum() / n_groups / total)[group]
    return LogisticRegression(max_iter=1000).fit(columns, y, sample_weight=balanced)
