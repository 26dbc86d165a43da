"""Adversaries that guess the group: each gives every group a score, and the pair and threshold that suit it best.

The models are scikit-learn's. They learn from the same share of every group where there are enough rows, and are
judged by the difference of their answers between two groups, for which thresholds are tuned: the shares of the groups
need no weights.

An open-box adversary holds the encoders, too, and runs every group's inverse: only the true group's gives back a real
row. Besides z it knows, for every group b, the row f_b⁻¹(z) in the table's own units, how far the row lies from the
columns' grids and from training rows, whether it is out of range, breaks a rule of the table or is a cell nobody saw,
and log p̂_b of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.spatial import cKDTree
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairflows.arrays import NDArray
from fairflows.bounds.lower_bounds import Method, attack_lower_bound
from fairflows.encoder.base import Encoder, Inversion
from fairflows.encoder.fair_matching import CombinationModel, ExactLaw, combinations_of_encoded, inverse_map
from fairflows.exceptions import DataError
from fairflows.table.columns import is_number, numbers
from fairflows.table.grid import Grid, find_grid
from fairflows.table.keys import content_hashes
from fairflows.threads import one_thread

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Constraint = Callable[[pd.DataFrame], Any]
Make = Callable[[int, int, int], ClassifierMixin]
"""Makes a classifier for a seed, a number of rows to learn from and a number of groups among them."""

_SMALLEST = 1e-12
_DECIMALS = 10  # of scores, because BLAS may give equal rows different last digits
_LARGEST = 1e30  # of a number that a learner sees
_MOST_TREES = 4_000  # of one learner: minutes


@dataclass(frozen=True)
class Learner:
    """A classifier of the group."""

    make: Make
    most_rows: int  # that it learns from
    most_judged: int = 100_000  # that it is judged on: a bound from a random part of more rows holds as well

    def scores(self, fit: FloatArray, group: IntArray, others: Sequence[FloatArray], seed: int) -> list[FloatArray]:
        """Return log-probabilities of the groups, (n, K), for other rows than those it learns from."""
        K, n = group.max() + 1, np.bincount(group)
        chosen = stratified_sample(group, self.most_rows, seed)
        chosen = chosen[n[group[chosen]] > 1]  # a single row cannot be learnt from and stopped by
        scores = []
        # The audit runs learners side by side; a learner that fails on enormous numbers is weak, not an error.
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):
            learner = self.make(seed, len(chosen), len(np.unique(group[chosen])))
            learnt = learner.fit(_finite(fit[chosen]), group[chosen])
            for rows in others:
                first, place = _different_rows(rows)
                probabilities = np.full((len(first), K), _SMALLEST)
                known = learnt.predict_proba(_finite(rows[first]))
                probabilities[:, learnt.classes_] = np.maximum(known, _SMALLEST)
                scores.append(np.log(probabilities).round(_DECIMALS)[place])
        return scores


def _different_rows(rows: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the position of one row of each distinct value, and for every row the number of its value."""
    values = pd.util.hash_pandas_object(pd.DataFrame(rows), index=False)
    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    return first, place


def _finite(values: FloatArray) -> FloatArray:
    """Clip numbers so that single precision holds them, and double precision their squares."""
    return np.clip(np.nan_to_num(values.astype(np.float64)), -_LARGEST, _LARGEST)


def stratified_sample(group: IntArray, most: int, seed: int) -> IntArray:
    """Return positions of at most `most` random rows, balanced over the groups as far as their sizes allow.

    Two groups are told apart as well as the smaller of them allows.
    """
    order = np.random.default_rng(seed).permutation(len(group))
    by_group, n = order[np.argsort(group[order], kind="stable")], np.bincount(group)
    rank = np.arange(len(group)) - np.repeat(np.cumsum(n) - n, n)  # within each group
    return by_group[np.argsort(rank, kind="stable")[:most]]


def _boosting(rounds: int) -> Make:
    """Make boosted trees; every round grows a tree per group, so that many groups get fewer rounds."""
    return lambda seed, n_rows, n_groups: _trees(rounds, seed, n_groups)


def _trees(rounds: int, seed: int, n_groups: int, **settings: int | bool) -> ClassifierMixin:
    rounds = max(1, min(rounds, _MOST_TREES // n_groups))
    return HistGradientBoostingClassifier(learning_rate=0.2, max_iter=rounds, random_state=seed, **settings)


def _forest(seed: int, n_rows: int, n_groups: int) -> ClassifierMixin:
    return RandomForestClassifier(50, min_samples_leaf=3, max_samples=0.5, class_weight="balanced", random_state=seed)


def _neighbours(n: int) -> Make:
    return lambda seed, n_rows, n_groups: make_pipeline(StandardScaler(), KNeighborsClassifier(min(n, n_rows)))


def _network(hidden: tuple[int, ...], epochs: int) -> Make:
    """Make a network that stops when its accuracy on held-out rows no longer improves."""
    return lambda seed, n_rows, n_groups: MLPClassifier(
        hidden,
        batch_size=min(256, max(1, n_rows * 8 // 10)),
        max_iter=epochs,
        early_stopping=n_rows >= 20 * n_groups,  # which keeps a tenth of the rows aside, of every group at least one
        n_iter_no_change=3,
        random_state=seed,
    )


def _logistic(seed: int, n_rows: int, n_groups: int) -> ClassifierMixin:
    return LogisticRegression(max_iter=300, class_weight="balanced")


def _standardised(make: Make) -> Make:
    return lambda seed, n_rows, n_groups: make_pipeline(StandardScaler(), make(seed, n_rows, n_groups))


def _stacked(seed: int, n_rows: int, n_groups: int) -> ClassifierMixin:
    """Stack three learners: a logistic regression learns from their cross-validated probabilities.

    Boosted trees learn without early stopping, which would need two rows of every group in each half.
    """
    learners = {
        "trees": _trees(40, seed, 4 * n_groups, early_stopping=False, max_leaf_nodes=4),
        "forest": RandomForestClassifier(25, min_samples_leaf=5, class_weight="balanced", random_state=seed),
        "logistic": _standardised(_logistic)(seed, n_rows, n_groups),
    }
    last = _logistic(seed, n_rows, n_groups)
    return StackingClassifier(list(learners.items()), last, cv=2, stack_method="predict_proba")


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
    """Return the log of each group's share of rows with exactly this value, (n, K), half a row added to each count."""
    K = group.max() + 1
    counts = pd.crosstab(fit, group).reindex(columns=range(K), fill_value=0)
    log_shares = np.log((counts + 0.5) / np.bincount(group, minlength=K))
    return [log_shares.reindex(rows, fill_value=0).to_numpy() for rows in others]  # an unseen value says nothing


@dataclass(frozen=True)
class Attack:
    """The result of one adversary."""

    name: str
    box: str  # "closed" (also called black): it saw the release alone; "open": it knows the encoders, too
    validation: float  # difference of its answers between the two groups, on validation persons, which tuned it
    expected: float  # the lower bound that this promises on test persons, which adversaries are chosen by
    lower: float  # the lower bound on Δ from the test persons; holds with probability 1 − δ for each adversary alone
    observed: float  # the difference of its answers on these persons, before anything is subtracted for chance
    groups: tuple[int, int]  # the pair of groups that it tells apart
    n: tuple[int, int]  # test persons of these two groups that it was judged on
    method: Method  # how the lower bound was computed, chosen on validation persons


def judge(
    name: str, box: str, scores: tuple[FloatArray, FloatArray], groups: tuple[IntArray, IntArray], delta: float
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
        expected = np.floor(k_val * n_test / np.maximum(n_val, 1))
        methods: tuple[Method, ...] = get_args(Method)
        promised, method = max(
            (float(attack_lower_bound(expected, n_test, delta, method=m, groups=(a, b))), m) for m in methods
        )
        if best is None or (promised, gap) > (best.expected, best.validation):
            k_test = np.bincount(g_test[s_test[:, b] - s_test[:, a] >= threshold], minlength=K)
            lower = float(attack_lower_bound(k_test, n_test, delta, method=method, groups=(a, b)))
            rates = k_test[[a, b]] / np.maximum(n_test[[a, b]], 1)
            observed, n = float(rates[1] - rates[0]), (int(n_test[a]), int(n_test[b]))
            best = Attack(name, box, gap, promised, lower, observed, (a, b), n, method)
    if best is None:
        raise DataError("an attack needs at least two groups.")
    return best


def _best_threshold(of_a: FloatArray, of_b: FloatArray) -> tuple[float, float]:
    """Return the threshold t that maximises P(score ≥ t | b) - P(score ≥ t | a), and this difference."""
    of_pair = [np.sort(of_a), np.sort(of_b)]
    values = np.unique(np.concatenate(of_pair))
    above = [1 - np.searchsorted(scores, values) / max(len(scores), 1) for scores in of_pair]
    gap = above[1] - above[0]  # of answering b where the score is at least the value
    best = int(gap.argmax())
    return float(values[best]), float(gap[best])


_OFF_GRID = 1e-4  # of a step: rounding in a flow stays far below
_MOST_NEIGHBOURS_OF = 5_000  # reference rows that distances are measured to
_MOST_COLUMNS = 30  # in more dimensions all rows are far from each other, and the search is slow
_MOST_VALUES = 500  # of all groups' inverses of a row; of more, learners see what is computed from them


@dataclass(frozen=True)
class WhiteBox:
    """The knowledge that the encoders give about rows z."""

    features: FloatArray  # (n, F): everything that can be computed, for a learner to use
    # (n, K) each, of adversaries that learn nothing: log p̂_Zb(z), the model's own likelihood ratio; and for flows minus
    # the share of columns in which f_b⁻¹(z) is off the column's grid.
    scores: dict[str, FloatArray]


class Reference:
    """Real rows that the adversary holds, of any group: none of them is attacked or learnt from.

    `constraints` are functions of a frame that are true of every real row.
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
        found = []
        for j, name in enumerate(names):
            if name in self.grids:
                grid = self.grids[name]
                steps = (values[:, j] - grid.origin / 10.0**grid.decimals) / grid.quantum
                found.append(np.abs(steps - np.rint(steps)))
        return np.column_stack(found) if found else np.empty((len(values), 0))

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
    inversions = law.inversions(Z)
    if inversions is not None:
        return _of_flow(inversions, Z, reference)
    if isinstance(law, ExactLaw) and law.model is not None:
        return _of_combinations(law, law.model, Z, reference)
    return None


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


def _of_combinations(law: ExactLaw, model: CombinationModel, Z: pd.DataFrame, reference: Reference) -> WhiteBox:
    codec = model.codec
    combinations = combinations_of_encoded(codec, Z)
    with np.errstate(divide="ignore"):
        log_laws = np.log(law.laws).T[combinations]
    seen = np.unique(codec.encode(reference.rows))
    parts: list[FloatArray] = [codec.levels_of(combinations).astype(np.float64), _finite(log_laws)]
    shows_values = sum(map(len, law.maps)) * parts[0].shape[1] <= _MOST_VALUES
    for sent in law.maps:
        for b, f in enumerate(sent):
            before = inverse_map(f)[combinations]
            if shows_values:
                parts.append(codec.levels_of(before).astype(np.float64))
            parts.append(np.column_stack([model.log_p[b][before], np.isin(before, seen)]))
    return WhiteBox(_finite(np.concatenate(parts, axis=1)), {"likelihood ratio": _finite(log_laws)})
