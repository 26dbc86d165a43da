"""certify: bounds on what a release tells about the group, from its densities and from held-out persons."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fairflows import __version__
from fairflows.certificate.arguments import checked_delta
from fairflows.certificate.assumptions import assumptions
from fairflows.certificate.densities import best_densities, log_densities_under
from fairflows.certificate.derived import density_error_lower_bound, distance_for_accuracy, true_distance_upper_bound
from fairflows.certificate.document import Certificate, ContradictionError, Status
from fairflows.certificate.evidence import CellEvidence, ModelEvidence, group_numbers, releases_cells
from fairflows.certificate.identification import model_hash, one_row_a_person, rows_hash, secret_of
from fairflows.certificate.spending import delta_of_look
from fairflows.data.ledger import Ledger, RowsSeen, named_persons
from fairflows.data.table import Table
from fairflows.encoder.pipelines import pipeline_steps
from fairflows.exceptions import DataError, DataWarning

_RELEASED = ("cell", "latent", "label")


def certify(
    model: Any,
    rows: Table,
    *,
    target: float | None = None,
    max_adversary_accuracy: float | None = None,
    audit: Any = None,
    delta: float = 0.05,
    released: Sequence[str] | None = None,
    density: Any = None,
    train: Table | None = None,
    density_error: float | Sequence[float] | None = None,
    n_draws: int = 1_000_000,
    monte_carlo_delta: float = 0.001,
    random_state: int = 0,
) -> Certificate:
    """Certify what a release tells about the group, on persons that nothing was fitted to or chosen by.

    Parameters
    ----------
    model : encoder, or pipeline of an encoder and a `CellRelease`
        What is to be released is what comes out of its last step. Any last step with ``cells(Z)`` and ``n_cells_`` is a
        release of cells.
    rows : Table
        Held-out rows. Persons are the units: of several rows of one person, a random one is counted.
    target : float, optional
        The statistical distance Δ to stay within.
    max_adversary_accuracy : float, optional
        The same as the accuracy of the best guess of the group when all groups are equally likely; for two groups this
        is Δ ≤ 2t − 1.
    audit : Audit, optional
        What `audit` found on the same release; without, the attack fields are None.
    delta : float
        δ, the probability that the bound on the true distribution is wrong, over all certificates from these rows: the
        j-th of them spends δ·6/(π²j²).
    released : sequence of {"cell", "latent", "label"}, optional
        All that goes out together; by default what the model's last step gives. The pair (cell, label) is certified as
        such; next to a latent, a cell adds nothing and certifies nothing.
    density : str, density, or a list of these, optional
        For `FairFlow`: other densities than those it was trained with, fitted to `train`; of several, those of best
        held-out likelihood.
    train : Table, optional
        Rows to fit them to.
    density_error : float, or one for each group, optional
        TV(p̂_a, p_a) at most, if somebody vouches for it; then Δ of the true law is bounded for a latent too.
    n_draws : int
        Draws from each group behind the model-based bound; exact sums need none.
    monte_carlo_delta : float
        The δ of that bound, over the draws.
    random_state : int
        Seed of the draws, and of the choice of a person's row.

    Returns
    -------
    Certificate

    Raises
    ------
    DataError
        Persons were trained on; or a group is too small for the target, with the number needed.
    ContradictionError
        The attack's lower bound is above the upper bound on the same rows, which only a bug can do.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from fairflows import FairTransport, load_adult
    >>> from fairflows.encoder.pipelines import fit_pipeline
    >>> from fairflows.release import CellRelease
    >>> train, _, test = load_adult().split(random_state=0)
    >>> pipeline = make_pipeline(FairTransport(density="counts"), CellRelease(n_cells=8))
    >>> _ = fit_pipeline(pipeline, train.X, train.y, sensitive_features=train.a)
    >>> certificate = certify(pipeline, test, target=0.1)
    >>> certificate.status, certificate.cell_upper < 0.1
    ('CERTIFIED', True)
    """
    checked_delta(delta)
    checked_delta(monte_carlo_delta)
    encoder = pipeline_steps(model)[0]
    ledger: Ledger | None = getattr(encoder, "ledger_", None)
    seen = _refuse_used_rows(ledger, rows, encoder)
    look = 1 if ledger is None or seen is None else ledger.next_look(seen)
    judged: tuple[Any, str] | None = None
    if density is not None:
        judged = best_densities(encoder, density, train, random_state)
    certificate = make_certificate(
        model,
        rows,
        target=_checked_target(target, max_adversary_accuracy),
        target_accuracy=max_adversary_accuracy,
        audit=audit,
        delta=delta,
        released=checked_released(released, model),
        judged=judged,
        density_error=density_error,
        n_draws=n_draws,
        monte_carlo_delta=monte_carlo_delta,
        random_state=random_state,
        look=look,
    )
    if ledger is not None and seen is not None:
        _warn_of_other_models(ledger, seen, certificate)
        ledger.record(seen, certificate.model, certificate.seal)
    return certificate


def make_certificate(
    model: Any,
    rows: Table,
    *,
    target: float | None,
    target_accuracy: float | None,
    audit: Any,
    delta: float,
    released: tuple[str, ...],
    judged: tuple[Any, str] | None,
    density_error: float | Sequence[float] | None,
    n_draws: int,
    monte_carlo_delta: float,
    random_state: int,
    look: int,
) -> Certificate:
    """The certificate of a given look, neither checked against the ledger nor recorded in it."""
    encoder = pipeline_steps(model)[0]
    groups = list(getattr(encoder, "groups_", rows.groups))
    identifier = getattr(encoder, "identifier", None)
    sample = one_row_a_person(rows, identifier, random_state)
    key = secret_of(model)
    spent: dict[str, float] = {}
    said: dict[str, Any] = {}

    cells = None
    if "cell" in released and "latent" not in released:
        cells = CellEvidence.of(model, sample, groups, with_label="label" in released)
        spent["cells"] = delta_of_look(delta, look)
        wanted = target if target_accuracy is None or len(groups) > 2 else distance_for_accuracy(target_accuracy)
        if wanted is not None:
            cells.check_size(float(wanted), spent["cells"], groups)
        said |= _about_cells(cells, spent["cells"])
    if "label" not in released:
        shrink = 1.0 if cells is None else cells.own_share
        said |= _about_model(encoder, judged, n_draws, monte_carlo_delta, random_state, shrink, spent)
        if cells is None and "model_upper" not in said and hasattr(encoder, "no_density"):
            raise DataError(f"{type(encoder).__name__} cannot be certified. {encoder.no_density}")
    if density_error is not None and "model_upper" in said:
        errors = np.broadcast_to(np.asarray(density_error, dtype=np.float64), (len(groups),)).tolist()
        vouched = true_distance_upper_bound(said["model_upper"], errors)
        said |= {"density_error": tuple(errors), "vouched_upper": vouched}
    if audit is not None:
        said |= _about_attack(audit, released, said, spent)

    ledger = getattr(encoder, "ledger_", None)
    persons = named_persons(rows.X, identifier)
    certificate = Certificate(
        status="NOT_MET",
        target=target,
        target_accuracy=target_accuracy,
        released=released,
        n=_sizes(sample, groups),
        delta=delta,
        spent=spent,
        look=look,
        assumptions=assumptions(
            released=released,
            cells=cells is not None,
            model="model_upper" in said,
            known_persons=persons is not None,
            several_rows=len(sample) < len(rows),
            ledger=ledger is not None,
            checked=ledger is not None and ledger.comparable(ledger.read(rows.X, persons)),
            odds=bool(said.get("cell_odds_upper")),
            randomised=cells is not None and cells.own_share < 1,
        ),
        model=model_hash(model, key),
        rows=rows_hash(rows, key),
        seed=random_state,
        n_draws=n_draws,
        versions=_versions(),
        **said,
    )
    _check_for_contradiction(certificate, audit)
    return replace(certificate, status=status_of(certificate)).sealed(key)


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


def _about_cells(cells: CellEvidence, delta: float) -> dict[str, Any]:
    return {
        "cell_delta": cells.observed(),
        "cell_upper": cells.upper(delta),
        "cell_accuracy_upper": cells.accuracy_upper(delta),
        "cell_odds_upper": cells.odds_upper(delta),
        "n_cells": cells.released().shape[1],
    }


def _about_model(
    encoder: Any,
    judged: tuple[Any, str] | None,
    n_draws: int,
    delta: float,
    seed: int,
    shrink: float,
    spent: dict[str, float],
) -> dict[str, Any]:
    said: dict[str, Any] = {"density": "the densities that the model was fitted with"}
    if judged is None:
        evidence = ModelEvidence.of(encoder, n_draws, seed)
    else:
        evidence = ModelEvidence(log_densities=log_densities_under(encoder, judged[0], n_draws, seed))
        said["density"] = judged[1]
    if evidence is None:
        return {}
    estimate, upper, accuracy, spent["model"] = evidence.bounds(delta, shrink)
    said |= {"model_delta": estimate, "model_upper": upper, "model_accuracy_upper": accuracy}
    numbers = getattr(getattr(encoder, "flow_", None), "label_numbers", ()) if judged is None else ()
    odds = {}
    for number in numbers:
        label = encoder.classes_[number]
        given = ModelEvidence.of(encoder, n_draws, seed, label)
        if given is not None:
            odds[str(label)] = given.bounds(delta / len(numbers), shrink)[1]
    return {**said, "model_odds_upper": odds}


def _about_attack(
    audit: Any, released: tuple[str, ...], said: dict[str, Any], spent: dict[str, float]
) -> dict[str, Any]:
    found = SimpleNamespace(**audit) if isinstance(audit, dict) else audit
    if tuple(found.released) != released:
        raise ValueError(
            f"audit must have attacked what is released ({', '.join(released)}); it attacked "
            f"{', '.join(found.released)}."
        )
    spent["attack"] = float(found.delta)
    upper = said.get("model_upper")
    return {
        "attack_lower": float(found.attack_lower),
        "attack_by": str(found.best),
        "density_gap_lower": {str(group): float(gap) for group, gap in found.density_gap_lower.items()},
        "density_error_lower": None if upper is None else density_error_lower_bound(found.attack_lower, upper),
    }


def _check_for_contradiction(certificate: Certificate, audit: Any) -> None:
    upper, lower = certificate.cell_upper, certificate.attack_lower
    if upper is None or lower is None or lower <= upper:
        return
    found = SimpleNamespace(**audit) if isinstance(audit, dict) else audit
    if found.rows == certificate.rows:
        raise ContradictionError(
            f"The attack's lower bound {lower:.4f} is above the certified upper bound {upper:.4f} for the same release "
            "on the same rows. That cannot be bad luck: there is a bug in the release, the attack or the bounds."
        )
    chance = certificate.spent["attack"] + certificate.spent["cells"]
    warnings.warn(
        f"The attack's lower bound {lower:.4f}, on other rows, is above the certified upper bound {upper:.4f}: one of "
        f"the two is wrong, which has probability {chance:.2g} at most, or the rows have different distributions.",
        DataWarning,
        stacklevel=4,
    )


def _refuse_used_rows(ledger: Ledger | None, rows: Table, encoder: Any) -> RowsSeen | None:
    if ledger is None:
        return None
    seen = ledger.read(rows.X, named_persons(rows.X, getattr(encoder, "identifier", None)))
    used = ledger.already_used(seen)
    if used:
        what = "persons" if seen.named else "rows"
        raise DataError(
            f"The model was fitted to, or chosen by, {used:,} of the {len(seen.persons):,} {what} to certify on. A "
            "certificate takes persons that nothing has seen: certify on held-out rows."
        )
    return seen


def _warn_of_other_models(ledger: Ledger, seen: RowsSeen, certificate: Certificate) -> None:
    if any(look.model != certificate.model for look in ledger.looks_at(seen)):
        warnings.warn(
            "Another model was certified on some of these persons. Never release two models' encodings of one person: "
            "only the true group's inverses agree on her row.",
            DataWarning,
            stacklevel=3,
        )


def _checked_target(target: float | None, accuracy: float | None) -> float | None:
    if target is not None and accuracy is not None:
        raise ValueError("give target, a distance, or max_adversary_accuracy, not both.")
    if target is not None and not 0 <= target <= 1:
        raise ValueError(f"target must be a distance in [0, 1]; got {target!r}.")
    if accuracy is not None and not 0 < accuracy <= 1:
        raise ValueError(f"max_adversary_accuracy must be in (0, 1]; got {accuracy!r}.")
    return target


def checked_released(released: Sequence[str] | None, model: Any) -> tuple[str, ...]:
    """The names of all that is released together, in a fixed order; by default what the model's last step gives."""
    by_model = "cell" if releases_cells(model) else "latent"
    if released is None:
        return (by_model,)
    names = [released] if isinstance(released, str) else list(released)
    for name in names:
        if name not in _RELEASED:
            raise ValueError(f"released must name {', '.join(_RELEASED)}; got {name!r}.")
    if "cell" in names and by_model != "cell":
        raise ValueError("released names cells, but the model's last step releases none: add a CellRelease.")
    if not {"cell", "latent"} & set(names):
        names.append(by_model)
    return tuple(name for name in _RELEASED if name in names)


def _sizes(sample: Table, groups: list[Any]) -> dict[str, int]:
    counts = np.bincount(group_numbers(sample, groups), minlength=len(groups))
    return {str(group): int(count) for group, count in zip(groups, counts, strict=True)}


def _versions() -> dict[str, str]:
    found = {"fairflows": __version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "sklearn", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
