"""What the encoders of cells learn first: a law of cells for each group, and the label that each cell suggests.

Encoded cells are given back as the table's own categories, as one-hot columns, or as codes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fairflows.codec.cell_codec import Bins, CellCodec
from fairflows.density.cell_density import (
    CellDensity,
    cell_space,
    choose_density,
    level_columns,
    log_prob_on_support,
    observed_support,
    one_hot,
)
from fairflows.encoder.cell_maps import mean_law
from fairflows.encoder.checks import Classifier, Output, check_classifier, takes_weights
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import Dtype, shown
from fairflows.table.schema import Schema

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_logger = logging.getLogger(__name__)

DENSITIES = ("made", "counts", "latent_class", "best")
_HELD_OUT = 0.2
_ROWS_PER_CHUNK = 2**18


@dataclass(frozen=True)
class CellModel:
    """Laws of K groups over the m cells that an encoder works on.

    Attributes
    ----------
    codec : CellCodec
        Table rows to cells and back.
    densities : list
        The K densities p̂_a.
    support : ndarray of shape (m,), or None
        The cells that the laws are about: those observed in training, where there are too many to list them all.
    log_p : ndarray of shape (K, m)
        log p̂_a of each of them.
    tails : ndarray of shape (K,)
        The probability that p̂_a puts on all other cells.
    scores : ndarray of shape (m, C), or None
        The classifier's probability of each class in each cell.
    classifier : classifier, or None
        Which made them, from one-hot columns.
    shares : ndarray of shape (K,)
        The groups' shares of the training rows.
    held_out_log_likelihood : ndarray of shape (K,)
        Mean log p̂_a of rows that it was not fitted on.
    label_log_p : ndarray of shape (C, K, m), or None
        log p̂(cell | a, y), where it was asked for.
    label_tails : ndarray of shape (C, K), or None
        The probability that it puts on all other cells.
    """

    codec: CellCodec
    densities: list[CellDensity]
    support: IntArray | None
    log_p: FloatArray
    tails: FloatArray
    scores: FloatArray | None
    classifier: Classifier | None
    shares: FloatArray
    held_out_log_likelihood: FloatArray
    label_log_p: FloatArray | None = None
    label_tails: FloatArray | None = None

    def place(self, cells: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Each cell's place among the m, and which cells are among them."""
        if self.support is None:
            return cells, np.ones(len(cells), dtype=bool)
        place = np.minimum(np.searchsorted(self.support, cells), len(self.support) - 1)
        return place, self.support[place] == cells

    def log_reference(self, reference: Hashable, groups: list[Hashable]) -> FloatArray:
        """The law that all groups are sent to: of the largest group, of a named one, or the mean of all."""
        if isinstance(reference, str) and reference == "mean":
            return mean_law(self.log_p)
        if isinstance(reference, str) and reference == "largest":
            return self.log_p[int(self.shares.argmax())]
        if reference not in groups:
            known = ", ".join(map(shown, groups))
            raise ValueError(f"reference must be 'largest', 'mean' or a group ({known}); got {reference!r}.")
        return self.log_p[groups.index(reference)]

    def score(self, cells: IntArray) -> FloatArray:
        """The classifier's class probabilities in any cells, (n, C)."""
        if self.classifier is None:
            raise DataError("The cells were fitted without a label, and so without a classifier.")
        return class_probabilities(self.classifier, self.codec, cells)

    def sample_rows(self, n: int, random_state: int) -> list[pd.DataFrame]:
        """n rows of each group drawn from its density."""
        rng = np.random.default_rng(random_state)
        return [self.codec.from_levels(density.sample(n, rng)) for density in self.densities]


@dataclass(frozen=True)
class KnownCells:
    """What whoever holds an encoder of cells knows about encoded cells.

    Attributes
    ----------
    model : CellModel
        The groups' laws over cells before encoding.
    output : str
        How encoded cells are given.
    laws : ndarray of shape (K, m)
        The law of the encoded cell in each group.
    maps : tuple of ndarray of shape (K, m)
        The bijections that a coin chooses from; none for random maps.
    """

    model: CellModel
    output: Output
    laws: FloatArray
    maps: tuple[IntArray, ...] = ()


def fit_cell_model(
    codec: CellCodec,
    cells: IntArray,
    group: npt.NDArray[np.intp],
    y: npt.NDArray[np.intp] | None,
    *,
    groups: list[Hashable],
    density: str | Callable[[Sequence[int]], CellDensity],
    hidden: Sequence[int],
    classifier: Classifier | None,
    sample_weight: FloatArray | None,
    max_cells: int,
    random_state: int,
    device: str,
    by_label: bool = False,
) -> CellModel:
    """Fit every group's density and the classifier, and evaluate both on all cells, or on the observed ones.

    With ``by_label`` the densities of every group and label are fitted as well.
    """
    n_groups = len(groups)
    if y is not None:
        check_classifier(classifier, weighted=sample_weight is not None)
    samples = [cells[group == a] for a in range(n_groups)]
    weights = [None if sample_weight is None else sample_weight[group == a] for a in range(n_groups)]
    _check_weights(weights, groups)
    n_classes = 0 if y is None else int(y.max()) + 1
    pairs = density in ("made", "counts", "best")
    space = cell_space(codec.shape_, n_groups, max_cells, n_classes=n_classes, pairs=pairs)
    space.check_densities()
    if space.enumerable:
        _logger.info("%s", space)
    else:
        warn_user(str(space))
    support = None if space.enumerable else observed_support(samples, codec.shape_)
    settings = codec.shape_, density, hidden, random_state, device
    densities, held_out = _fit_densities(samples, weights, *settings)
    log_p, tails = _evaluated(densities, support)
    label_log_p = label_tails = None
    if by_label and y is not None:
        parts = [(group == a) & (y == label) for label in range(n_classes) for a in range(n_groups)]
        weights = [None if sample_weight is None else sample_weight[part] for part in parts]
        of_labels, _ = _fit_densities([cells[part] for part in parts], weights, *settings)
        flat_log_p, flat_tails = _evaluated(of_labels, support)
        label_log_p = flat_log_p.reshape(n_classes, n_groups, -1)
        label_tails = flat_tails.reshape(n_classes, n_groups)
    scores = None
    if y is not None:
        classifier = _fit_classifier(classifier, codec, cells, group, y, sample_weight, n_groups)
        of_interest = np.arange(codec.n_cells_) if support is None else support
        scores = class_probabilities(classifier, codec, of_interest)
    shares = np.bincount(group, minlength=n_groups) / len(group)
    learnt = codec, densities, support, log_p, tails, scores, classifier, shares, held_out
    return CellModel(*learnt, label_log_p, label_tails)


def _evaluated(densities: list[CellDensity], support: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """Log-probabilities of all cells, or of those of the support, and of none outside it, or what lies there."""
    if support is None:
        return np.stack([d.log_prob_of_all_cells() for d in densities]), np.zeros(len(densities))
    return log_prob_on_support(densities, support)


def check_labels(
    group: npt.NDArray[np.intp], y: npt.NDArray[np.intp], groups: list[Hashable], classes: np.ndarray
) -> None:
    """Refuse a table in which a group lacks a label: nothing could be matched to it there."""
    counts = np.zeros((len(groups), len(classes)), dtype=np.int64)
    np.add.at(counts, (group, y), 1)
    if (counts == 0).any():
        a, label = np.argwhere(counts == 0)[0]
        raise DataError(
            f"Every group needs rows of every label; group {shown(groups[a])} has none with label "
            f"{shown(classes[label])}."
        )


def _check_weights(weights: list[FloatArray | None], groups: list[Hashable]) -> None:
    for weight, group in zip(weights, groups, strict=True):
        if weight is not None and not weight.any():
            raise DataError(f"Every group needs rows of positive sample_weight; group {shown(group)} has none.")


def one_hot_names(codec: CellCodec) -> list[str]:
    """Names of the one-hot columns: 'workclass=Private'."""
    names = []
    for name, part in codec.levels_.items():
        values = part.column(np.arange(len(part)))
        names += [f"{name}={'(missing)' if pd.isna(value) else value}" for value in values]
    return names


def class_probabilities(classifier: Classifier, codec: CellCodec, cells: IntArray) -> FloatArray:
    """The classifier's class probabilities in each cell, in chunks."""
    parts = [
        classifier.predict_proba(one_hot(codec.levels_of(cells[start : start + _ROWS_PER_CHUNK]), codec.shape_))
        for start in range(0, len(cells), _ROWS_PER_CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(classifier.classes_)))


def to_output(codec: CellCodec, cells: IntArray, output: Output) -> pd.DataFrame:
    """Cells as the kind of frame that was asked for."""
    if output == "categories":
        return codec.decode(cells)
    if output == "codes":
        return pd.DataFrame({"cell": cells})
    return pd.DataFrame(one_hot(codec.levels_of(cells), codec.shape_).toarray(), columns=one_hot_names(codec))


def output_names(codec: CellCodec, output: Output) -> list[str]:
    """The columns of that frame."""
    if output == "one-hot":
        return one_hot_names(codec)
    return ["cell"] if output == "codes" else [str(name) for name in codec.levels_]


def output_dtypes(codec: CellCodec, output: Output) -> dict[str, Dtype]:
    """The types of its columns."""
    if output == "categories":
        levels = {name: part.levels if isinstance(part, Bins) else part for name, part in codec.levels_.items()}
        return {str(name): part.dtype for name, part in levels.items()}
    return dict.fromkeys(output_names(codec, output), np.dtype(np.int64 if output == "codes" else np.float64))


def output_schema(codec: CellCodec, output: Output) -> Schema:
    """What the columns of that frame hold, where they are the table's own: a bin, too, is known by its name."""
    if output != "categories":
        return Schema({})
    levels = {name: part.levels if isinstance(part, Bins) else part for name, part in codec.levels_.items()}
    return Schema({}).with_values({str(name): part.index.to_numpy() for name, part in levels.items()})


def cells_from_output(codec: CellCodec, frame: pd.DataFrame, output: Output) -> IntArray:
    """The cells behind such a frame."""
    if output == "categories":
        levels = [part.named(frame.iloc[:, j]) for j, part in enumerate(codec.levels_.values())]
        return codec.cells_of(np.column_stack(levels))
    if output == "codes":
        return _codes(codec, frame.iloc[:, 0])
    return codec.cells_of(_levels_of_one_hot(codec, frame))


def _fit_densities(
    samples: list[IntArray],
    weights: list[FloatArray | None],
    levels: Sequence[int],
    density: str | Callable[[Sequence[int]], CellDensity],
    hidden: Sequence[int],
    random_state: int,
    device: str,
) -> tuple[list[CellDensity], FloatArray]:
    rng = np.random.default_rng(random_state)
    counted = [slice(None) if w is None else w > 0 for w in weights]  # rows that do not count are not held out either
    samples = [s[rows] for s, rows in zip(samples, counted, strict=True)]
    weights = [None if w is None else w[rows] for w, rows in zip(weights, counted, strict=True)]
    parts = [_held_out(len(sample), rng) for sample in samples]
    train = [s[fit] for s, (fit, _) in zip(samples, parts, strict=True)]
    held = [s[rest] for s, (_, rest) in zip(samples, parts, strict=True)]
    w_train = [None if w is None else w[fit] for w, (fit, _) in zip(weights, parts, strict=True)]
    w_held = [None if w is None else w[rest] for w, (_, rest) in zip(weights, parts, strict=True)]
    if density == "made":
        from fairflows.density.made import CategoricalMADE, fit_together

        models = [CategoricalMADE(levels, hidden, random_state=random_state, device=device) for _ in samples]
        fit_together(models, train, w_train, held, w_held)
        densities: list[CellDensity] = list(models)
    else:
        densities = []
        for x, w, v, vw in zip(train, w_train, held, w_held, strict=True):
            candidates = _candidates(density, levels, hidden, random_state, device)
            densities.append(choose_density(candidates, x, v, sample_weight=w, validation_weight=vw)[0])
    scores = [float(np.average(d.log_prob(v), weights=w)) for d, v, w in zip(densities, held, w_held, strict=True)]
    return densities, np.array(scores)


def _candidates(
    density: str | Callable[[Sequence[int]], CellDensity],
    levels: Sequence[int],
    hidden: Sequence[int],
    random_state: int,
    device: str,
) -> list[CellDensity]:
    from fairflows.density.latent_class import LatentClassMixture
    from fairflows.density.made import CategoricalMADE
    from fairflows.density.smoothed_counts import SmoothedCounts

    if callable(density):
        return [density(levels)]
    if density not in DENSITIES:
        raise ValueError(f"density must be one of {', '.join(DENSITIES)}, or a function of levels; got {density!r}.")
    known: dict[str, Callable[[], CellDensity]] = {
        "made": lambda: CategoricalMADE(levels, hidden, random_state=random_state, device=device),
        "counts": lambda: SmoothedCounts(levels, random_state=random_state),
        "latent_class": lambda: LatentClassMixture(levels, random_state=random_state),
    }
    return [make() for make in known.values()] if density == "best" else [known[density]()]


def _held_out(n: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """A fifth of the rows, by whose likelihood a density is chosen; all rows on both sides when there are too few."""
    if n < 10:
        return np.arange(n), np.arange(n)
    order = rng.permutation(n)
    cut = max(1, round(_HELD_OUT * n))
    return np.sort(order[cut:]), np.sort(order[:cut])


def _fit_classifier(
    classifier: Classifier | None,
    codec: CellCodec,
    cells: IntArray,
    group: npt.NDArray[np.intp],
    y: npt.NDArray[np.intp],
    sample_weight: FloatArray | None,
    n_groups: int,
) -> Classifier:
    """A classifier of the label from one-hot columns; all groups weigh the same, where it takes weights."""
    model = LogisticRegression(max_iter=1000) if classifier is None else clone(classifier)
    columns = one_hot(codec.levels_of(cells), codec.shape_)
    if not takes_weights(model):
        return model.fit(columns, y)
    weight = np.ones(len(cells)) if sample_weight is None else sample_weight
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
