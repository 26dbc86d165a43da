"""Adversaries that guess the group: each gives every group a score, and the pair and threshold that suit it best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairflows.bounds.lower_bounds import Method, attack_lower_bound, better_method
from fairflows.resources import one_thread
from fairflows.table.columns import distinct

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
Make = Callable[[int, int], ClassifierMixin]

_SMALLEST = 1e-12
_DECIMALS = 10  # a matrix product rounds by a row's place; equal rows must lie on one side of a threshold
_LARGEST = 1e30  # of a number that a learner sees
_BINS = 255  # that scikit-learn's boosted trees tell apart
_MOST_TREES = 4_000  # of one learner: minutes
_PATIENCE = 3  # epochs that explain held-out rows no better
_PRIOR_ROWS = 10  # at the average rate that a level's rates are mixed with
_FEW_COLUMNS = 4  # in which a tree finds the nearest rows faster than products of matrices do
_ROWS_PER_CHUNK = 128  # whose distances from all others are held at once


@dataclass(frozen=True)
class Features:
    """What learners see of rows; released cells repeat, and of a million rows few are different."""

    different: FloatArray  # (m, F): the different rows
    place: IntArray  # (n,): which of them each row is

    @classmethod
    def of(cls, rows: FloatArray) -> Features:
        """Rows of which each is taken for different."""
        return cls(rows, np.arange(len(rows)))

    def take(self, rows: IntArray) -> Features:
        """The rows at these places."""
        met, place = np.unique(self.place[rows], return_inverse=True)
        return Features(self.different[met], place)


@dataclass(frozen=True)
class Learner:
    """A classifier of the group."""

    make: Make  # makes it for a seed and a number of groups
    most_rows: int  # how many rows it learns from at most
    # How many different rows it is judged on at most, a random part of more. Its bound then rests on fewer persons, and
    # holds as well.
    most_judged: int = 100_000

    def judged_rows(self, rows: Features, group: IntArray, seed: int) -> IntArray:
        """Places of the rows that it is judged on."""
        if len(rows.different) <= self.most_judged:
            return np.arange(len(group))
        return np.sort(stratified_sample(group, self.most_judged, seed))

    def scores(self, fit: Features, group: IntArray, others: Sequence[Features], seed: int) -> list[FloatArray]:
        """Log-probabilities of the groups, (n, K), for other rows than those it learns from."""
        K, n = group.max() + 1, np.bincount(group)
        chosen = stratified_sample(group, self.most_rows, seed)
        chosen = chosen[n[group[chosen]] > 1]  # a single row cannot be learnt from and stopped by
        # The audit runs learners side by side; one that enormous numbers overwhelm is weak, and no error.
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):
            learnt = self.make(seed, int(K)).fit(_bounded(fit.different[fit.place[chosen]]), group[chosen])
            found = [np.full((len(rows.different), K), _SMALLEST) for rows in others]
            for probabilities, rows in zip(found, others, strict=True):
                known = learnt.predict_proba(_bounded(rows.different))
                probabilities[:, learnt.classes_] = np.maximum(known, _SMALLEST)
        scores = [np.log(probabilities).round(_DECIMALS) for probabilities in found]
        return [score[rows.place] for score, rows in zip(scores, others, strict=True)]


def _bounded(x: FloatArray) -> FloatArray:
    """Numbers that single precision holds, and whose squares double precision does."""
    return np.clip(x, -_LARGEST, _LARGEST)


def stratified_sample(group: IntArray, most: int, seed: int) -> IntArray:
    """Places of at most so many rows at random, as many of each group as the others have, where it has so many.

    What tells two groups apart is learnt, and judged, as well as the smaller of them allows.
    """
    by_group, rank = _shuffled_by_group(group, seed)
    return by_group[np.argsort(rank, kind="stable")[:most]]


def _shuffled_by_group(group: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """Places of all rows, group after group and at random within each, and the ranks within the groups."""
    order = np.random.default_rng(seed).permutation(len(group))
    n = np.bincount(group)
    rank = np.arange(len(group)) - np.repeat(np.cumsum(n) - n, n)
    return order[np.argsort(group[order], kind="stable")], rank


def _boosting(rounds: int) -> Make:
    """Boosted trees; every round grows a tree per group, so that many groups get fewer rounds."""
    return lambda seed, n_groups: _trees(max(1, min(rounds, _MOST_TREES // n_groups)), seed)


def _trees(rounds: int, seed: int, **settings: int | bool) -> ClassifierMixin:
    return make_pipeline(
        Ordered(),
        Bins(),
        HistGradientBoostingClassifier(max_iter=rounds, class_weight="balanced", random_state=seed, **settings),
    )


class Ordered(TransformerMixin, BaseEstimator):
    """The indicators of one category as ranks of its levels, for trees: they look at far fewer columns.

    Columns side by side that hold 0 and 1, and never 1 in the same row, belong to one category. For each group but the
    first, its levels are ordered by how often the group has them: trees then split off those that speak for it. Where
    that is more numbers than indicators, these stay.
    """

    def fit(self, x: FloatArray, group: IntArray) -> Self:
        """Find the categories, and learn the order of their levels."""
        number = np.unique(group, return_inverse=True)[1]
        in_group = np.eye(number.max() + 1)[number]
        self.parts_ = [(part, _ranks(x[:, part], in_group)) for part in _categories(x)]
        return self

    def transform(self, x: FloatArray) -> FloatArray:
        """Ranks from 1 on, 0 where a row has none of the levels; other columns as they are."""
        if all(ranks is None for _, ranks in self.parts_):
            return x
        return np.hstack([x[:, part] if ranks is None else x[:, part] @ ranks for part, ranks in self.parts_])


def _ranks(indicators: FloatArray, in_group: FloatArray) -> FloatArray | None:
    """The rank of each level by the rate of each group but the first; None where indicators are fewer numbers."""
    if indicators.shape[1] < in_group.shape[1]:
        return None
    counts = indicators.T @ in_group
    rates = (counts + _PRIOR_ROWS * in_group.mean(axis=0)) / (counts.sum(axis=1, keepdims=True) + _PRIOR_ROWS)
    return (1 + np.argsort(np.argsort(rates[:, 1:], axis=0, kind="stable"), axis=0)).astype(np.float64)


def _categories(x: FloatArray) -> list[slice]:
    """Columns side by side that exclude each other; a column of other numbers than 0 and 1 is by itself."""
    is_one = x == 1
    is_indicator = (is_one | (x == 0)).all(axis=0)
    parts, start, taken = [], 0, is_one[:, 0]
    for j in range(1, x.shape[1]):
        if is_indicator[j - 1] and is_indicator[j] and not (taken & is_one[:, j]).any():
            taken = taken | is_one[:, j]
        else:
            parts.append(slice(start, j))
            start, taken = j, is_one[:, j]
    return [*parts, slice(start, x.shape[1])]


class Bins(TransformerMixin, BaseEstimator):
    """Each value as the number of its bin: quantiles of the column, in which every group has the same weight.

    scikit-learn makes the same bins, but where rows have weights it sorts the column anew for each of the quantiles,
    which takes several times as long as growing the trees.
    """

    def fit(self, x: FloatArray, group: npt.NDArray[np.intp]) -> Self:
        """Learn where the bins of each column begin."""
        _, place, n = np.unique(group, return_inverse=True, return_counts=True)
        self.edges_ = [_edges(column, 1 / n[place]) for column in np.asarray(x).T]
        return self

    def transform(self, x: FloatArray) -> FloatArray:
        """The numbers of the bins, (n, F)."""
        bins = np.empty(x.shape)
        for j, edges in enumerate(self.edges_):
            bins[:, j] = np.searchsorted(edges, x[:, j])
        return bins


def _edges(column: FloatArray, weight: FloatArray) -> FloatArray:
    """The largest value of each bin but the last; where there are few values, each has a bin of its own."""
    different = np.unique(column)
    if len(different) <= _BINS:
        return different[:-1]
    order = np.argsort(column)
    total = np.cumsum(weight[order])
    quantiles = np.searchsorted(total, np.linspace(0, total[-1], _BINS + 1)[1:-1])
    return np.unique(column[order][quantiles])


def _forest(seed: int, n_groups: int) -> ClassifierMixin:
    return RandomForestClassifier(50, min_samples_leaf=3, max_samples=0.5, class_weight="balanced", random_state=seed)


class Neighbours(ClassifierMixin, BaseEstimator):
    """The groups' shares among the nearest rows.

    In few columns a tree of the rows finds them fast. In many, all distances are products of matrices in single
    precision, which takes half as long as scikit-learn does; all rows as near as the last of the nearest then count.
    """

    def __init__(self, n: int):
        self.n = n

    def fit(self, x: FloatArray, group: IntArray) -> Self:
        """Keep the rows, group after group."""
        self.classes_, number, n = np.unique(group, return_inverse=True, return_counts=True)
        n_near, self.tree_ = min(self.n, len(x)), None
        if x.shape[1] <= _FEW_COLUMNS:
            self.tree_ = KNeighborsClassifier(n_near, algorithm="kd_tree").fit(x, group)
            return self
        self.last_, self.ends_ = n_near - 1, np.cumsum(n)[:-1]
        rows = _single(x[np.argsort(number, kind="stable")])
        self.rows_, self.half_squares_ = np.ascontiguousarray(rows.T), (rows * rows).sum(axis=1) / 2
        return self

    def predict_proba(self, x: FloatArray) -> FloatArray:
        """The shares of the groups, (n, K)."""
        if self.tree_ is not None:
            return self.tree_.predict_proba(x)
        counts = np.empty((len(x), len(self.classes_)))
        for start in range(0, len(x), _ROWS_PER_CHUNK):
            # |x - r|² / 2 without the |x|² / 2 that all rows r share
            far = self.half_squares_ - _single(x[start : start + _ROWS_PER_CHUNK]) @ self.rows_
            is_near = far <= np.partition(far, self.last_, axis=1)[:, self.last_, None]
            of_groups = np.split(is_near, self.ends_, axis=1)
            counts[start : start + _ROWS_PER_CHUNK] = np.stack([near.sum(axis=1) for near in of_groups], axis=1)
        return counts / counts.sum(axis=1, keepdims=True)


def _single(x: FloatArray) -> npt.NDArray[np.float32]:
    """Single precision, in which squares of numbers up to 10¹⁵ are finite; what is further away is as far."""
    return np.clip(x, -1e15, 1e15).astype(np.float32)


def _neighbours(n: int) -> Make:
    return lambda seed, n_groups: make_pipeline(StandardScaler(), Neighbours(n))


class _Network(ClassifierMixin, BaseEstimator):
    """A network that stops learning once rows that it does not learn from are explained no better.

    Where little is told of the group it would else learn its rows by heart, and guess worse. It learns in single
    precision, which is faster, and answers in double precision, where equal rows get equal answers once these are
    rounded.
    """

    def __init__(self, hidden: tuple[int, ...], epochs: int, seed: int):
        self.hidden, self.epochs, self.seed = hidden, epochs, seed

    def fit(self, x: FloatArray, group: IntArray) -> Self:
        """Learn from nine tenths of the rows, and keep what explained the others best."""
        self.classes_, number = np.unique(group, return_inverse=True)
        places, rank = _shuffled_by_group(number, self.seed)
        held, learnt = places[rank % 10 == 1], places[rank % 10 != 1]  # at least one of two rows of a group is learnt
        single = x.astype(np.float32)
        self.network_ = MLPClassifier(self.hidden, batch_size=min(256, len(learnt)), random_state=self.seed)
        lowest, last_better = np.inf, 0
        for epoch in range(self.epochs):
            self.network_.partial_fit(single[learnt], group[learnt], classes=self.classes_)
            p = self.network_.predict_proba(single[held])[np.arange(len(held)), number[held]]
            loss = -np.log(np.maximum(p, _SMALLEST)).mean()
            if epoch == 0 or loss < lowest:
                lowest, last_better = loss, epoch
                best = [[w.astype(np.float64) for w in ws] for ws in (self.network_.coefs_, self.network_.intercepts_)]
            elif epoch - last_better == _PATIENCE:
                break
        self.network_.coefs_, self.network_.intercepts_ = best
        return self

    def predict_proba(self, x: FloatArray) -> FloatArray:
        """Probabilities of the groups."""
        return self.network_.predict_proba(x)


def _network(hidden: tuple[int, ...], epochs: int) -> Make:
    return lambda seed, n_groups: _Network(hidden, epochs, seed)


def _logistic(seed: int, n_groups: int) -> ClassifierMixin:
    return LogisticRegression(max_iter=300, class_weight="balanced")


def _standardised(make: Make) -> Make:
    return lambda seed, n_groups: make_pipeline(StandardScaler(), make(seed, n_groups))


class _Stack(ClassifierMixin, BaseEstimator):
    """Several learners, and a logistic regression on what they say of a third of the rows, which they do not see."""

    def __init__(self, learners: Sequence[ClassifierMixin], seed: int):
        self.learners, self.seed = learners, seed

    def fit(self, x: FloatArray, group: IntArray) -> Self:
        """Learn from two thirds of the rows, then from the others."""
        self.classes_, number = np.unique(group, return_inverse=True)
        places, rank = _shuffled_by_group(number, self.seed)
        held, learnt = places[rank % 3 == 1], places[rank % 3 != 1]
        for learner in self.learners:
            learner.fit(x[learnt], group[learnt])
        self.last_ = LogisticRegression(max_iter=300, class_weight="balanced").fit(self._said(x[held]), group[held])
        return self

    def predict_proba(self, x: FloatArray) -> FloatArray:
        """Probabilities of the groups."""
        return self.last_.predict_proba(self._said(x))

    def _said(self, x: FloatArray) -> FloatArray:
        """The learners' probabilities of all groups but the first, side by side."""
        return np.hstack([learner.predict_proba(x)[:, 1:] for learner in self.learners])


def _stacked(seed: int, n_groups: int) -> ClassifierMixin:
    """Boosted trees learn without early stopping, which would need two rows of every group."""
    rounds = max(1, min(40, _MOST_TREES // (4 * n_groups)))
    learners = [
        _trees(rounds, seed, early_stopping=False),
        _trees(rounds, seed, early_stopping=False, max_leaf_nodes=4),
        RandomForestClassifier(25, min_samples_leaf=5, class_weight="balanced", random_state=seed),
        _standardised(_logistic)(seed, n_groups),
        _neighbours(15)(seed, n_groups),
    ]
    return _Stack(learners, seed)


# The slowest first: they run side by side, and a slow one that starts last is waited for.
LEARNERS = {
    "random forest": Learner(_forest, 24_000, 50_000),
    "stacked learners": Learner(_stacked, 12_000, 20_000),
    "network 200, 200, standardised": Learner(_standardised(_network((200, 200), 15)), 20_000),
    "nearest neighbours": Learner(_neighbours(50), 10_000, 20_000),
    "network 50, 50, standardised": Learner(_standardised(_network((50, 50), 20)), 20_000),
    "network 50, 50": Learner(_network((50, 50), 20), 20_000),
    "boosted trees": Learner(_boosting(100), 150_000),
    "logistic regression": Learner(_standardised(_logistic), 100_000),
}

# They see five times as many columns.
WHITE_BOX_LEARNERS = {
    "stacked learners": LEARNERS["stacked learners"],
    "random forest": Learner(_forest, 12_000, 20_000),
    "boosted trees": LEARNERS["boosted trees"],
}

DENSITY_LEARNERS = {name: WHITE_BOX_LEARNERS[name] for name in ("random forest", "boosted trees")}

QUICK_LEARNERS = {
    "boosted trees": Learner(_boosting(40), 20_000),
    "logistic regression": LEARNERS["logistic regression"],
}

QUICK_WHITE_BOX_LEARNERS = {"boosted trees": QUICK_LEARNERS["boosted trees"]}


def frequency_scores(fit: npt.NDArray, group: IntArray, others: list[npt.NDArray]) -> list[FloatArray]:
    """Log of each group's share of rows with exactly this value, (n, K); half a row is added to each count."""
    values = distinct(fit)
    K = group.max() + 1
    counts = np.full((len(values) + 1, K), 0.5)
    np.add.at(counts, (np.searchsorted(values, fit), group), 1)
    log_shares = np.log(counts / np.bincount(group, minlength=K))
    log_shares[-1] = 0  # a value that was never seen says nothing
    found = []
    for rows in others:
        place = np.minimum(np.searchsorted(values, rows), len(values) - 1)
        found.append(log_shares[np.where(values[place] == rows, place, len(values))])
    return found


@dataclass(frozen=True)
class Attack:
    """One adversary and what it reached.

    Attributes
    ----------
    name : str
        The adversary.
    box : {"black", "white"}
        Whether it saw the release alone, or knows the encoders too.
    validation : float
        The difference of its answers between the two groups, on validation persons: how it was tuned and chosen.
    expected : float
        The lower bound that this promises on the test persons: what adversaries are chosen by.
    lower : float
        The lower bound on Δ from the test persons; holds with probability 1 − δ for each adversary by itself.
    groups : tuple of int
        The pair of groups that it tells apart.
    n : tuple of int
        How many test persons of these two groups it was judged on.
    method : str
        How the lower bound was computed, chosen on validation persons.
    """

    name: str
    box: str
    validation: float
    expected: float
    lower: float
    groups: tuple[int, int]
    n: tuple[int, int]
    method: Method


def judge(
    name: str,
    box: str,
    scores: tuple[FloatArray, FloatArray],
    groups: tuple[IntArray, IntArray],
    delta: float,
) -> Attack:
    """Fix pair, threshold and method on validation rows, then bound Δ from below on test rows.

    `scores` of the groups, (n, K), and `groups` are those of validation and of test rows.
    """
    (s_val, s_test), (g_val, g_test) = scores, groups
    K = s_val.shape[1]
    n_val, n_test = (np.bincount(g, minlength=K) for g in groups)
    rows_of = [np.flatnonzero(g_val == a) for a in range(K)]
    best: Attack | None = None
    for a, b in combinations(range(K), 2):
        of_pair = {g: s_val[rows_of[g], b] - s_val[rows_of[g], a] for g in (a, b)}
        threshold, gap = _best_threshold(of_pair[a], of_pair[b])
        k_val = np.zeros(K)  # of the pair, which alone counts
        k_val[[a, b]] = [(of_pair[g] >= threshold).sum() for g in (a, b)]
        method = better_method(k_val, n_val, n_test, delta, groups=(a, b))
        expected = np.floor(k_val * n_test / np.maximum(n_val, 1))
        promised = float(attack_lower_bound(expected, n_test, delta, method=method, groups=(a, b)))
        if best is None or (promised, gap) > (best.expected, best.validation):
            k_test = np.bincount(g_test[s_test[:, b] - s_test[:, a] >= threshold], minlength=K)
            lower = float(attack_lower_bound(k_test, n_test, delta, method=method, groups=(a, b)))
            best = Attack(name, box, gap, promised, lower, (a, b), (int(n_test[a]), int(n_test[b])), method)
    if best is None:
        raise ValueError("an attack needs at least two groups.")
    return best


def _best_threshold(of_a: FloatArray, of_b: FloatArray) -> tuple[float, float]:
    """The threshold from which on to answer b, and the difference of the answers' rates in b and in a."""
    of_pair = [np.sort(of_a), np.sort(of_b)]
    values = np.unique(np.concatenate(of_pair))
    above = [1 - np.searchsorted(scores, values) / max(len(scores), 1) for scores in of_pair]
    gap = above[1] - above[0]  # of answering b where the score is at least the value
    best = int(gap.argmax())
    return float(values[best]), float(gap[best])
