"""certify: bounds on what a release tells about the group; verify: the same computed again, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairflows.bounds.arguments import Estimator
from fairflows.bounds.planning import delta_of_look
from fairflows.certificate.counted import CountedStatement, FoldCounts
from fairflows.certificate.document import AttackResult, Certificate
from fairflows.certificate.evidence import CellEvidence, DensityLike, best_densities, check_accuracy, check_distance
from fairflows.certificate.making import Settings, counted_rows, make_certificate
from fairflows.encoder.model_state import model_hash
from fairflows.exceptions import DataError, warn_user
from fairflows.release.released import Model, Released
from fairflows.table.columns import distinct
from fairflows.table.looks import Look, open_book
from fairflows.table.table import Table

_RECOMPUTED = (
    "status", "n", "n_cells", "density", "model_delta", "model_upper", "model_accuracy_upper", "model_odds_upper",
    "cell_delta", "cell_upper", "cell_accuracy_upper", "cell_odds_upper", "person_delta", "person_upper", "n_persons",
    "density_error_lower", "vouched_upper", "spent", "counts",
)  # fmt: skip
_ANOTHER = "This is another model than the one that was certified."
_TOLERANCE = 1e-6  # of sums over many draws, between machines


def certify(
    model: Model,
    rows: Table,
    *,
    target: float | None = None,
    max_adversary_accuracy: float | None = None,
    priors: Sequence[float] | None = None,
    audit: AttackResult | None = None,
    delta: float = 0.05,
    released: Sequence[str] | None = None,
    density: DensityLike | None = None,
    train: Table | None = None,
    density_error: float | Sequence[float] | None = None,
    estimator: Estimator = "betting",
    n_draws: int | None = None,
    monte_carlo_delta: float = 0.001,
    most_rows: int | None = None,
    random_state: int = 0,
) -> Certificate:
    """Certify what a release tells about the group, on persons that nothing was fitted to or chosen by.

    Parameters
    ----------
    model : encoder, release, pipeline or transformer
        What is to be released is what it gives. A release of cells, such as `CellRelease`, can be certified for the
        true distribution. So can somebody else's transformer whose values repeat, such as a discretizer: each different
        row that it gives is a cell.
    rows : Table
        Held-out rows; for a `CrossFit` all rows, each of which one of its models has not seen. Persons are the
        independent units: of several rows of one person at most one is counted, at random. Where persons have several
        rows there are two statements, about a random row of the file and about a random row of a random person; the
        first is the headline, since all rows are released.
    target : float, optional
        The statistical distance Δ to stay within.
    max_adversary_accuracy : float, optional
        The same as the accuracy t of the best guess of the group; for two equally likely groups this is Δ ≤ 2t − 1.
    priors : sequence of float, optional
        How likely each group is where the adversary works, in the order of the model's groups; equally by default.
    audit : Audit, optional
        What `audit` found on the same release of the same model; without, the attack fields are None.
    delta : float
        δ, the probability that the bound on the true distribution is wrong, over all certificates from these rows: the
        j-th of them spends δ·6/(π²j²). The bounds given the label together, and that on the accuracy for more than two
        groups or with priors, are statements of their own and spend as much each (``spent`` lists all).
    released : sequence of {"cell", "latent", "label"}, optional
        All that goes out together; by default what the model's last step gives. The pair (cell, label) is certified as
        such; next to a latent, a cell adds nothing and certifies nothing.
    density : str, density, or a list of these, optional
        For `FairFlow`: other densities than those it was trained with, fitted to `train`; of several, those of best
        held-out likelihood. Fitted `GroupDensities` are taken as they are.
    train : Table, optional
        Rows to fit them to.
    density_error : float, or one for each group, optional
        TV(p̂_a, p_a) at most, if somebody vouches for it; then Δ of the true law is bounded for a latent too.
    estimator : {"betting", "sign"}
        Of the model-based bound: the betting bound, or the paper's (decisions of the optimal adversary, plus
        Hoeffding's radius), which is wider. Exact sums need neither.
    n_draws : int, optional
        Draws from each group behind the model-based bound. When not given, as many as put the bound 1/1000 above the
        distance, judged by other draws, at most 10,000; no more than 1,000,000, and 8,000,000/K² for K groups, since
        every group's density is computed for the draws of every group. Exact sums need none.
    monte_carlo_delta : float
        The δ of that bound, over the draws.
    random_state : int
        Seed of the draws, and of the choice of a person's row.
    most_rows : int, optional
        The most rows that a person may have, M; the most that a person had in training when not given. A table in which
        somebody has more is refused.

    Returns
    -------
    Certificate

    Raises
    ------
    DataError
        Persons were trained on; or a group is too small for the target, with the number needed.
    ValueError
        An argument is wrong, or the audit is of another model.
    ContradictionError
        The attack's lower bound is above the upper bound for the same rows and cells, which only a bug can do.

    Examples
    --------
    >>> from fairflows import FairTree, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = FairTree(n_cells=8).fit(train)
    >>> certificate = certify(release, test, target=0.1)
    >>> certificate.status, certificate.cell_upper < 0.1
    ('CERTIFIED', True)
    """
    if not isinstance(rows, Table):
        raise DataError(f"rows must be a Table, which says which column is the group; got {type(rows).__name__}.")
    released_model = Released.of(model)
    settings = Settings.of(
        released_model,
        released_model.groups(rows),
        released=released,
        delta=delta,
        target=target,
        target_accuracy=max_adversary_accuracy,
        priors=priors,
        density_error=density_error,
        estimator=estimator,
        n_draws=n_draws,
        monte_carlo_delta=monte_carlo_delta,
        seed=random_state,
        most_rows=released_model.most_rows(rows, most_rows),
    )
    refuse_used_rows(released_model, rows)
    name = model_hash(model, released_model.secret)
    attacked = tuple("latent" if released_model.is_foreign and part == "cell" else part for part in settings.released)
    attack = None if audit is None else _checked_attack(audit, attacked, name)
    candidates = None if density is None else best_densities(released_model.innermost, density, train, random_state)
    with open_book() as book:
        look = book.reserve(book.rows(rows.X, rows.identifier), name)
    try:
        if settings.certifies_cells:
            _check_sizes(released_model, rows, settings, look.number)
            _refuse_values_that_never_repeat(released_model, rows)
    except BaseException:
        look.cancel()  # neither the sizes of the groups nor whether values repeat is a look at what tells groups apart
        raise
    certificate = make_certificate(
        released_model, rows, settings, name=name, look=look.number, attack=attack, candidates=candidates
    )
    look.complete(certificate.mark)
    _warn_of_other_models(look.earlier, name)
    return certificate


def _checked_attack(audit: AttackResult, released: tuple[str, ...], model: str) -> AttackResult:
    if tuple(audit.released) != released:
        raise ValueError(
            f"audit must have attacked what is released ({', '.join(released)}); it attacked "
            f"{', '.join(audit.released)}."
        )
    if not audit.model:
        raise ValueError("audit must have attacked the model; it attacked an array, of which nobody knows the origin.")
    if audit.model != model:
        raise ValueError("audit must have attacked the model that is to be certified; it attacked another one.")
    return audit


def refuse_used_rows(model: Released, rows: Table) -> None:
    """Refuse persons that the model was fitted to or chosen by: they certify nothing about it."""
    used = model.already_used(rows)
    if used:
        what = "persons" if rows.persons.named else "rows"
        several = (
            " Models that share out persons without an identifier certify the whole Table that they were fitted to."
        )
        raise DataError(
            f"The model was fitted to, or chosen by, {used:,} of the {rows.persons.n:,} {what} to certify on. A "
            "certificate takes persons that nothing has seen: certify on held-out rows."
            + several
            * (len(model.cells_of_models) > 1)
        )


def _check_sizes(model: Released, rows: Table, settings: Settings, look: int) -> None:
    """Refuse a target that so many persons cannot show even for cells that tell nothing."""
    groups, sample = model.groups(rows), counted_rows(rows, settings)
    counted = CellEvidence.telling_nothing(model, sample.group_sizes(groups))
    delta = delta_of_look(settings.delta, look)
    if settings.target is not None:
        check_distance(counted, settings.target, delta, groups)
    if settings.target_accuracy is not None:
        check_accuracy(counted, settings.target_accuracy, delta, groups, settings.priors)


def gives_each_row_another_value(model: Released, rows: Table) -> bool:
    """Of somebody else's transformer: counting values then says nothing."""
    return model.is_foreign and len(distinct(model.cells(rows))) == len(rows)


def _refuse_values_that_never_repeat(model: Released, rows: Table) -> None:
    if gives_each_row_another_value(model, rows):
        raise DataError(
            f"{type(model.model).__name__} gives another value for each of the {len(rows):,} rows, and has no "
            "densities: nothing can be certified about it. Put it before a CellRelease."
        )


def _warn_of_other_models(earlier: Sequence[Look], model: str) -> None:
    if any(look.model != model for look in earlier):
        warn_user(
            "Another model was certified on some of these persons. Never release two models' encodings of one person: "
            "only the true group's inverses agree on her row."
        )


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the certificate says."""

    what: str  # "model", "rows", "look", "seal", "settings" or the name of a field
    text: str  # what differs, in a sentence


@dataclass(frozen=True)
class Verification:
    """What differs between a certificate and the same one computed again; true where nothing does."""

    differences: tuple[Difference, ...]
    sealed: bool = True  # whether the model has a key, so that a seal vouches for what was not computed again

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
    except ValueError as error:
        return [Difference("settings", f"No certificate can have these settings: {error}")]
    try:
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
