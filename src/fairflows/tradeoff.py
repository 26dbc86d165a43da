"""The trade-off between accuracy and fairness: many models in one fit, and the one rule that picks by a target.

Users think in targets, not in γ: train all strengths and seeds at once, look at the curve, and take the model that
meets the target.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from fairflows.bounds import exact_statistical_distance, statistical_distance
from fairflows.bounds.arguments import CHOOSING, affordable_draws, delta_of_look
from fairflows.bounds.planning import check_reachable, most_useful_within
from fairflows.encoder.base import Encoder, FloatArray, LatentLaw, cells_of, is_fitted, read_repeatable
from fairflows.encoder.fair_matching import ExactLaw
from fairflows.exceptions import DataError, warn_user
from fairflows.release.released_table import count_cells
from fairflows.table.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURES = ("distance", "accuracy", "balanced_accuracy", "parity", "odds", "opportunity")
_N_DRAWS = 10_000  # from each group that Δ is estimated from, with a standard error below 0.005


@dataclass(frozen=True)
class Frontier:
    """Fitted models along the trade-off between accuracy and fairness.

    Attributes
    ----------
    encoders : list
        The encoders, one per row of `to_frame`; the encoder of a run that diverged is not fitted.
    measured : DataFrame
        Measures of each encoder.
    """

    encoders: list[Encoder]
    measured: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """Return one row per model: strength, seed, distance, and metrics on held-out rows.

        ``distance`` is Δ, the best adversary's advantage, estimated as if the densities were the truth; for an encoder
        of cells it is counted on the held-out rows. Only a certificate bounds it.
        """
        return self.measured.copy()

    def summary(self) -> pd.DataFrame:
        """Return the mean over seeds and half the width of its 95 % interval (Student's t), for each strength."""
        from scipy.stats import t

        by_strength = self.measured.groupby("strength")[list(self._measures())]
        n = by_strength.count()  # a model that diverged has no numbers
        quantile = t.ppf(0.975, np.maximum(n - 1, 1))
        mean, half_width = by_strength.mean(), by_strength.std() * quantile / np.sqrt(n)  # one seed has no interval
        joined = mean.join(half_width.add_suffix(" ±"))
        return joined[[column for measure in self._measures() for column in (measure, f"{measure} ±")]]

    def select(self, *, target: float) -> Encoder:
        """Return the most accurate fitted encoder whose Δ, by its own densities, is at most the target.

        Raises
        ------
        DataError
            No model meets the target; the message says how close one comes.
        """
        distance = self.measured["distance"]
        place = most_useful_within(distance, self.measured.get("accuracy", distance), target)
        if place is None:
            raise DataError(
                f"No model of the frontier has target = {target}; the closest has distance {distance.min():.3f}."
            )
        return self.encoders[place]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the models, Δ against accuracy, and the mean of each strength with its 95 % interval.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; a new figure when not given.
        """
        from fairflows.report.pictures import draw_frontier

        return draw_frontier(self, ax)

    def __repr__(self) -> str:
        diverged = int(self.measured["distance"].isna().sum())
        n_strengths, n_seeds = self.measured["strength"].nunique(), self.measured["seed"].nunique()
        seeds = f"{n_seeds} seed{'s' * (n_seeds != 1)} each" + (f"; {diverged} diverged" if diverged else "")
        heading = f"Frontier of {len(self.measured)} models: {n_strengths} strengths, {seeds}"
        return "\n".join([heading, self.summary().round(3).to_string(na_rep="–")])

    def _measures(self) -> list[str]:
        return [measure for measure in MEASURES if measure in self.measured]


def frontier(
    estimator: Encoder,
    table: Table,
    *,
    strengths: Sequence[float] = (0.0, 0.02, 0.1, 0.2, 0.9),
    seeds: int | Sequence[int] = 1,
    validation: Table | None = None,
) -> Frontier:
    """Train every strength with every seed in one run, and measure all of them.

    Parameters
    ----------
    estimator : encoder
        Encoder whose settings all models have, except the strength and ``random_state``.
    table : Table
        Rows to train on.
    strengths : sequence of float, default=(0.0, 0.02, 0.1, 0.2, 0.9)
        Values of the setting that trades accuracy for fairness: γ of `FairFlow` and `FairMatching`, the target of
        `FairCells`, the number of cells of `FairTree`.
    seeds : int or sequence of int, default=1
        Number of seeds, or the seeds themselves.
    validation : Table, default=None
        Rows to measure on; by default a fifth of the persons of `table`, who are kept out of training. They cannot
        certify a model, because a model may be chosen by them.

    Examples
    --------
    >>> from fairflows import FairMatching, load_adult
    >>> front = frontier(FairMatching(density="counts"), load_adult(), strengths=[0.0, 0.9])
    >>> frame = front.to_frame()
    >>> bool(frame["distance"].iloc[1] < frame["distance"].iloc[0])
    True
    >>> front.select(target=0.14).gamma
    0.9
    """
    strengths = list(strengths)
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not strengths or not seeds:
        raise DataError("strengths and seeds must each have at least one value.")
    if not isinstance(estimator, Encoder):
        raise DataError("A frontier is made of encoders: pass the encoder alone, and release the one that is chosen.")
    if validation is None:
        table, validation = table.split(validation=0)
    estimator = clone(estimator)
    settings = estimator.get_params(deep=False)
    if settings.get("kinds", table.kinds) is None:
        estimator.set_params(kinds=table.kinds)
    if estimator.identifier is None and table.identifier is not None and "identifier" in settings:
        estimator.set_params(identifier=str(table.identifier.name))
    encoders = estimator.fit_path(table, strengths=strengths, seeds=seeds)
    rows = [
        {"strength": strength, "seed": seed, **_measure(encoder, validation)}
        for (strength, seed), encoder in zip(product(strengths, seeds), encoders, strict=True)
    ]
    for ledger in {id(encoder.ledger_): encoder.ledger_ for encoder in encoders if is_fitted(encoder)}.values():
        ledger.use(validation.X, validation.persons)  # what a model is chosen by cannot certify it
    return Frontier(encoders, pd.DataFrame(rows))


def _measure(encoder: Encoder, rows: Table) -> dict[str, float]:
    if not is_fitted(encoder):  # it diverged: the others of the run are kept, and this one says so
        return {"distance": np.nan}
    law = encoder.latent_law()
    if law is None and encoder.traits.n_cells:
        law = ExactLaw(counted_laws(encoder, rows, encoder.groups_))
    measured = {"distance": _model_distance(law, len(encoder.groups_))}
    if encoder.classes_ is not None and rows.y is not None:
        predicted, groups = encoder.predict_rows(read_repeatable(encoder, rows)), rows.group_numbers(encoder.groups_)
        counts = count_labels(encoder.classes_, np.asarray(rows.y), predicted, groups, len(encoder.groups_))
        measured |= group_metrics(counts)
    return measured


def count_labels(
    classes: Sequence[Hashable] | np.ndarray,
    y_true: npt.ArrayLike,
    y_pred: npt.ArrayLike,
    groups: npt.ArrayLike,
    n_groups: int,
) -> FloatArray:
    """Count n(a, y, ŷ), shape (K, C, C), of labels and predictions, the C classes in their order; groups are numbers.

    Labels that are none of the classes, since no training row has them, are further classes, which are never predicted.
    They are the first ones, so that the last one stays the positive class.
    """
    truth, predicted = np.asarray(y_true, dtype=object), np.asarray(y_pred, dtype=object)
    known = pd.Index(list(classes), dtype=object)
    unseen = pd.unique(truth[known.get_indexer(truth) < 0])
    numbered = pd.Index([*unseen, *known], dtype=object)
    counts = np.zeros((n_groups, len(numbered), len(numbered)))
    np.add.at(counts, (np.asarray(groups), numbered.get_indexer(truth), numbered.get_indexer(predicted)), 1)
    return counts


def group_metrics(counts: FloatArray) -> dict[str, float]:
    """Return accuracy and fairness of predictions from their counts n(a, y, ŷ), shape (K, C, C).

    The values agree with `fairlearn.metrics`, which reports per group what is summarised here.

    Returns
    -------
    dict of float
        ``accuracy``; ``balanced_accuracy``, the mean over groups; ``parity``, the largest difference between groups
        in how often a class is predicted; ``odds``, the same among rows of one true class, largest over classes;
        ``opportunity``, the same among rows of the last true class (the positive one) for predicting it. A difference
        that needs a group without such rows is NaN.
    """
    n = counts.sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        right = np.trace(counts, axis1=1, axis2=2)
        rates = counts.sum(axis=1) / n[:, None]  # P(ŷ | a)
        gap = np.ptp(counts / counts.sum(axis=2, keepdims=True), axis=0)  # of P(ŷ | a, y)
        found = {
            "accuracy": right.sum() / n.sum(),
            "balanced_accuracy": (right / n).mean(),
            "parity": np.ptp(rates, axis=0).max(),
            "odds": gap.max(),
            "opportunity": gap[-1, -1],
        }
    return {name: float(value) for name, value in found.items()}


def counted_laws(encoder: Encoder, rows: Table, groups: list[Hashable]) -> FloatArray:
    """Return each group's law of cells among these rows, shape (K, k)."""
    shape = len(groups), int(encoder.n_cells_ or 0)
    counts = count_cells(rows, rows.group_numbers(groups), cells_of(encoder, rows), shape).sum(axis=0)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _model_distance(law: LatentLaw | None, n_groups: int) -> float:
    if law is None:
        return np.nan
    laws = law.exact()
    if laws is not None:
        return float(exact_statistical_distance(laws))
    return statistical_distance(law.log_density_table(affordable_draws(_N_DRAWS, n_groups), CHOOSING))


def check_target(target: float, certifying: Table, delta: float) -> None:
    """Raise if a target is not in (0, 1], or if it cannot be certified with so few persons."""
    if not 0 < target <= 1:
        raise DataError(f"target must be in (0, 1]; got {target!r}.")
    if target == 1:
        warn_user("Every release meets a distance of 1, also one that gives the group away: set a smaller target.")
    sizes = certifying.one_row_per_person(0).group_sizes(certifying.groups).tolist()
    n = dict(zip(map(str, certifying.groups), sizes, strict=True))
    check_reachable(n, delta_of_look(delta, 1), target=target)
