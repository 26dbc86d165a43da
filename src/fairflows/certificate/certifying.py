"""certify: bounds on what a release tells about the group, from its densities and from held-out persons."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal

from fairflows import __version__
from fairflows.bounds.arguments import Estimator
from fairflows.bounds.derived import density_error_lower_bound, true_distance_upper_bound
from fairflows.bounds.planning import delta_of_each, delta_of_look
from fairflows.certificate.assumptions import assumptions
from fairflows.certificate.candidates import OWN, CandidateDensities, DensityLike, best_densities
from fairflows.certificate.counted import CountedStatement
from fairflows.certificate.document import (
    AttackResult,
    Certificate,
    ContradictionError,
    Status,
    rounded_down,
    rounded_up,
)
from fairflows.certificate.evidence import CellEvidence, ModelEvidence, check_accuracy, check_distance
from fairflows.certificate.request import Settings
from fairflows.encoder.base import Encoder
from fairflows.encoder.model_state import model_hash
from fairflows.exceptions import DataError, DataWarning, warn_user
from fairflows.release.released import Model, Released
from fairflows.table.columns import distinct
from fairflows.table.looks import Look, open_book
from fairflows.table.table import Table


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
        distance, judged by 10,000 other draws; at most 1,000,000, or as many as fit where the groups are many, since
        n·K² numbers are kept. Exact sums need none.
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
    candidates: CandidateDensities | None = None,
) -> Certificate:
    """The certificate of a given look, neither checked against the ledger nor recorded in the book of looks."""
    groups, released, key = model.groups(rows), settings.released, model.secret
    sample = counted_rows(rows, settings)
    delta = delta_of_look(settings.delta, look)
    certificate = Certificate(
        status="NOT_MET",
        sensitive=str(rows.a.name),
        target=settings.target,
        target_accuracy=settings.target_accuracy,
        priors=settings.priors,
        released=released,
        n=_sizes(sample, groups),
        delta=settings.delta,
        spent={},
        look=look,
        most_rows=settings.most_rows,
        density_error=settings.density_error,
        estimator=settings.estimator,
        assumptions=(),
        model=name,
        rows=rows.fingerprint(key),
        seed=settings.seed,
        n_draws=settings.n_draws,
        versions=_versions(),
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
        shrink = max((part.eta for part in cells), default=1.0)
        certificate = _with_model(certificate, model.innermost, candidates, settings.monte_carlo_delta, shrink)
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
            loses_odds=candidates is not None and bool(_labels(model.innermost)),
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


def _with_model(
    certificate: Certificate,
    encoder: Encoder | None,
    candidates: CandidateDensities | None,
    delta: float,
    shrink: float,
) -> Certificate:
    """The certificate with what holds if the densities are the truth; as it was, for a model without densities."""
    n, seed, estimator = certificate.n_draws, certificate.seed, certificate.estimator
    if candidates is None:
        evidence = ModelEvidence.of(encoder, n, seed)
    else:
        evidence = ModelEvidence(log_densities=candidates.log_density_table(n, seed))
    if evidence is None:
        return certificate
    estimate, upper, accuracy, share = evidence.bounds(delta, shrink, certificate.priors, estimator)
    certificate = _spending(certificate, model=share)
    if share and estimator == "betting" and not certificate.is_plain:
        certificate = _spending(certificate, model_accuracy=delta)
    odds = {}
    labels = _labels(encoder) if candidates is None else []
    for label in labels:
        given = ModelEvidence.of(encoder, n, seed, label)
        if given is not None:
            _, odds[str(label)], _, share = given.bounds(delta / len(labels), shrink, None, estimator)
            certificate = _spending(certificate, model_odds=certificate.spent.get("model odds", 0.0) + share)
    return replace(
        certificate,
        density=OWN if candidates is None else candidates.name,
        model_delta=estimate,
        model_upper=upper,
        model_accuracy_upper=accuracy,
        model_odds_upper=odds,
    )


def _labels(encoder: Encoder | None) -> list[Hashable]:
    """The labels that an encoder has densities of."""
    law = None if encoder is None else encoder.latent_law()
    return [] if law is None else law.labels


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


def _sizes(sample: Table, groups: Sequence[Hashable]) -> dict[str, int]:
    return {str(group): int(n) for group, n in zip(groups, sample.group_sizes(groups), strict=True)}


def _versions() -> dict[str, str]:
    found = {"fairflows": __version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "sklearn", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
