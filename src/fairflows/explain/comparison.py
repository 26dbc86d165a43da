"""compare: several models in one table, judged by the same persons, adversaries and bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.bounds.arguments import CHOOSING
from fairflows.certificate.certifying import gives_each_row_another_value, refuse_used_rows
from fairflows.certificate.document import Certificate
from fairflows.certificate.making import Settings, make_certificate
from fairflows.encoder.model_state import model_hash
from fairflows.exceptions import DataError
from fairflows.explain.usefulness import predicted_labels
from fairflows.metrics import count_predictions, group_metrics
from fairflows.release.released import Model, Released
from fairflows.resources import one_thread
from fairflows.table.looks import open_book
from fairflows.table.table import Table


def compare(
    models: Mapping[str, Model],
    train: Table,
    test: Table,
    *,
    delta: float = 0.05,
    n_draws: int | None = None,
    quick: bool = False,
    random_state: int = 0,
) -> pd.DataFrame:
    """Fitted models side by side: what each release keeps, what is certified of it, what adversaries reach.

    A model that is chosen by this table is certified on other persons. Afterwards the test persons count as used for
    these models, and every ``cell_upper`` as a look at them, as a certificate is: one from these persons, of whichever
    model, is the next look.

    Parameters
    ----------
    models : dict
        What to call each model, and the model: an encoder, a release, a pipeline, or any fitted transformer.
    train, test : Table
        Rows for the task and the adversaries to learn from, and rows of other persons, which no model has seen.
    delta : float
        δ of each bound, of which that for the true distribution spends as much as a first certificate. Every bound
        holds on its own with probability 1 − δ; all of m bounds hold together with 1 − m·δ.
    n_draws : int, optional
        As for `certify`.
    quick : bool
        Few adversaries on few rows.
    random_state : int
        Seed of draws, adversaries and learners.

    Returns
    -------
    DataFrame
        One row per model. ``accuracy``, ``balanced_accuracy`` (mean over the groups) and ``parity`` (demographic
        parity distance) are those of boosted trees that learn the label from released rows; there are none where the
        table has no label. ``delta`` and ``model_upper`` are Δ and its upper bound if the model's own densities are the
        truth; ``cell_upper`` is the upper bound for the true distribution; ``attack_lower`` is what the best adversary,
        ``attack_by``, proves at least. ``status`` is that of a certificate without a target. What a model does not have
        is NaN.

    Raises
    ------
    DataError
        A model was fitted to, or chosen by, some of the test persons.

    Examples
    --------
    >>> from fairflows import CellRelease, FairTree, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> models = {
    ...     "rows in cells": CellRelease(n_cells=8).fit(train),
    ...     "matched tree": FairTree(n_cells=8).fit(train),
    ... }
    >>> found = compare(models, train, test, quick=True)
    >>> bool(found.loc["matched tree", "cell_upper"] < found.loc["rows in cells", "attack_lower"])
    True
    """
    for name, model in models.items():
        try:
            refuse_used_rows(Released.of(model), test)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
    lines = {}
    for name, model in models.items():
        found = audit(model, train, test, delta=delta, quick=quick, random_state=CHOOSING + random_state)
        certificate = _certificate(model, test, found, n_draws, CHOOSING + random_state)
        lines[name] = {
            **_kept(Released.of(model), train, test, random_state),
            "delta": None if certificate is None else certificate.model_delta,
            "model_upper": None if certificate is None else certificate.model_upper,
            "cell_upper": None if certificate is None else certificate.cell_upper,
            "attack_lower": found.attack_lower,
            "attack_by": found.best,
            "status": "NOT_MET" if certificate is None else certificate.status,
        }
    for model in models.values():
        ledger = Released.of(model).ledger
        if ledger is not None:
            ledger.use(test.X, test.persons)  # what a model is chosen by cannot certify it
    table = pd.DataFrame.from_dict(lines, orient="index").rename_axis("model")
    return table.astype(dict.fromkeys(("delta", "model_upper", "cell_upper"), np.float64))


def _certificate(model: Model, test: Table, found: Audit, n_draws: int | None, seed: int) -> Certificate | None:
    """A certificate that nobody is given, whose look at the persons counts; None where nothing can be certified."""
    released = Released.of(model)
    if gives_each_row_another_value(released, test):
        return None
    settings = Settings.of(
        released,
        released.groups(test),
        delta=found.delta,
        n_draws=n_draws,
        monte_carlo_delta=found.delta,
        seed=seed,
        most_rows=released.most_rows(test),
    )
    name = model_hash(model, released.secret)
    if not settings.certifies_cells:
        return make_certificate(released, test, settings, name=name, look=1, attack=found)
    with open_book() as book:
        look = book.reserve(book.rows(test.X, test.identifier), name)
    certificate = make_certificate(released, test, settings, name=name, look=1, attack=found)
    look.complete(certificate.mark)
    return certificate


def _kept(released: Released, train: Table, test: Table, random_state: int) -> dict[str, float]:
    """How well the label is learnt from released rows, and how differently it is then predicted for the groups."""
    if train.y is None or test.y is None:
        return {}
    rows = [released.encode_again(table, part) for part, table in (("train", train), ("test", test))]
    label, (fit, judged) = released.label_to_learn(train.y, rows)
    with one_thread():
        truth, predicted = predicted_labels(fit, judged, label, test.y, random_state)
    groups = released.groups(test)
    n_classes = int(max(truth.max(), predicted.max())) + 1
    counts = count_predictions(truth, predicted, test.group_numbers(groups), n_classes, len(groups))
    metrics = group_metrics(counts)
    return {name: float(metrics[name]) for name in ("accuracy", "balanced_accuracy", "parity")}
