"""Other risks of a shared table, measured by attacks: singling out, linkability and membership.

They are the three risks of the European working party's opinion on anonymisation (05/2014). Nothing is promised about
them. Each attack is made on persons whose rows are behind the shared table, and on others: only a difference between
the two is due to the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.stats import binomtest
from sklearn.impute import SimpleImputer
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, QuantileTransformer

from fairflows.arrays import NDArray
from fairflows.attack.views import View
from fairflows.exceptions import DataError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_TARGETS = 1_000  # persons, of either kind, that are attacked
_MOST_ROWS = 20_000  # of the shared table that an adversary looks through
_MOST_NAMED = 6  # columns of a predicate
_MOST_LEVELS = 32  # of a category that count for distances
_RANKS = 1_000  # of numbers that are told apart

SAID = {
    "singling out": "a description made from a shared row fits exactly one person of the table",
    "linkability": "two halves of a person's row lead to the same shared row",
    "membership": "a person is said to be in the table, by how near the nearest shared row is",
}
"""What each attack succeeds in."""


@dataclass(frozen=True)
class Risk:
    """How often an attack succeeds."""

    name: str
    found: float  # how often it succeeds with persons of the table
    baseline: float  # how often with persons who are not in it, which the shared table cannot help with
    # Of the difference, with probability 1 − δ.
    lower: float
    upper: float
    n: int  # attempts of either kind

    @property
    def is_above(self) -> bool:
        """Whether the attack succeeds more often with persons of the table."""
        return self.lower > 0

    def to_dict(self) -> dict[str, str | float | bool]:
        """Return plain values, as JSON holds them."""
        return asdict(self) | {"is_above": self.is_above, "said": SAID[self.name]}


def measure_risks(
    shared: pd.DataFrame, members: pd.DataFrame, others: pd.DataFrame, delta: float = 0.01, random_state: int = 0
) -> tuple[Risk, ...]:
    """Attack a shared table for persons who are in it, and for others: singling out, linkability and membership.

    `shared` are the rows that were shared for `members`, in any order. An interval of a difference misses the true one
    with probability `delta`.
    """
    names = [name for name in members if name in shared]
    if len(names) < 2 or min(len(shared), len(members), len(others)) < 2:
        raise DataError("Risks are measured of two columns, two rows and two other persons at least.")
    generator = np.random.default_rng(random_state)
    rows = generator.permutation(min(len(shared), len(members)))[:_MOST_ROWS]
    n = min(len(rows), len(others), _TARGETS)
    shared, members = (frame[names].iloc[rows].reset_index(drop=True) for frame in (shared, members))
    others = others[names].iloc[generator.permutation(len(others))[:n]].reset_index(drop=True)
    exact = _codes(shared, members, others)
    singled = [_singled_out(made[:n], exact[1], generator) for made in (exact[0], exact[2])]
    order = generator.permutation(len(names))
    parts = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    halves = [_coordinates(*(frame.iloc[:, part] for frame in (members, shared, others))) for part in parts]
    linked = [np.equal(*(_nearest(half[part][:n], half[1])[0] for half in halves)) for part in (0, 2)]
    whole = [np.hstack(parts) for parts in zip(*halves, strict=True)]
    told = _told_members([_nearest(whole[part][:n], whole[1])[1].round(5) for part in (0, 2)])
    return tuple(
        _risk(name, found[0], found[1], delta) for name, found in zip(SAID, (singled, linked, told), strict=True)
    )


def _singled_out(made_from: IntArray, members: IntArray, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return which descriptions, by the values of some columns of a row, fit exactly one person."""
    n_columns = members.shape[1]
    hits = np.empty(len(made_from), dtype=bool)
    for i, row in enumerate(made_from):
        named = generator.permutation(n_columns)[: generator.integers(2, min(n_columns, _MOST_NAMED) + 1)]
        fitting = np.flatnonzero(members[:, named[0]] == row[named[0]])
        for column in named[1:]:
            fitting = fitting[members[fitting, column] == row[column]]
        hits[i] = len(fitting) == 1
    return hits


def _nearest(targets: FloatArray, shared: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the place of the shared row that is nearest to each target, and its squared distance."""
    return pairwise_distances_argmin_min(targets, shared, metric="sqeuclidean")


def _told_members(distances: list[FloatArray]) -> list[npt.NDArray[np.bool_]]:
    """Return who is said to be a member: persons with a shared row nearer than a threshold."""
    half = len(distances[0]) // 2
    cuts = np.unique(np.concatenate([part[:half] for part in distances]))
    shares = [np.searchsorted(np.sort(part[:half]), cuts, side="right") / half for part in distances]
    cut = cuts[int((shares[0] - shares[1]).argmax())]
    return [part[half:] <= cut for part in distances]


def _codes(*frames: pd.DataFrame) -> list[IntArray]:
    """Return the values of all columns as whole numbers, equal where the values are."""
    whole = pd.concat([frame.astype(object) for frame in frames], ignore_index=True)
    codes = np.column_stack([pd.factorize(column)[0] for _, column in whole.items()])
    return np.split(codes, np.cumsum([len(frame) for frame in frames])[:-1])


def _coordinates(known: pd.DataFrame, *others: pd.DataFrame) -> list[FloatArray]:
    """Return tables as coordinates for distances: ranks of numbers, indicators of categories and of gaps."""
    ranks = make_pipeline(
        QuantileTransformer(n_quantiles=_RANKS, subsample=None),
        SimpleImputer(strategy="constant", fill_value=0.5, add_indicator=True, keep_empty_features=True),
    )
    levels = make_pipeline(
        OneHotEncoder(max_categories=_MOST_LEVELS, handle_unknown="infrequent_if_exist"),
        FunctionTransformer(_at_distance_one),
    )
    view = View(ranks, levels).fit(known)
    return [view.numbers(frame).astype(np.float32) for frame in (known, *others)]


def _at_distance_one(indicators: csr_matrix) -> csr_matrix:
    """Scale indicators so that two values of a category are 1 apart, as the ends of a number are."""
    return indicators * 0.5**0.5


def _risk(name: str, of_members: npt.NDArray[np.bool_], of_others: npt.NDArray[np.bool_], delta: float) -> Risk:
    """Return the risk, with Newcombe's interval of the difference of two shares."""
    tests = [binomtest(int(hits.sum()), len(hits)) for hits in (of_members, of_others)]
    rates = [float(test.statistic) for test in tests]
    (low, high), (base_low, base_high) = (test.proportion_ci(1 - delta, method="wilson") for test in tests)
    difference = rates[0] - rates[1]
    lower = difference - float(np.hypot(rates[0] - low, base_high - rates[1]))
    upper = difference + float(np.hypot(high - rates[0], rates[1] - base_low))
    return Risk(name, rates[0], rates[1], lower, upper, len(of_members))
