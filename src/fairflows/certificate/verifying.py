"""verify: compute a certificate again, and say what differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairflows.certificate.certifying import make_certificate, status_of
from fairflows.certificate.densities import best_densities
from fairflows.certificate.document import Certificate
from fairflows.certificate.identification import secret_of
from fairflows.data.ledger import Ledger, named_persons
from fairflows.data.table import Table
from fairflows.encoder.pipelines import pipeline_steps

_RECOMPUTED = (
    "status", "n", "n_cells", "model_delta", "model_upper", "model_accuracy_upper", "model_odds_upper", "cell_delta",
    "cell_upper", "cell_accuracy_upper", "cell_odds_upper", "density_error_lower", "vouched_upper", "spent",
)  # fmt: skip
_TOLERANCE = 1e-6  # of sums over many draws, between machines


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the certificate says.

    Attributes
    ----------
    what : str
        "rows", "model", "look", "seal" or the name of a field.
    text : str
        What differs, in a sentence.
    """

    what: str
    text: str


@dataclass(frozen=True)
class Verification:
    """What differs between a certificate and the same one computed again; true where nothing does."""

    differences: tuple[Difference, ...]

    def __bool__(self) -> bool:
        return not self.differences

    def __repr__(self) -> str:
        if not self.differences:
            return "The certificate holds: everything was computed again and agrees."
        return "\n".join(["The certificate does not hold:", *(f"  - {d.text}" for d in self.differences)])


def verify(
    certificate: Certificate, model: Any, rows: Table, *, density: Any = None, train: Table | None = None
) -> Verification:
    """Compute a certificate again and say what differs: another model, other rows, reused rows, changed fields.

    The attack is not run again; that nobody changed what it found is what the seal shows.

    Parameters
    ----------
    certificate : Certificate
        What was handed over.
    model : encoder or pipeline
        The model that it should be about, with its key and its ledger.
    rows : Table
        The rows that it should be about.
    density, train
        As they were passed to `certify`, if they were.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from sklearn.pipeline import make_pipeline
    >>> from fairflows import FairTransport, load_adult
    >>> from fairflows.certificate.certifying import certify
    >>> from fairflows.encoder.pipelines import fit_pipeline
    >>> from fairflows.release import CellRelease
    >>> train, _, test = load_adult().split(random_state=0)
    >>> pipeline = make_pipeline(FairTransport(density="counts"), CellRelease(n_cells=8))
    >>> _ = fit_pipeline(pipeline, train.X, train.y, sensitive_features=train.a)
    >>> certificate = certify(pipeline, test, target=0.1)
    >>> verify(certificate, pipeline, test)
    The certificate holds: everything was computed again and agrees.
    >>> bool(verify(replace(certificate, cell_upper=0.01), pipeline, test))
    False
    """
    again = _compute_again(certificate, model, rows, density, train)
    found = []
    if again.model != certificate.model:
        found.append(Difference("model", "This is another model than the one that was certified."))
    if again.rows != certificate.rows:
        found.append(Difference("rows", "These are other rows than those that were certified on."))
    found += _differences_in_ledger(certificate, model, rows)
    if certificate.sealed(secret_of(model)).seal != certificate.seal:
        found.append(Difference("seal", "The seal is broken: the certificate was changed, or made with another key."))
    if again.model == certificate.model and again.rows == certificate.rows:
        found += [
            Difference(name, f"{name} is {_shown(getattr(again, name))}; the certificate says {_shown(claimed)}.")
            for name in _RECOMPUTED
            if not _agree(claimed := getattr(certificate, name), getattr(again, name))
        ]
    return Verification(tuple(found))


def _compute_again(certificate: Certificate, model: Any, rows: Table, density: Any, train: Table | None) -> Certificate:
    attack = None
    if certificate.attack_lower is not None:
        attack = {
            "released": certificate.released,
            "delta": certificate.spent["attack"],
            "attack_lower": certificate.attack_lower,
            "best": certificate.attack_by,
            "density_gap_lower": certificate.density_gap_lower,
            "rows": None,
        }
    judged = None
    if density is not None:
        judged = best_densities(pipeline_steps(model)[0], density, train, certificate.seed)
    again = make_certificate(
        model,
        rows,
        target=None,
        target_accuracy=None,
        audit=attack,
        delta=certificate.delta,
        released=certificate.released,
        judged=judged,
        density_error=certificate.density_error,
        n_draws=certificate.n_draws,
        monte_carlo_delta=certificate.spent.get("model") or 0.001,
        random_state=certificate.seed,
        look=certificate.look,
    )
    again = replace(again, target=certificate.target, target_accuracy=certificate.target_accuracy)
    return replace(again, status=status_of(again))


def _differences_in_ledger(certificate: Certificate, model: Any, rows: Table) -> list[Difference]:
    """Whether the ledger knows the certificate, and counts the looks at its rows as it does."""
    encoder = pipeline_steps(model)[0]
    ledger: Ledger | None = getattr(encoder, "ledger_", None)
    if ledger is None:
        return []
    seen = ledger.read(rows.X, named_persons(rows.X, getattr(encoder, "identifier", None)))
    used = ledger.already_used(seen)
    if used:
        return [Difference("rows", f"The model was fitted to, or chosen by, {used:,} of these persons or rows.")]
    marks = [look.mark for look in ledger.looks_at(seen)]
    earlier = marks.index(certificate.seal) if certificate.seal in marks else len(marks)
    if earlier != certificate.look - 1:
        return [
            Difference(
                "look",
                f"The rows were used again: the ledger counts {earlier} certificates from them before this one, which "
                f"spends δ as number {certificate.look}.",
            )
        ]
    return []


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=0, atol=_TOLERANCE))
    return one == other


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
