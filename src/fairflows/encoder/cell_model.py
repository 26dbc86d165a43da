"""What the encoders of cells learn first: a law of cells for each group, and the label that each cell suggests.

Encoded cells are given back as the table's own categories, as one-hot columns, or as codes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fairflows.codec.cell_codec import CellCodec
from fairflows.density.cell_counts import (
    CellDensity,
    SmoothedCounts,
    level_columns,
    log_prob_on_support,
    observed_support,
    one_hot,
)
from fairflows.encoder.base import CELL, EncodedColumns, FloatArray, Groups, IntArray
from fairflows.encoder.labels import Classifier, check_classifier, takes_weights
from fairflows.encoder.rows import TrainingRows
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import Schema, shown

if TYPE_CHECKING:
    from fairflows.encoder.fair_matching import FairMatching

Output = Literal["categories", "one-hot", "codes"]
"""Encoded cells as the table's own categories, as one-hot columns, or as codes."""

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
    classifier: Classifier | None  # which made them, from one-hot columns
    shares: FloatArray  # (K,): the groups' shares of the training rows
    held_out_log_likelihood: FloatArray  # (K,): mean log p̂_a of rows that it was not fitted on
    label_log_p: FloatArray | None = None  # (C, K, m): log p̂(cell | a, y), where it was asked for
    label_tails: FloatArray | None = None  # (C, K): the probability that it puts on all other cells

    def place(self, cells: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Each cell's place among the m, and which cells are among them."""
        if self.support is None:
            return cells, np.ones(len(cells), dtype=bool)
        place = np.minimum(np.searchsorted(self.support, cells), len(self.support) - 1)
        return place, self.support[place] == cells

    def log_reference(self, reference: Hashable, groups: list[Hashable]) -> FloatArray:
        """Return the law that all groups are sent to: of the largest group, of a named one, or the mean of all."""
        if isinstance(reference, str) and reference == "mean":
            return mean_law(self.log_p)
        if isinstance(reference, str) and reference == "largest":
            return self.log_p[int(self.shares.argmax())]
        if reference not in groups:
            known = ", ".join(map(shown, groups))
            raise ValueError(f"reference must be 'largest', 'mean' or a group ({known}); got {reference!r}.")
        return self.log_p[groups.index(reference)]

    def score(self, cells: IntArray) -> FloatArray:
        """Return the classifier's class probabilities in any cells, (n, C)."""
        if self.classifier is None:
            raise DataError("The cells were fitted without a label, and so without a classifier.")
        return classes_in_cells(self.classifier, self.codec, cells)

    def sample_rows(self, n: int, random_state: int) -> list[pd.DataFrame]:
        """n rows of each group drawn from its density."""
        rng = np.random.default_rng(random_state)
        return [self.codec.from_levels(density.sample(n, rng)) for density in self.densities]


def mean_law(log_p: FloatArray) -> FloatArray:
    """Log of the groups' mean law Σ_a p_a / K, from log-probabilities (K, m): a reference that favours no group."""
    return np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))


@dataclass(frozen=True)
class KnownCells:
    """What whoever holds an encoder of cells knows about encoded cells."""

    model: CellModel  # the groups' laws over cells before encoding
    output: Output  # how encoded cells are given
    laws: FloatArray  # (K, m): the law of the encoded cell in each group
    maps: tuple[IntArray, ...] = ()  # (K, m) each: the bijections that a coin chooses from; none for random maps


def fit_cell_model(
    settings: FairMatching, rows: TrainingRows, y: Groups | None, *, by_label: bool = False
) -> CellModel:
    """Fit every group's density and the classifier; evaluate both on all cells, or on observed ones.

    With ``by_label`` the densities of every group and label are fitted as well.
    """
    codec = CellCodec(n_bins=settings.n_bins, unseen=settings.unseen, missing=rows.missing)
    codec.fit(rows.X, settings.kinds)
    K, n_classes = len(rows.groups), 0 if y is None else int(y.max()) + 1
    whole = _Sample(codec.encode(rows.X), rows.weight)
    samples = [whole.take(rows.group == a) for a in range(K)]
    if y is not None:
        check_classifier(settings.classifier, weighted=rows.weight is not None)
    support = _support(codec, samples, settings)
    densities, held_out = _fit_densities(settings, codec.shape_, samples)
    log_p, tails = _evaluated(densities, support)
    label_log_p = label_tails = scores = classifier = None
    if by_label and y is not None:
        parts = [whole.take((rows.group == a) & (y == label)) for label in range(n_classes) for a in range(K)]
        label_log_p, label_tails = _evaluated(_fit_densities(settings, codec.shape_, parts)[0], support)
        label_log_p, label_tails = label_log_p.reshape(n_classes, K, -1), label_tails.reshape(n_classes, K)
    if y is not None:
        classifier = _fit_classifier(settings.classifier, codec, whole, rows.group, y, K)
        of_interest = np.arange(codec.n_cells_) if support is None else support
        scores = classes_in_cells(classifier, codec, of_interest)
    shares = np.bincount(rows.group, minlength=K) / len(rows.group)
    learnt = codec, densities, support, log_p, tails, scores, classifier, shares, held_out
    return CellModel(*learnt, label_log_p, label_tails)


def _support(codec: CellCodec, samples: Sequence[_Sample], settings: FairMatching) -> IntArray | None:
    """Return the observed cells, or None where all cells can be listed."""
    if not callable(settings.density) and sum(codec.shape_) > _MOST_LEVELS:
        raise DataError(
            f"A density of cells takes at most {_MOST_LEVELS:,} levels in all columns; got {sum(codec.shape_):,}: join "
            "rare levels, or leave out the column with the most of them."
        )
    if codec.n_cells_ * len(samples) <= settings.max_cells:
        return None
    warn_user(
        f"{codec.n_cells_:,} cells in each of {len(samples)} groups are more than max_cells={settings.max_cells:,}: "
        "only observed cells are used, with a tail."
    )
    return observed_support([sample.cells for sample in samples], codec.shape_)


class _Sample(NamedTuple):
    """Cells of rows, and what each of the rows counts; None where all count alike."""

    cells: IntArray
    weight: FloatArray | None

    def take(self, rows: npt.NDArray) -> _Sample:
        return _Sample(self.cells[rows], None if self.weight is None else self.weight[rows])


def _evaluated(densities: list[CellDensity], support: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """Log-probabilities of all cells, or of those of the support, and of none outside it, or what lies there."""
    if support is None:
        return np.stack([d.log_prob_of_all_cells() for d in densities]), np.zeros(len(densities))
    return log_prob_on_support(densities, support)


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


def one_hot_names(codec: CellCodec) -> list[str]:
    """Names of the one-hot columns: 'workclass=Private'."""
    names = []
    for name, part in codec.decoded_levels.items():
        values = part.column(np.arange(len(part)))
        names += [f"{name}={'(missing)' if pd.isna(value) else value}" for value in values]
    return names


def classes_in_cells(classifier: Classifier, codec: CellCodec, cells: IntArray) -> FloatArray:
    """Return the classifier's class probabilities in each cell, in chunks."""
    parts = [
        classifier.predict_proba(one_hot(codec.levels_of(cells[start : start + _ROWS_PER_CHUNK]), codec.shape_))
        for start in range(0, len(cells), _ROWS_PER_CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(classifier.classes_)))


def to_output(codec: CellCodec, cells: IntArray, output: Output) -> pd.DataFrame:
    """Return cells as the kind of frame that was asked for."""
    if output == "categories":
        return codec.decode(cells)
    if output == "codes":
        return pd.DataFrame({"cell": cells})
    return pd.DataFrame(one_hot(codec.levels_of(cells), codec.shape_).toarray(), columns=one_hot_names(codec))


def output_columns(codec: CellCodec, output: Output) -> EncodedColumns:
    """Return the columns of that frame; the table's own categories, and bins, are known by their names."""
    if output == "one-hot":
        return EncodedColumns.of_numbers(one_hot_names(codec))
    if output == "codes":
        return CELL
    parts = {str(name): part for name, part in codec.decoded_levels.items()}
    dtypes = {name: part.dtype for name, part in parts.items()}
    return EncodedColumns(dtypes, Schema({name: part.kind for name, part in parts.items()}))


def cells_from_output(codec: CellCodec, frame: pd.DataFrame, output: Output) -> IntArray:
    """Return the cells behind such a frame."""
    if output == "categories":
        levels = [part.codes(frame.iloc[:, j]) for j, part in enumerate(codec.decoded_levels.values())]
        return codec.cells_of(np.column_stack(levels))
    if output == "codes":
        return _codes(codec, frame.iloc[:, 0])
    return codec.cells_of(_levels_of_one_hot(codec, frame))


def _fit_densities(
    settings: FairMatching, levels: Sequence[int], samples: Sequence[_Sample]
) -> tuple[list[CellDensity], FloatArray]:
    """Fit a density of each sample, and its held-out likelihood."""
    seed = settings.random_state
    rng = np.random.default_rng(seed)
    train, held = [], []
    for sample in samples:
        counted = sample if sample.weight is None else sample.take(sample.weight > 0)  # others are not held out either
        fit, rest = _held_out(len(counted.cells), rng)
        train.append(counted.take(fit))
        held.append(counted.take(rest))
    densities = [_density(settings, levels, seed) for _ in samples]
    if settings.density == "made":
        from fairflows.density.made import CategoricalMADE, fit_together

        models = [density for density in densities if isinstance(density, CategoricalMADE)]
        cells, weights = zip(*train, strict=True)
        held_cells, held_weights = zip(*held, strict=True)
        fit_together(models, cells, held_cells, weights, held_weights)
    else:
        for density, (x, w), (v, vw) in zip(densities, train, held, strict=True):
            density.fit(x, v, sample_weight=w, validation_weight=vw)
    scores = [float(np.average(d.log_prob(v), weights=w)) for d, (v, w) in zip(densities, held, strict=True)]
    return densities, np.array(scores)


def _density(settings: FairMatching, levels: Sequence[int], seed: int) -> CellDensity:
    """Return a density to be fitted, by its name or by the function that makes one."""
    if callable(settings.density):
        return settings.density(levels)
    if settings.density == "made":
        from fairflows.density.made import CategoricalMADE

        return CategoricalMADE(levels, settings.hidden, random_state=seed, device=settings.device)
    if settings.density == "counts":
        return SmoothedCounts(levels)
    raise ValueError(f"density must be 'made', 'counts' or a function of levels; got {settings.density!r}.")


def _held_out(n: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return training rows and a held-out fifth, which a density is tuned by; of few rows, all of them twice."""
    if n < 10:
        return np.arange(n), np.arange(n)
    order = rng.permutation(n)
    cut = max(1, round(_HELD_OUT * n))
    return np.sort(order[cut:]), np.sort(order[:cut])


def _fit_classifier(
    classifier: Classifier | None, codec: CellCodec, sample: _Sample, group: Groups, y: Groups, n_groups: int
) -> Classifier:
    """Fit a classifier of the label from one-hot columns; all groups weigh the same, where it takes weights."""
    model = LogisticRegression(max_iter=1000) if classifier is None else clone(classifier)
    columns = one_hot(codec.levels_of(sample.cells), codec.shape_)
    if not takes_weights(model):
        return model.fit(columns, y)
    weight = np.ones(len(group)) if sample.weight is None else sample.weight
    total = np.bincount(group, weights=weight, minlength=n_groups)
    balanced = weight * (weight.sum() / n_groups / total)[group]
    return model.fit(columns, y, sample_weight=balanced)


def _codes(codec: CellCodec, column: pd.Series) -> IntArray:
    values = column.to_numpy() if column.dtype.kind in "iu" else _numbers(column.to_frame())[:, 0]
    wrong = (values != np.floor(values)) | (values < 0) | (values >= codec.n_cells_)
    if wrong.any():
        raise DataError(
            f"A cell must be a whole number in 0 … {codec.n_cells_ - 1}; {int(wrong.sum())} rows are not, the first is "
            f"{shown(column.iloc[int(wrong.argmax())])}."
        )
    return values.astype(np.int64)


def _levels_of_one_hot(codec: CellCodec, frame: pd.DataFrame) -> IntArray:
    columns = _numbers(frame)
    levels = []
    for name, block in zip(codec.levels_, level_columns(codec.shape_), strict=True):
        part = columns[:, block]
        wrong = ~(((part == 0) | (part == 1)).all(axis=1) & (part.sum(axis=1) == 1))
        if wrong.any():
            raise DataError(
                f"The one-hot columns of {str(name)!r} must hold a single 1 in every row, and 0 else; "
                f"{int(wrong.sum())} rows do not, the first is row {int(wrong.argmax())}."
            )
        levels.append(part.argmax(axis=1))
    return np.column_stack(levels).astype(np.int64)


def _numbers(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    try:
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise DataError(f"Encoded columns {', '.join(map(str, frame.columns[:8]))} must hold numbers.") from None
