"""The whole job: split, train, choose, certify, audit, write. What the command ``fit`` and `report` call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.bounds.arguments import most_draws
from fairflows.certificate.certifying import certify
from fairflows.certificate.document import Certificate
from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_transport import FairTransport
from fairflows.exceptions import DataError, Parameter, ParameterError
from fairflows.frontiers.selection import Candidate, Target, choose, judge_cells, judge_latents
from fairflows.frontiers.sweep import Frontier, frontier
from fairflows.release.released import Released
from fairflows.reporting import Report
from fairflows.storage.folders import new_folder
from fairflows.storage.saving import load, save
from fairflows.table.columns import Kind
from fairflows.table.table import Table
from fairflows.workflow.contents import report_contents, settings_of
from fairflows.workflow.results import (
    CERTIFYING,
    FORMAT,
    MODEL,
    RUN,
    VALIDATION,
    is_sealed,
    naming_file,
    refuse_other_folder,
    write_encoded,
)

Method = Literal["auto", "flow", "matching", "transport"]
Release = Literal["cells", "latent"]
Say = Callable[[str], None]

GAMMAS = (0.0, 0.1, 0.5, 0.9, 0.99)
STRENGTHS = (0.0, 0.5, 0.8, 0.95, 1.0)

_NAMES = {"FairFlow": "FNF, flows", "FairMatching": "FNF, matching", "FairTransport": "transport"}


@dataclass(frozen=True)
class Fit:
    """What `fit_table` made.

    Attributes
    ----------
    model : encoder or release
        What was chosen.
    certificate : Certificate
        On persons that nothing was fitted to or chosen by.
    audit : Audit
        The adversaries' results.
    candidates : list of Candidate
        All that could have been chosen, as judged on validation persons.
    chosen : Candidate
        Which was.
    report : Report
        The page.
    """

    model: Any
    certificate: Certificate
    audit: Audit
    candidates: list[Candidate]
    chosen: Candidate
    report: Report

    def frontier(self) -> pd.DataFrame:
        """One line a candidate, with the chosen one marked."""
        frame = pd.DataFrame([candidate.to_dict() for candidate in self.candidates])
        return frame.assign(chosen=[candidate is self.chosen for candidate in self.candidates])

    @property
    def is_good(self) -> bool:
        """Whether what was asked for is what was reached: certified cells, or a latent that its model vouches for."""
        latent = "latent" in self.certificate.released
        return self.certificate.status == "CERTIFIED" or (latent and self.certificate.status == "MODEL_ONLY")


def fit_table(
    table: Table,
    *,
    method: Method = "auto",
    max_adversary_accuracy: float | None = None,
    target: float | None = None,
    gamma: float | None = None,
    release: Release = "cells",
    with_label: bool = False,
    missing: Literal["error", "category"] = "error",
    density: str | None = None,
    delta: float = 0.05,
    most_rows: int | None = None,
    quick: bool = False,
    n_jobs: int | None = 2,
    random_state: int = 0,
    say: Say = lambda text: None,
) -> Fit:
    """Split a table by person, train the frontiers, choose on validation persons, certify once, audit.

    Parameters
    ----------
    table : Table
        All rows.
    method : {"auto", "flow", "matching", "transport"}
        "auto" tries the invertible encoder that fits the column kinds and, for cells, transport.
    target, max_adversary_accuracy, gamma : float, optional
        The target, as a distance Δ or as the accuracy of the best guess of the group: the most accurate model within it
        is taken. Or the trade-off itself. Without any, the model that tells least among those that are about as
        accurate as the best.
    release : {"cells", "latent"}
        Cells can be certified for the true population. The latent keeps everything, invertibly, under a certificate
        that takes the model for the truth.
    with_label : bool
        Whether the label is released beside it; the certificate is then about both together.
    missing : {"error", "category"}
        As the table was read.
    density : str, optional
        Of the encoder; its own default when not given.
    delta : float
        δ of the certificate, and of the attack.
    most_rows : int, optional
        The most rows that a person may have; the most that a training person has when not given.
    quick : bool
        Fewer models and adversaries.
    n_jobs : int, optional
        Adversaries at once.
    random_state : int
        Seed of the split and of all that is trained.
    say : callable
        Told what happens next.
    """
    given = [value for value in (target, max_adversary_accuracy, gamma) if value is not None]
    if len(given) > 1:
        names = "target", "max_adversary_accuracy", "gamma"
        raise ParameterError(names, "exclude each other: give one of them")
    if with_label and table.y is None:
        raise DataError("The label is to be released, but the table has none.")
    if with_label and table.y is not None and str(table.y.name) == "cell":
        raise DataError("The label is called 'cell', as the column of released cells is: rename it to release both.")
    goal = Target(target, max_adversary_accuracy, delta)
    train, validation, certifying = table.split(CERTIFYING, VALIDATION, random_state)
    most = _most_rows(table, train, most_rows)
    goal.check_reachable(certifying, cells=release == "cells")
    estimators = _estimators(method, release, table, train.kinds, missing, density, random_state)
    frontiers = {}
    for name, estimator in estimators.items():
        say(f"training: {name}")
        frontiers[name] = frontier(
            estimator, train, gammas=_gammas(estimator, table, gamma, quick), validation=validation
        )
    say("choosing on validation persons")
    if release == "cells":
        candidates = judge_cells(frontiers, train, validation, certifying, goal, most, with_label=with_label)
    else:
        candidates = judge_latents(frontiers, goal)
    chosen = choose(candidates, goal)

    released = [*(["cell"] if release == "cells" else ["latent"]), *(["label"] if with_label else [])]
    say("attacking")
    settings: dict[str, Any] = {
        "released": released,
        "delta": delta,
        "most_rows": most,
        "random_state": random_state,
    }
    found = audit(chosen.model, train, certifying, quick=quick, n_jobs=n_jobs, **settings)
    say("certifying")
    certificate = certify(
        chosen.model,
        certifying,
        target=target,
        max_adversary_accuracy=max_adversary_accuracy,
        audit=found,
        n_draws=min(100_000 if quick else 1_000_000, most_draws(len(train.groups))),
        **settings,
    )
    say("writing the report")
    contents = report_contents(
        chosen.model,
        certifying,
        certificate,
        audit=found,
        train=train,
        frontier=_frontier_contents(candidates, chosen, goal),
        settings={**settings_of(chosen.model), "chosen by": f"{goal.name} on {len(validation):,} validation rows"},
        split=f"{len(train):,} rows to train on, {len(validation):,} to choose by, {len(certifying):,} to certify on; "
        "no person is in two parts. This page is about the last.",
    )
    page = Report(contents, verified=bool(certificate.seal))
    return Fit(chosen.model, certificate, found, candidates, chosen, page)


def write_fit(
    fit: Fit, table: Table, out: str | Path, run: dict[str, Any], *, encoded: str = "encoded.parquet"
) -> None:
    """Write everything into one folder, which appears whole or not at all.

    Parameters
    ----------
    fit : Fit
        What `fit_table` gave.
    table : Table
        The rows to encode.
    out : path
        The folder. One that holds a result already is replaced; any other that is not empty is left alone.
    run : dict
        How the table was read; commands on the folder use it.
    encoded : str
        The file of encoded rows, CSV or Parquet.
    """
    refuse_other_folder(Path(out))
    with new_folder(Path(out)) as folder:
        save(fit.model, folder / MODEL)
        fit.frontier().to_csv(folder / "frontier.csv", index=False)
        labelled = "label" in fit.certificate.released
        write_encoded(fit.model, table, folder / encoded, with_label=labelled)
        certificate = naming_file(fit.certificate, folder / encoded, len(table), Released.of(fit.model).secret)
        (folder / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
        page = Report({**fit.report.contents, "certificate": certificate.to_dict()}, verified=fit.report.verified)
        (folder / "report.json").write_text(json.dumps(page.contents), encoding="utf-8")
        (folder / "report.html").write_text(page.to_html(), encoding="utf-8")
        (folder / "report-public.html").write_text(page.to_html(public=True), encoding="utf-8")
        grouping = table.grouping.to_dict()
        record = {
            "format": FORMAT,
            **run,
            "grouping": grouping,
            "encoded": encoded,
            "released": list(certificate.released),
        }
        (folder / RUN).write_text(json.dumps(record, indent=1), encoding="utf-8")


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
    shown = None if front is None else _frontier_of(front, model)
    contents = report_contents(
        model, table, certificate, audit=audit, train=train, frontier=shown, recourse=recourse
    )  # fmt: skip
    return Report(contents, verified=is_sealed(certificate, model))


def _most_rows(table: Table, train: Table, given: int | None) -> int:
    """M, stated or fixed on training persons; refused before the work where somebody has more rows."""
    most = given if given is not None else int(train.persons.rows_each().max())
    largest = int(table.persons.rows_each().max())
    if largest > most:
        raise DataError(
            f"A person has {largest:,} rows, and the most that a training person has are {most:,}: state the most rows "
            "that a person may have (",
            Parameter("most_rows", largest),
            ").",
        )
    return most


def _estimators(
    method: Method,
    release: Release,
    table: Table,
    kinds: Mapping[str, Kind],
    missing: Literal["error", "category"],
    density: str | None,
    random_state: int,
) -> dict[str, Encoder]:
    """The encoders to try, by name."""
    if method not in ("auto", "flow", "matching", "transport"):
        raise ParameterError("method", "must be 'auto', 'flow', 'matching' or 'transport'", method)
    categorical = all(kind == "categorical" for kind in kinds.values())
    wanted = [method] if method != "auto" else ["matching" if categorical else "flow"]
    if method == "auto" and release == "cells" and (table.y is not None or categorical):
        wanted.append("transport")
    common: dict[str, Any] = {
        "kinds": kinds,
        "missing": missing,
        "unseen": "other",
        "identifier": None if table.identifier is None else str(table.identifier.name),
        "random_state": random_state,
    }
    of_density: dict[str, Any] = {} if density is None else {"density": density}
    makers: dict[str, Callable[[], Any]] = {
        "flow": lambda: FairFlow(off_grid="round", **common, **of_density),
        "matching": lambda: FairMatching(**common, **of_density),
        "transport": lambda: FairTransport(**common, **(of_density if categorical else {})),
    }
    made = [makers[name]() for name in wanted]
    return {_NAMES[type(estimator).__name__]: estimator for estimator in made}


def _gammas(estimator: Any, table: Table, gamma: float | None, quick: bool) -> Sequence[float]:
    if gamma is not None:
        return [gamma]
    if not isinstance(estimator, FairTransport):
        return GAMMAS[1::2] if quick else GAMMAS
    if table.y is None:
        return [1.0]  # without labels to spare there is nothing to trade the distance for
    return STRENGTHS[1::2] if quick else STRENGTHS


def _frontier_contents(candidates: list[Candidate], chosen: Candidate, goal: Target) -> dict[str, Any] | None:
    """For every encoder its best number of cells: the highest use at each point of the frontier."""
    points = []
    for candidate in candidates:
        use = candidate.accuracy if candidate.accuracy is not None else candidate.n_cells
        if use is None:
            continue
        points.append(
            {
                "method": candidate.method,
                "gamma": candidate.gamma,
                "x": candidate.expected,
                "y": float(use),
                "chosen": candidate is chosen,
            }
        )
    if len(points) < 2:
        return None  # nothing was traded off
    points = _upper_left(points)
    has_cells = chosen.n_cells is not None
    return {
        "points": points,
        "x": f"{goal.name} to expect" if has_cells else f"{goal.name} by the model",
        "y": "accuracy" if chosen.accuracy is not None else "cells",
        "target": goal.limit,
        "caption": ("Each point is an encoder with a number of cells; those that another beats in both are left out. "
                    if has_cells else "Each point is an encoder. ")
        + "Judged on validation persons, before the certifying ones were looked at.",
    }  # fmt: skip


def _upper_left(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each method's points, those that no other of it beats in both; the chosen one stays in any case."""
    kept = []
    for method in dict.fromkeys(point["method"] for point in points):
        best = -np.inf
        for point in sorted((p for p in points if p["method"] == method), key=lambda p: (p["x"], -p["y"])):
            if point["y"] > best or point["chosen"]:
                best = max(best, point["y"])
                kept.append(point)
    return kept


def _frontier_of(front: Frontier, model: Any) -> dict[str, Any] | None:
    measured = front.measured
    if "accuracy" not in measured:
        return None
    encoder = Released.of(model).innermost
    points = [
        {
            "method": _NAMES.get(type(e).__name__, type(e).__name__),
            "gamma": row["gamma"],
            "x": row["delta"],
            "y": row["accuracy"],
            "chosen": e is encoder,
            "text": f"γ = {row['gamma']:g}",
        }
        for e, row in zip(front.encoders, measured.to_dict("records"), strict=True)
        if np.isfinite(row["delta"])
    ]
    caption = "Each point is an encoder; Δ is by its own densities, the accuracy on held-out rows."
    return {"points": points, "x": "Δ by the model", "y": "accuracy", "target": None, "caption": caption}
