"""Several encoders at several strengths, trained at once, of which the best one within the target is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.frontiers.selection import Candidate, Target, choose, judge_cells, judge_latents
from fairflows.table.table import Table
from fairflows.tradeoff import frontier

Swept = Literal["flow", "matching"]
Say = Callable[[str], None]

N_CELLS = (2, 4, 8, 16, 32, 64)
GAMMAS = (0.0, 0.1, 0.5, 0.9, 0.99)
NAMES = {"flow": "FNF, flows", "matching": "FNF, matching"}


@dataclass(frozen=True)
class Sweep:
    """What to train and to choose from."""

    method: Swept
    cells: bool  # whether cells are released, and not the latent
    gamma: float | None  # the only trade-off to train; several when not given
    # Settings of the encoders.
    density: str | None
    random_state: int
    with_label: bool  # whether the label is released beside the cell
    quick: bool  # fewer models
    n_cells: int | None = None  # the only number of cells to try; several when not given

    def choose(
        self, train: Table, validation: Table, certifying: Table, goal: Target, most_rows: int, say: Say
    ) -> tuple[list[Candidate], Candidate]:
        """All candidates as judged on validation persons, and the one that meets the goal best."""
        frontiers = {}
        for name, estimator in self._estimators(train).items():
            say(f"training: {name}")
            gammas = self._gammas()
            frontiers[name] = frontier(estimator, train, strengths=gammas, validation=validation)
        say("choosing on validation persons")
        if self.cells:
            sizes = N_CELLS if self.n_cells is None else [self.n_cells]
            judged = judge_cells(
                frontiers, train, validation, certifying, goal, most_rows, with_label=self.with_label, sizes=sizes
            )
        else:
            judged = judge_latents(frontiers, goal)
        return judged, choose(judged, goal)

    def _estimators(self, train: Table) -> dict[str, Encoder]:
        """The encoders to try, by name."""
        settings: dict[str, Any] = {
            "kinds": train.kinds,
            "unseen": "other",
            "identifier": None if train.identifier is None else str(train.identifier.name),
            "random_state": self.random_state,
        }
        if self.density is not None:
            settings["density"] = self.density
        return {NAMES[self.method]: FairFlow(**settings) if self.method == "flow" else FairMatching(**settings)}

    def _gammas(self) -> Sequence[float]:
        if self.gamma is not None:
            return [self.gamma]
        return GAMMAS[1::2] if self.quick else GAMMAS
