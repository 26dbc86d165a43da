"""certify: bounds on what a release reveals about the group, from persons that its model has not seen."""

from __future__ import annotations

import platform
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from fairflows import __version__
from fairflows.bounds.arguments import (
    Priors,
    affordable_draws,
    checked_delta,
    checked_draws,
    checked_priors,
)
from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.bounds.model import draws_needed
from fairflows.bounds.planning import check_reachable, delta_of_look
from fairflows.certificate.certificate import Assumption, Certificate, status_of
from fairflows.certificate.looks import Look, Looks, open_looks
from fairflows.certificate.statement import (
    KINDS,
    MONTE_CARLO_DELTA,
    AttackResult,
    Counted,
    Law,
)
from fairflows.encoder.base import Encoder
from fairflows.encoder.laws import LatentLaw
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.release.released import Model, Released
from fairflows.report.words import ASSUMPTIONS
from fairflows.storage import model_hash
from fairflows.table.table import Table

if TYPE_CHECKING:
    from fairflows.density.base import GroupDensities

_RELEASED = ("cell", "latent", "label")
_DRAWS, _FIRST_DRAWS = 1_000_000, 10_000
_WIDTH = 0.001  # of a model-based bound, by default
_MOST_DRAWS = 100_000_000  # minutes; a certificate that states more was not made here


class ContradictionError(RuntimeError):
    """A lower bound above the upper bound for the same deterministic release of the same rows: only a bug does that."""


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
    density: GroupDensities | None = None,
    n_draws: int | None = None,
    most_rows: int | None = None,
    random_state: int = 0,
) -> Certificate:
    """Certify what a release reveals about the group, on persons that nothing was fitted to or chosen by.

    The same model, rows and settings give the same certificate again. A new model, or new settings, are a new look at
    the persons: the j-th look spends δ·6/(π²j²), and the certificate says which look it is.

    Parameters
    ----------
    model : encoder, release, pipeline or transformer
        The fitted model whose output is released. A release of cells can be certified for the true distribution. So
        can a transformer of another library whose values repeat, such as a discretizer: each different row that it
        gives is a cell.
    rows : Table
        Held-out rows; for a model of two folds all rows, because one of its models has not seen each of them. Persons
        are the independent units: of several rows of one person at most one is counted, at random. Where persons have
        several rows there are two statements, about a random row of the file and about a random row of a random
        person; the first is the headline, since all rows are released.
    target : float, default=None
        Statistical distance Δ to stay within.
    max_adversary_accuracy : float, default=None
        The target as the accuracy t of the best guess of the group; for two equally likely groups this is Δ ≤ 2t − 1.
    priors : sequence of float, default=None
        Share of each group where the adversary works, in the order of the model's groups; equal shares when not given.
    audit : Audit, default=None
        Result of `audit` on the same release of the same model. Without it the certificate states no attack.
    delta : float, default=0.05
        δ, the probability that the bound on the true distribution is wrong, over all looks at these persons. The
        bounds given the label together, the one for a random person, and that on the accuracy for more than two
        groups or with priors, are statements of their own and spend as much each.
    released : sequence of {"cell", "latent", "label"}, default=None
        All parts that are released together; the output of the model's last step when not given. The pair (cell,
        label) is certified as such; next to a latent, a cell adds nothing and certifies nothing.
    density : GroupDensities, default=None
        For `FairFlow`: densities, fitted in its model space, that the model-based bound takes for the truth instead
        of those that the flow was trained with.
    n_draws : int, default=None
        Draws from each group behind the model-based bound. When not given, as many as put the bound 1/1000 above the
        distance, judged by other draws, at least 10,000; no more than 1,000,000, and 8,000,000/K² for K groups, since
        every group's density is computed for the draws of every group. Exact sums need none.
    most_rows : int, default=None
        The most rows that a person may have, M; the most that a person had in training when not given. A table in
        which a person has more is refused.
    random_state : int, default=0
        Seed of the draws, and of the choice of a person's row.

    Returns
    -------
    Certificate

    Raises
    ------
    DataError
        Persons were trained on; a group is too small for the target; an argument is wrong; or the audit is of another
        model.
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
    >>> certify(release, test, target=0.1) == certificate
    True
    """
    if not isinstance(rows, Table):
        raise DataError(f"rows must be a Table, which says which column is sensitive; got {type(rows).__name__}.")
    view = Released.of(model)
    settings = Settings.of(
        view,
        view.groups(rows),
        released=released,
        delta=delta,
        target=target,
        target_accuracy=max_adversary_accuracy,
        priors=priors,
        n_draws=n_draws,
        seed=random_state,
        most_rows=view.most_rows(rows, most_rows),
    )
    refuse_used_rows(view, rows)
    name = model_hash(model, view.secret)
    if audit is not None:
        _check_attack(audit, view, settings, name)
    if settings.certifies_cells and view.is_foreign and len(np.unique(view.cells(rows))) == len(rows):
        raise DataError(
            f"{type(view.model).__name__} gives another value for each of the {len(rows):,} rows, and has no "
            "densities: nothing can be certified about it. Make its output coarse first, so that values repeat."
        )
    case = Case(view, rows, settings, name=name, attack=audit, densities=density)
    look, others = _look(case)
    certificate = case.certificate(look)
    if any(other.model != name for other in others):
        warn_user(
            "Another model was certified on some of these persons. Never release two models' encodings of one person: "
            "only the true group's inverses agree on her row."
        )
    return certificate


@dataclass(frozen=True)
class Settings:
    """The settings of a certificate, as `certify` describes them, under the names that the certificate has for them."""

    released: tuple[str, ...]
    delta: float
    target: float | None
    target_accuracy: float | None
    priors: Priors
    n_draws: int
    seed: int
    most_rows: int

    @classmethod
    def of(
        cls,
        model: Released,
        groups: Sequence[Hashable],
        *,
        released: Sequence[str] | None = None,
        delta: float = 0.05,
        target: float | None = None,
        target_accuracy: float | None = None,
        priors: Sequence[float] | None = None,
        n_draws: int | None = None,
        seed: int = 0,
        most_rows: int = 1,
    ) -> Self:
        """Check the settings as they were passed."""
        check_count("random_state", seed, 0)
        check_count("most_rows", most_rows, 1)
        names = checked_released(released, cells=model.n_cells is not None or model.is_foreign)
        law = None if model.innermost is None or "label" in names else model.innermost.latent_law()
        draws = _checked_draws(n_draws, law, len(groups), int(seed))
        shares = checked_priors(priors, len(groups))
        _check_target(target, target_accuracy, float(shares.max()))
        return cls(
            released=names,
            delta=checked_delta(delta),
            target=target,
            target_accuracy=target_accuracy,
            priors=None if priors is None else tuple(shares.tolist()),
            n_draws=draws,
            seed=int(seed),
            most_rows=int(most_rows),
        )

    @property
    def certifies_cells(self) -> bool:
        """Whether cells are counted: next to a latent, a cell adds nothing and certifies nothing."""
        return "cell" in self.released and "latent" not in self.released


class Case:
    """One model, the rows to certify on, and the settings: the statements are made from it.

    Attributes
    ----------
    groups : sequence of str
        Names of the groups.
    delta : float
        δ of the look.
    priors : tuple of float, or None
        Share of each group where the adversary works.
    laws : sequence of {"row", "person"}
        The laws that cells are counted for; empty where no cells are certified.
    latent_law : LatentLaw or None
        The laws of the release, if the densities are the truth.
    density : {"own", "passed"}
        Whose densities these are.
    n_draws, seed : int
        Number and seed of draws from them.
    attack : AttackResult or None
        Result of an audit.
    """

    delta: float

    def __init__(
        self,
        model: Released,
        rows: Table,
        settings: Settings,
        *,
        name: str,
        attack: AttackResult | None = None,
        densities: GroupDensities | None = None,
    ) -> None:
        self.model, self.rows, self.settings, self.name, self.attack = model, rows, settings, name, attack
        self.known_groups = model.groups(rows)
        self.groups: Sequence[str] = [str(group) for group in self.known_groups]
        self.priors, self.n_draws, self.seed = settings.priors, settings.n_draws, settings.seed
        self.laws: Sequence[Law] = ()
        if settings.certifies_cells:
            self.laws = ("row", "person") if settings.most_rows > 1 else ("row",)
        self.density = "own" if densities is None else "passed"
        self.latent_law = None if "label" in settings.released else _latent_law(model.innermost, densities)
        self.sample = rows.random_rows(settings.seed, settings.most_rows)
        self._counted: dict[Law, list[Counted]] = {}

    def counted(self, law: Law) -> list[Counted]:
        """Count independent rows by label, group and cell, for each of the models that share out the persons."""
        if law not in self._counted:
            self._counted[law] = self._count(self.sample if law == "row" else self.rows.one_row_per_person(self.seed))
        return self._counted[law]

    def _count(self, sample: Table) -> list[Counted]:
        model, with_label = self.model, "label" in self.settings.released
        if with_label and not sample.labels:
            raise DataError("released names the label, but the rows have none: give the table its label.")
        counts = model.kept_counts(sample)
        if counts is None:
            cells = model.cells(sample)
            n_cells = int(cells.max()) + 1 if model.is_foreign else int(model.n_cells or 0)
            counts = sample.count_cells(sample.group_numbers(self.known_groups), cells, (len(self.groups), n_cells))
        sizes = [counts.shape[2]] if model.is_foreign else model.cells_of_models
        ends = np.cumsum(sizes)
        found = [
            Counted(counts[:, :, end - k : end], sample.labels, share=1 / len(sizes), first=int(end - k))
            for end, k in zip(ends, sizes, strict=True)
        ]
        return [part.of_pairs() for part in found] if with_label else found

    def certificate(self, look: int) -> Certificate:
        """Make the certificate of a given look, without recording it."""
        model, settings = self.model, self.settings
        self.delta = delta_of_look(settings.delta, look)
        made = [statement for kind in KINDS.values() for statement in kind.make(self)]
        if not made and model.encoder is None:
            raise DataError(
                f"{type(model.model).__name__} cannot be certified: it has no densities, and gives no cells."
            )
        statements = tuple(s.judged(settings.target, settings.target_accuracy) for s in made)
        certificate = Certificate(
            status=status_of(statements, settings.target, settings.target_accuracy),
            statements=statements,
            sensitive=str(self.rows.a.name),
            n=dict(zip(self.groups, self.sample.group_sizes(self.known_groups).tolist(), strict=True)),
            n_cells=sum(part.n_cells for part in self.counted("row")) if self.laws else None,
            look=look,
            assumptions=(),
            model=self.name,
            rows=self.rows.fingerprint(model.secret),
            versions=_versions(),
            **vars(settings),
        )
        _check_for_contradiction(certificate, self)
        texts = [Assumption(key, ASSUMPTIONS[key].format(**facts)) for key, facts in _assumptions(certificate, self)]
        limits = () if self.attack is None else self.attack.limits
        certificate = replace(certificate, assumptions=(*texts, *(Assumption("limit", text) for text in limits)))
        return certificate.sealed(model.secret) if model.secret else certificate


def _look(case: Case) -> tuple[int, list[Look]]:
    """Record the look that a case is, before anything is computed from the rows; its number, and the other looks.

    Neither the sizes of the groups nor whether values repeat is a look at what tells groups apart.
    """
    s = case.settings
    with open_looks() as looks:
        rows = looks.rows(case.rows.X, case.rows.identifier)
        look, others = looks.find(rows, case.name, request_of(looks, case))
        if case.laws:
            sizes = dict(zip(case.groups, case.sample.group_sizes(case.known_groups).tolist(), strict=True))
            check_reachable(
                sizes,
                delta_of_look(s.delta, look.number),
                target=s.target,
                accuracy=s.target_accuracy,
                priors=s.priors,
                n_models=len(case.model.cells_of_models),
            )
        looks.record(rows, look)
    return look.number, others


def request_of(looks: Looks, case: Case) -> str:
    """Hash all that the bounds on the true distribution depend on: neither the target nor the attack is among it."""
    s = case.settings
    rows = case.rows.fingerprint(case.model.secret)
    return looks.request(case.name, rows, s.released, s.delta, s.priors, s.seed, s.most_rows)


def _latent_law(encoder: Encoder | None, densities: GroupDensities | None) -> LatentLaw | None:
    """Return the laws of the latent under the encoder's own densities, or under others of its model space."""
    own = None if encoder is None else encoder.latent_law()
    if densities is None:
        return own
    under = None if own is None else own.under(densities)
    if under is None:
        raise DataError(f"density is for encoders of continuous tables (FairFlow); got {type(encoder).__name__}.")
    return under


def _check_attack(audit: AttackResult, model: Released, settings: Settings, name: str) -> None:
    attacked = tuple("latent" if model.is_foreign and part == "cell" else part for part in settings.released)
    if tuple(audit.released) != attacked:
        raise DataError(
            f"audit must have attacked what is released ({', '.join(attacked)}); it attacked "
            f"{', '.join(audit.released)}."
        )
    if not audit.model:
        raise DataError("audit must have attacked the model; it attacked an array, whose origin is unknown.")
    if audit.model != name:
        raise DataError("audit must have attacked the model that is to be certified; it attacked another one.")


def refuse_used_rows(model: Released, rows: Table) -> None:
    """Refuse persons that the model was fitted to or chosen by: they certify nothing about it."""
    used = model.already_used(rows)
    if used:
        what = "persons" if rows.persons.named else "rows"
        several = (
            " Models that share out persons without an identifier certify the whole Table that they were fitted to."
            if len(model.cells_of_models) > 1
            else ""
        )
        raise DataError(
            f"The model was fitted to, or chosen by, {used:,} of the {rows.persons.n:,} {what} to certify on. A "
            f"certificate takes persons that nothing has seen: certify on held-out rows.{several}"
        )


def checked_released(released: Sequence[str] | None, *, cells: bool) -> tuple[str, ...]:
    """Return the names of all that is released together, in a fixed order; by default cells where there are any."""
    by_default = "cell" if cells else "latent"
    if released is None:
        return (by_default,)
    names = [released] if isinstance(released, str) else list(released)
    for name in names:
        if name not in _RELEASED:
            raise DataError(f"released must name {', '.join(_RELEASED)}; got {name!r}.")
    if "cell" in names and not cells:
        raise DataError("released names cells, but the model gives none.")
    if not {"cell", "latent"} & set(names):
        names.append(by_default)
    return tuple(name for name in _RELEASED if name in names)


def _checked_draws(n: int | None, law: LatentLaw | None, n_groups: int, seed: int) -> int:
    """Return the number of draws; where none is given, as many as make the bound about 1/1000 wide, if not too many.

    The first draws decide on it, and no bound is computed from them: the number is fixed before the others are drawn.
    """
    none_is_made = law is None or law.exact() is not None
    if n is not None:
        check_count("n_draws", n, 1)
        if n > _MOST_DRAWS:
            raise DataError(f"n_draws must be at most {_MOST_DRAWS:,}; got {n}.")
        return int(n) if none_is_made else checked_draws(int(n), n_groups)
    if law is None or none_is_made:
        return _DRAWS
    most = affordable_draws(_DRAWS, n_groups)
    first = law.log_density_table(min(_FIRST_DRAWS, -(-most // 8)), seed + 1)
    return min(most, draws_needed(first, MONTE_CARLO_DELTA, _WIDTH))


def _check_target(target: float | None, accuracy: float | None, blind: float) -> None:
    if target is not None and accuracy is not None:
        raise DataError("target and max_adversary_accuracy exclude each other: give one, not both.")
    if target is not None and not 0 <= target <= 1:
        raise DataError(f"target must be a distance in [0, 1]; got {target!r}.")
    if accuracy is not None and not blind <= accuracy <= 1:
        raise DataError(
            f"max_adversary_accuracy must be at least that of a blind guess, {blind:.4g}, and at most 1; got "
            f"{accuracy!r}."
        )


def _check_for_contradiction(certificate: Certificate, case: Case) -> None:
    """Raise, or warn, where an attack reached more than the counts allow."""
    counted, attack = certificate.headline, certificate.find("attack")
    if counted is None or attack is None or case.attack is None or attack.distance <= counted.distance:
        return
    model = case.model
    is_counted = not (model.draws_rows or model.is_foreign)
    lower, upper = rounded_down(attack.distance), rounded_up(counted.distance)
    if is_counted and case.attack.rows == case.sample.fingerprint(model.secret):
        raise ContradictionError(
            f"The attack's lower bound {lower} is above the certified upper bound {upper} for the same release on the "
            "same rows. That cannot be bad luck: there is a bug in the release, the attack or the bounds."
        )
    warn_user(
        f"The attack's lower bound {lower}, on other rows or drawn rows, is above the certified upper bound {upper}: "
        f"one of the two is wrong, which has probability {counted.delta + attack.delta:.2g} at most, or the rows "
        "differ in law."
    )


def _assumptions(c: Certificate, case: Case) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the key of each assumption that applies, and the facts that its text names."""
    model, rows, released = case.model, case.rows, c.released
    encoder, has_names, drawn = model.encoder, rows.persons.named, model.draws_rows
    what = " and ".join("row drawn from the cell" if drawn and part == "cell" else part for part in released)
    yield "released", {"what": f"{what} {'are' if len(released) > 1 else 'is'}"}
    if drawn:
        yield "drawn", {}
    if model.is_foreign:
        yield "foreign", {}
    if encoder is not None and encoder.traits.needs_attribute:
        yield "groups", {}
    if case.laws:
        yield from _assumptions_of_counting(c, case, len(case.counted("row")))
    if encoder is not None and encoder.traits.randomised:
        if has_names:
            yield "secret key", {"alike": "has always the same cell" if drawn else "is always released alike"}
        else:
            yield "fresh coins", {}
    if c.find("model") is not None:
        yield "densities", {}
    if case.density != "own" and encoder is not None and _has_labels(model.innermost):
        yield "other densities", {}
    if "latent" in released:
        yield "noise", {}
    if c.look > 1:
        yield "look", {"look": c.look}
    yield "errors add up", {}
    if not model.secret:
        yield "no seal", {}
    if model.ledger is None:
        yield "no ledger", {}
    elif not model.ledger.comparable(model.ledger.read(rows.X, rows.persons)) and model.kept_counts(rows) is None:
        yield "not comparable", {}


def _assumptions_of_counting(c: Certificate, case: Case, n_models: int) -> Iterator[tuple[str, dict[str, object]]]:
    has_names = case.rows.persons.named
    yield "independent", {}
    yield "which groups", {}
    if n_models == 1:
        yield "fresh persons", {}
        yield "fixed before", {}
    else:
        yield "folds", {"models": n_models, "dealt": "a keyed hash of their identifier" if has_names else "chance"}
        if not has_names:
            yield "released once", {}
    if c.most_rows > 1:
        yield "most rows", {"most": c.most_rows}
    if any(any(fold.merged.values()) for statement in c.statements for fold in statement.counts):
        yield "merged", {}
    if not has_names:
        yield "one row each", {}
    if c.cell_odds_upper:
        yield "given the label", {}


def _has_labels(encoder: Encoder | None) -> bool:
    law = None if encoder is None else encoder.latent_law()
    return law is not None and bool(law.labels)


def _versions() -> dict[str, str]:
    found = {"fairflows": __version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "sklearn", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
