"""The whole job: fit a release to a table, attack it, certify it, and measure what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
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
from fairflows.report.contents import report_contents
from fairflows.report.page import Report
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table
from fairflows.tradeoff import check_target, frontier, with_cells
from fairflows.usefulness import still_tells
from fairflows.workflow.shared import CERTIFYING, VALIDATION, Run, Shared

Method = Literal["tree", "cells", "flow", "matching"]
Output = Literal["row", "cell", "latent"]

CELLS_FOR_A_LABEL = 8
STRENGTHS = (0.0, 0.1, 0.5, 0.9, 0.99)  # γ of the paper's encoders that are tried
N_JOBS = 2  # adversaries, and forests that measure usefulness, at once
_FEW_DRAWS = 100_000  # behind a bound that decides nothing, where cells are released


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
    job = _Job(table, target, delta, method, output, without_attribute, most_rows, random_state, quick, say)
    fitted = job.fit()
    say("attacking the raw rows")
    settings: dict[str, Any] = {"delta": delta, "most_rows": most_rows, "random_state": random_state}
    pair = fitted.learn.X, fitted.judge.X
    before = audit(pair, fitted.learn, fitted.judge, quick=True, n_jobs=N_JOBS, **settings)
    say("attacking the shared rows")
    settings["released"] = ["latent" if output == "latent" else "cell"]
    of_release: dict[str, Any] = {"encoded": fitted.encoded, "n_jobs": N_JOBS}
    found = audit(fitted.model, fitted.learn, fitted.judge, quick=quick, **of_release, **settings)
    say("certifying")
    n_draws = None if output == "latent" and not quick else affordable_draws(_FEW_DRAWS, len(table.groups))
    certificate = certify(fitted.model, fitted.certifying, target=target, audit=found, n_draws=n_draws, **settings)
    refuse_a_release_that_tells_more(before, found, certificate)
    usefulness = None
    if output != "latent":
        say("measuring what the shared rows still tell")
        usefulness = still_tells(fitted.model, fitted.learn, fitted.judge, random_state=random_state, **of_release)
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
        split=fitted.split,
    )
    page = Report(contents, verified=bool(certificate.seal))
    order = np.random.default_rng().permutation(len(table))  # from the system's entropy: no seed repeats it
    rows = fitted.rows.iloc[order].reset_index(drop=True)
    run = Run.of(table, list(certificate.released), random_state)
    return Shared(rows, certificate, usefulness, found, before, fitted.model, page, run)


@dataclass(frozen=True)
class _Fitted:
    """A fitted model, the persons who certify it, and persons for adversaries to learn from and to be judged on."""

    model: Encoder
    rows: pd.DataFrame  # the release of all rows of the table, in its order
    certifying: Table
    learn: Table
    judge: Table
    split: str
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = None  # the release of `learn` and `judge`


@dataclass(frozen=True)
class _Job:
    """The settings of `share`, and how a model is fitted by them."""

    table: Table
    target: float
    delta: float
    method: Method
    output: Output
    without_attribute: bool
    most_rows: int | None
    random_state: int
    quick: bool
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        check_choice("output", self.output, get_args(Output))
        if not 0 < self.delta < 1:
            raise DataError(f"delta must be in (0, 1); got {self.delta!r}.")
        if self.output == "latent" and self.method not in ("flow", "matching"):
            raise DataError(f"method must be 'flow' or 'matching' for output='latent'; got {self.method!r}.")
        if self.without_attribute and self.method != "cells":
            raise DataError(f"method must be 'cells' to encode without the sensitive attribute; got {self.method!r}.")
        if self.method == "cells" and self.table.y is None:
            raise DataError("Cells are made for a label, and the table has none: name it (label=...), or take 'tree'.")

    def fit(self) -> _Fitted:
        """Fit the model that the method asks for."""
        return self._fit_two_models() if self.method in ("tree", "cells") else self._choose_from_frontier()

    def _fit_two_models(self) -> _Fitted:
        """Fit two models, each for the persons that it was not fitted to. All persons certify."""
        table = self.table
        check_target(self.target, table, self.delta)
        self.say("fitting two models, each to half of the persons")
        output: Literal["row", "cell"] = "row" if self.output == "row" else "cell"
        model = Release(self._cells_encoder(), output=output, most_rows=self.most_rows, random_state=self.random_state)
        rows = to_pandas(model.fit_transform(table))
        if model.most_rows_ is not None:
            _check_most_rows(table, model.most_rows_)
        parts = table.persons.split(CERTIFYING, random_state=self.random_state)
        learn, judge = (table.take(part) for part in parts)
        split = (
            f"{len(table):,} rows. Two models are fitted, each to half of the persons, and each person is encoded by "
            "the model that was not fitted to them. All persons certify."
        )
        return _Fitted(model, rows, table, learn, judge, split, (rows.iloc[parts[0]], rows.iloc[parts[1]]))

    def _cells_encoder(self) -> Encoder:
        """Return the encoder of cells, planned for the certificate to come: half of the persons count for a model."""
        settings: dict[str, Any] = {
            **self._common(),
            "n_certify": max(2, self.table.persons.n // 2),
            "target": self.target,
            "delta": self.delta,  # of which each of the two models gets a share
        }
        if self.method == "tree":
            return FairTree("auto", **settings)
        attribute: Literal["training", "encoding"] = "training" if self.without_attribute else "encoding"
        return FairCells(CELLS_FOR_A_LABEL, attribute=attribute, **settings)

    def _choose_from_frontier(self) -> _Fitted:
        """Train the paper's encoders of several strengths, and choose by the target on validation persons."""
        table = self.table
        train, validation, certifying = table.split(CERTIFYING, VALIDATION, self.random_state)
        most_rows = self.most_rows or int(train.persons.rows_each().max())
        _check_most_rows(table, most_rows)
        check_target(self.target, None if self.output == "latent" else certifying, self.delta)
        self.say("training encoders of several strengths")
        settings = {**self._common(), "kinds": train.kinds}
        encoder = FairFlow(**settings) if self.method == "flow" else FairMatching(**settings)
        strengths = STRENGTHS[1::2] if self.quick else STRENGTHS
        front = frontier(encoder, train, strengths=strengths, seeds=[self.random_state], validation=validation)
        self.say("choosing on validation persons")
        if self.output != "latent":
            front = with_cells(front, train, validation, certifying, delta=self.delta, most_rows=most_rows)
        place = front.best_for(self.target)
        model = front.encoders[place]
        if self.output == "row":
            model = _with_whole_rows(cast(Release, model), train)
        split = (
            f"{len(train):,} rows to train on, {len(validation):,} to choose by, {len(certifying):,} to certify on; no "
            "person is in two parts. The certificate covers the last part, and persons from the same population who "
            "come later. Rows of the other parts are not covered."
        )
        return _Fitted(model, Released.of(model).encode(table), certifying, train, certifying, split)

    def _common(self) -> dict[str, Any]:
        """Return the settings that all encoders have."""
        identifier = self.table.identifier
        return {
            "unseen": "other",
            "identifier": None if identifier is None else str(identifier.name),
            "random_state": self.random_state,
        }


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
