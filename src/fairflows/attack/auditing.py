"""audit: attack a release with many adversaries, and report the bound that the best one proves."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

from fairflows.attack.adversaries import (
    Attack,
    Constraint,
)
from fairflows.attack.attacked_release import AttackedRelease, Representation
from fairflows.attack.risks import Risk
from fairflows.bounds.arguments import checked_delta
from fairflows.bounds.derived import rounded_down
from fairflows.certificate.certificate import Plain
from fairflows.certificate.model_hash import model_hash
from fairflows.encoder.base import Model
from fairflows.table.table import Table
from fairflows.threads import one_thread


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
        lines += [f"  distance of the densities from the truth at least  {gaps}"] if gaps else []
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
