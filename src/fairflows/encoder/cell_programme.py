r"""The best cells for a label, as a linear programme.

Rows lie in bins b of mass μ_b, with expected label η_b and each group's law p_a(b). A channel Q(j | b) sends bins to k
cells with levels ℓ_j, and is the solution of

.. math:: \min_Q \sum_b μ_b \sum_j Q(j|b)\,\bigl[\lVert η_b - ℓ_j\rVert^2 + ρ(η_b, ℓ_j)\bigr] \quad\text{so that}\quad
          \tfrac12 \sum_j \Bigl|\sum_b (p_a - p_{a'})(b)\, Q(j|b)\Bigr| \le Δ \text{ for all groups } a, a',

with every Q(· | b) a law. Of many groups, each is kept within Δ/2 of a common law of cells instead, which implies it.
ρ is a multiple of the regret of predicting the class that the cell suggests instead of the bin's own. Levels become the
means of η in their cells, and the programme is solved again.

Bins are cut from scores of the label, and of the group where it is not known at encoding (`BinnedScores`). The largest
Δ whose certificate is expected to come out within a target is found by solving for several (`PlannedProgramme`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, kron, vstack
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans
from sklearn.isotonic import IsotonicRegression

from fairflows.bounds.planning import check_reachable, planned_cell_bound
from fairflows.encoder.base import FloatArray
from fairflows.encoder.scores import Score
from fairflows.exceptions import DataError
from fairflows.table.domain import Codes
from fairflows.table.persons import Places

_MOST_CLUSTERED = 20_000  # rows that centres are found from
_MOST_PAIRED = 9  # groups; every pair is constrained up to here, and the distance to a common law beyond
_ALTERNATIONS = 3
_REGRET = 0.3  # weight of a wrong class beside the squared error
_NEGLIGIBLE = 1e-7  # a probability that the solver's tolerance may have left
_DISTANCES = (np.arange(33) / 32) ** 2  # Δ that are tried first, finest where they are small
_CAUTION = 0.95  # how far to go between two of them, of what a straight line says


@dataclass(frozen=True)
class ScoreBins:
    """Quantile bins of one score, a grid of two, or the nearest of some centres for more."""

    edges: list[Float[FloatArray, " _"]]  # of one or two scores: the values from which on the next bin begins
    centre: Float[FloatArray, " d"]  # what scores are shifted by before distances are measured
    scale: Float[FloatArray, " d"]  # what they are then divided by
    centres: Float[FloatArray, "n_centres d"]  # of more scores: the centres, in these units
    n_groups: int  # K where every group has bins of its own, 1 where all groups share them
    kept: Int[Places, " _"]  # the bin, among those that are kept, of every bin: itself, or the nearest where no row was

    @classmethod
    def fit(
        cls, scores: Float[FloatArray, "n d"], group: Int[Places, " n"], n_bins: int, random_state: int
    ) -> ScoreBins:
        """Cut scores into about `n_bins` bins; `group` says whose bins each row belongs to."""
        n_groups = int(group.max()) + 1
        d, each = scores.shape[1], max(n_bins // n_groups, 2)
        scale = np.where(scores.std(axis=0) > 0, scores.std(axis=0), 1)
        edges: list[FloatArray] = []
        if d <= 2:
            n = each if d == 1 else max(int(np.sqrt(each)), 2)
            edges = [_quantile_edges(column, n) for column in scores.T]
            centres = np.empty((0, d))
        else:
            some = np.random.default_rng(random_state).permutation(len(scores))[:_MOST_CLUSTERED]
            x = (scores[some] - scores.mean(axis=0)) / scale
            k = min(each, len(np.unique(x, axis=0)))
            found = KMeans(k, n_init=1, random_state=random_state).fit(x)
            centres = np.asarray(found.cluster_centers_, dtype=np.float64)
        raw = cls(edges, scores.mean(axis=0), scale, centres, n_groups, np.empty(0, dtype=np.intp))
        return replace(raw, kept=raw._nearest_used(scores, group))

    @property
    def n(self) -> int:
        """How many bins are kept."""
        return int(self.kept.max()) + 1

    def places(self, scores: Float[FloatArray, "n d"], group: Int[Places, " n"]) -> Int[Places, " n"]:
        """Return each row's bin."""
        return self.kept[self._raw_places(scores, group)]

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(self.centres),) if not self.edges else tuple(len(edges) + 1 for edges in self.edges)

    def _raw_places(self, scores: Float[FloatArray, "n d"], group: Int[Places, " n"]) -> Int[Places, " n"]:
        if self.edges:
            columns = [
                np.searchsorted(edges, column, side="right") for edges, column in zip(self.edges, scores.T, strict=True)
            ]
            place = np.ravel_multi_index(columns, self._shape)
        else:
            # A search row by row: a matrix product of all rows would round differently in another batch.
            _, place = cKDTree(self.centres).query((scores - self.centre) / self.scale)
        return place + int(np.prod(self._shape)) * (group if self.n_groups > 1 else 0)

    def _nearest_used(self, scores: Float[FloatArray, "n d"], group: Int[Places, " n"]) -> Int[Places, " n_bins"]:
        """Return for every bin the nearest bin of the same group that holds rows, numbered among such bins."""
        each = int(np.prod(self._shape))
        used = np.bincount(self._raw_places(scores, group), minlength=each * self.n_groups) > 0
        number = np.cumsum(used) - 1
        at = np.stack(np.unravel_index(np.arange(each), self._shape), axis=1) if self.edges else self.centres
        kept = np.empty(each * self.n_groups, dtype=np.intp)
        for a in range(self.n_groups):
            own = np.arange(a * each, (a + 1) * each)
            _, nearest = cKDTree(at[used[own]]).query(at)
            kept[own] = number[own[used[own]][nearest]]
        return kept


@dataclass(frozen=True)
class BinnedScores:
    """Scores of the label, and of the group where it is not known at encoding, with their bins."""

    label_score: Score  # η
    group_score: Score | None  # ρ, the belief in the group; None where every group has bins of its own
    bins: ScoreBins | None = None  # the bins; None until they are cut

    def coordinates(self, codes: Codes) -> Float[FloatArray, "n d"]:
        """Return η, and where the group is not known P(a | x) of every group but the first."""
        eta = self.label_score.values(codes)
        return eta if self.group_score is None else np.column_stack([eta, self.group_score.predict_proba(codes)[:, 1:]])

    def own_bins(self, group: Int[Places, " n"]) -> Int[Places, " n"]:
        """Return the group whose bins each row belongs to; 0 where the group is not known."""
        return group if self.group_score is None else np.zeros_like(group)

    def places(self, codes: Codes, group: Int[Places, " n"]) -> Int[Places, " n"]:
        """Return each row's bin."""
        assert self.bins is not None
        return self.bins.places(self.coordinates(codes), self.own_bins(group))


def calibrated(scores: Float[FloatArray, "n d"], targets: Float[FloatArray, "n d"]) -> Float[FloatArray, "n d"]:
    """Return the mean of each target given its score: a monotone fit, column by column."""
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(score, target).predict(score)
        for score, target in zip(scores.T, targets.T, strict=True)
    ]
    return np.column_stack(columns)


def _quantile_edges(scores: Float[FloatArray, " n_rows"], n: int) -> Float[FloatArray, " n_edges"]:
    edges = np.unique(np.quantile(scores, np.arange(1, n) / n, method="inverted_cdf"))
    return edges[edges > scores.min()]


@dataclass(frozen=True)
class Bins:
    """Rows as the programme sees them: in bins."""

    mass: Float[FloatArray, " B"]  # μ, the law of a row
    label: Float[FloatArray, "B L"]  # η, what is expected of the label: one number, or several
    laws: Float[FloatArray, "K B"]  # p_a
    has_classes: bool = False  # whether η holds class probabilities: one column for two classes


@dataclass(frozen=True)
class CellProgramme:
    """The programme for some bins and k cells; only Δ changes from one solution to the next."""

    bins: Bins  # what is known of rows
    levels: Float[FloatArray, "k L"]  # ℓ, where the alternation starts
    # Left-hand side of "at most": Σ_b (p_a − p_a')(b) Q(j|b) − t_j ≤ 0 in each cell j, then Σ_j t_j ≤ Δ, for a pair.
    # Of many groups: Σ_b p_a(b) Q(j|b) − r_j − t_j ≤ 0, then Σ_j t_j ≤ Δ/2, for each group and a free common law r.
    left: csr_array
    equal: csr_array  # left-hand side of "equal to one": the laws Q(· | b), and r
    share: Float[FloatArray, " n_rows"]  # the multiple of Δ that bounds each row of `left`

    @classmethod
    def of(cls, bins: Bins, n_cells: int, random_state: int) -> CellProgramme:
        """Set up the programme, with levels at first where k-means puts them."""
        used = bins.mass > 0
        k = min(n_cells, len(np.unique(bins.label[used], axis=0)))
        means = KMeans(k, n_init=4, random_state=random_state).fit(
            bins.label[used], sample_weight=bins.mass[used] / bins.mass.sum()
        )
        levels = np.asarray(means.cluster_centers_, dtype=np.float64)
        levels = levels[np.argsort(levels[:, 0], kind="stable")]
        paired = len(bins.laws) <= _MOST_PAIRED
        compared = np.array([p - q for p, q in combinations(bins.laws, 2)]) if paired else bins.laws
        # Columns: the channel Q, then the t of everything compared, then r.
        n, B = compared.shape
        cells, every, blocks = csr_array(np.eye(k)), np.ones((1, k)), []
        for i, p in enumerate(compared):
            own = (np.arange(n)[None] == i).astype(np.float64)
            blocks.append(hstack([kron(csr_array(p[None]), cells), -kron(own, cells), -cells * (not paired)]))
            blocks.append(hstack([csr_array((1, B * k)), kron(own, every), csr_array((1, k))]))
        of_bins = hstack([kron(csr_array(np.eye(B)), every), csr_array((B, (n + 1) * k))])
        of_r = hstack([csr_array((1, (B + n) * k)), every])
        share = np.where(np.arange(k + 1) == k, 1.0 if paired else 0.5, 0.0)
        return cls(bins, levels, csr_array(vstack(blocks)), csr_array(vstack([of_bins, of_r])), np.tile(share, n))

    def solve(self, distance: float) -> tuple[Float[FloatArray, "B k"], Float[FloatArray, "k L"]]:
        """Return the channel Q and the levels of the best cells at distance Δ; empty cells are gone."""
        mass, label = self.bins.mass, self.bins.label
        levels = self.levels
        for _ in range(_ALTERNATIONS):
            channel = self._channel(levels, distance)
            weight = channel * mass[:, None]
            filled = weight.sum(axis=0) > _NEGLIGIBLE
            means = weight.T @ label / np.maximum(weight.sum(axis=0), _NEGLIGIBLE)[:, None]
            means = np.where(filled[:, None], means, levels)
            if np.array_equal(means, levels):  # the next programme would be the same
                break
            levels = means
        channel, levels = channel[:, filled], levels[filled]
        channel /= channel.sum(axis=1, keepdims=True)
        order = np.argsort(levels[:, 0], kind="stable")
        return channel[:, order], levels[order]

    def _channel(self, levels: Float[FloatArray, "k L"], distance: float) -> Float[FloatArray, "B k"]:
        B, k = len(self.bins.mass), len(levels)
        loss = ((self.bins.label[:, None, :] - levels[None]) ** 2).sum(axis=-1)
        if self.bins.has_classes:
            loss += _REGRET * _regret(self.bins.label, levels)
        loss *= self.bins.mass[:, None]
        cost = np.concatenate([loss.ravel(), np.zeros(self.left.shape[1] - B * k)])
        found = linprog(
            cost / max(loss.max(), 1e-300),
            A_ub=self.left,
            b_ub=distance * self.share,
            A_eq=self.equal,
            b_eq=np.ones(self.equal.shape[0]),
            method="highs",
        )
        if found.x is None:
            raise DataError(f"The linear programme of {B} bins and {k} cells was not solved: {found.message}")
        channel = found.x[: B * k].reshape(B, k)
        channel = np.where(channel > _NEGLIGIBLE, channel, 0)
        return channel / channel.sum(axis=1, keepdims=True)


def _regret(label: Float[FloatArray, "B L"], levels: Float[FloatArray, "k L"]) -> Float[FloatArray, "B k"]:
    """Return how much less probable in a bin the class of a cell is than the bin's own most probable class."""
    if label.shape[1] == 1:
        label, levels = (np.concatenate([1 - p, p], axis=1) for p in (label, levels))
    return label.max(axis=1, keepdims=True) - label[:, levels.argmax(axis=1)]


@dataclass(frozen=True)
class Solution:
    """The best cells at one Δ."""

    channel: Float[FloatArray, "B k"]  # Q(j | b)
    levels: Float[FloatArray, "k L"]  # what is expected of the label in each cell
    distance: float  # Δ
    planned: float  # the bound that the certificate meets with probability `chance`


@dataclass(frozen=True)
class PlannedProgramme:
    """A programme with the expected certificate of its cells."""

    programme: CellProgramme  # gives the best cells for any Δ
    groups: Sequence[str]  # the names of the K groups
    counted: Float[FloatArray, "K B"]  # the groups' laws of bins as counted
    n_certify: Float[FloatArray, " K"]  # the persons of each group who will certify
    counted_from: Float[FloatArray, " K"] | None  # the persons counted, where the programme saw these counts
    delta: float  # the δ that the bound spends
    chance: float  # how probable it should be that the certificate is within the target
    solved: dict[float, Solution] = field(default_factory=dict, repr=False)

    def most_cells(self, target: float, seed: int) -> PlannedProgramme:
        """Return the programme of the most cells whose certificate can be within a target; of two if there are none."""

        def of(k: int) -> PlannedProgramme:
            return replace(self, programme=CellProgramme.of(self.programme.bins, k, seed), solved={})

        low, high = 2, len(self.programme.levels)
        if high <= low or self.at(_DISTANCES[0]).planned <= target:
            return self
        found = of(low)
        while high - low > 1:  # by bisection: what is expected grows with the number of cells
            k = (low + high) // 2
            middle = of(k)
            if middle.at(_DISTANCES[0]).planned <= target:
                found, low = middle, k
            else:
                high = k
        return found

    def within(self, target: float) -> Solution:
        """Return the best cells whose certificate is expected to be within a target."""
        persons = dict(zip(self.groups, self.n_certify.astype(int).tolist(), strict=True))
        check_reachable(persons, self.delta, target=target)
        low, high = 0, int(np.searchsorted(_DISTANCES, target))  # by bisection: what is expected grows with Δ
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at(_DISTANCES[middle]).planned <= target else (low, middle)
        best = self.at(_DISTANCES[low])
        if best.planned > target:
            raise DataError(
                f"target {target} is out of reach for {best.channel.shape[1]} cells and "
                f"{self.n_certify.sum():,.0f} certifying persons: the bound to expect is {best.planned:.3f}. Take "
                "a higher target, or more persons (n_certify=...)."
            )
        if high < len(_DISTANCES):
            above = self.at(_DISTANCES[high])
            share = min((target - best.planned) / max(above.planned - best.planned, 1e-12), 1)
            between = self.at(best.distance + _CAUTION * share * (above.distance - best.distance))
            best = between if between.planned <= target else best
        return best

    def at(self, distance: float) -> Solution:
        """Return the best cells at Δ; solved once."""
        distance = float(distance)
        if distance not in self.solved:
            channel, levels = self.programme.solve(distance)
            planned = planned_cell_bound(
                self.counted @ channel, self.n_certify, self.delta, chance=self.chance, counted_from=self.counted_from
            )
            self.solved[distance] = Solution(channel, levels, distance, float(planned))
        return self.solved[distance]
