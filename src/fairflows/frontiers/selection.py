"""Choosing the encoder and the number of cells on validation persons, before the certifying ones are looked at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairflows.bounds.cells import chance_of_merging
from fairflows.bounds.planning import check_reachable, delta_of_look, most_useful_within, planned_cell_bound
from fairflows.encoder.base import Encoder, FloatArray, IntArray, is_fitted
from fairflows.exceptions import DataError, warn_user
from fairflows.release.release import Release
from fairflows.release.released import Released, repeatable_persons
from fairflows.table.table import Table
from fairflows.tradeoff import Frontier, counted_laws

_AS_ACCURATE = 0.005  # without a target, accuracies this close count as equal


@dataclass(frozen=True)
class Target:
    """What is asked of the release: a distance Δ, or the accuracy of the best guess of the group; or neither."""

    # At most one of them is given.
    distance: float | None = None
    accuracy: float | None = None
    delta: float = 0.05  # δ of the certificate to come

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise DataError(f"delta must be in (0, 1); got {self.delta!r}.")
        if self.distance is not None and not 0 < self.distance <= 1:
            raise DataError(f"target must be in (0, 1]; got {self.distance!r}.")
        if self.accuracy is not None and not 0 < self.accuracy <= 1:
            raise DataError(f"max_adversary_accuracy must be in (0, 1]; got {self.accuracy!r}.")

    @property
    def limit(self) -> float | None:
        """The number to stay within."""
        return self.distance if self.distance is not None else self.accuracy

    @property
    def name(self) -> str:
        """What that number is."""
        return "adversary's accuracy" if self.accuracy is not None else "distance Δ"

    def as_distance(self, n_groups: int) -> float | None:
        """The distance of every pair of groups that is enough: guesses are right at most (1 + (K − 1)Δ)/K."""
        if self.accuracy is None:
            return self.distance
        return min(max((n_groups * self.accuracy - 1) / (n_groups - 1), 1e-9), 1.0)

    def expected(self, laws: FloatArray, n: IntArray) -> float:
        """The bound to expect from n persons of each group, if these are the laws of what is released.

        One standard deviation of the observed distance is added, so that the certificate is likely to come out within
        the limit: one person moves it by 1/n_a, hence its variance is at most Σ 1/(4 n_a).
        """
        spare = 0.5 * math.sqrt(float((1 / n).sum()))
        delta = delta_of_look(self.delta, 1)  # what the first certificate from these persons will spend
        K = len(laws)
        if self.accuracy is None or K == 2:
            distance = min(1.0, float(planned_cell_bound(laws, n, delta)) + spare)
            return distance if self.accuracy is None else 0.5 * (1 + distance)
        radius = math.sqrt(0.5 * math.log(1 / delta) * float((1 / n).sum())) / K
        most, merged = laws.max(axis=0), chance_of_merging(laws, n)
        best = float((most + merged * (laws.sum(axis=0) - most)).sum()) / K
        return min(1.0, best + radius + spare / K)

    def check_reachable(self, rows: Table, *, cells: bool) -> None:
        """Refuse at once what a blind guess exceeds; and of cells, what so few certifying persons cannot show."""
        groups = rows.groups
        if self.accuracy is not None and self.accuracy < 1 / len(groups):
            rule = f"must be above that of a blind guess, 1/{len(groups)}"
            raise DataError(f"max_adversary_accuracy {rule}; got {self.accuracy!r}.")
        self._warn_if_empty(len(groups))
        if not cells:
            return
        persons = rows.one_row_per_person(0)
        n = dict(zip(map(str, groups), persons.group_sizes(groups).tolist(), strict=True))
        check_reachable(n, delta_of_look(self.delta, 1), target=self.distance, accuracy=self.accuracy)

    def _warn_if_empty(self, n_groups: int) -> None:
        """Warn of a target that says next to nothing: a release that gives a whole group away may meet it.

        Where one of K groups is told for certain and the others look alike, the best guess is right 2/K of the time.
        """
        if self.accuracy is not None and self.accuracy >= 2 / n_groups:
            told = "gives everything away" if n_groups == 2 else "tells one group from all others for certain"
            warn_user(
                f"The target of {100 * self.accuracy:.0f} % says next to nothing: of {n_groups} groups a blind guess "
                f"is right {100 / n_groups:.0f} % of the time, and with a release that {told} a guess is right "
                f"{200 / n_groups:.0f} % of the time. Limit how far two groups may be apart instead (target=0.1)."
            )
        if self.distance == 1:
            warn_user("Every release meets a distance of 1, also one that gives the group away: set a smaller target.")


@dataclass(frozen=True)
class Candidate:
    """One encoder, with or without cells, as judged on validation persons."""

    method: str  # which encoder it is
    # Its place on the frontier.
    gamma: float
    seed: int
    model: Encoder  # what would be released
    expected: float  # the bound to expect, in the target's own terms
    accuracy: float | None  # of the label predicted from what is released; None without a label
    n_cells: int | None = None  # cells that are released

    def to_dict(self) -> dict[str, str | float | None]:
        """Plain values."""
        names = ("method", "gamma", "seed", "n_cells", "expected", "accuracy")
        return {name: getattr(self, name) for name in names}


def judge_latents(frontiers: dict[str, Frontier], target: Target) -> list[Candidate]:
    """Every encoder of the frontiers as it is, judged by its own densities."""
    found = []
    for method, front in frontiers.items():
        measure = "adversary_accuracy" if target.accuracy is not None else "delta"
        for encoder, row in zip(front.encoders, front.measured.to_dict("records"), strict=True):
            if math.isfinite(row["delta"]):
                place = method, row["strength"], int(row["seed"]), encoder
                found.append(Candidate(*place, float(row[measure]), row.get("accuracy")))
    return found


def judge_cells(
    frontiers: dict[str, Frontier],
    train: Table,
    validation: Table,
    certifying: Table,
    target: Target,
    most_rows: int,
    *,
    with_label: bool,
    sizes: Sequence[int],
) -> list[Candidate]:
    """Every encoder with every number of cells, as certifying persons of these numbers would find it."""
    judged, counted = (table.random_rows(0, most_rows) for table in (validation, certifying))
    n = counted.group_sizes(train.groups)
    if n.min() == 0:
        raise DataError("Every group needs persons to certify on; one has none. Use more rows.")
    found = []
    for method, front in frontiers.items():
        for encoder, row in zip(front.encoders, front.measured.to_dict("records"), strict=True):
            if not is_fitted(encoder):
                continue  # it diverged
            for release in _releases(encoder, train, sizes):
                released = Released.of(release)
                laws = counted_laws(released, judged, train.groups, with_label=with_label)
                accuracy = None if train.y is None else float((released.predict(judged) == judged.y).mean())
                place = method, row["strength"], int(row["seed"]), release
                found.append(Candidate(*place, target.expected(laws, n), accuracy, release.n_cells_))
    return found


def choose(candidates: Sequence[Candidate], target: Target) -> Candidate:
    """The most accurate candidate within the target; where none is, the one that comes closest.

    Without a target, the one that tells least among those that are about as accurate as the best.
    """
    if not candidates:
        raise DataError("No model could be trained: all of them diverged.")
    if target.limit is None:
        best = max(_use(candidate) for candidate in candidates)
        return min((c for c in candidates if _use(c) >= best - _AS_ACCURATE), key=lambda c: c.expected)
    told, use = [c.expected for c in candidates], [_use(c) for c in candidates]
    place = most_useful_within(told, use, target.limit)
    return min(candidates, key=lambda c: (c.expected, -_use(c))) if place is None else candidates[place]


def _use(candidate: Candidate) -> float:
    """How useful a release is: its accuracy; without a label, the more cells the better."""
    return candidate.accuracy if candidate.accuracy is not None else float(candidate.n_cells or 0)


def _releases(encoder: Encoder, train: Table, sizes: Sequence[int]) -> Iterable[Release]:
    """Cells in growing numbers, until there are no more different ones."""
    most = 0
    rows = encoder.read(train)
    Z = encoder.encode(encoder.read(train, None, repeatable_persons(train, "fit")))
    for n_cells in sizes:
        release = Release(n_cells=n_cells, output="cell").fit_around(encoder, rows, Z, train.y)
        if release.n_cells_ > most:
            most = release.n_cells_
            yield release
