"""Several encoders at several strengths, trained at once, of which the best one within the target is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_transport import FairTransport
from fairflows.frontiers.frontier import frontier
from fairflows.frontiers.selection import Candidate, Target, choose, judge_cells, judge_latents
from fairflows.table.columns import Kind
from fairflows.table.table import Table

Swept = Literal["auto", "flow", "matching", "transport"]
Say = Callable[[str], None]

N_CELLS = (2, 4, 8, 16, 32, 64)
GAMMAS = (0.0, 0.1, 0.5, 0.9, 0.99)
STRENGTHS = (0.0, 0.5, 0.8, 0.95, 1.0)
NAMES = {"FairFlow": "FNF, flows", "FairMatching": "FNF, matching", "FairTransport": "transport"}


@dataclass(frozen=True)
class Sweep:
    """What to train and to choose from."""

    method: Swept  # "auto" takes the invertible encoder that fits the column kinds and, for cells, transport
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
            gammas = self._gammas(estimator, train)
            frontiers[name] = frontier(estimator, train, gammas=gammas, validation=validation)
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
        kinds: Mapping[str, Kind] = train.kinds
        categorical = all(kind == "categorical" for kind in kinds.values())
        wanted = [self.method] if self.method != "auto" else ["matching" if categorical else "flow"]
        if self.method == "auto" and self.cells and (train.y is not None or categorical):
            wanted.append("transport")
        common: dict[str, Any] = {
            "kinds": kinds,
            "unseen": "other",
            "identifier": None if train.identifier is None else str(train.identifier.name),
            "random_state": self.random_state,
        }
        of_density: dict[str, Any] = {} if self.density is None else {"density": self.density}
        makers: dict[str, Callable[[], Any]] = {
            "flow": lambda: FairFlow(**common, **of_density),
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
