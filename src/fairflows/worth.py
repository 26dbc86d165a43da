"""usefulness: what a shared table is worth, to train on, to decide by, beside the real one, and column by column."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from fairflows.attack.risks import Risk, measure_risks
from fairflows.bounds.spending import best_rates
from fairflows.codec import one_hot
from fairflows.encoder.base import Model, encode_again, fitted_model
from fairflows.encoder.label import Label
from fairflows.exceptions import DataError, DataWarning
from fairflows.table.columns import floats, has_order, is_time, places_in
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table
from fairflows.threads import one_thread

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_MOST_MEASURED = 25_000  # persons that a second release is fitted to and judged on; more say the same
_JUDGED = 0.2  # share of them whom it has not seen
_WORK = 200_000  # rows · columns that forests learn from: a table of 100 columns is judged on 2,000 rows
_FEWEST_ROWS = 2_000
_TREES = 10  # of a forest
_ROWS_PER_TREE = 10_000  # twice as many take longer, and tell hardly more
_COLUMNS = 12  # that tell most of a value: what a forest looks at
_FINE, _COARSE = (32, 63), (4, 20)  # bins of numbers and most frequent categories, to learn from and to be predicted
_MOST_LEVELS = 250  # of a category that trees tell apart
_BOOSTING: dict[str, Any] = {"max_iter": 60, "learning_rate": 0.15}
_COMPARED = 10_000  # rows that are compared with real ones
_SETS = 100  # of two and of three columns that are compared
_STRONG = 0.3  # a rank correlation that should be kept
_SHAPES, _BARS = 24, 10  # columns that are drawn, real beside shared, and bars of each

RULES = {
    "raw": "learnt from raw rows, asked about raw rows",
    "trained": "learnt from shared rows, asked about raw rows",
    "score": "the score of the shared row",
    "row": "learnt from shared rows, asked about shared rows",
}
"""Ways to predict the label, by their short names."""


@dataclass(frozen=True)
class Told:
    """How often one value of a person is predicted right."""

    name: str  # the column
    released: float  # from the person's released row
    majority: float  # by a blind guess, the most frequent value

    @property
    def told(self) -> float:
        """Share of a blind guess's errors that the released row avoids: 0 reveals nothing, 1 everything."""
        return max(0.0, (self.released - self.majority) / (1 - self.majority)) if self.majority < 1 else 0.0

    def to_dict(self) -> dict[str, str | float]:
        """Return plain values, as JSON holds them."""
        return asdict(self) | {"told": self.told}


@dataclass(frozen=True)
class JudgedRule:
    """Quality of one way to predict the label, on persons that were not learnt from."""

    right: float  # the share that is right; of a number R², the share of the variance that is explained
    auc: float | None  # how well scores rank a class above the others, mean over the classes; None for a number
    error: float | None  # the mean distance of a number from the truth; None for classes
    gap: float  # largest difference between groups in how often a class is predicted; of numbers of means, in sd


@dataclass(frozen=True)
class LabelWorth:
    """Worth of a shared table for predicting a label."""

    name: str
    classes: tuple[str, ...]  # none for a number
    blind: float  # the share that is right by a blind guess; of a number the mean distance from its median
    rules: dict[str, JudgedRule]  # by the names of `RULES`
    best: dict[str, float]  # by Δ: what the best release within it reaches, for two classes; for a number at Δ = 0


@dataclass(frozen=True)
class Likeness:
    """How much shared rows are like real ones."""

    columns: dict[str, float]  # total variation between a column and the shared one, largest first
    pairs: tuple[float, float]  # 1 − mean total variation of pairs of columns: of shared rows, and of other real rows
    k_marginal: tuple[float, float]  # the same of three columns
    correlations: float | None  # share of the strong rank correlations that is kept; None where there are none
    detection: float  # 1: boosted trees cannot tell shared rows from real ones; 0: they always can
    shapes: list[dict[str, Any]]  # of the first columns: the shares of values or ranges, real and shared


@dataclass(frozen=True)
class Usefulness:
    """Measures of the worth of a shared table.

    Attributes
    ----------
    labels : tuple of LabelWorth
        What it is worth to train on and to decide by, for each label.
    rows : Likeness or None
        How much its rows are like real ones; None where no rows are drawn.
    columns : tuple of Told
        How much a shared row tells of the person's own values, most told first. Of a number its quarter is predicted,
        of a column with many categories the most frequent ones and "another".
    sensitive : Told
        The same of the sensitive attribute, by balanced accuracy: every group counts alike.
    n : int
        How many rows of persons whom nothing was learnt from were judged.
    n_learnt : int
        How many rows were learnt from.
    """

    labels: tuple[LabelWorth, ...]
    rows: Likeness | None
    columns: tuple[Told, ...]
    sensitive: Told
    n: int
    n_learnt: int

    @property
    def label(self) -> LabelWorth | None:
        """The first of the labels; None without one."""
        return self.labels[0] if self.labels else None

    def to_frame(self) -> pd.DataFrame:
        """Return how much a shared row reveals: one line per column, then the sensitive attribute."""
        frame = pd.DataFrame([line.to_dict() for line in [*self.columns, self.sensitive]])
        return frame.rename(columns={"name": "column"}).set_index("column")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        told = {"columns": [line.to_dict() for line in self.columns], "sensitive": self.sensitive.to_dict()}
        return asdict(self) | told

    def __repr__(self) -> str:
        from fairflows.report.words import usefulness_text

        return usefulness_text(self)


@dataclass(frozen=True)
class Apart:
    """A model, rows that it was fitted to, rows of other persons, and what is released of both, unless it is asked."""

    model: Model
    learn: Table
    judge: Table
    rows: tuple[pd.DataFrame, pd.DataFrame] | None

    def risks(self, delta: float, random_state: int = 0) -> tuple[Risk, ...]:
        """Measure other risks of the rows that were drawn for the persons that the model was fitted to."""
        if self.rows is None:
            return ()
        members, others = (_whole(part, self.rows[0]) for part in (self.learn, self.judge))
        if members.shape[1] < 2:
            return ()
        return measure_risks(self.rows[0].reset_index(drop=True), members, others, delta, random_state)

    def unseen(self) -> Apart:
        """Return both halves of the other persons, the only ones that attackers of a second release know."""
        places = self.judge.persons.split(0.5, random_state=0)
        rows = None if self.rows is None else (self.rows[1].iloc[places[0]], self.rows[1].iloc[places[1]])
        return Apart(self.model, self.judge.take(places[0]), self.judge.take(places[1]), rows)


def usefulness(
    model: Model,
    table: Table,
    others: Table | None = None,
    *,
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    distance: float = 0.1,
    most_rows: int = 20_000,
    n_jobs: int | None = None,
    random_state: int = 0,
) -> Usefulness:
    """Measure what a shared table is worth: to train on, to decide by, beside the real one, and column by column.

    Everything is judged on persons whom nothing was learnt from. Where the model was fitted to all rows, a second
    release is fitted to four fifths of the persons, and judged on the others.

    Parameters
    ----------
    model : encoder or Shared
        What is released.
    table : Table
        The rows that it was fitted to.
    others : Table, default=None
        Rows of other persons. By default a second release is fitted, which needs a `Release`.
    encoded : pair of DataFrame, default=None
        What was released for the rows of `table` and of `others`, where the model cannot encode them again.
    distance : float, default=0.1
        Δ: the best that any release within it could give is estimated, beside that for Δ = 0.
    most_rows : int, default=20_000
        The most rows of each part; of wide tables forests take fewer.
    n_jobs : int, default=None
        Trees to grow at once, as for joblib.
    random_state : int, default=0
        Seed of the parts and of trees.

    Returns
    -------
    Usefulness

    Examples
    --------
    >>> from fairflows import Release, load_adult
    >>> adult = load_adult()
    >>> found = usefulness(Release(n_cells=16).fit(adult), adult, most_rows=2000)
    >>> found.label.rules["trained"].auc > 0.8, found.sensitive.told < 0.2
    (True, True)
    """
    if most_rows < 1:
        raise DataError(f"most_rows must be at least 1; got {most_rows!r}.")
    fitted = fitted_model(getattr(model, "release", model))
    if others is not None:
        parts = Apart(fitted, table, others, encoded)
    elif fitted.released_table is not None:
        parts = fitted_apart(fitted, table, random_state)
    else:
        raise DataError("others must be rows of persons whom the model was not fitted to, unless it is a Release.")
    learn, judge = parts.learn, parts.judge
    if list(learn.X) != list(judge.X):
        raise DataError("Both tables must have the same columns.")
    generator = np.random.default_rng(random_state)
    places = [generator.permutation(len(part))[:most_rows] for part in (learn, judge)]
    learn, judge = learn.take(places[0]), judge.take(places[1])
    frames = parts.rows or [encode_again(parts.model, *part) for part in ((learn, "train"), (judge, "test"))]
    if parts.rows is not None:
        frames = [frame.iloc[some] for frame, some in zip(frames, places, strict=True)]
    rows = frames[0].reset_index(drop=True), frames[1].reset_index(drop=True)
    with one_thread(), Parallel(n_jobs=n_jobs, prefer="threads") as parallel:
        named = learn.label_columns().columns.intersection(judge.label_columns().columns)
        tasks = [delayed(_label_worth)(str(name), learn, judge, rows, distance, random_state) for name in named]
        if parts.model.traits.draws_rows:
            real = [_whole(part, rows[0]) for part in (learn, judge)]
            tasks.append(delayed(_likeness)(real[0], rows[0][list(real[0])], real[1], random_state))
        measured = parallel(tasks)
        columns, sensitive, n = _told(parallel, learn, judge, rows, generator, random_state)
    labels = tuple(label for label in measured[: len(named)] if label is not None)
    return Usefulness(labels, [*measured[len(named) :], None][0], columns, sensitive, n, len(learn))


def fitted_apart(release: Model, table: Table, random_state: int = 0) -> Apart:
    """Fit a second release to four fifths of the persons, at most 20,000, and release the others by it, too.

    Raise a DataError if there are too few persons for that.
    """
    persons, some = table.persons, np.arange(len(table))
    share = min(1.0, _MOST_MEASURED / persons.n)
    if share < 1:
        some = persons.split(share, random_state=random_state)[1]
    places = persons.take(some).split(_JUDGED, random_state=random_state)
    learn, judge = (table.take(some[part]) for part in places)
    twin = clone(release)
    if release.traits.separate_thresholds:
        twin.set_params(n_cells=release.n_cells_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of the first release
        return Apart(twin, learn, judge, (to_pandas(twin.fit_transform(learn)), encode_again(twin, judge)))


# The label ----------------------------------------------------------------------------------------------------------


def _label_worth(
    name: str, learn: Table, judge: Table, rows: tuple[pd.DataFrame, pd.DataFrame], distance: float, seed: int
) -> LabelWorth | None:
    """Measure a label; return None where the judged rows, or the drawn ones, have a class that is new."""
    own = learn.label_columns()[name]
    label = Label.read(own, len(learn))
    truth, drawn = (_coded(label, column) for column in (judge.label_columns()[name], rows[0].get(name, own)))
    if label.classes is not None and min(truth.min(), drawn.min()) < 0:
        return None
    with one_thread():
        return _LabelRows(label, truth, drawn, name, learn, judge, rows).measured(distance, seed)


@dataclass(frozen=True)
class _LabelRows:
    """A label of both parts, and the rows that it is predicted from."""

    label: Label
    truth: npt.NDArray  # of the judged rows: class numbers, or numbers
    drawn: npt.NDArray  # of the rows to learn from, as they are shared
    name: str
    learn: Table
    judge: Table
    rows: tuple[pd.DataFrame, pd.DataFrame]

    def measured(self, distance: float, seed: int) -> LabelWorth:
        """Measure every way to predict the label."""
        raw, shared = [self.learn.X, self.judge.X], [part.drop(columns=self._not_learnt(part)) for part in self.rows]
        predicted = {"raw": _boosted(self.label, raw[0], self.label.values, [raw[1]], seed)[0]}
        if list(shared[0]) != ["cell"]:
            asked = {"row": shared[1]} | ({"trained": raw[1]} if list(shared[0]) == list(raw[0]) else {})
            found = _boosted(self.label, shared[0], self.drawn, list(asked.values()), seed)
            predicted |= dict(zip(asked, found, strict=True))
        score = self._scores()
        if score is not None:
            predicted["score"] = score
        rules = {name: self._judged(predicted[name]) for name in RULES if name in predicted}
        classes = () if self.label.classes is None else tuple(map(str, self.label.classes))
        return LabelWorth(self.name, classes, self._blind(), rules, self._best(predicted["raw"], distance))

    def _not_learnt(self, rows: pd.DataFrame) -> list[str]:
        """Return the drawn labels and the scores of cells, which raw rows do not have."""
        labels = tuple(map(str, self.learn.label_columns()))
        scores = tuple(f"{name}_score" for name in labels)
        return [name for name in rows if name not in self.learn.X and (name in labels or str(name).startswith(scores))]

    def _scores(self) -> FloatArray | None:
        """Return the score of each judged row: the columns of a release, or the mean label of the cell."""
        if list(self.rows[0]) == ["cell"]:
            means = pd.DataFrame(self._targets(self.label.values)).groupby(self.rows[0]["cell"].to_numpy()).mean()
            return means.reindex(self.rows[1]["cell"]).fillna(means.mean()).to_numpy()
        name, classes = f"{self.name}_score", self.label.class_values
        names = [name] if len(classes) <= 2 else [f"{name}_{value}" for value in classes]
        if not set(names) <= set(self._not_learnt(self.rows[1])):
            return None
        values = self.rows[1][names].to_numpy(dtype=np.float64)
        return np.column_stack([1 - values, values]) if len(self.label.class_values) == 2 else values

    def _targets(self, values: npt.NDArray) -> FloatArray:
        return values[:, None] if self.label.classes is None else np.eye(len(self.label.classes))[values]

    def _judged(self, predicted: FloatArray) -> JudgedRule:
        """Compare predictions, probabilities of the classes or numbers, with the truth."""
        if self.label.classes is None:
            errors, spread = predicted[:, 0] - self.truth, max(float(np.var(self.truth)), 1e-300)
            right = 1 - float(np.mean(errors**2)) / spread
            return JudgedRule(right, None, float(np.abs(errors).mean()), self._gap(predicted) / spread**0.5)
        chosen, size = predicted.argmax(axis=1), len(self.label.classes)
        known = [c for c in range(size) if 0 < np.mean(self.truth == c) < 1]
        aucs = [roc_auc_score(self.truth == c, predicted[:, c]) for c in known]
        auc = float(np.mean(aucs)) if aucs else None
        return JudgedRule(float((chosen == self.truth).mean()), auc, None, self._gap(np.eye(size)[chosen]))

    def _gap(self, values: FloatArray) -> float:
        """Return the largest difference between the means of two groups."""
        group = self.judge.a.to_numpy()
        return float(np.ptp([values[group == a].mean(axis=0) for a in self.judge.groups], axis=0).max())

    def _blind(self) -> float:
        if self.label.classes is None:
            return float(np.abs(self.truth - np.median(self.label.values)).mean())
        return float((self.truth == np.bincount(self.label.values).argmax()).mean())

    def _best(self, predicted: FloatArray, distance: float) -> dict[str, float]:
        """Estimate the best that any release within Δ could give, from honest scores by group."""
        group, groups = self.judge.group_numbers(self.learn.groups), range(len(self.learn.groups))
        if any(not (group == a).any() for a in groups):
            return {}
        if self.label.classes is None:
            # Alike in all groups and nearest to the scores: the mean over the groups of the quantiles at one's rank.
            alike, scores = np.zeros(len(group)), predicted[:, 0]
            for a in groups:
                rank = (scores[group == a].argsort().argsort() + 0.5) / (group == a).sum()
                parts = [np.mean(group == b) * np.quantile(scores[group == b], rank) for b in groups]
                alike[group == a] = np.sum(parts, axis=0)
            return {"0": self._judged(alike[:, None]).right}
        if len(self.label.classes) != 2:
            return {}
        eta, found = predicted[:, 1], dict[str, float]()
        for spend in sorted({0.0, distance}):
            right, rates = 0, best_rates([eta[group == a] for a in groups], spend)
            for a, rate in zip(groups, rates, strict=True):
                order = np.argsort(-eta[group == a], kind="stable")
                is_chosen = np.arange(len(order)) < round(rate * len(order))
                right += int((self.truth[group == a][order] == is_chosen).sum())
            found[f"{spend:g}"] = max(right / len(group), *found.values(), 0.0)  # a larger Δ allows no less
        return found


def _coded(label: Label, column: pd.Series) -> npt.NDArray:
    """Return class numbers, −1 for a class that is new; or numbers."""
    if label.classes is None:
        return floats(column)
    return places_in(pd.Index(label.classes, dtype=object), column.astype(object))


def _boosted(label: Label, fit: pd.DataFrame, y: npt.NDArray, asked: Sequence[pd.DataFrame], seed: int) -> list:
    """Return the probabilities of the classes, or the numbers, that boosted trees predict for other rows."""
    learnt, *others = _matrices(fit, *asked)
    settings = {**_BOOSTING, "categorical_features": [not has_order(t) for t in fit.dtypes], "random_state": seed}
    if label.classes is None:
        numbers = HistGradientBoostingRegressor(**settings).fit(learnt, y)
        return [numbers.predict(rows)[:, None] for rows in others]
    known = np.unique(y)
    if len(known) < 2:
        return [np.eye(len(label.classes))[np.full(len(rows), known[0])] for rows in others]
    trees, found = HistGradientBoostingClassifier(**settings).fit(learnt, y), []
    for rows in others:
        found.append(np.zeros((len(rows), len(label.classes))))
        found[-1][:, known] = trees.predict_proba(rows)
    return found


def _matrices(fit: pd.DataFrame, *asked: pd.DataFrame) -> list[FloatArray]:
    """Return tables as numbers: numbers and times as they are, or NaN; categories by how frequent they are in `fit`."""
    columns = []
    for name in fit:
        if has_order(fit[name].dtype):
            parts = [floats(part[name]) for part in (fit, *asked)]
            parts[0] = parts[0] if fit[name].notna().any() else np.zeros(len(fit))  # trees cannot cut nothing
        else:
            coded = [_Codes.of(fit[name], part[name], (0, _MOST_LEVELS)) for part in asked]
            parts = [np.asarray(codes, dtype=np.float64) for codes in (coded[0].train, *(each.test for each in coded))]
        columns.append(parts)
    return [np.column_stack(part) for part in zip(*columns, strict=True)]


# Beside the real table ----------------------------------------------------------------------------------------------


def _whole(table: Table, shared: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that shared rows have, as they are in the real table."""
    columns = table.X.assign(**{str(name): label for name, label in table.label_columns().items()})
    return columns[[name for name in shared if name in columns]].reset_index(drop=True)


def _likeness(real: pd.DataFrame, shared: pd.DataFrame, others: pd.DataFrame, seed: int) -> Likeness:
    """Compare shared rows with the real ones; pairs and triples with real rows of others, beside those themselves."""
    codes = {str(name): _Codes.of(real[name], shared[name], (20, 63)) for name in real}
    apart = {name: _variation(code.train[:, None], code.test[:, None]) for name, code in codes.items()}
    again = [_Codes.of(real[name], others[name], (20, 63)).test for name in real]
    n = min(len(real), len(others), _COMPARED)
    there, here, other = (
        np.column_stack(part)[:n]
        for part in ([c.test for c in codes.values()], [c.train for c in codes.values()], again)
    )
    generator = np.random.default_rng(seed)
    pairs, triples = (_alike_together(size, other, (there, here), generator) for size in (2, 3))
    return Likeness(
        dict(sorted(apart.items(), key=lambda item: -item[1])),
        pairs,
        triples,
        _kept_correlations(real[:_COMPARED], shared[:_COMPARED]),
        _detection(real[:_COMPARED], shared[:_COMPARED], seed),
        [_shape(str(name), real[name], shared[name]) for name in list(real)[:_SHAPES]],
    )


def _alike_together(
    size: int, real: IntArray, others: tuple[IntArray, IntArray], generator: np.random.Generator
) -> tuple[float, float]:
    """Return 1 − the mean total variation of some columns at a time, between real rows and each of two others."""
    chosen = list(combinations(range(real.shape[1]), min(size, real.shape[1])))
    some = [list(chosen[i]) for i in generator.permutation(len(chosen))[:_SETS]]
    shared, again = (1 - float(np.mean([_variation(real[:, s], rows[:, s]) for s in some])) for rows in others)
    return shared, again


def _variation(here: IntArray, there: IntArray) -> float:
    """Return the total variation between two samples of some columns, as whole numbers."""
    both, sizes = np.concatenate([here, there]), np.maximum(here.max(axis=0), there.max(axis=0)) + 1
    keys = np.unique(np.ravel_multi_index(tuple(both.T), tuple(sizes)), return_inverse=True)[1]
    shares = [np.bincount(part, minlength=keys.max() + 1) / len(part) for part in np.split(keys, [len(here)])]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _kept_correlations(real: pd.DataFrame, shared: pd.DataFrame) -> float | None:
    """Return the sum of the shared rank correlations over that of the real ones, for strongly correlated columns."""
    names = [name for name in real if has_order(real[name].dtype) and real[name].nunique() > 1]
    ranks = [pd.DataFrame({name: floats(part[name]) for name in names}).rank() for part in (real, shared)]
    here, there = (np.atleast_2d(part.corr().to_numpy()) for part in ranks)
    strong = np.triu(np.abs(here) > _STRONG, 1)
    if not strong.any():
        return None
    return float((np.sign(here) * np.nan_to_num(there))[strong].sum() / np.abs(here)[strong].sum())


def _detection(real: pd.DataFrame, shared: pd.DataFrame, seed: int) -> float:
    """Return 1 − |2 AUC − 1| of boosted trees that tell shared rows from real ones."""
    n = min(len(real), len(shared))
    rows = np.concatenate(_matrices(real[:n], shared[:n]))
    is_shared, is_learnt = np.repeat([0, 1], n), np.random.default_rng(seed).random(2 * n) < 0.6
    categories = [not has_order(dtype) for dtype in real.dtypes]
    trees = HistGradientBoostingClassifier(**_BOOSTING, categorical_features=categories, random_state=seed)
    with one_thread():
        trees.fit(rows[is_learnt], is_shared[is_learnt])
    scores = trees.predict_proba(rows[~is_learnt])[:, 1]
    return 1 - abs(2 * float(roc_auc_score(is_shared[~is_learnt], scores)) - 1)


def _shape(name: str, real: pd.Series, shared: pd.Series) -> dict[str, Any]:
    """Return the shares of ranges of equal width, or of the most frequent values, of a column in both tables."""
    if has_order(real.dtype) and real.nunique() > _BARS:
        values = [floats(column) for column in (real, shared)]
        low, high = np.nanquantile(values[0], [0.01, 0.99])  # others lie in the first and the last range
        edges = np.linspace(low, high, _BARS + 1)[1:-1]
        codes = [np.searchsorted(edges, v[~np.isnan(v)], side="right") for v in values]
        names = [f"{edge:.4g}" for edge in (low, *edges)]
        if is_time(real.dtype):
            starts = pd.to_timedelta([low, *edges], unit="s").floor("D" if high - low > 86_400 * _BARS else "s")
            names = list((starts if real.dtype.kind == "m" else starts + pd.Timestamp(0)).astype(str))
    else:
        levels = real.astype(object).value_counts().index[:_BARS]
        levels = levels.sort_values() if has_order(real.dtype) else levels
        codes = [places_in(levels, column) for column in (real, shared)]
        codes, names = [code[code >= 0] for code in codes], [str(level) for level in levels]
    shares = [np.bincount(code, minlength=len(names)) / len(real) for code in codes]
    return {"name": name, "values": names, "real": shares[0].tolist(), "shared": shares[1].tolist()}


# What each column still tells ---------------------------------------------------------------------------------------


def _told(
    parallel: Parallel,
    learn: Table,
    judge: Table,
    rows: tuple[pd.DataFrame, pd.DataFrame],
    generator: np.random.Generator,
    seed: int,
) -> tuple[tuple[Told, ...], Told, int]:
    """Measure how well forests predict each person's own values from the columns of the released row that tell most."""
    few = max(_FEWEST_ROWS, _WORK // max(learn.X.shape[1], rows[0].shape[1]))
    kept = [generator.permutation(len(table))[:few] for table in (learn, judge)]
    learn, judge = learn.take(kept[0]), judge.take(kept[1])
    shown = [_Codes.of(rows[0].iloc[kept[0], j], rows[1].iloc[kept[1], j], _FINE) for j in range(rows[0].shape[1])]
    seen = [np.column_stack(part) for part in ([c.train for c in shown], [c.test for c in shown])]
    targets = {str(name): _Codes.of(learn.X[name], judge.X[name], _COARSE) for name in learn.X}
    groups = _Codes.of(learn.a, judge.a, _COARSE)
    forests = [delayed(_accuracy)(*seen, target, seed) for target in targets.values()]
    *told, of_group = parallel([*forests, delayed(_accuracy)(*seen, groups, seed, balanced=True)])
    columns = [
        Told(name, released, target.majority) for (name, target), released in zip(targets.items(), told, strict=True)
    ]
    sensitive = Told(str(learn.a.name), of_group, 1 / len(np.unique(groups.test)))
    return tuple(sorted(columns, key=lambda each: -each.told)), sensitive, len(judge)


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


def _accuracy(fit: IntArray, asked: IntArray, target: _Codes, seed: int, *, balanced: bool = False) -> float:
    """Return how often a forest predicts the target of asked rows right; on average over its values where balanced."""
    chosen = np.argsort(-_mutual_information(fit, target.train), kind="stable")[:_COLUMNS]
    forest = RandomForestClassifier(
        _TREES,
        min_samples_leaf=10,
        max_features=0.4,
        max_samples=min(len(fit), _ROWS_PER_TREE),
        class_weight="balanced" if balanced else None,
        random_state=seed,
    )
    right = forest.fit(fit[:, chosen], target.train).predict(asked[:, chosen]) == target.test
    if not balanced:
        return float(right.mean())
    return float(np.mean([right[target.test == value].mean() for value in np.unique(target.test)]))


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
