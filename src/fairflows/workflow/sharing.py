"""The whole job: fit a release to a table, attack it, certify it, and measure what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.attack.target import without_gaps
from fairflows.bounds.arguments import affordable_draws
from fairflows.certificate.certificate import Certificate
from fairflows.certificate.certify import certify
from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_cells import FairCells
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataError, check_choice
from fairflows.release.release import Release
from fairflows.release.released import Released, repeatable_persons
from fairflows.report.contents import Contents, frontier_contents, report_contents
from fairflows.report.page import Report
from fairflows.storage import load
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table
from fairflows.tradeoff import check_target, frontier, with_cells
from fairflows.usefulness import still_tells
from fairflows.workflow.shared import CERTIFYING, VALIDATION, Run, Shared, is_sealed

Method = Literal["tree", "cells", "flow", "matching"]
Output = Literal["row", "cell", "latent"]

CELLS_FOR_A_LABEL = 8
STRENGTHS = (0.0, 0.1, 0.5, 0.9, 0.99)  # γ of the models of a frontier
N_JOBS = 2  # adversaries, and forests that measure usefulness, at once
_FEW_DRAWS = 100_000  # behind a bound that decides nothing, where cells are released


@dataclass(frozen=True)
class _Fitted:
    """A fitted model, the persons who certify it, and persons for adversaries to learn from and to be judged on."""

    model: Encoder
    rows: pd.DataFrame  # the release of all rows of the table, in its order
    certifying: Table
    learn: Table
    judge: Table
    split: str
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = (
        None  # the release of `learn` and `judge`, where it is certified
    )
    frontier: Contents | None = None  # the models that it was chosen from


def share(
    table: Table,
    *,
    target: float = 0.1,
    delta: float = 0.05,
    method: Method = "tree",
    output: Output = "row",
    without_attribute: bool = False,
    most_rows: int | None = None,
    random_state: int = 0,
    quick: bool = False,
    say: Callable[[str], None] = lambda stage: None,
) -> Shared:
    """Turn a table into one that can be shared: fit, attack, certify, and measure what is left.

    Each person is assigned to a *cell*: a group of similar people with the same share of every sensitive group. The
    shared row is sampled from a model of that cell. Two models are fitted, each to half of the people, and each person
    is encoded by the model that was not fitted to them. So the certificate covers all rows of the table.

    Parameters
    ----------
    table : Table
        All rows.
    target : float, default=0.1
        Largest distance Δ between two groups that is to be certified: a guess between them is then right at most
        (1 + Δ)/2 of the time.
    delta : float, default=0.05
        Probability δ that the certificate is wrong.
    method : {"tree", "cells", "flow", "matching"}, default="tree"
        "tree" is `FairTree`: cells for many purposes, with or without a label. "cells" is `FairCells`: the best cells
        for the label. "flow" and "matching" are the paper's encoders, `FairFlow` and `FairMatching`: several are
        trained on one part of the persons, and the best within the target is chosen on another part. Its certificate
        covers a third part, and persons who come later.
    output : {"row", "cell", "latent"}, default="row"
        Share a whole row in the table's own columns, drawn from the cell; the cell's number; or the latent of "flow" or
        "matching", which keeps everything, invertibly. Only its own densities vouch for a latent.
    without_attribute : bool, default=False
        Whether persons who come later are encoded without the sensitive attribute; needs ``method="cells"``.
    most_rows : int, optional
        Most rows that a person may have; by default the most of the persons that a model was fitted to.
    random_state : int, default=0
        Seed of the split and of training, but never of keys, coins and drawn rows.
    quick : bool, default=False
        Train fewer models and run fewer adversaries.
    say : callable, optional
        Called with the name of each stage before it begins.

    Returns
    -------
    Shared
        The table to share, its certificate, and what is known about both.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> shared = share(load_adult(), target=0.4, output="cell", quick=True)
    >>> shared.certificate.status, list(shared.table)
    ('CERTIFIED', ['cell'])
    """
    _check_combination(table, method, output, without_attribute)
    if method == "tree" or method == "cells":
        encoder = _cells_encoder(method, table, target, delta, without_attribute, random_state)
        kind: Literal["row", "cell"] = "row" if output == "row" else "cell"
        release = Release(encoder, output=kind, most_rows=most_rows, random_state=random_state)
        check_target(target, table, delta)
        fitted = _fitted_by_folds(release, table, random_state, say)
    else:
        fitted = _best_of_frontier(method, output, table, target, delta, most_rows, random_state, quick, say)

    say("attacking the raw rows")
    settings: dict[str, Any] = {"delta": delta, "most_rows": most_rows, "random_state": random_state}
    raw = without_gaps({"learn": fitted.learn.X, "judge": fitted.judge.X})
    pair = raw["learn"], raw["judge"]
    before = audit(pair, fitted.learn, fitted.judge, quick=True, n_jobs=N_JOBS, **settings)
    say("attacking the shared rows")
    settings["released"] = ["latent" if output == "latent" else "cell"]
    found = audit(
        fitted.model, fitted.learn, fitted.judge, encoded=fitted.encoded, quick=quick, n_jobs=N_JOBS, **settings
    )
    say("certifying")
    n_draws = None if output == "latent" and not quick else affordable_draws(_FEW_DRAWS, len(table.groups))
    certificate = certify(fitted.model, fitted.certifying, target=target, audit=found, n_draws=n_draws, **settings)
    refuse_a_release_that_tells_more(before, found, certificate)
    usefulness = None
    if output != "latent":
        say("measuring what the shared rows still tell")
        usefulness = still_tells(
            fitted.model,
            fitted.learn,
            fitted.judge,
            encoded=fitted.encoded,
            n_jobs=N_JOBS,
            random_state=random_state,
        )
    say("writing the report")
    contents = report_contents(
        fitted.model,
        fitted.judge,
        certificate,
        audit=found,
        before=before,
        tells=usefulness,
        train=fitted.learn,
        encoded=fitted.encoded,
        frontier=fitted.frontier,
        split=fitted.split,
    )
    page = Report(contents, verified=bool(certificate.seal))
    order = np.random.default_rng().permutation(len(table))  # from the system's entropy: no seed repeats it
    rows = fitted.rows.iloc[order].reset_index(drop=True)
    run = Run.of(table, list(certificate.released), random_state)
    return Shared(rows, certificate, usefulness, found, before, fitted.model, page, run)


def _check_combination(table: Table, method: Method, output: Output, without_attribute: bool) -> None:
    """Raise if the settings cannot be had together."""
    check_choice("method", method, get_args(Method))
    check_choice("output", output, get_args(Output))
    if output == "latent" and method not in ("flow", "matching"):
        raise DataError(f"method must be 'flow' or 'matching' for output='latent'; got {method!r}.")
    if without_attribute and method != "cells":
        raise DataError(f"method must be 'cells' to encode without the sensitive attribute; got {method!r}.")
    if method == "cells" and table.y is None:
        raise DataError(
            "Cells are made for a label, and the table has none: name it (label=...), or take method='tree'."
        )


def _cells_encoder(
    method: Literal["tree", "cells"],
    table: Table,
    target: float,
    delta: float,
    without_attribute: bool,
    random_state: int,
) -> Encoder:
    """Return the encoder of cells, planned for the certificate to come: half of the persons count for each model."""
    common: dict[str, Any] = {
        "unseen": "other",
        "identifier": None if table.identifier is None else str(table.identifier.name),
        "random_state": random_state,
        "n_certify": max(2, table.persons.n // 2),
        "target": target,
        "delta": delta,  # of which each of the two models gets a share
    }
    if method == "tree":
        return FairTree("auto", **common)
    return FairCells(CELLS_FOR_A_LABEL, attribute="training" if without_attribute else "encoding", **common)


def _fitted_by_folds(model: Release, table: Table, random_state: int, say: Callable[[str], None]) -> _Fitted:
    """Fit two models, each for the persons that it was not fitted to. All persons certify."""
    say("fitting two models, each to half of the persons")
    rows = to_pandas(model.fit_transform(table))
    if model.most_rows_ is not None:
        _check_most_rows(table, model.most_rows_)
    parts = table.persons.split(CERTIFYING, random_state=random_state)
    learn, judge = (table.take(part) for part in parts)
    split = (
        f"{len(table):,} rows. Two models are fitted, each to half of the persons, and each person is encoded by the "
        "model that was not fitted to them. All persons certify."
    )
    return _Fitted(model, rows, table, learn, judge, split, (rows.iloc[parts[0]], rows.iloc[parts[1]]))


def _best_of_frontier(
    method: Literal["flow", "matching"],
    output: Output,
    table: Table,
    target: float,
    delta: float,
    most_rows: int | None,
    random_state: int,
    quick: bool,
    say: Callable[[str], None],
) -> _Fitted:
    """Train a frontier of the paper's encoders, and choose the best within the target on validation persons."""
    train, validation, certifying = table.split(CERTIFYING, VALIDATION, random_state)
    most = most_rows if most_rows is not None else int(train.persons.rows_each().max())
    _check_most_rows(table, most)
    has_cells = output != "latent"
    check_target(target, certifying if has_cells else None, delta)
    say("training encoders of several strengths")
    encoder = FairFlow(unseen="other") if method == "flow" else FairMatching(unseen="other")
    strengths = STRENGTHS[1::2] if quick else STRENGTHS
    front = frontier(encoder, train, strengths=strengths, seeds=[random_state], validation=validation)
    say("choosing on validation persons")
    if has_cells:
        front = with_cells(front, train, validation, certifying, delta=delta, most_rows=most)
    chosen = front.best_for(target)
    model = front.encoders[chosen]
    if output == "row":
        model = _with_whole_rows(cast(Release, model), train)
    split = (
        f"{len(train):,} rows to train on, {len(validation):,} to choose by, {len(certifying):,} to certify on; no "
        "person is in two parts. The certificate covers the last part, and persons from the same population who come "
        "later. Rows of the other parts are not covered."
    )
    rows = Released.of(model).encode(table)
    points = frontier_contents(front, chosen, target, method)
    return _Fitted(model, rows, certifying, train, certifying, split, None, points)


def _with_whole_rows(release: Release, train: Table) -> Release:
    """Return a release with the same cells that draws whole rows."""
    encoder = release.models_[0].encoder
    Z = encoder.encode(encoder.read(train, None, repeatable_persons(train, "fit")))
    settings = {**release.get_params(deep=False), "encoder": None, "output": "row"}
    return Release(**settings).fit_around(encoder, encoder.read(train), Z, train.y)


def _check_most_rows(table: Table, most: int) -> None:
    """Raise before the work if a person has more rows than the certificate allows."""
    largest = int(table.persons.rows_each().max())
    if largest > most:
        raise DataError(
            f"A person has {largest:,} rows, and the persons that the model was fitted to have at most {most:,}: state "
            f"the most rows that a person may have (most_rows={largest})."
        )


def refuse_a_release_that_tells_more(before: Audit, after: Audit, certificate: Certificate) -> None:
    """Raise if the target is missed and adversaries learn more of the group than from the raw rows."""
    raw = max(attack.validation for attack in before.attacks)
    if certificate.is_good or after.attack_lower <= raw:
        return
    raise DataError(
        f"The shared rows would tell more of the group than the raw rows do: adversaries are right at least "
        f"{50 * (1 + after.attack_lower):.1f} % of the time with them (groups counted alike), and about "
        f"{50 * (1 + raw):.1f} % with the raw rows. Share rows or cells (output='row') instead of a latent, or allow "
        "fewer cells by a smaller target (target=...)."
    )


def report(
    model: Any,
    table: Table,
    *,
    certificate: Certificate | None = None,
    audit: Audit | None = None,
    train: Table | None = None,
    delta: float = 0.05,
) -> Report:
    """Write a report about a fitted model, on held-out rows.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted model, or the folder that it was saved to.
    table : Table
        Held-out rows.
    certificate : Certificate, optional
        The result of `certify` for these rows. Without it, one is made, which counts as a look at them.
    audit : Audit, optional
        The result of `audit`.
    train : Table, optional
        Rows that the model was trained on, for group metrics before and after.
    delta : float, default=0.05
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
    contents = report_contents(model, table, certificate, audit=audit, train=train)
    return Report(contents, verified=is_sealed(certificate, model))
