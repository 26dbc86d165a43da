"""The best of several encoders at several strengths: trained at once, and chosen on validation persons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_transport import FairTransport
from fairflows.frontiers.selection import Candidate, Target, choose, judge_cells, judge_latents
from fairflows.frontiers.sweep import frontier
from fairflows.table.columns import Kind
from fairflows.table.table import Table

Swept = Literal["auto", "flow", "matching", "transport"]
Say = Callable[[str], None]

GAMMAS = (0.0, 0.1, 0.5, 0.9, 0.99)
STRENGTHS = (0.0, 0.5, 0.8, 0.95, 1.0)

NAMES = {"FairFlow": "FNF, flows", "FairMatching": "FNF, matching", "FairTransport": "transport"}


@dataclass(frozen=True)
class Sweep:
    """What to train and to choose from.

    Attributes
    ----------
    method : {"auto", "flow", "matching", "transport"}
        "auto" takes the invertible encoder that fits the column kinds and, for cells, transport.
    cells : bool
        Whether cells are released, and not the latent.
    gamma : float or None
        The only trade-off to train; several when not given.
    missing, density, random_state
        Settings of the encoders.
    with_label : bool
        Whether the label is released beside the cell.
    quick : bool
        Fewer models.
    """

    method: Swept
    cells: bool
    gamma: float | None
    missing: Literal["error", "category"]
    density: str | None
    random_state: int
    with_label: bool
    quick: bool

    def choose(
        self, train: Table, validation: Table, certifying: Table, goal: Target, most_rows: int, say: Say
    ) -> tuple[list[Candidate], Candidate]:
        """All candidates as judged on validation persons, and the one that meets the goal best."""
        frontiers = {}
        for name, estimator in self._estimators(train).items():
            say(f"training: {name}")
            gammas = self._gammas(estimator, train)
            frontiers[name] = frontier(estimator, train, gammas=gammas, validation=validation)
        say("choosing on validation persons")
        if self.cells:
            judged = judge_cells(frontiers, train, validation, certifying, goal, most_rows, with_label=self.with_label)
        else:
            judged = judge_latents(frontiers, goal)
        return judged, choose(judged, goal)

    def _estimators(self, train: Table) -> dict[str, Encoder]:
        """The encoders to try, by name."""
        kinds: Mapping[str, Kind] = train.kinds
        categorical = all(kind == "categorical" for kind in kinds.values())
        wanted = [self.method] if self.method != "auto" else ["matching" if categorical else "flow"]
        if self.method == "auto" and self.cells and (train.y is not None or categorical):
            wanted.append("transport")
        common: dict[str, Any] = {
            "kinds": kinds,
            "missing": self.missing,
            "unseen": "other",
            "identifier": None if train.identifier is None else str(train.identifier.name),
            "random_state": self.random_state,
        }
        of_density: dict[str, Any] = {} if self.density is None else {"density": self.density}
        makers: dict[str, Callable[[], Any]] = {
            "flow": lambda: FairFlow(off_grid="round", **common, **of_density),
            "matching": lambda: FairMatching(**common, **of_density),
            "transport": lambda: FairTransport(**common, **(of_density if categorical else {})),
        }
        made = [makers[name]() for name in wanted]
        return {NAMES[type(estimator).__name__]: estimator for estimator in made}

    def _gammas(self, estimator: Encoder, train: Table) -> Sequence[float]:
        if self.gamma is not None:
            return [self.gamma]
        if not isinstance(estimator, FairTransport):
            return GAMMAS[1::2] if self.quick else GAMMAS
        if train.y is None:
            return [1.0]  # without labels to spare there is nothing to trade the distance for
        return STRENGTHS[1::2] if self.quick else STRENGTHS


def frontier_contents(candidates: list[Candidate], chosen: Candidate, goal: Target) -> dict[str, Any] | None:
    """For every encoder its best number of cells: the highest use at each point of the frontier."""
    points = []
    for candidate in candidates:
        use = candidate.accuracy if candidate.accuracy is not None else candidate.n_cells
        if use is None:
            continue
        points.append(
            {
                "method": candidate.method,
                "gamma": candidate.gamma,
                "x": candidate.expected,
                "y": float(use),
                "chosen": candidate is chosen,
            }
        )
    if len(points) < 2:
        return None  # nothing was traded off
    points = _upper_left(points)
    has_cells = chosen.n_cells is not None
    return {
        "points": points,
        "x": f"{goal.name} to expect" if has_cells else f"{goal.name} by the model",
        "y": "accuracy" if chosen.accuracy is not None else "cells",
        "target": goal.limit,
        "caption": ("Each point is an encoder with a number of cells; those that another beats in both are left out. "
                    if has_cells else "Each point is an encoder. ")
        + "Judged on validation persons, before the certifying ones were looked at.",
    }  # fmt: skip


def _upper_left(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each method's points, those that no other of it beats in both; the chosen one stays in any case."""
    kept = []
    for method in dict.fromkeys(point["method"] for point in points):
        best = -np.inf
        for point in sorted((p for p in points if p["method"] == method), key=lambda p: (p["x"], -p["y"])):
            if point["y"] > best or point["chosen"]:
                best = max(best, point["y"])
                kept.append(point)
    return kept
