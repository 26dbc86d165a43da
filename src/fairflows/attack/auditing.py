"""audit: attack a release with many adversaries, and report the bound that the best one proves."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
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
from fairflows.attack.risks import Risk
from fairflows.attack.views import View
from fairflows.bounds.arguments import checked_delta
from fairflows.bounds.derived import rounded_down
from fairflows.certificate.certificate import Plain
from fairflows.certificate.certify import most_rows_of, released_by, released_labels
from fairflows.certificate.model_hash import model_hash
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
from fairflows.threads import one_thread

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


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of a suite of adversaries.

    Attributes
    ----------
    attacks : tuple of Attack
        One per adversary, the most promising on validation persons first.
    groups : tuple
        The groups.
    n : tuple of int
        Test persons of each.
    attack_lower : float
        Lower bound on Δ of the first adversary; holds with probability 1 − δ.
    best : str
        Name of the first adversary.
    delta : float
        δ of the lower bounds.
    density_gap_lower : dict of str to float
        For each group, a lower bound on the distance between its rows, with their noise, and its density.
    released : {"row", "cell", "latent", "panel"}, or "representation" for what no encoder made
        What was attacked. Of panels these are summaries of all rows of a person together (`fairflows.table.panels`).
    labels : tuple of str
        The labels that adversaries saw beside it.
    model, rows : str
        Keyed hashes of the model and of the test rows.
    risks : tuple of Risk
        Other risks of rows that are drawn, as `share` measures them: singling out, linkability, membership.
    """

    attacks: tuple[Attack, ...]
    groups: tuple[Hashable, ...]
    n: tuple[int, ...]
    attack_lower: float
    best: str
    delta: float
    density_gap_lower: dict[str, float]
    released: str
    model: str
    rows: str = ""
    risks: tuple[Risk, ...] = ()
    labels: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return one line per adversary: its knowledge, its pair of groups, Δ on validation persons, the lower bound.

        ``observed`` is Δ as it was seen on the test persons of the pair, and ``persons`` is the number of them: both
        are what the bound was computed from.
        """
        rows = [
            {
                "adversary": attack.name,
                "box": attack.box,
                "groups": " / ".join(str(self.groups[a]) for a in attack.groups),
                "validation": attack.validation,
                "observed": attack.observed,
                "lower": attack.lower,
                "balanced accuracy": (1 + attack.lower) / 2,
                "persons": sum(attack.n),
            }
            for attack in self.attacks
        ]
        return pd.DataFrame(rows).set_index("adversary")

    def to_dict(self) -> dict[str, Plain]:
        """Return plain values, as JSON holds them."""
        lines = self.to_frame().reset_index().to_dict("records")
        return {
            "attack_lower": self.attack_lower,
            "best": self.best,
            "delta": self.delta,
            "density_gap_lower": self.density_gap_lower,
            "n": {str(group): count for group, count in zip(self.groups, self.n, strict=True)},
            "released": self.released,
            "labels": list(self.labels),
            "model": self.model,
            "rows": self.rows,
            "attacks": lines,
            "risks": [risk.to_dict() for risk in self.risks],
        }

    def __repr__(self) -> str:
        what = " and ".join([self.released, *self.labels])
        accuracy, confidence = rounded_down(50 * (1 + self.attack_lower), 1), 100 * (1 - self.delta)
        persons = ", ".join(f"{group}: {count:,}" for group, count in zip(self.groups, self.n, strict=True))
        gaps = ", ".join(f"{group}: {rounded_down(gap)}" for group, gap in self.density_gap_lower.items())
        width = max(len(attack.name) for attack in self.attacks)
        lines = [
            f"Audit of the {what}: Δ ≥ {rounded_down(self.attack_lower)} (balanced accuracy ≥ {accuracy} %) with "
            f"{confidence:g} % confidence, by {self.best}",
            f"  test persons  {persons}",
            f"  {'adversary':<{width}}  box     validation  Δ ≥",
        ]
        lines += [
            f"  {a.name:<{width}}  {a.box:<6}  {a.validation:10.4f}  {rounded_down(a.lower)}" for a in self.attacks
        ]
        lines += [f"  the densities are from the truth at least  {gaps}"] if gaps else []
        return "\n".join(lines)


def audit(
    model: Model | Representation,
    train: Table,
    test: Table,
    *,
    encoded: Representation | None = None,
    with_labels: bool = False,
    constraints: Sequence[Constraint] = (),
    delta: float = 0.01,
    quick: bool = False,
    n_jobs: int | None = None,
    most_rows: int | None = None,
    random_state: int = 0,
) -> Audit:
    """Attack a release with many adversaries; prove a lower bound on Δ for the best one, on test persons.

    Closed-box adversaries see what is released: boosted trees, a random forest, nearest neighbours, logistic
    regression, networks with and without standardising, a stack of three learners, and the frequencies of exact values.
    Open-box ones also know the encoders: the model's likelihood ratio, the grid test, and trees and the stack on
    everything that every group's inverse tells. With more than two groups each adversary attacks the pair that it tells
    apart best.

    Of very many rows a random part is used, in equal shares for the groups: about 250,000 of `train`, and 100,000 of
    `test` (50,000 for random forests; 20,000 for nearest neighbours, the stack and open-box forests).

    Parameters
    ----------
    model : encoder, or pair of frames or arrays
        What is attacked: the output of an encoder, such as a `Release`; or the rows of `train` and of `test` as
        anything else represents them.
    train : Table
        Rows that the adversaries learn from; a part of the persons is used for validation.
    test : Table
        Rows that the bound is computed from: independent draws from the law of a random row, at most one of each
        person, which are those that `certify` counts with the same seed.
    encoded : pair of frames, default=None
        What was released for the rows of `train` and of `test`, where the model cannot encode them again: a `Release`
        whose persons have no identifier.
    with_labels : bool, default=False
        Whether adversaries see the true labels beside the output of the model.
    constraints : sequence of callable, default=()
        Rules of the table, as functions of a frame that are true of every real row. An inverse that breaks one belongs
        to another group.
    delta : float, default=0.01
        δ of the lower bounds.
    quick : bool, default=False
        Run few adversaries on few rows: seconds instead of a minute.
    n_jobs : int, default=None
        Number of adversaries to run at once, as for joblib.
    most_rows : int, default=None
        Most rows that a person may have; by default the most of the persons that the model was fitted to.
    random_state : int, default=0
        Seed of the split and of the adversaries.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from fairflows import load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> found = audit((train.X, test.X), train, test, quick=True)  # the rows themselves, not encoded
    >>> found.attack_lower > 0.5
    True
    """
    checked_delta(delta)
    attacked = AttackedRelease.of(model, train, test, encoded, with_labels, most_rows, random_state, quick)
    against_release, against_densities = list(attacked.trials(constraints, quick)), list(attacked.density_trials(quick))
    runs = [delayed(trial.run)(delta, random_state) for trial in [*against_release, *against_densities]]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak adversary is not an error
        found: list[Attack] = Parallel(n_jobs=n_jobs, prefer="threads")(runs)
    n_attacks = len(against_release)
    attacks = sorted(found[:n_attacks], key=_promise, reverse=True)
    gaps: dict[str, float] = {}
    for a, group in enumerate(attacked.groups):
        of_group = [f for f, t in zip(found[n_attacks:], against_densities, strict=True) if t.density_of == a]
        if of_group:
            gaps[str(group)] = max(of_group, key=_promise).lower
    n = np.bincount(attacked.group["test"], minlength=len(attacked.groups))
    return Audit(
        attacks=tuple(attacks),
        attack_lower=attacks[0].lower,
        best=attacks[0].name,
        delta=delta,
        density_gap_lower=gaps,
        groups=tuple(attacked.groups),
        n=tuple(n.tolist()),
        released=attacked.released,
        labels=attacked.labels,
        model="" if attacked.model is None else model_hash(attacked.model, attacked.model.key_),
        rows=attacked.rows,
    )


def _promise(attack: Attack) -> tuple[float, float]:
    """Return the values that adversaries are ranked by, which do not depend on the test persons."""
    return attack.expected, attack.validation


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
