"""What a certificate was asked for, checked once: enough to compute it again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np

from fairflows.bounds.arguments import (
    Estimator,
    Priors,
    checked_delta,
    checked_distance,
    checked_draws,
    checked_priors,
    most_draws,
)
from fairflows.bounds.model import draws_needed
from fairflows.certificate.document import Certificate
from fairflows.encoder.base import LatentLaw
from fairflows.exceptions import ParameterError, check_choice, check_count
from fairflows.release.released import Released

_RELEASED = ("cell", "latent", "label")
_MONTE_CARLO_DELTA = 0.001
_DRAWS, _FIRST_DRAWS = 1_000_000, 10_000
_WIDTH = 0.001  # of a model-based bound, by default
_MOST_DRAWS = 100_000_000  # minutes; a certificate that states more was not made here


@dataclass(frozen=True)
class Settings:
    """The settings of a certificate, as `certify` describes them."""

    released: tuple[str, ...]
    delta: float
    target: float | None
    target_accuracy: float | None
    priors: Priors
    density_error: tuple[float, ...] | None
    estimator: Estimator
    n_draws: int
    monte_carlo_delta: float
    seed: int
    most_rows: int

    @classmethod
    def of(
        cls,
        model: Released,
        groups: Sequence[Hashable],
        *,
        released: Sequence[str] | None = None,
        delta: float,
        target: float | None = None,
        target_accuracy: float | None = None,
        priors: Sequence[float] | None = None,
        density_error: float | Sequence[float] | None = None,
        estimator: Estimator = "betting",
        n_draws: int | None,
        monte_carlo_delta: float,
        seed: int,
        most_rows: int,
    ) -> Self:
        """Settings as they were passed, or a ValueError that names the wrong one."""
        check_choice("estimator", estimator, get_args(Estimator))
        check_count("random_state", seed, 0)
        check_count("most_rows", most_rows, 1)
        delta, monte_carlo_delta = checked_delta(delta), checked_delta(monte_carlo_delta)
        names = checked_released(released, cells=model.n_cells is not None or model.is_foreign)
        law = None if model.innermost is None or "label" in names else model.innermost.latent_law()
        if n_draws is None:
            n_draws = _enough_draws(law, len(groups), estimator, monte_carlo_delta, int(seed))
        shares = checked_priors(priors, len(groups))
        _check_target(target, target_accuracy, float(shares.max()))
        return cls(
            released=names,
            delta=delta,
            target=target,
            target_accuracy=target_accuracy,
            priors=None if priors is None else tuple(shares.tolist()),
            density_error=_checked_errors(density_error, groups),
            estimator=estimator,
            n_draws=_checked_draws(n_draws, law, len(groups)),
            monte_carlo_delta=monte_carlo_delta,
            seed=int(seed),
            most_rows=int(most_rows),
        )

    @classmethod
    def read(cls, certificate: Certificate, model: Released, groups: Sequence[Hashable]) -> Self:
        """The settings that a certificate says it was made with."""
        c = certificate
        return cls.of(
            model,
            groups,
            released=c.released,
            delta=c.delta,
            target=c.target,
            target_accuracy=c.target_accuracy,
            priors=c.priors,
            density_error=c.density_error,
            estimator=c.estimator,
            n_draws=c.n_draws,
            monte_carlo_delta=c.spent.get("model") or _MONTE_CARLO_DELTA,
            seed=c.seed,
            most_rows=c.most_rows,
        )

    @property
    def certifies_cells(self) -> bool:
        """Next to a latent, a cell adds nothing and certifies nothing."""
        return "cell" in self.released and "latent" not in self.released


def checked_released(released: Sequence[str] | None, *, cells: bool) -> tuple[str, ...]:
    """The names of all that is released together, in a fixed order; by default cells where there are any."""
    by_default = "cell" if cells else "latent"
    if released is None:
        return (by_default,)
    names = [released] if isinstance(released, str) else list(released)
    for name in names:
        if name not in _RELEASED:
            raise ValueError(f"released must name {', '.join(_RELEASED)}; got {name!r}.")
    if "cell" in names and not cells:
        raise ValueError("released names cells, but the model releases none: put its encoder into a CellRelease.")
    if not {"cell", "latent"} & set(names):
        names.append(by_default)
    return tuple(name for name in _RELEASED if name in names)


def _checked_draws(n: int, law: LatentLaw | None, n_groups: int) -> int:
    """The number of draws; where any are made, a table of them must fit."""
    check_count("n_draws", n, 1)
    if n > _MOST_DRAWS:
        raise ParameterError("n_draws", f"must be at most {_MOST_DRAWS:,}", n)
    return checked_draws(int(n), n_groups) if law is not None and law.exact() is None else int(n)


def _enough_draws(law: LatentLaw | None, n_groups: int, estimator: Estimator, delta: float, seed: int) -> int:
    """As many draws as the bound needs to be about 1/1000 wide, where that is less than what is drawn at most.

    The first draws decide on it, and no bound is computed from them: the number is fixed before the others are drawn.
    """
    if law is None or law.exact() is not None:
        return _DRAWS  # none is made
    most = min(_DRAWS, most_draws(n_groups))
    if estimator == "sign" or most <= _FIRST_DRAWS:  # Hoeffding's radius is the same for all laws
        return most
    return min(most, draws_needed(law.log_density_table(_FIRST_DRAWS, seed + 1), delta, _WIDTH))


def _check_target(target: float | None, accuracy: float | None, blind: float) -> None:
    if target is not None and accuracy is not None:
        raise ParameterError(("target", "max_adversary_accuracy"), "exclude each other: give one, not both")
    if target is not None and not 0 <= target <= 1:
        raise ParameterError("target", "must be a distance in [0, 1]", target)
    if accuracy is not None and not blind <= accuracy <= 1:
        rule = f"must be at least that of a blind guess, {blind:.4g}, and at most 1"
        raise ParameterError("max_adversary_accuracy", rule, accuracy)


def _checked_errors(errors: float | Sequence[float] | None, groups: Sequence[Hashable]) -> tuple[float, ...] | None:
    if errors is None:
        return None
    values = checked_distance(np.asarray(errors, dtype=np.float64), "density_error")
    if values.shape not in ((), (len(groups),)):
        raise ValueError(
            f"density_error must be one number, or one for each of {len(groups)} groups; got {values.tolist()}."
        )
    return tuple(np.broadcast_to(values, len(groups)).tolist())
