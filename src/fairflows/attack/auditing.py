"""audit: attack a release with many adversaries, and report what the best of them proves."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

from fairflows.attack.adversaries import Attack
from fairflows.attack.target import Representation, Target
from fairflows.attack.white_box import Constraint
from fairflows.bounds.arguments import checked_delta
from fairflows.bounds.derived import rounded_down
from fairflows.certificate.certificate import Plain
from fairflows.certificate.statement import AttackResult
from fairflows.release.released import Model
from fairflows.storage import model_hash
from fairflows.table.table import Table
from fairflows.threads import one_thread


@dataclass(frozen=True, kw_only=True)
class Audit(AttackResult):
    """The result of a suite of adversaries: the part that a certificate states, and each adversary.

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
        For each group, a lower bound on the distance between its rows and its density.
    released : tuple of str
        The attacked parts of the release.
    model, rows : str
        Keyed hashes of the model and of the test rows.
    limits : tuple of str
        What adversaries could not try, in sentences.
    """

    attacks: tuple[Attack, ...]
    groups: tuple[Hashable, ...]
    n: tuple[int, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one line per adversary: its knowledge, its pair of groups, Δ on validation persons, the lower bound.

        ``persons`` are the test persons of the pair that the bound was computed from.
        """
        rows = [
            {
                "adversary": attack.name,
                "box": attack.box,
                "groups": " / ".join(str(self.groups[a]) for a in attack.groups),
                "validation": attack.validation,
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
            "released": list(self.released),
            "model": self.model,
            "rows": self.rows,
            "limits": list(self.limits),
            "attacks": lines,
        }

    def __repr__(self) -> str:
        width = max(len(attack.name) for attack in self.attacks)
        lines = [self._heading(), f"  test persons  {self._persons()}"]
        lines.append(f"  {'adversary':<{width}}  box    validation  Δ ≥")
        lines += [f"  {a.name:<{width}}  {a.box}  {a.validation:10.4f}  {rounded_down(a.lower)}" for a in self.attacks]
        return "\n".join([*lines, *(f"  {note}" for note in self._notes())])

    def _heading(self) -> str:
        given = {} if self.model else {"latent": "representation"}  # somebody's array
        what = " and ".join(given.get(part, part) for part in self.released)
        accuracy, confidence = rounded_down(50 * (1 + self.attack_lower), 1), 100 * (1 - self.delta)
        return (
            f"Audit of the {what}: Δ ≥ {rounded_down(self.attack_lower)} (balanced accuracy ≥ {accuracy} %) with "
            f"{confidence:g} % confidence, by {self.best}"
        )

    def _persons(self) -> str:
        return ", ".join(f"{group}: {count:,}" for group, count in zip(self.groups, self.n, strict=True))

    def _notes(self) -> list[str]:
        gaps = ", ".join(f"{group}: {rounded_down(gap)}" for group, gap in self.density_gap_lower.items())
        return [*([f"the densities are from the truth at least  {gaps}"] if gaps else []), *self.limits]


def audit(
    model: Model | Representation,
    train: Table,
    test: Table,
    *,
    encoded: Representation | None = None,
    released: Sequence[str] | None = None,
    constraints: Sequence[Constraint] = (),
    delta: float = 0.05,
    quick: bool = False,
    n_jobs: int | None = None,
    most_rows: int | None = None,
    random_state: int = 0,
) -> Audit:
    """Attack a release: many adversaries, the best chosen on validation persons, a rigorous bound on test persons.

    Black-box adversaries see what is released: boosted trees, a random forest, nearest neighbours, logistic
    regression, networks with and without standardising, a stack of three learners, and the frequencies of exact values.
    White-box ones also know the encoders: the model's likelihood ratio, the grid test, and trees and the stack on
    everything that every group's inverse tells (`fairflows.attack.white_box`). With more than two groups each adversary
    attacks the pair that it tells apart best.

    Of very many rows a random part will do: of `train` about 400,000, in equal shares for the groups that have so many;
    of test rows 100,000 for each adversary that learns, 60,000 for white-box ones, 50,000 for random forests and 20,000
    for nearest neighbours, the stack and white-box forests.

    Parameters
    ----------
    model : encoder, pipeline, or pair of frames or arrays
        What is attacked: an encoder's latent, a pipeline's cells, or any representation of the rows of `train` and of
        `test`.
    train : Table
        Rows for the adversaries to learn from; a part of the persons is kept aside for validation.
    test : Table
        Rows that the bound is computed from: independent draws from the law of a random row, at most one of each
        person, which are those that `certify` counts with the same seed.
    encoded : pair of frames, optional
        What was released for the rows of `train` and of `test`, where the model cannot encode them again: a `Release`
        whose persons have no identifier.
    released : sequence of str, optional
        Parts of the release that adversaries see: "cell" or "latent", and "label" for the true label beside it. By
        default the model's output.
    constraints : sequence of callable, default=()
        Rules of the table, as functions of a frame that are true of every real row: an inverse that breaks one is not
        the true group's.
    delta : float, default=0.05
        δ of the lower bounds.
    quick : bool, default=False
        Run few adversaries on few rows: seconds instead of a minute.
    n_jobs : int, optional
        Number of adversaries to run at once, as for joblib.
    most_rows : int, optional
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
    target = Target.of(model, train, test, encoded, released, most_rows, random_state, quick)
    against_release, against_densities = list(target.trials(constraints, quick)), list(target.density_trials(quick))
    runs = [delayed(trial.run)(delta, random_state) for trial in [*against_release, *against_densities]]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak adversary is no error
        found: list[Attack] = Parallel(n_jobs=n_jobs, prefer="threads")(runs)
    n_attacks = len(against_release)
    attacks = sorted(found[:n_attacks], key=_promise, reverse=True)
    gaps: dict[str, float] = {}
    for a, group in enumerate(target.groups):
        of_group = [f for f, t in zip(found[n_attacks:], against_densities, strict=True) if t.density_of == a]
        if of_group:
            gaps[str(group)] = max(of_group, key=_promise).lower
    n = np.bincount(target.group["test"], minlength=len(target.groups))
    return Audit(
        attacks=tuple(attacks),
        attack_lower=attacks[0].lower,
        best=attacks[0].name,
        delta=delta,
        density_gap_lower=gaps,
        groups=tuple(target.groups),
        n=tuple(n.tolist()),
        released=target.released,
        model="" if target.model is None else model_hash(target.model.model, target.model.secret),
        rows=target.rows,
        limits=target.limits,
    )


def _promise(attack: Attack) -> tuple[float, float]:
    """Return the values that adversaries are ranked by, which do not depend on the test persons."""
    return attack.expected, attack.validation
