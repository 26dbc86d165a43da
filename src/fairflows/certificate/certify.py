"""certify: statements about how much a release reveals about the group."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from fairflows import __version__
from fairflows.bounds.arguments import affordable_draws, checked_delta, checked_draws, delta_of_look
from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.bounds.model import draws_needed
from fairflows.bounds.planning import check_reachable
from fairflows.certificate.certificate import Assumption, Certificate, status_of
from fairflows.certificate.looks import Look, Looks, open_looks
from fairflows.certificate.statement import (
    MONTE_CARLO_DELTA,
    AttackResult,
    Counted,
    FoldBlocks,
    Law,
    Statement,
    attack_statements,
    blocks_statement,
    counted_statements,
    model_statements,
    statement_on_new_persons,
    table_statement,
)
from fairflows.encoder.base import Encoder, IntArray, LatentLaw, cells_of, fitted_encoder
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.release.release import Release, ReleasedTable
from fairflows.report.words import ASSUMPTIONS
from fairflows.storage import model_hash
from fairflows.table.persons import Key
from fairflows.table.table import Table

_DRAWS, _FIRST_DRAWS = 1_000_000, 10_000
_WIDTH = 0.001  # of a model-based bound, by default
_MOST_DRAWS = 100_000_000  # minutes; a certificate that states more was not made here


class ContradictionError(RuntimeError):
    """A lower bound above the upper bound for the same deterministic release of the same rows: only a bug does that."""


def certify(
    model: Encoder,
    rows: Table,
    *,
    target: float | None = None,
    audit: AttackResult | None = None,
    delta: float = 0.01,
    released: Sequence[str] | None = None,
    n_draws: int | None = None,
    most_rows: int | None = None,
    random_state: int = 0,
) -> Certificate:
    """Certify how much a release reveals about the group.

    For a `Release` the rows of its own table are counted: Δ = ½ Σ_j |c_0j/n_0 − c_1j/n_1|, without error probability.
    With `FairTree` a bound on persons to come follows from the numbers of persons alone. Neither needs held-out
    persons. New persons test the bound; the status is REFUTED if they contradict it.

    Other bounds on the true distribution are counted on persons that the model was neither fitted to nor chosen by. The
    same model, rows and settings give the same certificate. A new model or new settings are a new look at these
    persons: the j-th look spends δ·6/(π²j²), and the certificate states its number.

    Parameters
    ----------
    model : encoder
        The fitted encoder whose output is released. A `Release`, and any other encoder of cells, can be certified for
        the true distribution.
    rows : Table
        The table that a `Release` was fitted to, or new persons; for any other model held-out rows. Persons
        are the independent units: of several rows of one person at most one is counted, at random. Where persons have
        several rows there are two statements, about a random row of the file and about a random row of a random
        person; the first is the headline, since all rows are released.
    target : float, default=None
        Statistical distance Δ to stay within. For the best guess between two groups to be right at most a share t of
        the time, this is 2t − 1.
    audit : Audit, default=None
        Result of `audit` on the same release of the same model. Without it the certificate states no attack.
    delta : float, default=0.01
        δ, the probability that the bound on the true distribution is wrong, over all looks at these persons. The
        bounds given the label together, and the one for a random person, are statements of their own and spend as
        much each.
    released : sequence of {"cell", "latent", "label"}, default=None
        All parts that are released together: the output of the model, a cell or a latent, and "label" for the true
        label beside it. The pair (cell, label) is certified as such.
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
    model = fitted_encoder(model)
    case = Case(
        model,
        rows,
        model_hash(model, model.key_),
        released=released,
        delta=delta,
        target=target,
        n_draws=n_draws,
        seed=random_state,
        most_rows=most_rows_of(model, rows, most_rows),
    )
    if case.trees is None:
        _refuse_used_rows(model, rows)
    if audit is not None:
        _check_attack(audit, case)
    if case.trees is not None:  # which need no held-out persons: there is nothing to look at twice
        return case.certificate(0, audit)
    look, others = _look(case)
    certificate = case.certificate(look, audit)
    if any(other.model != case.name for other in others):
        warn_user(
            "Another model was certified on some of these persons. Never release two models' encodings of one person: "
            "only the true group's inverses agree on her row."
        )
    return certificate


class Case:
    """One model, the rows to certify on, and the settings: the statements are made from it.

    `trees` is the release where the law of blocks covers persons to come. `table` is the table that the release was
    fitted to, where its cells are stated, and `table_of_trees` the same where there are trees. `laws` are those that
    cells are counted for on held-out persons. `latent_law` is None where no density has the label.
    """

    def __init__(
        self,
        model: Encoder,
        rows: Table,
        name: str,
        *,
        released: Sequence[str] | None = None,
        delta: float = 0.01,
        target: float | None = None,
        n_draws: int | None = None,
        seed: int = 0,
        most_rows: int = 1,
    ) -> None:
        check_count("random_state", seed, 0)
        check_count("most_rows", most_rows, 1)
        if target is not None and not 0 <= target <= 1:
            raise DataError(f"target must be a distance in [0, 1]; got {target!r}.")
        self.model, self.rows, self.name = model, rows, name
        self.delta, self.target, self.seed, self.most_rows = checked_delta(delta), target, int(seed), int(most_rows)
        self.released = checked_released(released, cells=bool(model.traits.cells))
        self.known_groups = list(model.groups_) or rows.groups
        self.groups = [str(group) for group in self.known_groups]
        release = model if isinstance(model, Release) else None
        is_of_release = release is not None and release.is_of(rows)
        self.trees = release if release is not None and release.traits.cut_apart else None
        self.is_new = self.trees is not None and not is_of_release
        self.table = release.table_ if release is not None and (self.trees is not None or is_of_release) else None
        self.table_of_trees = None if self.trees is None else self.table
        self.laws: tuple[Law, ...] = ()
        if "latent" not in self.released and self.trees is None:
            self.laws = ("row", "person") if most_rows > 1 else ("row",)
        encoder = model.traits.inside or model
        self.latent_law = None if "label" in self.released else encoder.latent_law()
        self.n_draws = _checked_draws(n_draws, self.latent_law, len(self.groups), self.seed)

    @cached_property
    def sample(self) -> Table:
        """Rows of the law of a random row, at most one of each person."""
        return self.rows.random_rows(self.seed, self.most_rows)

    @cached_property
    def n(self) -> dict[str, int]:
        """Number of rows of each group in the table, or in the sample."""
        table = self.table_of_trees
        sizes = self.sample.group_sizes(self.known_groups) if table is None else table.counts.sum(axis=(0, 2))
        return dict(zip(self.groups, sizes.tolist(), strict=True))

    @property
    def n_cells(self) -> int | None:
        """Number of cells, or of pairs of cell and label, that can be released; None where none are certified."""
        if self.table_of_trees is not None:
            n_labels, _, n_cells = self.table_of_trees.counts.shape
            return n_cells * (n_labels if "label" in self.released else 1)
        return sum(part.counts.shape[2] for part in self.counted["row"]) if self.laws else None

    @cached_property
    def fingerprint(self) -> str:
        """Keyed hash of the rows that the statements are about."""
        table = self.table_of_trees
        return self.rows.fingerprint(self.model.key_) if table is None else table.fingerprint

    @cached_property
    def counted(self) -> dict[Law, list[Counted]]:
        """Independent rows of each law by label, group and cell, for each of the models that share out the persons."""
        samples = {law: self.sample if law == "row" else self.rows.one_row_per_person(self.seed) for law in self.laws}
        found: dict[Law, list[Counted]] = {}
        for law, sample in samples.items():
            if "label" in self.released and not sample.labels:
                raise DataError("released names the label, but the rows have none: give the table its label.")
            parts = self._counts(sample)
            firsts = np.cumsum([0, *(part.shape[2] for part in parts)]).tolist()
            found[law] = [
                self._released_with(Counted(part, sample.labels, share=1 / len(parts), first=first))
                for part, first in zip(parts, firsts, strict=False)
            ]
        return found

    def _counts(self, sample: Table) -> list[IntArray]:
        """Count rows by label, group and cell, for each of the models."""
        model, sizes = self.model, self.model.traits.cells
        counts = kept_counts(model, sample)
        if counts is None:
            group, shape = sample.group_numbers(self.known_groups), (len(self.groups), sum(sizes))
            counts = sample.count_cells(group, cells_of(model, sample), shape)
        return np.split(counts, np.cumsum(sizes)[:-1], axis=2)

    def _released_with(self, counted: Counted) -> Counted:
        """Return the counts of what is released: of cells, or of pairs of cell and label."""
        return counted.of_pairs() if "label" in self.released else counted

    def _statements_of_table(self, table: ReleasedTable) -> Iterator[Statement]:
        """State the table that the release was fitted to, and persons to come by the law of its trees."""
        fold = self._released_with(Counted(table.counts, self.rows.labels)).fold(self.groups, 0.0)
        is_one_row_each = np.array_equal(table.persons_behind, table.counts.sum(axis=(0, 2)))
        behind = dict(zip(self.groups, table.persons_behind.tolist(), strict=True))
        yield table_statement(fold, {} if is_one_row_each else behind)
        n_trees = len(table.blocks)
        if self.trees is None or not n_trees or "label" in self.released:  # a true label does not follow from the cell
            return
        by_group = [dict(zip(self.groups, map(tuple, part.tolist()), strict=True)) for part in table.blocks]
        yield blocks_statement(tuple(FoldBlocks(1 / n_trees, self.delta / n_trees, blocks) for blocks in by_group))
        if self.is_new:
            counts = [part.sum(axis=0) for part in self._counts(self._new_persons(table, self.trees.key_))]
            yield statement_on_new_persons(counts, table.blocks, self.groups)

    def _new_persons(self, table: ReleasedTable, key: Key) -> Table:
        """Return one row of each person who is not in the table; raise if there are none."""
        rows = self.rows
        if len(table.person) and rows.persons.named:
            known = table.kept_cells(rows.persons, key) >= 0
            if known.all():
                raise DataError(
                    "All of these persons are in the table that the release was fitted to, which is another table than "
                    "this one: certify that table, or new persons."
                )
            rows = rows.take(~known)
        _refuse_used_rows(self.model, rows)
        return rows.random_rows(self.seed, self.most_rows)

    def certificate(self, look: int, audit: AttackResult | None = None) -> Certificate:
        """Make the certificate of a given look, without recording it."""
        made = [] if self.table is None else [*self._statements_of_table(self.table)]
        made += counted_statements(self.counted, self.groups, delta_of_look(self.delta, max(look, 1)))
        made += model_statements(self.latent_law, self.n_draws, self.seed)
        made += () if audit is None else attack_statements(audit)
        statements = tuple(statement.judged(self.target) for statement in made)
        label = [str(self.rows.y.name)] if self.rows.y is not None and "label" in self.released else []
        certificate = Certificate(
            status=status_of(statements, self.target),
            statements=statements,
            sensitive=str(self.rows.a.name),
            released=self.released,
            columns=tuple(dict.fromkeys([*self.model.output_.dtypes, *label])),
            n=self.n,
            n_cells=self.n_cells,
            delta=self.delta,
            target=self.target,
            look=look,
            most_rows=self.most_rows,
            seed=self.seed,
            n_draws=self.n_draws,
            assumptions=(),
            model=self.name,
            rows=self.fingerprint,
            versions=_versions(),
        )
        if audit is not None:
            _check_for_contradiction(certificate, self, audit)
        texts = [Assumption(key, ASSUMPTIONS[key].format(**facts)) for key, facts in _assumptions(certificate, self)]
        return replace(certificate, assumptions=tuple(texts)).sealed(self.model.key_)


def _look(case: Case) -> tuple[int, list[Look]]:
    """Record the look that a case is, before anything is computed from the rows; its number, and the other looks.

    Knowing the sizes of the groups is not a look at the cells.
    """
    with open_looks() as looks:
        rows = looks.rows(case.rows.X, case.rows.persons)
        request = request_of(looks, case)
        look, others = looks.find(rows, case.name, request) if rows.named else (Look(1, case.name, request), [])
        if case.laws:
            delta, n_models = delta_of_look(case.delta, look.number), len(case.model.traits.cells)
            check_reachable(case.n, delta, target=case.target, n_models=n_models)
        if rows.named:
            looks.record(rows, look)
    return look.number, others


def request_of(looks: Looks, case: Case) -> str:
    """Hash all that the bounds on the true distribution depend on: neither the target nor the attack is among it."""
    return looks.request(case.name, case.fingerprint, case.released, case.delta, case.seed, case.most_rows)


def _check_attack(audit: AttackResult, case: Case) -> None:
    if tuple(audit.released) != case.released:
        raise DataError(
            f"audit must have attacked what is released ({', '.join(case.released)}); it attacked "
            f"{', '.join(audit.released)}."
        )
    if not audit.model:
        raise DataError("audit must have attacked the model; it attacked an array, whose origin is unknown.")
    if audit.model != case.name:
        raise DataError("audit must have attacked the model that is to be certified; it attacked another one.")


def _refuse_used_rows(model: Encoder, rows: Table) -> None:
    """Refuse persons that the model was fitted to or chosen by: they certify nothing about it."""
    used = model.already_used(rows)
    if used:
        what = "persons" if rows.persons.named else "rows"
        several = (
            " Models that share out persons without an identifier certify the whole Table that they were fitted to."
            if len(model.traits.cells) > 1
            else ""
        )
        raise DataError(
            f"The model was fitted to, or chosen by, {used:,} of the {rows.persons.n:,} {what} to certify on. A "
            f"certificate takes persons that nothing has seen: certify on held-out rows.{several}"
        )


def kept_counts(model: Encoder, table: Table) -> IntArray | None:
    """Return the counts by label, group and cell that were kept from the fit, if `table` is the training table."""
    return model.kept_counts(table) if isinstance(model, Release) else None


def most_rows_of(model: Encoder, table: Table, given: int | None = None) -> int:
    """Return M, the largest number of rows of a person: as given, or as in training; 1 without names."""
    if not table.persons.named:
        if given is None or given == 1:
            return 1
        raise DataError(f"most_rows must be 1 where no identifier says whose rows these are; got {given!r}.")
    if given is not None:
        # By another law of rows, persons with more rows count more often.
        if isinstance(model, Release) and model.traits.cut_apart and given != (model.most_rows_ or 1):
            raise DataError(
                f"most_rows must be {model.most_rows_ or 1}, for which the thresholds of the trees were set; got "
                f"{given!r}. Fit the release anew to state another number."
            )
        return given
    if model.most_rows_ is not None:
        return model.most_rows_
    if int(table.persons.rows_each().max()) == 1:
        return 1
    raise DataError(
        "The rows name their persons, some of whom have several, but the model was fitted without persons: fit "
        "it to a Table with an identifier, or state the most rows that a person may have (most_rows=...)."
    )


def checked_released(released: Sequence[str] | None, *, cells: bool) -> tuple[str, ...]:
    """Return the names of all that is released together: the model's own output, and the label where it is named."""
    own = "cell" if cells else "latent"
    names = [released] if isinstance(released, str) else list(released or ())
    for name in names:
        if name not in (own, "label"):
            raise DataError(f"released must name {own} or label, because the model gives a {own}; got {name!r}.")
    return (own, "label") if "label" in names else (own,)


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


def _check_for_contradiction(certificate: Certificate, case: Case, attack: AttackResult) -> None:
    """Raise, or warn, where an attack reached more than the counts allow."""
    counted, model = certificate.find("population"), case.model
    if counted is None or attack.attack_lower <= counted.distance:
        return
    lower, upper = rounded_down(attack.attack_lower), rounded_up(counted.distance)
    if not model.traits.draws_rows and case.laws and attack.rows == case.sample.fingerprint(model.key_):
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
    traits, has_names, drawn = model.traits, rows.persons.named, model.traits.draws_rows
    what = " and ".join("row drawn from the cell" if drawn and part == "cell" else part for part in released)
    yield "released", {"what": f"{what} {'are' if len(released) > 1 else 'is'}"}
    if drawn:
        yield "drawn", {}
    if traits.needs_attribute:
        yield "groups", {}
    if case.table is not None:
        yield "table", {}
    if case.table_of_trees is not None and c.find("population") is not None:
        kept = "keep their cell" if len(case.table_of_trees.person) else "are not encoded again"
        yield "persons to come", {"kept": kept}
        yield "one tree", {}
    if case.laws:
        yield from _assumptions_of_counting(c, case, len(case.counted["row"]))
    if c.most_rows > 1 and (case.laws or case.trees is not None):
        yield "most rows", {"most": c.most_rows}
    if traits.randomised:
        if has_names:
            yield "secret key", {"alike": "has always the same cell" if drawn else "is always released alike"}
        else:
            yield "fresh coins", {}
    if c.find("model") is not None:
        yield "densities", {}
    if "latent" in released:
        yield "noise", {}
    if c.look > 1:
        yield "look", {"look": c.look}
    if case.laws and not has_names:
        yield "looks not counted", {}
    yield "errors add up", {}
    is_comparable = case.trees is not None or model.ledger_.comparable(model.ledger_.read(rows.X, rows.persons))
    if not is_comparable and kept_counts(model, rows) is None:
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
    if any(any(fold.merged.values()) for statement in c.statements for fold in statement.counts):
        yield "merged", {}
    if not has_names:
        yield "one row each", {}
    if c.cell_odds_upper:
        yield "given the label", {}


def _versions() -> dict[str, str]:
    found = {"fairflows": __version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "sklearn", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
