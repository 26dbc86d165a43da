"""verify: compute a certificate again, and say what differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairflows.certificate.candidates import best_densities
from fairflows.certificate.certifying import groups_of, make_certificate, status_of
from fairflows.certificate.document import Certificate
from fairflows.certificate.identification import model_hash, rows_hash, secret_of
from fairflows.certificate.request import Settings
from fairflows.encoder.pipelines import pipeline_steps
from fairflows.exceptions import DataError
from fairflows.table.ledger import Ledger, named_persons
from fairflows.table.table import Table

_RECOMPUTED = (
    "status", "n", "n_cells", "density", "model_delta", "model_upper", "model_accuracy_upper", "model_odds_upper",
    "cell_delta", "cell_upper", "cell_accuracy_upper", "cell_odds_upper", "density_error_lower", "vouched_upper",
    "spent",
)  # fmt: skip
_ANOTHER = "This is another model than the one that was certified."
_TOLERANCE = 1e-6  # of sums over many draws, between machines


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the certificate says.

    Attributes
    ----------
    what : str
        "model", "rows", "look", "seal", "settings" or the name of a field.
    text : str
        What differs, in a sentence.
    """

    what: str
    text: str


@dataclass(frozen=True)
class Verification:
    """What differs between a certificate and the same one computed again; true where nothing does.

    Attributes
    ----------
    differences : tuple of Difference
        What differs.
    sealed : bool
        Whether the model has a key, so that a seal vouches for what was not computed again.
    """

    differences: tuple[Difference, ...]
    sealed: bool = True

    def __bool__(self) -> bool:
        return not self.differences

    def __repr__(self) -> str:
        if not self.differences:
            holds = "The certificate holds: everything was computed again and agrees."
            return holds if self.sealed else f"{holds} It is not sealed: what the attack found is taken on trust."
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
    >>> from fairflows.release.cell_release import CellRelease
    >>> train, _, test = load_adult().split(random_state=0)
    >>> pipeline = make_pipeline(FairTransport(density="counts"), CellRelease(n_cells=8))
    >>> _ = fit_pipeline(pipeline, train.X, train.y, sensitive_features=train.a)
    >>> certificate = certify(pipeline, test, target=0.1)
    >>> verify(certificate, pipeline, test)
    The certificate holds: everything was computed again and agrees.
    >>> bool(verify(replace(certificate, cell_upper=0.01), pipeline, test))
    False
    """
    key = secret_of(model)
    same_model = model_hash(model, key) == certificate.model
    same_rows = rows_hash(rows, key) == certificate.rows
    intact = not key or certificate.sealed(key).seal == certificate.seal
    if not (same_model or same_rows or (key and intact)):
        # Hashes and seal under another key say nothing: only the model is known to differ.
        return Verification((Difference("model", _ANOTHER + " Its key is another, too: no more can be said."),))
    found = []
    if not same_model:
        found.append(Difference("model", _ANOTHER))
    if not same_rows:
        found.append(Difference("rows", "These are other rows than those that were certified on."))
    if not intact:
        found.append(Difference("seal", "The seal is broken: the certificate was changed after it was made."))
    if same_model:
        found += _differences_in_ledger(certificate, model, rows, intact)
    if same_model and same_rows:
        found += _differences_in_fields(certificate, model, rows, density, train)
    return Verification(tuple(found), sealed=bool(key))


def _differences_in_fields(
    certificate: Certificate, model: Any, rows: Table, density: Any, train: Table | None
) -> list[Difference]:
    try:
        settings = Settings.read(certificate, model, groups_of(model, rows))
        again = _compute_again(certificate, settings, model, rows, density, train)
    except DataError as error:
        return [Difference("rows", f"It cannot be computed again from these rows: {error}")]
    except ValueError as error:
        return [Difference("settings", f"No certificate can have these settings: {error}")]
    return [
        Difference(name, f"{name} is {_shown(getattr(again, name))}; the certificate says {_shown(claimed)}.")
        for name in _RECOMPUTED
        if not _agree(claimed := getattr(certificate, name), getattr(again, name))
    ]


def _compute_again(
    certificate: Certificate, settings: Settings, model: Any, rows: Table, density: Any, train: Table | None
) -> Certificate:
    attack = None
    if certificate.attack_lower is not None:
        attack = {
            "model": certificate.model,
            "released": certificate.released,
            "delta": certificate.spent.get("attack", certificate.delta),
            "attack_lower": certificate.attack_lower,
            "best": certificate.attack_by,
            "density_gap_lower": certificate.density_gap_lower,
            "rows": None,
        }
    judged = None
    if density is not None:
        judged = best_densities(pipeline_steps(model)[0], density, train, certificate.seed)
    # Whether the groups were large enough for the target is no part of what is said.
    untargeted = replace(settings, target=None, target_accuracy=None)
    again = make_certificate(model, rows, untargeted, look=certificate.look, audit=attack, judged=judged)
    again = replace(again, target=certificate.target, target_accuracy=certificate.target_accuracy)
    return replace(again, status=status_of(again))


def _differences_in_ledger(certificate: Certificate, model: Any, rows: Table, intact: bool) -> list[Difference]:
    """Whether the ledger knows the certificate by its seal, and counts the looks at its rows as it does."""
    encoder = pipeline_steps(model)[0]
    ledger: Ledger | None = getattr(encoder, "ledger_", None)
    if ledger is None:
        return []
    seen = ledger.read(rows.X, named_persons(rows.X, getattr(encoder, "identifier", None)))
    used = ledger.already_used(seen)
    if used:
        return [Difference("rows", f"The model was fitted to, or chosen by, {used:,} of these persons or rows.")]
    marks = [look.mark for look in ledger.looks_at(seen)]
    if not intact and certificate.seal not in marks:
        return []
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
