"""The whole job: split, train, choose, certify, audit. What the command ``fit`` and `report` call."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.attack.target import without_gaps
from fairflows.bounds.arguments import affordable_draws
from fairflows.bounds.planning import planned_cell_bound
from fairflows.certificate.certificate import Certificate
from fairflows.certificate.certify import certify
from fairflows.encoder.base import Encoder, FloatArray
from fairflows.encoder.fair_cells import FairCells
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataError, check_count
from fairflows.frontiers.selection import Candidate, Target
from fairflows.frontiers.sweep import Say, Sweep, Swept
from fairflows.release.cell_release import CellRelease
from fairflows.release.crossfit import CrossFit
from fairflows.release.released import Released, repeatable_persons
from fairflows.report.page import Report
from fairflows.storage import load
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table
from fairflows.tradeoff import Frontier
from fairflows.usefulness import still_tells
from fairflows.workflow.contents import candidates_contents, frontier_contents, report_contents, settings_of
from fairflows.workflow.results import CERTIFYING, VALIDATION, Fit, is_sealed

Method = Literal["tree", "cells"] | Swept
Release = Literal["rows", "cells", "latent"]

N_CELLS, CELLS_FOR_A_LABEL = 64, 8
_FEW_DRAWS = 100_000  # behind a bound that decides nothing, where cells are released
WITHOUT_A_TARGET = 0.1  # of cells for a label, which are made for a distance


@dataclass(frozen=True)
class _Made:
    """A fitted model, the persons who certify it, and persons for adversaries to learn from and to be judged on.

    `encoded` is what is released of the latter two, where just that is to be attacked and measured.
    """

    model: Any
    shared: pd.DataFrame
    certifying: Table
    learn: Table
    judge: Table
    split: str
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = None
    candidates: list[Candidate] = field(default_factory=list)
    chosen: Candidate | None = None


def fit_table(
    table: Table,
    *,
    method: Method | None = None,
    release: Release = "rows",
    cross_fit: bool = True,
    without_attribute: bool = False,
    n_cells: int | None = None,
    target: float | None = None,
    max_adversary_accuracy: float | None = None,
    gamma: float | None = None,
    with_label: bool = False,
    density: str | None = None,
    delta: float = 0.05,
    most_rows: int | None = None,
    force: bool = False,
    quick: bool = False,
    n_jobs: int | None = 2,
    random_state: int = 0,
    say: Say = lambda text: None,
) -> Fit:
    """Turn a table into one that can be shared: fit, certify, attack, and measure what is left.

    By default a matched tree (`FairTree`) is fitted twice, each time to half of the persons (`CrossFit`), and every
    person gets a whole row that is drawn from the law of her cell, by the model that never saw her: so all rows of the
    table are covered by the certificate.

    Parameters
    ----------
    table : Table
        All rows.
    method : {"tree", "cells", "flow", "matching"}, optional
        "tree", the default, is `FairTree`, for many purposes and without a label too. "cells" is `FairCells`, the best
        cells for the label. The others train a frontier of encoders on one part of the persons, and choose on another:
        "flow" is `FairFlow`, "matching" `FairMatching`, the default for a latent where every column is categorical.
    release : {"rows", "cells", "latent"}
        Whole rows in the table's own columns, drawn from cells; the cells' numbers; or the latent, which keeps
        everything, invertibly, under a certificate that takes the model for the truth.
    cross_fit : bool
        Whether "tree" and "cells" are two models, so that every row is covered; else one model is fitted to 70 % of
        the persons, and the certificate is about the others and those who come later.
    without_attribute : bool
        Whether encoding must do without the sensitive attribute, which "cells" can.
    n_cells : int, optional
        How many cells, at most: fewer where fewer different ones are found. When not given, for "tree" as many as the
        target allows, and without a target 64, or fewer where persons are few; for "cells" 8; for a frontier the best
        of 2, 4, … 64.
    target, max_adversary_accuracy, gamma : float, optional
        The target, as a distance Δ or as the accuracy of the best guess of the group. Or, of a frontier, the trade-off
        itself.
    with_label : bool
        Whether the true label is released beside it; the certificate is then about both together. Whole rows have a
        drawn label otherwise.
    density : str, optional
        Of the encoders of a frontier; their own default when not given.
    delta : float
        δ of the certificate, and of the attack.
    most_rows : int, optional
        The most rows that a person may have; the most that persons who were fitted to have when not given.
    force : bool
        Go on where what is released tells adversaries more of the group than the raw rows do.
    quick : bool
        Fewer models and adversaries.
    n_jobs : int, optional
        Adversaries, and forests that measure what is still told, at once.
    random_state : int
        Seed of the split and of all that is trained.
    say : callable
        Told what happens next.
    """
    given = [value for value in (target, max_adversary_accuracy, gamma) if value is not None]
    if len(given) > 1:
        raise DataError("target, max_adversary_accuracy and gamma exclude each other: give one of them.")
    if with_label and table.y is None:
        raise DataError("The label is to be released, but the table has none.")
    if with_label and table.y is not None and str(table.y.name) == "cell":
        raise DataError("The label is called 'cell', as the column of released cells is: rename it to release both.")
    if gamma is not None and method is None:
        method = _paper_method(table)  # only a frontier has trade-offs to choose from
    method = _checked_method(method, release, table, without_attribute)
    if gamma is not None and method in ("tree", "cells"):
        raise DataError(f"gamma and method exclude each other: {method!r} has no such trade-off; give a target.")
    if n_cells is not None:
        check_count("n_cells", n_cells, 2)
        if release == "latent":
            raise DataError("n_cells and release exclude each other: a latent has no cells.")
    goal = Target(target, max_adversary_accuracy, delta)
    if method == "tree" or method == "cells":
        encoder = _cells_encoder(method, table, goal, n_cells, cross_fit, without_attribute, random_state)
        output = CellRelease(
            encoder,
            output="row" if release == "rows" else "cell",
            draw_label=not with_label,
            random_state=random_state,
        )
        made = (_cross_fitted if cross_fit else _split)(output, table, goal, most_rows, random_state, say)
    else:
        sweep = Sweep(method, release != "latent", gamma, density, random_state, with_label, quick, n_cells)
        made = _swept(sweep, table, goal, release, most_rows, say)

    say("attacking the raw rows")
    raw = without_gaps({"learn": made.learn.X, "judge": made.judge.X})
    before = audit(
        (raw["learn"], raw["judge"]), made.learn, made.judge, delta=delta, quick=True, n_jobs=n_jobs,
        most_rows=most_rows, random_state=random_state,
    )  # fmt: skip
    say("attacking what is released")
    settings: dict[str, Any] = {
        "released": ["latent" if release == "latent" else "cell", *(["label"] if with_label else [])],
        "delta": delta,
        "most_rows": most_rows,
        "random_state": random_state,
    }
    found = audit(made.model, made.learn, made.judge, encoded=made.encoded, quick=quick, n_jobs=n_jobs, **settings)
    refuse_a_release_that_tells_more(before, found, force)
    say("certifying")
    certificate = certify(
        made.model,
        made.certifying,
        target=target,
        max_adversary_accuracy=max_adversary_accuracy,
        audit=found,
        n_draws=None if release == "latent" and not quick else affordable_draws(_FEW_DRAWS, len(table.groups)),
        **settings,
    )
    tells = None
    if release != "latent":
        say("measuring what the released rows still tell")
        tells = still_tells(
            made.model, made.learn, made.judge, encoded=made.encoded, n_jobs=n_jobs, random_state=random_state
        )
    say("writing the report")
    contents = report_contents(
        made.model,
        made.judge,
        certificate,
        audit=found,
        before=before,
        tells=tells,
        train=made.learn,
        encoded=made.encoded,
        frontier=None if made.chosen is None else candidates_contents(made.candidates, made.chosen, goal),
        settings=settings_of(made.model),
        split=made.split,
    )
    page = Report(contents, verified=bool(certificate.seal))
    return Fit(made.model, made.shared, certificate, found, before, tells, page, made.candidates, made.chosen)


def _checked_method(method: Method | None, release: Release, table: Table, without_attribute: bool) -> Method:
    """The method that was asked for, or the one that fits; refused where it cannot do what is asked."""
    if release not in ("rows", "cells", "latent"):
        raise DataError(f"release must be 'rows', 'cells' or 'latent'; got {release!r}.")
    if method is None:
        method = _paper_method(table) if release == "latent" else "cells" if without_attribute else "tree"
    if method not in ("tree", "cells", "flow", "matching"):
        raise DataError(f"method must be 'tree', 'cells', 'flow' or 'matching'; got {method!r}.")
    if release == "latent" and method in ("tree", "cells"):
        raise DataError(f"method must be 'flow' or 'matching' for a latent; got {method!r}.")
    if without_attribute and method != "cells":
        raise DataError(f"method must be 'cells' to encode without the sensitive attribute; got {method!r}.")
    if method == "cells" and table.y is None:
        raise DataError("Cells are made for a label, and the table has none: name it (label=...).")
    return method


def _paper_method(table: Table) -> Method:
    """The paper's encoder that fits the kinds of the columns."""
    return "matching" if all(kind == "categorical" for kind in table.kinds.values()) else "flow"


def _cells_encoder(
    method: Method,
    table: Table,
    goal: Target,
    n_cells: int | None,
    cross_fit: bool,
    without_attribute: bool,
    random_state: int,
) -> Encoder:
    """The encoder of cells, made for the certificate to come: for so many persons, at their share of δ."""
    distance = goal.as_distance(len(table.groups))
    common: dict[str, Any] = {
        "unseen": "other",
        "identifier": None if table.identifier is None else str(table.identifier.name),
        "random_state": random_state,
        "n_certify": max(2, int(table.persons.n * (0.5 if cross_fit else CERTIFYING))),
        "delta": goal.delta,  # CrossFit gives each of its models a share of it
    }
    if method == "tree":
        size: int | Literal["auto"] = n_cells or (_cells_for(table, cross_fit) if distance is None else "auto")
        return FairTree(size, target=distance if size == "auto" else None, **common)
    k = n_cells or CELLS_FOR_A_LABEL
    return FairCells(
        k,
        target=_reachable(table, k, cross_fit, goal.delta / 4) if distance is None else distance,
        attribute="training" if without_attribute else "encoding",
        **common,
    )


def _cells_for(table: Table, cross_fit: bool) -> int:
    """Without a target: so many cells that chance alone, about .4·sqrt(k·(1/n_a + 1/n_b)), is not more than .1."""
    smallest = np.sort(_counted_persons(table, cross_fit))[:2]
    in_a_cell = smallest.min() / 20  # below ten they are merged, and count as if they told the group
    return int(np.clip(min((0.1 / 0.4) ** 2 / (1 / smallest).sum(), in_a_cell), 2, N_CELLS))


def _counted_persons(table: Table, cross_fit: bool) -> FloatArray:
    """How many persons of each group a certificate will count: taken in proportion to their rows."""
    most = table.persons.rows_each().max()
    return table.a.value_counts().to_numpy() / most * (0.5 if cross_fit else CERTIFYING)


def _reachable(table: Table, n_cells: int, cross_fit: bool, delta: float) -> float:
    """Without a target: a distance that leaves room for so many cells, alike in all groups; .1 where that is enough."""
    n = _counted_persons(table, cross_fit)
    alike = np.full((len(n), n_cells), 1 / n_cells)
    made_from = n / (0.5 if cross_fit else CERTIFYING) * 0.15
    planned = planned_cell_bound(alike, n, delta, chance=0.9, counted_from=np.maximum(made_from, 1))
    return min(max(WITHOUT_A_TARGET, float(planned) + 0.1), 1.0)


def _cross_fitted(
    release: CellRelease, table: Table, goal: Target, most_rows: int | None, random_state: int, say: Say
) -> _Made:
    """Two models, each for the persons it never saw: everybody certifies."""
    goal.check_reachable(table, cells=True)
    say("fitting two models, each for the persons that it never sees")
    model = CrossFit(release, most_rows=most_rows)
    shared = to_pandas(model.fit_transform(table))
    if model.most_rows_ is not None:
        _refuse_more_rows(table, model.most_rows_, "nobody whom her model was fitted to has more than")
    parts = table.persons.split(CERTIFYING, random_state=random_state)
    learn, judge = (table.take(part) for part in parts)
    split = (
        f"{len(table):,} rows. Every person is encoded by a model that was fitted to other persons, and all persons "
        "certify."
    )
    return _Made(model, shared, table, learn, judge, split, (shared.iloc[parts[0]], shared.iloc[parts[1]]))


def _split(
    release: CellRelease, table: Table, goal: Target, most_rows: int | None, random_state: int, say: Say
) -> _Made:
    """One model, and other persons to certify it."""
    train, certifying = table.split(CERTIFYING, 0, random_state)
    _most_rows(table, train, most_rows)
    goal.check_reachable(certifying, cells=True)
    say("fitting")
    model = release.fit(train)
    return _Made(model, Released.of(model).encode(table), certifying, train, certifying, _parts(train, certifying))


def _swept(sweep: Sweep, table: Table, goal: Target, release: Release, most_rows: int | None, say: Say) -> _Made:
    """The best of a frontier, chosen on validation persons."""
    train, validation, certifying = table.split(CERTIFYING, VALIDATION, sweep.random_state)
    most = _most_rows(table, train, most_rows)
    goal.check_reachable(certifying, cells=sweep.cells)
    candidates, chosen = sweep.choose(train, validation, certifying, goal, most, say)
    model = chosen.model
    if release == "rows" and isinstance(model, CellRelease):
        model = _with_whole_rows(model, train, draw_label=not sweep.with_label)
    shared = Released.of(model).encode(table)
    split = _parts(train, certifying, validation)
    return _Made(model, shared, certifying, train, certifying, split, None, candidates, chosen)


def _with_whole_rows(release: CellRelease, train: Table, *, draw_label: bool) -> CellRelease:
    """The same cells, of which whole rows are drawn."""
    encoder = release.encoder_
    Z = encoder.encode(encoder.read(train, None, repeatable_persons(train, "fit")))
    settings = {**release.get_params(deep=False), "encoder": None, "output": "row", "draw_label": draw_label}
    rows = CellRelease(**settings)
    return rows.fit_around(encoder, encoder.read(train), Z, train.y)


def _parts(train: Table, certifying: Table, validation: Table | None = None) -> str:
    chosen = "" if validation is None else f"{len(validation):,} to choose by, "
    return (
        f"{len(train):,} rows to train on, {chosen}{len(certifying):,} to certify on; no person is in two parts. The "
        "certificate is about the last, and about everybody from the same population who comes later: rows that were "
        "trained on or chosen by are not covered."
    )


def refuse_a_release_that_tells_more(before: Audit, after: Audit, force: bool) -> None:
    """Refuse what adversaries tell the group from better than from the raw rows; what they find, not what is."""
    raw = max(attack.validation for attack in before.attacks)
    if after.attack_lower <= raw or force:
        return
    raise DataError(
        "What would be released tells more of the group than the raw rows do: adversaries are right at least "
        f"{50 * (1 + after.attack_lower):.1f} % of the time with it (groups counted alike), and about "
        f"{50 * (1 + raw):.1f} % with the raw rows. Release rows or cells instead of a latent, or go on all the same "
        "(force=True)."
    )


def report(
    model: Any,
    table: Table,
    *,
    certificate: Certificate | None = None,
    audit: Audit | None = None,
    train: Table | None = None,
    front: Frontier | None = None,
    recourse: Any = None,
    delta: float = 0.05,
) -> Report:
    """A report about a fitted model, on held-out rows.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted, or the folder it was saved to.
    table : Table
        Held-out rows.
    certificate : Certificate, optional
        What `certify` gave for these rows. Without, one is made, which counts as a look at them.
    audit : Audit, optional
        What `audit` found.
    train : Table, optional
        The rows that the model was trained on, for group metrics before and after.
    front : Frontier, optional
        The frontier that the model is from.
    recourse : Recourse, optional
        For the internal part of the report.
    delta : float
        δ of a certificate that is made here.

    Examples
    --------
    >>> from fairflows import FairMatching, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> encoder = FairMatching(density="counts").fit(train.X, train.y, sensitive_features=train.a)
    >>> page = report(encoder, test, train=train)
    >>> page.contents["certificate"]["status"]
    'MODEL_ONLY'
    """
    if isinstance(model, str | Path):
        model = load(model)
    if certificate is None:
        certificate = certify(model, table, audit=audit, delta=delta)
    shown = None if front is None else frontier_contents(front, model)
    contents = report_contents(
        model, table, certificate, audit=audit, train=train, frontier=shown, recourse=recourse
    )  # fmt: skip
    return Report(contents, verified=is_sealed(certificate, model))


def _most_rows(table: Table, train: Table, given: int | None) -> int:
    """M, stated or fixed on training persons; refused before the work where somebody has more rows."""
    most = given if given is not None else int(train.persons.rows_each().max())
    _refuse_more_rows(table, most, "the most that a training person has are")
    return most


def _refuse_more_rows(table: Table, most: int, known: str) -> None:
    largest = int(table.persons.rows_each().max())
    if largest > most:
        raise DataError(
            f"A person has {largest:,} rows, and {known} {most:,}: state the most rows that a person may have "
            f"(most_rows={largest!r})."
        )
