"""AttackedRelease: the rows that are attacked, in parts of the persons, and the adversaries that apply to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from fairflows.attack.adversaries import (
    DENSITY_LEARNERS,
    LEARNERS,
    QUICK_LEARNERS,
    QUICK_WHITE_BOX_LEARNERS,
    WHITE_BOX_LEARNERS,
    Attack,
    Constraint,
    FloatArray,
    IntArray,
    Learner,
    Reference,
    frequency_scores,
    judge,
    stratified_sample,
    white_box,
)
from fairflows.attack.deconvolution import deconvolve, noisy_rows_of
from fairflows.attack.views import View
from fairflows.certificate.released import most_rows_of, released_by, released_labels
from fairflows.density.noisy_rows import NoisyRows
from fairflows.encoder.base import Encoder, LatentLaw, Model, encode_again, fitted_model
from fairflows.encoder.fair_matching import ExactLaw
from fairflows.encoder.fitted_flow import FlowLaw
from fairflows.exceptions import DataError
from fairflows.table.columns import has_order
from fairflows.table.frames import TableLike, to_pandas
from fairflows.table.keys import content_hashes
from fairflows.table.ledger import RowsSeen
from fairflows.table.persons import Persons
from fairflows.table.table import Table

Representation: TypeAlias = Sequence[TableLike]
"""The released rows of train and of test, as a pair of frames or arrays, whatever model made them."""

_SHARES = (0.4, 0.35, 0.25)  # of the training persons: reference rows, rows to learn from, validation
_SMALL = 50  # persons; a larger group has some in every random part
_PRIOR_ROWS = 10.0  # at the average rates that those of a level are mixed with
_MOST_LEVELS = 64  # a column of more levels is described by each level's group rates
_MOST_ROWS, _QUICK_ROWS = 250_000, 10_000  # training rows that adversaries learn from and are tuned on, about
_MOST_TESTED = 100_000  # rows that they are judged on
_JUDGED = ("fit", "validation", "test")  # parts that adversaries who know the encoders look at
_LABEL = "released label {}"


@dataclass(frozen=True)
class Trial:
    """One adversary: rows to learn from, if it learns, and rows to be judged on."""

    name: str
    box: str  # "closed" or "open"
    learner: Learner | None  # None where the judged rows are scores already
    # Rows to learn from, and their groups.
    fit: FloatArray
    fit_group: IntArray
    judged: tuple[FloatArray, FloatArray]  # those of validation and test rows; scores, where nothing is learnt
    groups: tuple[IntArray, IntArray]  # their groups
    # For the check of a density: the group; the groups of the rows are then "real" and "drawn".
    density_of: int | None = None

    def run(self, delta: float, seed: int) -> Attack:
        """Learn, tune on validation rows, and bound Δ from below on test rows."""
        groups, scores = self.groups, self.judged
        if self.learner is not None:
            most = self.learner.most_judged
            first, second = (np.sort(stratified_sample(group, most, seed)) for group in groups)
            groups = groups[0][first], groups[1][second]
            judged = self.judged[0][first], self.judged[1][second]
            validation, test = self.learner.scores(self.fit, self.fit_group, judged, seed)
            scores = validation, test
        return judge(self.name, self.box, scores, groups, delta)


@dataclass(frozen=True)
class AttackedRelease:
    """The attacked release, in parts of the persons.

    The parts are "reference" rows, which open-box adversaries compare with, "fit" rows to learn from, "validation" and
    "test"; the first three are of the training persons.
    """

    model: Model | None  # None for a representation that was given as such
    groups: list[Hashable]  # the values of the sensitive attribute
    Z: dict[str, pd.DataFrame]  # the released rows
    group: dict[str, IntArray]  # each row's group
    X: dict[str, pd.DataFrame]  # the rows themselves
    latent: dict[str, pd.DataFrame]  # the encoder's own output, where it is released
    released: str
    labels: tuple[str, ...]  # that are released beside it
    rows: str  # keyed hash of the test rows that are attacked, at most one of each person

    @classmethod
    def of(
        cls,
        model: Model | Representation,
        train: Table,
        test: Table,
        encoded: Representation | None = None,
        with_labels: bool = False,
        most_rows: int | None = None,
        seed: int = 0,
        quick: bool = False,
    ) -> AttackedRelease:
        """Split the persons, and encode their rows unless the released rows are given."""
        encoder = None if isinstance(model, tuple | list) else fitted_model(model)
        train, test = (part if encoder is None else encoder.units(part) for part in (train, test))
        shown = model if isinstance(model, tuple | list) else encoded
        given = None if shown is None else _representation(shown, train, test)
        _refuse_shared_persons(train, test)
        if encoder is None:
            groups, most = train.groups, most_rows or int(train.persons.rows_each().max())
        else:
            groups, most = list(encoder.groups_) or train.groups, most_rows_of(encoder, test, most_rows)
        places = _parts(train, groups, seed, quick)
        tested = test.persons.random_rows(test.contents(), seed, most)
        some = stratified_sample(test.take(tested).group_numbers(groups), _MOST_TESTED, seed)
        places["test"] = tested[np.sort(some)]
        tables = {part: (test if part == "test" else train).take(rows) for part, rows in places.items()}
        group = {part: table.group_numbers(groups) for part, table in tables.items()}
        if train.grouping.is_uncut:  # adversaries tell the halves apart
            names = np.array(groups)
            group = {part: train.grouping.half_of(names[number]).astype(np.int64) for part, number in group.items()}
            groups = list(train.grouping.halves)
        for part, number in group.items():
            sizes = np.bincount(number, minlength=len(groups))
            if sizes.min() == 0:
                raise DataError(
                    f"An audit needs rows of every group; the {part} part, {len(number):,} rows of {len(groups)} "
                    f"groups, has none of {groups[int(sizes.argmin())]!r}. Merge small groups (merge_small=...)."
                )
        released = "representation" if encoder is None else released_by(encoder.traits)
        labels = released_labels(train) if with_labels else ()
        if encoded is not None and released == "latent":
            raise DataError("encoded must hold cells, or rows made from cells; a latent is attacked through its model.")
        if given is not None:
            Z = {part: given[part == "test"].iloc[rows] for part, rows in places.items()}
        elif encoder is not None:
            Z = {part: encode_again(encoder, table, part) for part, table in tables.items()}
        latent = Z if released == "latent" else {}
        if released == "cell":
            Z = {part: cells.astype(str) for part, cells in Z.items()}  # cells have numbers, but no order or distance
        if labels:
            Z = {part: z.assign(**_texts_of_labels(tables[part])) for part, z in Z.items()}
        X = {part: table.X for part, table in tables.items()}
        attacked = "" if encoder is None else tables["test"].fingerprint(encoder.key_)
        return cls(encoder, groups, Z, group, X, latent, released, labels, attacked)

    @property
    def innermost(self) -> Encoder | None:
        """The encoder that turns features into z, inside any release."""
        return None if self.model is None else self.model.inner_encoder

    def trials(self, constraints: Sequence[Constraint], quick: bool) -> Iterator[Trial]:
        """Yield all adversaries that apply to this release."""
        learnt = pd.concat([self.Z["reference"], self.Z["fit"]])
        learnt_group = np.concatenate([self.group["reference"], self.group["fit"]])
        judged_groups = self.group["validation"], self.group["test"]
        parts = [learnt, self.Z["validation"], self.Z["test"]]
        exact = [content_hashes(z, b"exact values") for z in parts]
        if len(np.unique(exact[0])) < len(learnt):  # where no value comes twice, frequencies say nothing
            validation, test = frequency_scores(exact[0], learnt_group, exact[1:])
            yield _scored("frequencies of values", "closed", (validation, test), judged_groups)
        view = _view(learnt, learnt_group)
        fit, validation, test = (view.numbers(z) for z in parts)
        for name, learner in (QUICK_LEARNERS if quick else LEARNERS).items():
            yield Trial(name, "closed", learner, fit, learnt_group, (validation, test), judged_groups)
        if self.latent:
            yield from self._white_box_trials(constraints, quick)

    def _white_box_trials(self, constraints: Sequence[Constraint], quick: bool) -> Iterator[Trial]:
        """Yield adversaries that run every group's inverse; a released cell has none."""
        encoder = self.innermost
        if encoder is None:
            return
        reference = Reference(self.X["reference"], constraints)
        told = {part: white_box(encoder, self.latent[part], reference) for part in _JUDGED}
        fit, validation, test = told["fit"], told["validation"], told["test"]
        if fit is None or validation is None or test is None:
            return
        judged_groups = self.group["validation"], self.group["test"]
        for name, scores in validation.scores.items():
            yield _scored(name, "open", (scores, test.scores[name]), judged_groups)
        features = [fit.features, validation.features, test.features]
        if self.labels:
            names = [_LABEL.format(name) for name in self.labels]
            labels = [self.Z[part][names] for part in _JUDGED]
            view = _view(labels[0], self.group["fit"])
            features = [np.concatenate([f, view.numbers(y)], axis=1) for f, y in zip(features, labels, strict=True)]
        judged = features[1], features[2]
        for name, learner in (QUICK_WHITE_BOX_LEARNERS if quick else WHITE_BOX_LEARNERS).items():
            named = f"{name} on inversions"
            yield Trial(named, "open", learner, features[0], self.group["fit"], judged, judged_groups)
        law = encoder.latent_law()
        if isinstance(law, FlowLaw):
            yield from self._deconvolving_trials(law, judged_groups, quick)

    @cached_property
    def _noisy_rows(self) -> list[NoisyRows]:
        """The law of each group's noisy rows, for an encoder whose densities are those of a flow."""
        law = None if self.innermost is None else self.innermost.latent_law()
        if not isinstance(law, FlowLaw):
            return []
        rows, group = self.X["reference"], self.group["reference"]
        return [noisy_rows_of(law, a, rows[group == a]) for a in range(len(self.groups))]

    def _deconvolving_trials(
        self, law: FlowLaw, judged_groups: tuple[IntArray, IntArray], quick: bool
    ) -> Iterator[Trial]:
        """Yield adversaries that take the noise off, by its law and the reference rows of every group."""
        fit, validation, test = (
            deconvolve(
                self._noisy_rows, law.inversions(self.latent[part]), self.latent[part].to_numpy(dtype=np.float64)
            )
            for part in _JUDGED
        )
        for name, scores in validation.scores.items():
            yield _scored(name, "open", (scores, test.scores[name]), judged_groups)
        judged = validation.features, test.features
        trees = (QUICK_WHITE_BOX_LEARNERS if quick else WHITE_BOX_LEARNERS)["boosted trees"]
        yield Trial("boosted trees, deconvolved", "open", trees, fit.features, self.group["fit"], judged, judged_groups)

    def density_trials(self, quick: bool) -> Iterator[Trial]:
        """Yield, for each group, adversaries between its real rows and draws from its density."""
        encoder = self.innermost
        law = None if encoder is None else encoder.latent_law()
        if law is None:
            return
        for a, value in enumerate(self.groups):
            real = {part: self.X[part][self.group[part] == a] for part in self.X}
            told = (
                _told_of_flow(law, a, self._noisy_rows[a], real)
                if isinstance(law, FlowLaw)
                else _told_of_rows(law, a, real)
            )
            if told is None:
                return
            is_drawn = {part: np.repeat([0, 1], len(rows) // 2) for part, rows in told.items()}
            for name, learner in (QUICK_WHITE_BOX_LEARNERS if quick else DENSITY_LEARNERS).items():
                yield Trial(
                    f"{name}, density of {value}", "open", learner, told["fit"], is_drawn["fit"],
                    (told["validation"], told["test"]), (is_drawn["validation"], is_drawn["test"]), density_of=a,
                )  # fmt: skip


def _told_of_flow(law: FlowLaw, a: int, noisy: NoisyRows, real: Mapping[str, pd.DataFrame]) -> dict[str, FloatArray]:
    """Return real rows of a group and as many draws from its density, in model space, with all that tells them apart.

    Real rows get new noise, since the densities are of noisy rows.
    """
    told = {}
    for seed, part in enumerate(_JUDGED, start=1):
        rows = real[part]
        x, _ = law.codec.encode(rows, Persons.unnamed(len(rows)))
        both = np.concatenate([x, law.draw(a, len(rows), seed)])
        ratios = noisy.column_ratios(both)
        told[part] = np.column_stack([both, ratios, ratios.sum(axis=1), law.log_prob(a, both)])
    return told


def _told_of_rows(law: LatentLaw, a: int, real: Mapping[str, pd.DataFrame]) -> dict[str, FloatArray] | None:
    """Return real rows of a group and as many draws from its density, as numbers; None for a law without rows."""
    both = {}
    for seed, part in enumerate(_JUDGED, start=1):
        drawn = law.sample_rows(len(real[part]), seed)
        if drawn is None:
            return None
        rows = _as_modelled(law, real[part])
        both[part] = pd.concat([rows, drawn[a][list(rows)]], ignore_index=True)
    view = _view(both["fit"], np.repeat([0, 1], len(both["fit"]) // 2))
    return {part: view.numbers(rows) for part, rows in both.items()}


def _scored(name: str, box: str, judged: tuple[FloatArray, FloatArray], groups: tuple[IntArray, IntArray]) -> Trial:
    """Return an adversary that learns nothing, with its scores of validation and test rows."""
    return Trial(name, box, None, np.empty((0, 0)), groups[0][:0], judged, groups)


def _representation(given: Representation, train: Table, test: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the released rows of train and of test as frames."""
    if len(given) != 2:
        raise DataError(f"A representation is a pair (Z_train, Z_test); got {len(given)} of them.")
    first, second = (to_pandas(part) for part in given)
    if (len(first), len(second)) != (len(train), len(test)):
        raise DataError(
            f"A pair of representations must have as many rows as train ({len(train):,}) and as test ({len(test):,})."
        )
    return first, second


def _refuse_shared_persons(train: Table, test: Table) -> None:
    seen, tested = (RowsSeen.of(t.X, t.persons, b"") for t in (train, test))
    shared = seen.shared(tested)
    if shared:
        raise DataError(
            f"{shared:,} test {'persons' if seen.named else 'rows'} are among the training rows: an adversary proves "
            "something only on persons that it has not learnt from."
        )


def _parts(train: Table, groups: list[Hashable], seed: int, quick: bool) -> dict[str, IntArray]:
    """Split the training persons at random into three parts; of very many, fewer persons of large groups are kept.

    Small groups are divided by ranks, so that every part has one of three persons. Adversaries are tuned on all rows of
    the validation persons, which follow the law of the judged rows; only the bound itself takes independent ones.
    """
    persons, group = train.persons, train.group_numbers(groups)
    rng = np.random.default_rng(seed)
    own = group[np.unique(persons.codes, return_index=True)[1]]
    size = np.bincount(own, minlength=len(groups))[own]
    share = (_QUICK_ROWS if quick else _MOST_ROWS) / len(groups) / np.bincount(group, minlength=len(groups))[own]
    kept, place = rng.random(persons.n) < share, pd.Series(rng.random(persons.n))
    place = place.where(size >= _SMALL, (place.groupby(own).rank() - 0.5) / size)
    part = np.where(kept, np.searchsorted(np.cumsum(_SHARES)[:2], place), -1)[persons.codes]
    return {name: np.flatnonzero(part == number) for number, name in enumerate(("reference", "fit", "validation"))}


def _view(frame: pd.DataFrame, group: IntArray) -> View:
    """Fit a view of columns as numbers: as they are, one-hot, or for very many levels by each level's group rates."""
    many = frozenset(
        n for n, column in frame.items() if not has_order(column.dtype) and column.nunique() > _MOST_LEVELS
    )
    numbers = SimpleImputer(add_indicator=True, keep_empty_features=True)
    rates = TargetEncoder(smooth=_PRIOR_ROWS, target_type="multiclass" if group.max() > 1 else "binary")
    return View(numbers, OneHotEncoder(handle_unknown="ignore"), many, rates).fit(frame, group)


def _as_modelled(law: LatentLaw, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows as an encoder's density sees them, in which numbers may be bins."""
    model = law.model if isinstance(law, ExactLaw) else None
    return rows if model is None else model.codec.decode(model.codec.encode(rows))


def _texts_of_labels(table: Table) -> dict[str, npt.NDArray[np.object_]]:
    columns = table.label_columns().items()
    return {_LABEL.format(name): column.astype(str).to_numpy(dtype=object) for name, column in columns}
