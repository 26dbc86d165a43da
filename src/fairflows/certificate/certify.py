"""certify: statements about how much a release reveals about the group."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairflows import __version__
from fairflows.arrays import NDArray
from fairflows.bounds.ages import halves, rank_p_value, spread_within
from fairflows.bounds.arguments import affordable_draws, checked_delta, checked_draws, delta_of_look
from fairflows.bounds.blocks import blocks_p_value
from fairflows.bounds.cells import exact_statistical_distance, has_few_persons
from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.bounds.model import draws_needed, statistical_distance, statistical_distance_upper_bound
from fairflows.bounds.planning import CellPlan, check_reachable
from fairflows.bounds.several import rounded_parts
from fairflows.bounds.shared_table import table_distance
from fairflows.certificate.about import About
from fairflows.certificate.certificate import Assumption, Certificate, status_of
from fairflows.certificate.counting import Counted
from fairflows.certificate.looks import Looks, RecordedLook, open_looks
from fairflows.certificate.model_hash import model_hash
from fairflows.certificate.released import most_rows_of, released_by, released_labels
from fairflows.certificate.statements import (
    CutLeaves,
    Law,
    Statement,
    attribute_statement,
    blocks_statement,
    held_out_statement,
    inside_statement,
    mixed_blocks_statements,
    named_blocks,
    narrow_blocks_statements,
    table_rank_statement,
    table_statement,
    undisclosed_statement,
)
from fairflows.encoder.base import IntArray, LatentLaw, Model, cells_of, fitted_model
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.release.released_table import ReleasedTable, count_cells
from fairflows.report.assumptions import ASSUMPTIONS
from fairflows.table.ledger import RowsSeen
from fairflows.table.table import Table

if TYPE_CHECKING:
    from fairflows.attack.auditing import Audit

Counts = NDArray[np.int64]

MONTE_CARLO_DELTA = 0.001
"""δ of a bound by draws from a model: of the draws, and not of the persons."""

_DRAWS, _FIRST_DRAWS = 1_000_000, 10_000
_WIDTH = 0.001  # of a model-based bound, by default


class ContradictionError(RuntimeError):
    """A lower bound above the upper bound for the same deterministic release of the same rows: only a bug does that."""


def certify(
    model: Model,
    rows: Table,
    *,
    target: float | CellPlan | None = None,
    audit: Audit | None = None,
    delta: float = 0.01,
    with_labels: bool = False,
    about: About | None = None,
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
    target : float or CellPlan, default=None
        Statistical distance Δ to stay within. For the best guess between two groups to be right at most a share t of
        the time, this is 2t − 1. Of a plan it is the target that was taken for the number of persons.
    audit : Audit, default=None
        Result of `audit` on the same release of the same model. Without it the certificate states no attack.
    delta : float, default=0.01
        δ, the probability that the bound on the true distribution is wrong, over all looks at these persons. The
        bounds given the label together, and the one for a random person, are statements of their own and spend as
        much each.
    with_labels : bool, default=False
        Whether the true labels are released beside the output of the model. Their combination with the cell is then
        certified.
    about : About, default=None
        Issuer, purpose, recipient, population and the like, which the certificate states.
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
    model = fitted_model(model)
    rows = model.units(rows)
    case = Case(
        model,
        rows,
        model_hash(model, model.key_),
        with_labels=with_labels,
        delta=delta,
        target=target,
        n_draws=n_draws,
        seed=random_state,
        most_rows=most_rows_of(model, rows, most_rows),
        about=about or About(),
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
            "Another model was certified on some of these persons. Never release two models' encodings of one person, "
            "because only with the true group's inverses do both decode to the same row."
        )
    return certificate


class Case:
    """One model, the rows to certify on, and the settings: the statements are made from it.

    `table` is the table that a release was fitted to, where its cells are stated, and `trees` the same where the law of
    blocks covers persons to come. `laws` are those that cells are counted for on held-out persons. `latent_law` is None
    where no density has the label.
    """

    def __init__(
        self,
        model: Model,
        rows: Table,
        name: str,
        *,
        with_labels: bool = False,
        delta: float = 0.01,
        target: float | CellPlan | None = None,
        n_draws: int | None = None,
        seed: int = 0,
        most_rows: int = 1,
        about: About | None = None,
    ) -> None:
        check_count("random_state", seed, 0)
        check_count("most_rows", most_rows, 1)
        self.target_by: Literal["user", "size"] = "user"
        if isinstance(target, CellPlan):
            target, self.target_by = target.target, "size"
        if target is not None and not 0 <= target <= 1:
            raise DataError(f"target must be a distance in [0, 1]; got {target!r}.")
        traits = model.traits
        self.model, self.rows, self.name = model, rows, name
        self.delta, self.target, self.seed, self.most_rows = checked_delta(delta), target, int(seed), int(most_rows)
        self.about, self.released = about or About(), released_by(traits)
        self.labels = released_labels(rows) if with_labels else ()
        self.known_groups = list(model.groups_) or rows.groups
        self.uncut = rows.grouping if rows.grouping.is_uncut else None
        self.groups = list(map(str, self.known_groups)) if self.uncut is None else self.uncut.halves
        released = model.released_table
        is_own = released is not None and released.is_of(rows, model.key_)
        self.trees: ReleasedTable | None = released if traits.cut_twice else None
        self.table: ReleasedTable | None = released if is_own else self.trees
        self.is_new = self.trees is not None and not is_own
        columns = list(map(str, rows.grouping.kinds))
        if self.trees is not None and self.trees.sensitive and columns != self.trees.sensitive:
            matched, stated = (" and ".join(map(repr, names)) for names in (self.trees.sensitive, columns))
            raise DataError(
                f"The cells were matched for groups of {matched}, and say nothing of {stated}: certify rows whose "
                f"sensitive column is {matched}, or release cells for {stated}."
            )
        if self.uncut is not None and (self.trees is None or self.labels):
            raise DataError(
                "An attribute that is not cut (uncut=...) is certified for a Release of a FairTree, without labels "
                "beside it: cut it into groups (cuts=...)."
            )
        self.laws: tuple[Law, ...] = ()
        if self.released != "latent" and self.trees is None:
            self.laws = ("row", "person") if most_rows > 1 else ("row",)
        self.latent_law = None if self.labels else model.latent_law()
        self.n_draws = _checked_draws(n_draws, self.latent_law, len(self.groups), self.seed)

    @cached_property
    def sample(self) -> Table:
        """Rows of the law of a random row, at most one of each person."""
        return self.rows.random_rows(self.seed, self.most_rows)

    @cached_property
    def n(self) -> dict[str, int]:
        """Number of rows of each group in the table, or in the sample."""
        if self.table is not None:
            counts = self.table.counts if self.trees is not None else self.table.held_out["row"]
            sizes = self._printed_groups(counts).sum(axis=(0, 2))
        else:
            sizes = self.sample.group_sizes(self.known_groups)
        return dict(zip(self.groups, sizes.tolist(), strict=True))

    @property
    def unit(self) -> Literal["person", "row"]:
        """Whether the counted rows are known to be of different persons."""
        if self.table is not None:
            n_persons, n_rows = len(self.table.person), int(self.table.counts.sum())
            if self.table.together is not None:  # whose persons are those of all releases
                n_persons = n_rows
        else:
            n_persons, n_rows = self.rows.persons.n if self.rows.persons.named else 0, len(self.rows)
        return "person" if n_persons == n_rows else "row"

    @property
    def n_cells(self) -> int | None:
        """Number of cells, or of pairs of cell and label, that can be released; None where none are certified."""
        if self.trees is not None:
            n_labels, _, n_cells = self.trees.counts.shape
            return n_cells * (n_labels if self.labels else 1)
        return self.counted["row"].counts.shape[2] if self.laws else None

    @cached_property
    def fingerprint(self) -> str:
        """Keyed hash of the rows that the statements are about."""
        return self.rows.fingerprint(self.model.key_) if self.trees is None else self.trees.fingerprint

    def certificate(self, look: int, audit: Audit | None = None) -> Certificate:
        """Make the certificate of a given look, without recording it."""
        statements = tuple(statement.judged(self.target) for statement in self._statements(look, audit))
        certificate = Certificate(
            status=status_of(statements, self.target),
            statements=statements,
            sensitive=tuple(self.rows.grouping.kinds),
            released=self.released,
            unit=self.unit,
            issued=datetime.now(UTC).date().isoformat(),
            about=self.about,
            labels=self.labels,
            membership={} if self.table is None or self.table.together is None else self.table.together.membership,
            columns=tuple(dict.fromkeys([*self.model.output_.dtypes, *self.labels])),
            n=self.n,
            n_cells=self.n_cells,
            delta=self.delta,
            target=self.target,
            target_by=self.target_by,
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
        return replace(certificate, assumptions=_assumptions(certificate, self)).sealed(self.model.key_)

    def _statements(self, look: int, audit: Audit | None) -> Iterator[Statement]:
        """Make all statements: of the table, of the persons, of the model and of the attack."""
        if self.table is not None:
            yield from self._statements_of_table(self.table)
        for law in self.laws:
            yield from self._counted_statements(law, delta_of_look(self.delta, look))
        if self.latent_law is not None:
            yield from model_statements(self.latent_law, self.n_draws, self.seed)
        if audit is not None:
            yield from attack_statements(audit)

    def _statements_of_table(self, table: ReleasedTable) -> Iterator[Statement]:
        """State the table that the release was fitted to, and persons to come by the law of its trees."""
        if table.together is not None and not self.labels:
            yield undisclosed_statement("table", table.counts.sum(axis=0), self.groups)
            yield undisclosed_statement("together", table.together.counts, self.groups)
        else:
            yield self._counted_table(table)
        if self.uncut is not None:
            yield table_rank_statement(table.counts.sum(axis=0), self._within)
        for margin in table.margins:
            yield attribute_statement(margin.columns, margin.values, margin.cells)
            for name, cells in margin.inside.items() if len(margin.columns) == 1 else ():
                if (inside := inside_statement(name, margin.columns, margin.values_inside, cells)) is not None:
                    yield inside
        if self.trees is None or table.blocks is None or self.labels:
            return  # a label does not follow from a cell
        names = self.groups if self.uncut is None else list(map(str, self.known_groups))
        blocks = named_blocks(table.blocks, names)
        if self.uncut is None:
            leaves = tuple(CutLeaves.of(part, self.groups) for part in table.leaves)
            yield blocks_statement(blocks, self.delta, leaves)
        else:
            yield from narrow_blocks_statements(blocks, self.delta, self._within)
        if table.margins and not table.leaves:  # whose law is another one
            yield from mixed_blocks_statements(blocks, self._parts(table), self.delta)
        if self.is_new:
            counts = self._counts(self._new_persons(table)).sum(axis=0)
            if self.uncut is None:
                p_value = blocks_p_value(table.blocks, counts, table.leaves)
            else:
                p_value = rank_p_value(table.blocks, counts)
            yield statement_on_new_persons(self._printed_groups(counts), p_value, self.groups)

    def _parts(self, table: ReleasedTable) -> dict[tuple[str, ...], dict[str, dict[str, int]]]:
        """Return the rows of each group with each value of some of several columns."""
        merged = [self.groups.index(name) for name in self.rows.grouping.merged_groups if name in self.groups]
        return {
            margin.columns: {
                value: {group: n for group, n in zip(self.groups, row, strict=True) if n}
                for value, row in zip(margin.values, rounded_parts(margin.groups, merged).tolist(), strict=True)
            }
            for margin in table.margins
        }

    def _counted_table(self, table: ReleasedTable) -> Statement:
        """State the table that the release was fitted to, with its counts."""
        counted = Counted.of(self._printed_groups(table.counts), (), with_label=bool(self.labels))
        is_one_row_each = np.array_equal(table.persons_behind, table.counts.sum(axis=(0, 2)))
        if is_one_row_each:
            return table_statement(counted.printed(self.groups), {})
        behind = dict(zip(self.groups, table.persons_behind.tolist(), strict=True))
        return table_statement(counted.printed(self.groups), behind)

    @property
    def _within(self) -> float:
        """How much ranks vary inside the narrow groups of an attribute that is not cut."""
        assert self.uncut is not None
        return spread_within(self.uncut.n_narrow, self.uncut.wide or 0)

    def _printed_groups(self, counts: IntArray) -> IntArray:
        """Return counts (..., K, k) of the groups that are printed: the halves of narrow ones, else the groups."""
        return counts if self.uncut is None else halves(counts).astype(np.int64)

    def _new_persons(self, table: ReleasedTable) -> Table:
        """Return one row of each person who is not in the table; raise if there are none."""
        rows = self.rows
        if len(table.person) and rows.persons.named:
            known = table.kept_cells(rows.persons, self.model.key_) >= 0
            if known.all():
                raise DataError(
                    "All of these persons are in the table that the release was fitted to, which is another table than "
                    "this one: certify that table, or new persons."
                )
            rows = rows.take(~known)
        _refuse_used_rows(self.model, rows)
        return rows.random_rows(self.seed, self.most_rows)

    def _counts(self, sample: Table) -> IntArray:
        """Count rows by label, group and cell."""
        group = sample.group_numbers(self.known_groups)
        shape = len(self.known_groups), int(self.model.traits.n_cells or 0)
        return count_cells(sample, group, cells_of(self.model, sample), shape)

    @cached_property
    def counted(self) -> dict[Law, Counted]:
        """Independent rows of each law by label, group and cell."""
        found: dict[Law, Counted] = {}
        for law in self.laws:
            labels = self.rows.label_codes()[1]
            if self.table is not None:
                counts = self.table.held_out[law]
            else:
                sample = self.sample if law == "row" else self.rows.one_row_per_person(self.seed)
                counts, labels = self._counts(sample), sample.label_codes()[1]
            found[law] = Counted.of(counts, labels, with_label=bool(self.labels))
        return found

    def _counted_statements(self, law: Law, delta: float) -> Iterator[Statement]:
        """Bound the distance of the true distribution by counting persons that are new to the models.

        For a random row there is also a statement given each label. Where a label has 1 to 9 persons of a group,
        nothing is stated given labels: the statement would print a number that small, and beside it a label that may be
        one person's own, such as a wage.
        """
        counted = self.counted[law]
        yield held_out_statement(law, None, counted.printed(self.groups), delta)
        if law == "row" and not has_few_persons(counted.counts.sum(axis=2)).any():
            by_label = counted.printed_by_label(self.groups)
            for label, counts in by_label.items():
                yield held_out_statement(law, label, counts, delta / len(by_label))


def statement_on_new_persons(counts: Counts, p_value: float, groups: Sequence[str]) -> Statement:
    """State how new persons, with the counts (K, k), agree with the law of blocks.

    The counts are not part of the statement, because a cell may have few of these persons.
    """
    n = counts.sum(axis=1)
    observed = float(table_distance(counts)) if n.all() else 0.0
    return Statement(
        about="new persons",
        by="test",
        distance=observed,
        observed=observed,
        persons=dict(zip(groups, n.astype(np.float64).tolist(), strict=True)),
        p_value=p_value,
    )


def model_statements(law: LatentLaw, n_draws: int, seed: int) -> Iterator[Statement]:
    """Bound the distance if the estimated densities are the truth, also given each label that has densities."""
    for label in [None, *law.labels]:
        exact = law.exact() if label is None else None
        delta = MONTE_CARLO_DELTA / (1 if label is None else len(law.labels))
        if exact is not None:
            estimate = upper = float(exact_statistical_distance(exact))
        else:
            table = law.log_density_table(n_draws, seed, label)
            estimate, upper = statistical_distance(table), statistical_distance_upper_bound(table, delta)
        yield Statement(
            about="model",
            by="model",
            given=None if label is None else str(label),
            distance=upper,
            observed=estimate,
            delta=delta if exact is None else 0.0,
        )


def attack_statements(found: Audit) -> Iterator[Statement]:
    """State the lower bounds that an audit proved: on the true distance, and on the error of each density."""
    delta, lower = float(found.delta), float(found.attack_lower)
    yield Statement(about="attack", by="adversary", distance=lower, delta=delta, source=str(found.best))
    for group, gap in found.density_gap_lower.items():
        yield Statement(about="density", by="adversary", group=str(group), distance=float(gap), delta=delta)


def _look(case: Case) -> tuple[int, list[RecordedLook]]:
    """Record the look that a case is, before anything is computed from the rows; its number, and the other looks.

    Knowing the sizes of the groups is not a look at the cells.
    """
    with open_looks() as looks:
        rows = RowsSeen.of(case.rows.X, case.rows.persons, looks.key)
        request = request_of(looks, case)
        look, others = looks.find(rows, case.name, request) if rows.named else (RecordedLook(1, case.name, request), [])
        if case.laws:
            check_reachable(case.n, delta_of_look(case.delta, look.number), target=case.target)
        if rows.named:
            looks.record(rows, look)
    return look.number, others


def request_of(looks: Looks, case: Case) -> str:
    """Hash all that the bounds on the true distribution depend on: neither the target nor the attack is among it."""
    return looks.request(case.name, case.fingerprint, case.released, case.labels, case.delta, case.seed, case.most_rows)


def _check_attack(audit: Audit, case: Case) -> None:
    stated, attacked = (" and ".join([part.released, *part.labels]) for part in (case, audit))
    if stated != attacked:
        raise DataError(f"audit must have attacked what is released ({stated}); it attacked {attacked}.")
    if audit.model != case.name:
        other = "another one" if audit.model else "an array, whose origin is unknown"
        raise DataError(f"audit must have attacked the model that is to be certified; it attacked {other}.")


def _refuse_used_rows(model: Model, rows: Table) -> None:
    """Refuse persons that the model was fitted to or chosen by: they certify nothing about it."""
    used = model.already_used(rows)
    if used:
        what = "persons" if rows.persons.named else "rows"
        raise DataError(
            f"The model was fitted to, or chosen by, {used:,} of the {rows.persons.n:,} {what} to certify on. A "
            f"certificate takes persons that nothing has seen: certify on held-out rows."
        )


def _checked_draws(n: int | None, law: LatentLaw | None, n_groups: int, seed: int) -> int:
    """Return the number of draws; where none is given, as many as make the bound about 1/1000 wide, if not too many.

    The first draws decide on it, and no bound is computed from them: the number is fixed before the others are drawn.
    """
    if n is not None:
        check_count("n_draws", n, 1)
        return checked_draws(int(n), n_groups)
    most = affordable_draws(_DRAWS, n_groups)
    if law is None or law.exact() is not None:
        return most
    first = law.log_density_table(min(_FIRST_DRAWS, -(-most // 8)), seed + 1)
    return min(most, draws_needed(first, MONTE_CARLO_DELTA, _WIDTH))


def _check_for_contradiction(certificate: Certificate, case: Case, attack: Audit) -> None:
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


def _assumptions(c: Certificate, case: Case) -> tuple[Assumption, ...]:
    """Return the assumptions that apply, with the facts that their texts name."""
    model, persons, traits = case.model, case.rows.persons, case.model.traits
    has_names, is_counted = persons.named, bool(case.laws)
    drawn = {"row": "row drawn from the cell", "panel": "rows of a person, drawn together from the cell,"}
    what = " and ".join([drawn.get(c.released, c.released), *c.labels])
    by_trees = case.trees is not None and c.find("population") is not None
    is_comparable = (
        case.trees is not None
        or model.ledger_.comparable(RowsSeen.of(case.rows.X, persons, model.ledger_.key))
        or case.table is not None
    )
    applies = {
        "released": True,
        "drawn": c.released == "row",
        "drawn together": c.released == "panel",
        "groups": traits.needs_attribute,
        "table": case.table is not None,
        "together": case.table is not None and case.table.together is not None,
        "persons to come": by_trees,
        "cut further": case.trees is not None and bool(case.trees.leaves),
        "one tree": by_trees,
        "ranks": case.uncut is not None,
        "some columns": any(s.of for s in c.statements),
        "independent": is_counted,
        "which groups": is_counted,
        "fresh persons": is_counted and case.table is None,
        "fixed before": is_counted,
        "merged": is_counted and any(s.counts is not None and any(s.counts.merged.values()) for s in c.statements),
        "one row each": is_counted and not has_names,
        "given the label": bool(c.cell_odds_upper),
        "most rows": c.most_rows > 1 and (is_counted or case.trees is not None),
        "secret key": traits.randomised and has_names,
        "fresh coins": traits.randomised and not has_names,
        "densities": case.latent_law is not None,
        "noise": c.released == "latent",
        "look": c.look > 1,
        "looks not counted": is_counted and not has_names,
        "errors add up": True,
        "not comparable": not is_comparable,
    }
    facts = {
        "another": "A release that it does not name" if case.table and case.table.together else "Another release",
        "what": f"{what} {'are' if c.labels or c.released == 'panel' else 'is'}",
        "kept": "keep their cell" if case.trees is not None and len(case.trees.person) else "are not encoded again",
        "others": "persons" if c.released == "panel" else "rows",
        "units": "persons, each with all of their rows," if c.released == "panel" else "rows",
        "most": c.most_rows,
        "alike": "has always the same cell" if traits.draws_rows else "is always released alike",
        "look": c.look,
        "narrow": 0 if case.uncut is None else case.uncut.n_narrow,
        "column": " and ".join(c.sensitive),
    }
    return tuple(Assumption(key, ASSUMPTIONS[key].format(**facts)) for key, applied in applies.items() if applied)


def _versions() -> dict[str, str]:
    found = {"fairflows": __version__, "python": platform.python_version()}
    for name in ("numpy", "pandas", "sklearn", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
