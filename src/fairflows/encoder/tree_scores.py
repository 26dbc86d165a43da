"""The scores that a matched tree may split: those of the labels, then principal components of the columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from fairflows.encoder.base import FloatArray
from fairflows.encoder.label import Label
from fairflows.encoder.ranked_columns import PrincipalComponents
from fairflows.encoder.rows import TrainingRows
from fairflows.encoder.scores import Score, fit_score
from fairflows.table.domain import Codes, Seen, take
from fairflows.table.persons import Places
from fairflows.threads import one_thread

_BOOSTING = {"max_iter": 40, "learning_rate": 0.2}  # as good as twice as many trees, which take twice as long to encode
# A round grows a tree for each of more than two classes: more classes have fewer rounds, which tell as much.
_MOST_TREES, _FEWEST_ROUNDS = 160, 10
# Rows that the label's score is learnt from, and those behind the scores that nodes are chosen by.
_MOST_SCORED, _MOST_CHOOSING = 100_000, 25_000
_MOST_COMPONENTS = 16


@dataclass(frozen=True)
class TreeScores:
    """The scores of a tree, fitted to some persons."""

    seen: Seen  # the values that these persons have
    of_labels: list[Score | None]  # None where a label does not vary
    components: PrincipalComponents  # of the columns

    @classmethod
    def fit(
        cls, rows: TrainingRows, places: Int[Places, " n"], random_state: int
    ) -> tuple[TreeScores, Float[FloatArray, "n n_scores"]]:
        """Fit the scores to some rows; return them, and the scores of these rows.

        The law of a label's score among the persons that it was fitted to is not its law among others: by it the nodes
        would prefer the label. So each person's is by a model that was fitted to half of the others, unless these lack
        a class of the label.
        """
        codes = take(rows.codes, places)
        seen = Seen.of(rows.domain, codes)
        labels = [label.take(places) for label in rows.labels]
        halves = rows.persons.take(places).split(0.5, random_state=random_state)
        everybody = np.arange(len(places))
        fits = []
        for label in labels:
            classes = np.unique(label.values)
            if len(classes) < 2:
                continue
            fits.append(delayed(_fitted)(codes, label, everybody, seen, _MOST_SCORED, random_state))
            for half in halves:
                lacks = label.classes is not None and not np.array_equal(np.unique(label.values[half]), classes)
                fits.append(delayed(_fitted)(codes, label, half, seen, 0 if lacks else _MOST_CHOOSING, random_state))
        components = PrincipalComponents.fit(codes, seen, _MOST_COMPONENTS, random_state)
        with one_thread():  # a model of few rows is fitted no faster by several
            found = Parallel(n_jobs=-1, prefer="threads")(fits)
        honest = [components.scores(codes)]
        for own, *of_halves in (found[place : place + 3] for place in range(0, len(found), 3)):
            values = np.empty((len(places), len(own.baseline)))
            for model, judged in zip(of_halves, halves[::-1], strict=True):
                values[judged] = (model or own).values(take(codes, judged))
            honest.insert(-1, values)
        own_scores = iter(found[::3])
        of_labels = [next(own_scores) if len(np.unique(label.values)) > 1 else None for label in labels]
        return cls(seen, of_labels, components), np.concatenate(honest, axis=1)

    @property
    def n_of_label(self) -> int:
        """The number of scores of labels: one for each of more than two classes."""
        return sum(len(score.baseline) for score in self.of_labels if score is not None)

    @property
    def n(self) -> int:
        """The number of scores."""
        return self.n_of_label + self.components.loadings.shape[1]

    def values(self, codes: Codes) -> Float[FloatArray, "n n_scores"]:
        """Return the scores of rows; −∞ for a row with a value that was not seen."""
        parts = [score.values(codes) for score in self.of_labels if score is not None]
        found = np.concatenate([*parts, self.components.scores(codes)], axis=1)
        return np.where(self.seen.unknown(codes)[:, None], -np.inf, found)


@dataclass(frozen=True)
class MoreScores:
    """The scores of a tree that was cut further by other columns: those of the tree, then those of these columns."""

    first: TreeScores | MoreScores
    more: TreeScores

    @property
    def n(self) -> int:
        """The number of scores."""
        return self.first.n + self.more.n

    def values(self, codes: Codes) -> Float[FloatArray, "n n_scores"]:
        """Return the scores of rows; −∞ where a value was not seen by the scores of its column."""
        return np.concatenate([self.first.values(codes), self.more.values(codes)], axis=1)


def _fitted(codes: Codes, label: Label, places: Places, seen: Seen, most: int, random_state: int) -> Score | None:
    """Fit the score of a label on rows at some places, or on a sample of them that has the same classes.

    With `most` 0 nothing is fitted.
    """
    if not most:
        return None
    if len(places) > most:
        some = places[np.random.default_rng(random_state).choice(len(places), most, replace=False)]
        if label.classes is None or len(np.unique(label.values[some])) == len(np.unique(label.values[places])):
            places = some
    values: npt.NDArray = label.values[places]
    boosting, settings = HistGradientBoostingRegressor, dict(_BOOSTING)
    if label.classes is not None:
        values, boosting = np.unique(values, return_inverse=True)[1], HistGradientBoostingClassifier
        rounds = max(_MOST_TREES // len(label.classes), _FEWEST_ROUNDS)
        settings["max_iter"] = min(settings["max_iter"], rounds)
    with one_thread():
        return fit_score(boosting(**settings, random_state=random_state), take(codes, places), values, seen)
