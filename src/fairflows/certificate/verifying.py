"""verify: compute a certificate again, and say what differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairflows.certificate.candidates import DensityLike, best_densities
from fairflows.certificate.certifying import make_certificate
from fairflows.certificate.counted import CountedStatement, FoldCounts
from fairflows.certificate.document import AttackResult, Certificate
from fairflows.certificate.request import Settings
from fairflows.encoder.model_state import model_hash
from fairflows.exceptions import DataError
from fairflows.release.released import Model, Released
from fairflows.table.looks import open_book
from fairflows.table.table import Table

_RECOMPUTED = (
    "status", "n", "n_cells", "density", "model_delta", "model_upper", "model_accuracy_upper", "model_odds_upper",
    "cell_delta", "cell_upper", "cell_accuracy_upper", "cell_odds_upper", "person_delta", "person_upper", "n_persons",
    "density_error_lower", "vouched_upper", "spent", "counts",
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
    certificate: Certificate,
    model: Model,
    rows: Table,
    *,
    density: DensityLike | None = None,
    train: Table | None = None,
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
    >>> from fairflows import FairTree, certify, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = FairTree(n_cells=8).fit(train)
    >>> certificate = certify(release, test, target=0.1)
    >>> verify(certificate, release, test)
    The certificate holds: everything was computed again and agrees.
    >>> bool(verify(replace(certificate, cell_upper=0.01), release, test))
    False
    """
    released = Released.of(model)
    key = released.secret
    name = model_hash(model, key)
    same_model = name == certificate.model
    same_rows = rows.fingerprint(key) == certificate.rows
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
        # Nothing that it states can be relied on, not even how much work it would be to compute it again.
        found.append(Difference("seal", "The seal is broken: the certificate was changed after it was made."))
        return Verification(tuple(found))
    if same_model:
        found += _differences_in_looks(certificate, released, rows)
    if same_model and same_rows:
        found += _differences_in_fields(certificate, released, name, rows, density, train)
    return Verification(tuple(found), sealed=bool(key))


def _differences_in_fields(
    certificate: Certificate, model: Released, name: str, rows: Table, density: DensityLike | None, train: Table | None
) -> list[Difference]:
    c, attack = certificate, None
    if c.attack_lower is not None:
        attack = AttackResult(
            attack_lower=c.attack_lower,
            best=c.attack_by,
            delta=c.spent.get("attack", c.delta),
            density_gap_lower=c.density_gap_lower,
            released=c.released,
            model=c.model,
        )
    try:
        settings = Settings.read(c, model, model.groups(rows))
        candidates = None if density is None else best_densities(model.innermost, density, train, c.seed)
        again = make_certificate(model, rows, settings, name=name, look=c.look, attack=attack, candidates=candidates)
    except DataError as error:
        return [Difference("rows", f"It cannot be computed again from these rows: {error}")]
    except ValueError as error:
        return [Difference("settings", f"No certificate can have these settings: {error}")]
    return [
        Difference(field, _other_value(field, claimed, getattr(again, field)))
        for field in _RECOMPUTED
        if not _agree(claimed := getattr(certificate, field), getattr(again, field))
    ]


def _differences_in_looks(certificate: Certificate, model: Released, rows: Table) -> list[Difference]:
    """Whether the book of looks knows the certificate, and counts the looks at its persons as it does."""
    used = model.already_used(rows)
    if used:
        return [Difference("rows", f"The model was fitted to, or chosen by, {used:,} of these persons or rows.")]
    with open_book() as book:
        known = book.find(certificate.mark)
        others = book.looks_at(book.rows(rows.X, rows.identifier))
    if known is None and any(look.number == certificate.look for look in others):
        text = f"Another certificate is number {certificate.look} from these persons in the user's book of looks."
        return [Difference("look", text)]
    if known is not None and known.number != certificate.look:
        return [
            Difference(
                "look",
                f"The user's book of looks has it as certificate {known.number} from these persons; it spends δ as "
                f"number {certificate.look}.",
            )
        ]
    return []


def _agree(one: object, other: object) -> bool:
    if isinstance(one, FoldCounts | CountedStatement) and type(one) is type(other):
        return _agree(vars(one), vars(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_agree(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=0, atol=_TOLERANCE))
    return one == other


def _other_value(field: str, claimed: object, computed: object) -> str:
    if field == "counts":  # too long to print
        return "The counts are not those of these rows."
    return f"{field} is {_shown(computed)}; the certificate says {_shown(claimed)}."


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
