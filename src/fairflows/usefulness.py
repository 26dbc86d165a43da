"""still_tells: what a released table still tells of each person's own values, column by column."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from fairflows.codec import one_hot
from fairflows.encoder.rows import is_continuous
from fairflows.exceptions import DataError
from fairflows.release.released import Model, Released
from fairflows.table.columns import floats, has_order, places_in
from fairflows.table.table import Table
from fairflows.threads import one_thread

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_WORK = 200_000  # rows · columns that forests learn from: a table of 100 columns is judged on 2,000 rows
_FEWEST_ROWS = 2_000
_TREES = 10  # of a forest
_ROWS_PER_TREE = 10_000  # twice as many take longer, and tell hardly more
_COLUMNS = 12  # that tell most of a value: what a forest looks at
_FINE, _COARSE = (32, 63), (4, 20)  # bins of numbers and most frequent categories, to learn from and to be predicted
_MOST_LEVELS = 250  # of a category that trees tell apart


@dataclass(frozen=True)
class Told:
    """How often one value of a person is predicted right."""

    name: str  # the column
    released: float  # from the person's released row
    majority: float  # by a blind guess, the most frequent value
    raw: float  # from the person's own row, but for this column: what others tell of it before the release

    @property
    def told(self) -> float:
        """The share of a blind guess's errors that the released row avoids: 0 tells nothing, 1 everything."""
        return max(0.0, (self.released - self.majority) / (1 - self.majority)) if self.majority < 1 else 0.0

    def to_dict(self) -> dict[str, str | float]:
        """Return plain values, as JSON holds them."""
        return asdict(self) | {"told": self.told}


@dataclass(frozen=True)
class StillTells:
    """What a released table still tells.

    Attributes
    ----------
    columns : tuple of Told
        The features, most told first. Of a number its quarter is predicted, of a column with many categories the most
        frequent ones and "another".
    sensitive : Told
        The sensitive attribute, by balanced accuracy: every group counts alike.
    label : Told or None
        The label: learnt from released rows, and tested on released rows of other persons against their true labels.
        Where the release draws a label, that is what is learnt from. Of a number its quarter is predicted.
    n : int
        How many held-out rows the columns were judged on.
    """

    columns: tuple[Told, ...]
    sensitive: Told
    label: Told | None
    n: int

    def to_frame(self) -> pd.DataFrame:
        """Return one line per column, then the label and the sensitive attribute."""
        lines = [*self.columns, *([] if self.label is None else [self.label]), self.sensitive]
        frame = pd.DataFrame([line.to_dict() for line in lines])
        return frame.rename(columns={"name": "column"}).set_index("column")

    def to_dict(self) -> dict[str, object]:
        """Return plain values, as JSON holds them."""
        return {
            "columns": [line.to_dict() for line in self.columns],
            "sensitive": self.sensitive.to_dict(),
            "label": None if self.label is None else self.label.to_dict(),
            "n": self.n,
        }

    def __repr__(self) -> str:
        shares = (100 * self.to_frame()).round(1).to_string()
        return (
            f"What the released rows still tell, on {self.n:,} held-out rows: right guesses of each value from the "
            f"released row, by the majority and from the other raw columns, and told, in %\n{shares}\n"
            f"({self.sensitive.name}: every group counts alike)"
        )


def still_tells(
    model: Model,
    train: Table,
    test: Table,
    *,
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    most_rows: int = 20_000,
    n_jobs: int | None = None,
    random_state: int = 0,
) -> StillTells:
    """Measure how well each person's own values are predicted from their released row.

    Forests learn on released rows of `train` what the persons' own values are, and are judged on `test`. For every
    column they see the twelve released columns that tell most of it.

    Parameters
    ----------
    model : encoder, pipeline or transformer
        The release.
    train, test : Table
        Rows to learn from, and rows of other persons to be judged on.
    encoded : pair of DataFrame, optional
        What was released for the rows of `train` and of `test`, where the model cannot encode them again: a `Release`
        whose persons have no identifier.
    most_rows : int
        The most rows of each; of wide tables fewer are taken.
    n_jobs : int, optional
        Forests to grow at once, as for joblib.
    random_state : int
        Seed of the samples and of the forests.

    Returns
    -------
    StillTells

    Examples
    --------
    >>> from fairflows import FairTree, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = FairTree(n_cells=16).fit(train)
    >>> found = still_tells(release, train, test, most_rows=2000)
    >>> found.label.released > found.label.majority, found.sensitive.told < 0.2
    (True, True)
    """
    if most_rows < 1:
        raise DataError(f"most_rows must be at least 1; got {most_rows!r}.")
    if list(train.X) != list(test.X):
        raise DataError("train and test must have the same columns.")
    generator = np.random.default_rng(random_state)
    sampled = [generator.permutation(len(table))[:most_rows] for table in (train, test)]
    train, test = (table.take(places) for table, places in zip((train, test), sampled, strict=True))
    released = Released.of(model)
    if encoded is None:
        rows = tuple(
            released.encode_again(table, part).reset_index(drop=True)
            for part, table in (("train", train), ("test", test))
        )
    else:
        rows = tuple(frame.iloc[places].reset_index(drop=True) for frame, places in zip(encoded, sampled, strict=True))
    y, y_test, guesses = train.y, test.y, []
    if y is not None and y_test is not None:
        learnt, (fit, judged) = released.label_to_learn(y, rows)
        guesses = [
            delayed(_label_accuracy)(fit, judged, learnt, y_test, random_state),
            delayed(_label_accuracy)(train.X, test.X, y, y_test, random_state),
        ]
    few = max(_FEWEST_ROWS, _WORK // max(train.X.shape[1], rows[0].shape[1]))
    kept = [generator.permutation(len(table))[:few] for table in (train, test)]
    train, test = (table.take(places) for table, places in zip((train, test), kept, strict=True))
    seen, own = (
        _View.of(*(frame.iloc[places] for frame, places in zip(frames, parts, strict=True)))
        for frames, parts in ((rows, kept), ((train.X, test.X), [slice(None)] * 2))
    )
    targets = {str(name): _Codes.of(train.X[name], test.X[name], _COARSE) for name in train.X}
    groups = _Codes.of(train.a, test.a, _COARSE)
    forests = [delayed(seen.accuracy)(target, random_state) for target in targets.values()]
    forests += [delayed(own.accuracy)(target, random_state, without=j) for j, target in enumerate(targets.values())]
    forests += [delayed(view.accuracy)(groups, random_state, balanced=True) for view in (seen, own)]
    with one_thread():
        found = Parallel(n_jobs=n_jobs, prefer="threads")([*guesses, *forests])
    (*told, from_seen, from_own), of_label = found[len(guesses) :], found[: len(guesses)]
    columns = [
        Told(name, released_tells, target.majority, raw_tells)
        for (name, target), released_tells, raw_tells in zip(
            targets.items(), told[: len(targets)], told[len(targets) :], strict=True
        )
    ]
    sensitive = Told(str(train.a.name), from_seen, 1 / len(np.unique(groups.test)), from_own)
    columns.sort(key=lambda told: -told.told)
    label = None
    if y is not None and y_test is not None:
        label = Told(str(y.name), of_label[0], _label_codes(y, y_test).majority, of_label[1])
    return StillTells(tuple(columns), sensitive, label, len(test))


@dataclass(frozen=True)
class _Codes:
    """One column of both tables as whole numbers: bins of numbers, or categories."""

    train: IntArray
    test: IntArray

    @classmethod
    def of(cls, train: pd.Series, test: pd.Series, size: tuple[int, int]) -> _Codes:
        """Code both columns by bins and categories of `train`; a missing value is one more."""
        if has_order(train.dtype):
            return cls(*_binned(train, test, size[0]))
        levels = train.astype(object).value_counts().index[: size[1]]
        found = [(places_in(levels, column), column.isna().to_numpy()) for column in (train, test)]
        return cls(*(np.where(place < 0, len(levels) + missing, place) for place, missing in found))

    @property
    def majority(self) -> float:
        """How often the most frequent value of `train` is right in `test`."""
        return float((self.test == np.bincount(self.train).argmax()).mean())


@dataclass(frozen=True)
class _View:
    """Rows to learn from and rows to be judged on, every column as whole numbers."""

    train: IntArray
    test: IntArray

    @classmethod
    def of(cls, train: pd.DataFrame, test: pd.DataFrame) -> _View:
        columns = [_Codes.of(train.iloc[:, j], test.iloc[:, j], _FINE) for j in range(train.shape[1])]
        return cls(*(np.column_stack([getattr(c, part) for c in columns]) for part in ("train", "test")))

    def accuracy(self, target: _Codes, seed: int, *, without: int | None = None, balanced: bool = False) -> float:
        """Return how often a forest predicts the target right in `test`; on average over its values where balanced."""
        told = _mutual_information(self.train, target.train)
        if without is not None:
            told[without] = -1
        chosen = np.argsort(-told, kind="stable")[: min(_COLUMNS, len(told) - (without is not None))]
        if not len(chosen):
            return target.majority
        forest = RandomForestClassifier(
            _TREES,
            min_samples_leaf=10,
            max_features=0.4,
            max_samples=min(len(self.train), _ROWS_PER_TREE),
            class_weight="balanced" if balanced else None,
            random_state=seed,
        )
        right = forest.fit(self.train[:, chosen], target.train).predict(self.test[:, chosen]) == target.test
        if not balanced:
            return float(right.mean())
        return float(np.mean([right[target.test == value].mean() for value in np.unique(target.test)]))


def _label_accuracy(
    fit: pd.DataFrame, judged: pd.DataFrame, y: pd.Series, y_judged: pd.Series, random_state: int
) -> float:
    target = _label_codes(y, y_judged)
    return float((boosted_prediction(fit, target.train, judged, random_state) == target.test).mean())


def _label_codes(train: pd.Series, test: pd.Series) -> _Codes:
    return _Codes.of(train, test, _COARSE if is_continuous(train) else _FINE)


def boosted_prediction(fit: pd.DataFrame, y: npt.ArrayLike, judged: pd.DataFrame, random_state: int) -> np.ndarray:
    """Predict the label of some rows by boosted trees that learn it from others."""
    features = [_as_numbers(fit.iloc[:, j], judged.iloc[:, j]) for j in range(fit.shape[1])]
    learnt, asked = (np.column_stack(columns) for columns in zip(*features, strict=True))
    trees = HistGradientBoostingClassifier(
        categorical_features=[not has_order(dtype) for dtype in fit.dtypes], random_state=random_state
    )
    with one_thread():
        return trees.fit(learnt, y).predict(asked)


def _as_numbers(train: pd.Series, test: pd.Series) -> tuple[FloatArray, FloatArray]:
    """Return numbers and times as they are, or NaN; categories by how frequent they are in `train`."""
    if not has_order(train.dtype):
        codes = _Codes.of(train, test, (0, _MOST_LEVELS))
        return codes.train.astype(np.float64), codes.test.astype(np.float64)
    learnt, asked = floats(train), floats(test)
    return learnt if train.notna().any() else np.zeros(len(train)), asked  # trees cannot cut nothing


def _binned(train: pd.Series, test: pd.Series, n_bins: int) -> list[IntArray]:
    """Code numbers by bins that hold about equally many values of `train`; a missing number is one more."""
    values = [floats(column) for column in (train, test)]
    known = np.sort(values[0][~np.isnan(values[0])])
    above = known[known > known[:1]]  # the smallest
    cuts = known[np.arange(1, n_bins) * len(known) // n_bins] if len(known) else known
    edges = np.intersect1d(cuts, above) if np.isin(cuts, above).any() else above[:1]
    return [np.where(np.isnan(v), len(edges) + 1, np.searchsorted(edges, v, side="right")) for v in values]


def _mutual_information(columns: IntArray, target: IntArray) -> npt.NDArray[np.float64]:
    """Return the mutual information of each column and the target, in nats, from their counts."""
    n, sizes = len(columns), columns.max(axis=0) + 1
    joint = one_hot(columns, sizes).T @ np.eye(int(target.max()) + 1)[target] / n
    product = joint.sum(axis=1, keepdims=True) * (np.bincount(target) / n)
    terms = joint * np.log(np.divide(joint, product, out=np.ones_like(joint), where=joint > 0))
    return np.add.reduceat(terms.sum(axis=1), np.cumsum(sizes) - sizes)
