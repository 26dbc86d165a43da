"""The certificate in plain words, for a reader who knows no statistics: what it says, how to check it, what helps."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairflows.bounds.arguments import FloatArray
from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.bounds.planning import planned_cell_bound, rows_needed
from fairflows.certificate.counted import FoldCounts
from fairflows.certificate.document import Certificate

MODEL = "Model"
"""The name of the statement that holds only if the estimated densities are the truth."""

_TITLES = {
    "CERTIFIED": "Certified",
    "MODEL_ONLY": "Holds for the model only",
    "REFUTED": "Refuted",
    "NOT_MET": "Target not met",
}


_LIGHTS = {"green": "Green", "amber": "Amber", "red": "Red"}
_MOST_GROUPS, _MOST_CELLS = 8, 300  # a larger table is for machines: certificate.json has it
_FEWER = (32, 16, 8, 4, 2)


def light(c: Certificate) -> dict[str, str]:
    """A light for the reader in a hurry: its colour, and in words what it stands for.

    Green: a target was set, and is certified. Red: it is missed, or nothing is bounded, or an attack refuted the model.
    Amber: all between.
    """
    if c.status == "CERTIFIED":
        colour, says = (
            ("green", "certified within the target") if _target(c) else ("amber", "certified; no target was set")
        )
    elif c.status == "MODEL_ONLY":
        colour, says = "amber", "nothing is certified; a model alone vouches for it"
    else:
        refuted = "an attack succeeded that should have been impossible"
        missed = "the target is not met" if _target(c) else "nothing is promised"
        colour, says = "red", refuted if c.status == "REFUTED" else missed
    return {"colour": colour, "text": f"{_LIGHTS[colour]}: {says}"}


def title(c: Certificate) -> str:
    """The status as a short title."""
    if c.status == "NOT_MET" and not _target(c):
        return "Nothing is promised"
    return _TITLES[c.status]


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * share:.{digits}f} %"


def percent_at_most(share: float | None, digits: int = 1) -> str:
    """An upper bound, or a probability of error, as a percentage, rounded up."""
    return "–" if share is None else f"{rounded_up(100 * share, digits)} %"


def percent_at_least(share: float) -> str:
    """A lower bound as a percentage, rounded down."""
    return f"{rounded_down(100 * share, 1)} %"


def at_most(upper: float | None) -> str:
    """An upper bound on a distance Δ with three digits, rounded up."""
    return "–" if upper is None else rounded_up(upper, 3)


def at_least(lower: float | None) -> str:
    """A lower bound on a distance Δ with three digits, rounded down."""
    return "–" if lower is None else rounded_down(lower, 3)


def verdict(c: Certificate) -> list[str]:
    """What the status means for a decision about the release: one sentence that says it all, then a few more."""
    chance = max(c.priors or [1 / max(2, len(c.n))])
    shares = "at the given shares of the groups" if c.priors else "when the groups are equally likely"
    what = "cell" if "cell" in c.released else "encoded row"
    if "label" in c.released:
        what += " and the label"
    asked = _target(c)
    beside = ", the label too," if "label" in c.released else ""
    if c.status == "CERTIFIED":
        spent = c.spent["cells"]
        return [
            f"Whoever sees what is released of a person{beside} guesses the person's group right at most "
            f"{percent_at_most(c.cell_accuracy_upper)} of the time, {shares}; a blind guess is right "
            f"{percent(chance)} of the time.",
            "This holds for every method and any amount of computing, and for the true population: no model has to be "
            f"right. The statement itself may be wrong with a probability of {percent_at_most(spent)} at most.",
            _covered(c),
            *asked,
        ]
    if c.status == "MODEL_ONLY":
        return [
            f"Nothing is guaranteed: only if the estimated densities are the truth, whoever sees a released {what} "
            f"guesses the group right at most {percent_at_most(c.model_accuracy_upper)} of the time (a blind guess: "
            f"{percent(chance)}).",
            "Nothing here proves that they are the truth. Treat this as the outcome of a model, not as a guarantee: "
            "neither for new persons nor, still less, for the rows that the encoder was trained on or chosen by.",
            *asked,
        ]
    if c.status == "REFUTED":
        return [
            "Do not rely on the model-based bound: an actual adversary tells the groups further apart than it allows.",
            f"They are at least Δ = {at_least(c.attack_lower)} apart, and the model says at most "
            f"{at_most(c.model_upper)}. The estimated densities are wrong.",
            *asked,
        ]
    if not asked:
        return ["Nothing is promised: no bound is below 1, so that the release may tell everything about the group."]
    upper = c.model_upper if c.cell_upper is None else c.cell_upper
    reached = "" if upper is None else f": it is Δ ≤ {at_most(upper)}"
    return [f"Do not share this as it is: the bound does not come down to the target{reached}.", *asked]


def to_whom(c: Certificate) -> str:
    """Which persons the bound covers, and which it does not."""
    seen = " and the ".join(c.released)
    if c.cell_upper is not None and c.cell_upper < 1:
        if is_cross_fitted(c):
            return (
                "The certified bound is about every row of the table that the models were fitted with, each encoded by "
                "a model that has not seen it, and about everybody of the same population whose row is encoded later. "
                f"It holds against anybody who sees the {seen} and nothing else."
            )
        values = "" if c.n_cells is None else f" ({c.n_cells:,} different values)"
        return (
            f"The certified bound is about persons who played no part in making the encoder: those counted below, and "
            f"everybody drawn from the same population whose row it encodes later. It holds against anybody who sees "
            f"the {seen}{values} and nothing else. What the rows that it was trained on or chosen by tell is not "
            "bounded by anything here."
        )
    if c.status == "REFUTED":
        return f"Nothing is promised to anybody: the densities are wrong, and the {seen} may tell more than they say."
    if c.model_upper is not None and c.model_upper < 1:
        return (
            f"Nothing is promised to anybody. The model-based bound is about the {seen} of rows drawn from the "
            "estimated densities. New persons are like these as far as the densities are right; the rows that the "
            "encoder was trained on or chosen by need not be."
        )
    return "Nothing is promised to anybody."


def statements(c: Certificate) -> list[dict[str, str]]:
    """The certified, the model-based and the attack's bound: name, bound, meaning, and assumptions of each."""
    found = []
    if c.cell_upper is not None:
        found.append(
            {
                "name": "Certified",
                "bound": f"Δ ≤ {at_most(c.cell_upper)}",
                "accuracy": _guess(c, c.cell_upper, c.cell_accuracy_upper),
                "says": "No classifier on the released cells does better, for whatever task.",
                "rests": "Held-out persons of the true population; error probability "
                f"{percent_at_most(c.spent['cells'])}.",
            }
        )
    if c.person_upper is not None:
        found.append(
            {
                "name": "Certified, by person",
                "bound": f"Δ ≤ {at_most(c.person_upper)}",
                "accuracy": f"≤ {percent_at_most((1 + c.person_upper) / 2)}{_of_two(c)}",
                "says": "The same about one random row of a random person; the first line is about a random row.",
                "rests": f"Persons have at most {c.most_rows:,} rows; error probability "
                f"{percent_at_most(c.spent['persons'])}. All rows of one person linked together are not covered.",
            }
        )
    if c.model_upper is not None:
        spent = c.spent.get("model", 0)
        how = f"error probability {percent_at_most(spent, 2)}" if spent else "an exact sum"
        found.append(
            {
                "name": MODEL,
                "bound": f"Δ ≤ {at_most(c.model_upper)}",
                "accuracy": _guess(c, c.model_upper, c.model_accuracy_upper),
                "says": "No adversary does better, if the estimated densities are the truth.",
                "rests": f"The densities; {how}.",
            }
        )
    if c.attack_lower is not None:
        reached = f"An actual adversary reaches this: {c.attack_by}."
        nothing = f"No adversary was shown to beat a blind guess; the most promising was {c.attack_by}."
        found.append(
            {
                "name": "Attack",
                "bound": f"Δ ≥ {at_least(c.attack_lower)}",
                "accuracy": f"≥ {percent_at_least((1 + c.attack_lower) / 2)}{_of_two(c)}",
                "says": reached if c.attack_lower > 0 else nothing,
                "rests": "Held-out persons of the true population; error probability "
                f"{percent_at_most(c.spent['attack'])}.",
            }
        )
    return found


def consequences(c: Certificate) -> list[str]:
    """What follows for decisions made from the release; nothing follows from a refuted model."""
    modelled = c.status != "REFUTED"
    upper, kind = c.cell_upper, "certified"
    if upper is None and modelled:
        upper, kind = c.model_upper, "model-based"
    if upper is None:
        return []
    lines = [
        f"Demographic parity: two groups' selection rates differ by at most {at_most(upper)} ({kind}), for every "
        "decision rule on the release.",
        f"Four-fifths rule: kept by every rule that selects at least {percent_at_most(min(1, 5 * upper))} of the group "
        "that it selects most."
        if 5 * upper < 1
        else "Four-fifths rule: not guaranteed by this bound.",
    ]
    odds, kind = c.cell_odds_upper, "certified"
    if not odds and modelled:
        odds, kind = c.model_odds_upper, "model-based"
    if odds:
        largest = at_most(max(odds.values()))
        lines.append(f"Equalized odds: within one label, rates differ by at most {largest} ({kind}).")
    return lines


def is_about_model(assumption: str) -> bool:
    """Whether an assumption is one of the model-based bound alone."""
    return assumption.startswith(("The model-based bound", "Under other densities"))


def is_cross_fitted(c: Certificate) -> bool:
    """Whether several models share out the persons, so that every row is encoded by one that has not seen it."""
    return any(len(statement.folds) > 1 for statement in c.counts)


def _guess(c: Certificate, upper: float, accuracy: float | None) -> str:
    """How often a guess of the group is right; among more than two groups also between the worst two."""
    if c.is_plain:
        return f"≤ {percent_at_most(accuracy)}"
    among = f"among all {len(c.n)} groups" if len(c.n) > 2 else "at the given shares"
    return f"≤ {percent_at_most(accuracy)} {among}; ≤ {percent_at_most((1 + upper) / 2)}{_of_two(c)}"


def _of_two(c: Certificate) -> str:
    """What (1 + Δ)/2 is the accuracy of, where that has to be said."""
    return "" if c.is_plain else " between two groups, equally likely"


def _covered(c: Certificate) -> str:
    """Which persons a certified bound is about."""
    if is_cross_fitted(c):
        return (
            "Every row of the table is covered: each is encoded by a model that has not seen it. New persons of the "
            "same population, whose rows are encoded later, are covered too."
        )
    return (
        f"New persons are covered: the {sum((c.n_persons or c.n).values()):,} it was certified on, and all "
        "of the same population whose rows are encoded later. Rows that the encoder was trained on or chosen by are "
        "not covered, even where the same file holds them."
    )


def _target(c: Certificate) -> list[str]:
    if c.target_accuracy is not None:
        return [f"The target was a guess that is right at most {percent(c.target_accuracy)} of the time."]
    if c.target is not None:
        return [f"The target was a distance of at most Δ = {c.target:.4g}."]
    return []


class Recomputing(NamedTuple):
    """What a reader needs to compute the headline again."""

    formulas: list[str]  # the formula, and the same with the numbers in it; for two models one for each, and their sum
    groups: list[str]  # the groups, for the columns of the tables
    # for each model the counts, one row per cell, with the merged ones and the sums below; none where too large
    tables: list[list[list[str]]]
    merged: int  # cells that are merged
    command: str  # what to type


def recomputing(c: Certificate) -> Recomputing | None:
    """What a reader needs to compute the certificate's headline again; None where nothing was counted."""
    headline = c.headline
    if headline is None:
        return None
    folds = headline.folds
    formulas = [_formula(fold) for fold in folds]
    if len(folds) > 1:
        parts = " + ".join(f"{fold.share:g}·{fold.upper:.6f}" for fold in folds)
        formulas.append(f"Δ ≤ {parts} = {rounded_up(headline.upper, 6)}")
    is_small = len(folds[0].n) <= _MOST_GROUPS and all(len(fold.cells) <= _MOST_CELLS for fold in folds)
    file = next(iter(c.released_files), "")
    return Recomputing(
        formulas=formulas,
        groups=list(folds[0].n),
        tables=[_table(fold) for fold in folds] if is_small else [],
        merged=sum(int(c.n_cells or 0) - len(fold.cells) for fold in folds),
        command=" ".join(["fairflows check certificate.json", *([shlex.quote(file)] if file else [])]),
    )


def _formula(fold: FoldCounts) -> str:
    """The bound of one model, with its numbers."""
    pair = fold.worst_pair
    a, b = f"{fold.n[pair.one]:,}", f"{fold.n[pair.other]:,}"
    eta = "" if fold.eta == 1 else f"{fold.eta:g}·"
    distance = f"{eta}½·Σ|c/{a} − c′/{b}|"
    merged = f"{eta}½·({fold.merged[pair.one]:,}/{a} + {fold.merged[pair.other]:,}/{b})"
    if len(fold.n) == 2:
        radius = f"{eta}√(½·(1/{a} + 1/{b})·ln(1/{fold.delta:.6g}))"
    else:
        radius = f"the radius of {len(fold.n)} groups at δ = {fold.delta:.6g}"
    terms = f"{pair.printed:.6f} + {pair.merged:.6f} + {pair.radius:.6f}"
    return f"Δ ≤ {distance} + {merged} + {radius} = {terms} = {rounded_up(fold.upper, 6)}"


def _table(fold: FoldCounts) -> list[list[str]]:
    counts = zip(*fold.counts.values(), strict=True)
    rows = [[str(cell), *(f"{count:,}" for count in row)] for cell, row in zip(fold.cells, counts, strict=True)]
    rows.append(["merged", *(f"{count:,}" for count in fold.merged.values())])
    rows.append(["all", *(f"{count:,}" for count in fold.n.values())])
    return rows


@dataclass(frozen=True)
class Remedy:
    """A command to try, and what it would bring."""

    command: str  # what to type; the dots stand for the options that were given before
    expect: str  # what to expect, in one or two sentences


def remedies(c: Certificate) -> list[Remedy]:
    """Two ways to come within a target that was missed; none where it was met, or there was none.

    Both expectations are plans for groups that are alike in the cells, or as far apart as they were seen; neither is a
    promise.
    """
    target = c.target_distance
    if c.status == "CERTIFIED" or (target is None and c.target_accuracy is None):
        return []
    n = np.array(list(c.n.values()), dtype=np.float64)
    delta = c.spent.get("cells", c.delta)
    if c.cell_upper is None:
        said = f"Cells can be certified: {_said(8, _planned(n, 8, delta), target)}"
        return [
            Remedy("fairflows fit … --release cells --n-cells 8 --replace", said),
            _more_persons(c, n, delta, target),
        ]
    return [_fewer_cells(c, n, delta, target), _more_persons(c, n, delta, target)]


def _fewer_cells(c: Certificate, n: FloatArray, delta: float, target: float | None) -> Remedy:
    n_labels = max(1, len(c.cell_odds_upper)) if "label" in c.released else 1
    now = max(3, (c.n_cells or 64) // n_labels)
    bounds = {k: _planned(n, k * n_labels, delta) for k in _FEWER if k < now}
    wide_enough = [k for k, bound in bounds.items() if target is None or bound <= target]
    k = wide_enough[0] if wide_enough else min(bounds)
    command = f"fairflows fit … --n-cells {k} --replace"
    return Remedy(command, f"Fewer cells tell less, and are counted more surely: {_said(k, bounds[k], target)}")


def _more_persons(c: Certificate, n: FloatArray, delta: float, target: float | None) -> Remedy:
    command = "fairflows fit MORE-PERSONS.csv … --replace"
    if target is None:
        return Remedy(command, "Four times as many persons halve what the bound adds to the distance that is seen.")
    shares = n / n.sum()
    needed = _needed(_seen(c), shares, delta, target)
    said = "With these cells the bound comes down to the target"
    if needed is None:
        needed = rows_needed(target, delta, probabilities=np.full((len(n), 8), 1 / 8), shares=shares)
        said = "With 8 cells that are alike in all groups the bound comes down to the target"
        if c.cell_upper is not None:
            said = f"These cells are too far apart for any number of persons. {said}"
    times = float((needed / n).max())
    if times <= 1:
        return Remedy(command, f"{said} with as many persons as now, on average; chance decided against it this time.")
    return Remedy(
        command,
        f"{said} with about {times:.1f} times as many persons: {int(needed.sum()):,} to certify on instead of "
        f"{int(n.sum()):,}.",
    )


def _needed(seen: FloatArray | None, shares: FloatArray, delta: float, target: float) -> npt.NDArray[np.int64] | None:
    """Persons of each group that it takes with cells as they were seen; None where no number of them suffices."""
    if seen is None or float(planned_cell_bound(seen, shares * 1e15, delta)) > target:
        return None
    return rows_needed(target, delta, probabilities=seen, shares=shares)


def _seen(c: Certificate) -> FloatArray | None:
    """The shares of the cells in each group, as the certificate prints them; of several models, all cells together."""
    if c.headline is None:
        return None
    rows = [np.concatenate([[*fold.counts[group], fold.merged[group]] for fold in c.headline.folds]) for group in c.n]
    counts = np.array(rows, dtype=np.float64)
    return counts / counts.sum(axis=1, keepdims=True)


def _planned(n: FloatArray, n_cells: int, delta: float) -> float:
    return float(planned_cell_bound(np.full((len(n), n_cells), 1 / n_cells), n, delta))


def _said(n_cells: int, bound: float, target: float | None) -> str:
    reached = f"with {n_cells} cells that are alike in all groups, so many persons give about Δ ≤ {at_most(bound)}"
    if target is None:
        return f"{reached}."
    return f"{reached}, {'within' if bound <= target else 'still above'} the target of {target:.4g}."
