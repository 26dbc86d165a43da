"""make_certificate: a certificate computed from a model, rows, and settings that were checked once."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from fairflows import __version__
from fairflows.bounds.arguments import (
    Estimator,
    Priors,
    affordable_draws,
    checked_delta,
    checked_distance,
    checked_draws,
    checked_priors,
)
from fairflows.bounds.derived import density_error_lower_bound, true_distance_upper_bound
from fairflows.bounds.model import draws_needed
from fairflows.bounds.planning import delta_of_each, delta_of_look
from fairflows.certificate.assumptions import assumptions
from fairflows.certificate.counted import CountedStatement
from fairflows.certificate.document import (
    AttackResult,
    Certificate,
    ContradictionError,
    Status,
    rounded_down,
    rounded_up,
)
from fairflows.certificate.evidence import CandidateLaw, CellEvidence, ModelBounds, model_bounds
from fairflows.encoder.base import LatentLaw
from fairflows.exceptions import DataError, DataWarning, check_choice, check_count
from fairflows.release.released import Released
from fairflows.table.table import Table

_RELEASED = ("cell", "latent", "label")
_SPENT = "monte_carlo_delta"
_OWN = "the densities that the model was fitted with"
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
        stated = {each.name: getattr(certificate, each.name) for each in fields(cls) if each.name != _SPENT}
        return cls.of(model, groups, monte_carlo_delta=certificate.spent.get("model") or _MONTE_CARLO_DELTA, **stated)

    def stated(self) -> dict[str, Any]:
        """Those that a certificate states under the same names: all but the δ of draws, which it lists as spent."""
        return {name: value for name, value in vars(self).items() if name != _SPENT}

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
        raise DataError(f"n_draws must be at most {_MOST_DRAWS:,}; got {n!r}.")
    return checked_draws(int(n), n_groups) if law is not None and law.exact() is None else int(n)


def _enough_draws(law: LatentLaw | None, n_groups: int, estimator: Estimator, delta: float, seed: int) -> int:
    """As many draws as the bound needs to be about 1/1000 wide, where that is less than what is drawn at most.

    The first draws decide on it, and no bound is computed from them: the number is fixed before the others are drawn.
    """
    if law is None or law.exact() is not None:
        return _DRAWS  # none is made
    most = affordable_draws(_DRAWS, n_groups)
    if estimator == "sign":  # Hoeffding's radius is the same for all laws
        return most
    first = law.log_density_table(min(_FIRST_DRAWS, -(-most // 8)), seed + 1)
    return min(most, draws_needed(first, delta, _WIDTH))


def _check_target(target: float | None, accuracy: float | None, blind: float) -> None:
    if target is not None and accuracy is not None:
        raise DataError("target and max_adversary_accuracy exclude each other: give one, not both.")
    if target is not None and not 0 <= target <= 1:
        raise DataError(f"target must be a distance in [0, 1]; got {target!r}.")
    if accuracy is not None and not blind <= accuracy <= 1:
        rule = f"must be at least that of a blind guess, {blind:.4g}, and at most 1"
        raise DataError(f"max_adversary_accuracy {rule}; got {accuracy!r}.")


def _checked_errors(errors: float | Sequence[float] | None, groups: Sequence[Hashable]) -> tuple[float, ...] | None:
    if errors is None:
        return None
    values = checked_distance(np.asarray(errors, dtype=np.float64), "density_error")
    if values.shape not in ((), (len(groups),)):
        raise ValueError(
            f"density_error must be one number, or one for each of {len(groups)} groups; got {values.tolist()}."
        )
    return tuple(np.broadcast_to(values, len(groups)).tolist())


def counted_rows(rows: Table, settings: Settings) -> Table:
    """The independent rows that the headline is counted from: draws from the law of a random row of the table."""
    return rows.random_rows(settings.seed, settings.most_rows)


def make_certificate(
    model: Released,
    rows: Table,
    settings: Settings,
    *,
    name: str,
    look: int,
    attack: AttackResult | None = None,
    candidates: CandidateLaw | None = None,
) -> Certificate:
    """The certificate of a given look, neither checked against the ledger nor recorded in the book of looks."""
    groups, released, key = model.groups(rows), settings.released, model.secret
    sample = counted_rows(rows, settings)
    delta = delta_of_look(settings.delta, look)
    own_law = None if model.innermost is None else model.innermost.latent_law()
    certificate = Certificate(
        status="NOT_MET",
        sensitive=str(rows.a.name),
        n=_sizes(sample, groups),
        spent={},
        look=look,
        assumptions=(),
        model=name,
        rows=rows.fingerprint(key),
        versions=_versions(),
        **settings.stated(),
    )
    cells: tuple[CellEvidence, ...] = ()
    if settings.certifies_cells:
        cells = CellEvidence.of(model, sample, groups, with_label="label" in released)
        certificate = _with_cells(certificate, cells, groups, delta)
        if settings.most_rows > 1:
            persons = rows.one_row_per_person(settings.seed)
            by_person = CellEvidence.of(model, persons, groups, with_label="label" in released)
            statement = _statement("person", by_person, groups, delta)
            certificate = replace(
                _spending(certificate, persons=delta),
                person_delta=statement.observed,
                person_upper=statement.upper,
                n_persons=_sizes(persons, groups),
                counts=(*certificate.counts, statement),
            )
    if "label" not in released:
        law, density = (own_law, _OWN) if candidates is None else candidates
        if law is not None:
            shrink = max((part.eta for part in cells), default=1.0)
            certificate = _with_model(certificate, law, density, settings.monte_carlo_delta, shrink)
        if not cells and certificate.model_upper is None and model.encoder is None:
            raise DataError(
                f"{type(model.model).__name__} cannot be certified: it has no densities, and releases no cells. Put it "
                "before a CellRelease."
            )
    if settings.density_error is not None:
        if certificate.model_upper is None:
            raise ValueError("density_error adds to a model-based bound, and there is none of what is released.")
        vouched = true_distance_upper_bound(certificate.model_upper, settings.density_error)
        certificate = replace(certificate, vouched_upper=vouched)
    if attack is not None:
        certificate = _with_attack(certificate, attack, of_own_densities=candidates is None)
        if cells:
            is_counted = all(part.is_deterministic for part in cells) and not (model.draws_rows or model.is_foreign)
            same = is_counted and attack.rows == sample.fingerprint(key)
            _check_for_contradiction(certificate, same_release=same)
    certificate = replace(
        certificate,
        status=status_of(certificate),
        assumptions=assumptions(
            certificate,
            model,
            rows,
            cells,
            loses_odds=candidates is not None and own_law is not None and bool(own_law.labels),
            limits=() if attack is None else attack.limits,
        ),
    )
    return certificate.sealed(key) if key else certificate


def status_of(certificate: Certificate) -> Status:
    """CERTIFIED, else REFUTED, else MODEL_ONLY, else NOT_MET."""
    c = certificate
    if _within(c.cell_upper, c.cell_accuracy_upper, c):
        return "CERTIFIED"
    if c.attack_lower is not None and c.model_upper is not None and c.attack_lower > c.model_upper:
        return "REFUTED"
    return "MODEL_ONLY" if _within(c.model_upper, c.model_accuracy_upper, c) else "NOT_MET"


def _within(upper: float | None, accuracy_upper: float | None, c: Certificate) -> bool:
    if upper is None or accuracy_upper is None:
        return False
    if c.target_accuracy is not None:
        return accuracy_upper <= c.target_accuracy
    return upper <= c.target if c.target is not None else upper < 1


def _spending(certificate: Certificate, **shares: float) -> Certificate:
    return replace(certificate, spent={**certificate.spent, **{k.replace("_", " "): v for k, v in shares.items()}})


def _statement(
    law: Literal["row", "person"], cells: Sequence[CellEvidence], groups: Sequence[Hashable], delta: float
) -> CountedStatement:
    """What the counts of all models say together at this δ, of which each model spends its part."""
    each = delta_of_each(delta, len(cells))
    return CountedStatement(law, None, tuple(part.fold(groups, each) for part in cells))


def _with_cells(
    certificate: Certificate, cells: Sequence[CellEvidence], groups: Sequence[Hashable], delta: float
) -> Certificate:
    """The certificate with what is known of the true distribution of a random row, from the counts that it prints."""
    statement, each = _statement("row", cells, groups, delta), delta_of_each(delta, len(cells))
    by_model = [part.folds_by_label(groups, each) for part in cells]
    given = [CountedStatement("row", label, tuple(of[label] for of in by_model)) for label in by_model[0]]
    certificate = _spending(certificate, cells=delta)
    if not certificate.is_plain:  # the accuracy is no function of Δ, but another statement
        certificate = _spending(certificate, accuracy=delta)
    if given:
        certificate = _spending(certificate, odds=delta)
    return replace(
        certificate,
        cell_delta=statement.observed,
        cell_upper=statement.upper,
        cell_accuracy_upper=statement.accuracy_upper(certificate.priors),
        cell_odds_upper={str(each.label): each.upper for each in given},
        n_cells=sum(part.n_cells for part in cells),
        counts=(statement, *given),
    )


def _with_model(certificate: Certificate, law: LatentLaw, density: str, delta: float, shrink: float) -> Certificate:
    """The certificate with what holds if the densities are the truth."""
    n, seed, estimator = certificate.n_draws, certificate.seed, certificate.estimator

    def bounds(delta: float, label: Hashable = None, priors: Priors = None) -> ModelBounds:
        return model_bounds(
            law, label, n_draws=n, seed=seed, delta=delta, shrink=shrink, priors=priors, estimator=estimator
        )

    found = bounds(delta, priors=certificate.priors)
    certificate = _spending(certificate, model=found.spent)
    if found.spent and estimator == "betting" and not certificate.is_plain:
        certificate = _spending(certificate, model_accuracy=delta)
    given = {str(label): bounds(delta / len(law.labels), label) for label in law.labels}
    if given:
        certificate = _spending(certificate, model_odds=sum(each.spent for each in given.values()))
    return replace(
        certificate,
        density=density,
        model_delta=found.estimate,
        model_upper=found.upper,
        model_accuracy_upper=found.accuracy_upper,
        model_odds_upper={label: each.upper for label, each in given.items()},
    )


def _with_attack(certificate: Certificate, found: AttackResult, *, of_own_densities: bool) -> Certificate:
    """The certificate with what an audit found."""
    certificate = _spending(certificate, attack=float(found.delta))
    gaps = {str(group): float(gap) for group, gap in found.density_gap_lower.items()} if of_own_densities else {}
    if gaps:
        certificate = _spending(certificate, densities=len(gaps) * float(found.delta))
    upper = certificate.model_upper
    return replace(
        certificate,
        attack_lower=float(found.attack_lower),
        attack_by=str(found.best),
        density_gap_lower=gaps,
        density_error_lower=None if upper is None else density_error_lower_bound(found.attack_lower, upper),
    )


def _check_for_contradiction(certificate: Certificate, *, same_release: bool) -> None:
    upper, lower = certificate.cell_upper, certificate.attack_lower
    if upper is None or lower is None or lower <= upper:
        return
    if same_release:
        raise ContradictionError(
            f"The attack's lower bound {rounded_down(lower)} is above the certified upper bound {rounded_up(upper)} "
            "for the same release on the same rows. That cannot be bad luck: there is a bug in the release, the attack "
            "or the bounds."
        )
    chance = certificate.spent["attack"] + certificate.spent["cells"]
    warnings.warn(
        f"The attack's lower bound {rounded_down(lower)}, on other rows or random cells, is above the certified upper "
        f"bound {rounded_up(upper)}: one of the two is wrong, which has probability {chance:.2g} at most, or the rows "
        "differ in law.",
        DataWarning,
        stacklevel=4,
    )


def _sizes(sample: Table, groups: Sequence[Hashable]) -> dict[str, int]:
    return {str(group): int(n) for group, n in zip(groups, sample.group_sizes(groups), strict=True)}


def _versions() -> dict[str, str]:
    found = {"fairflows": __version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "sklearn", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
