"""All words of certificates and reports: the terminal's lines, the page's sentences, and the assumptions.

Certificates print themselves with these words, so this module knows them by their attributes and imports none of them.
A new kind of statement takes one entry of `STATEMENTS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.bounds.planning import plan_cells
from fairflows.bounds.shared_table import drawn_rates_upper_bound

if TYPE_CHECKING:
    from fairflows.certificate.certificate import Certificate, Statement
    from fairflows.workflow import Shared
    from fairflows.worth import Usefulness

MEANING = {
    "CERTIFIED": "within the target, whatever the distribution is",
    "REFUTED": "the release tells more than is stated",
    "MODEL_ONLY": "holds only if the estimated densities are the truth",
    "NOT_MET": "no bound is low enough to promise what was asked, or anything",
}
ASSUMING = "  assuming that"
TOLD = "Share of blind-guess errors that the shared row removes"

_COLOURS = {"CERTIFIED": "#1b7f4b", "REFUTED": "#b3261e", "MODEL_ONLY": "#8a6100", "NOT_MET": "#5f6368"}
_MOST_COLUMNS = 8  # of a shared table, in the terminal
_WIDTH = 100  # of lines in the terminal

ASSUMPTIONS = {
    "released": "The {what} all that is released. Functions of that are covered; bounds of separate releases do not "
    "add up to one of both, and predictions made from the original rows are not covered.",
    "table": "The statement about the table holds for its rows as they were shared, once, looked at one at a time by "
    "a person who was not told the groups of rows in it. A person who knows the groups of many others, and can place "
    "them in cells, does better, by the further numbers. Another release of the same rows together with this one is "
    "not covered, and nothing is said about who is in the table.",
    "persons to come": "Persons to come are independent draws, group by group, from the distribution that the persons "
    "of the table come from; persons of the table {kept}.",
    "one tree": "The bound is about one tree, fixed beforehand. A tree that was chosen among m by its bounds has m "
    "times the probability of error.",
    "drawn": "A released row is drawn anew each time from a law of rows given the cell, which is the same for every "
    "group. The row reveals no more about the group than the cell does, so the bounds of the cell cover the row.",
    "groups": "The groups are those that the rows state; a group label that is wrong at encoding is not covered.",
    "independent": "The certifying persons are independent draws, group by group, from the distribution that the "
    "release will be used on.",
    "which groups": "The sensitive column alone decided which groups there are; no other column of these persons did.",
    "fresh persons": "The bound is for a fresh person; rows that the model was trained on are not covered.",
    "fixed before": "The encoder, the cells and their number were fixed before these persons were looked at.",
    "most rows": "No person has more than {most} rows. The bound is about a random row of the release; the one for a "
    "random person is about one random row of that person. Each holds at its own δ, both together at twice that. All "
    "rows of one person linked together are covered by neither, so identifiers are not released.",
    "merged": "Cells with fewer than ten of these persons of a group are merged in the printed counts, and count as if "
    "they revealed the group: the bounds are larger for it, never smaller.",
    "one row each": "No identifier says whose rows these are; it is assumed that no person has two of them.",
    "given the label": "Bounds given the label hold for that label, and all of them together at their own δ.",
    "secret key": "The key behind coins and noise is secret, and one person {alike}.",
    "fresh coins": "Coins and noise are fresh for every row, because no identifier says whose rows they are: no person "
    "is released twice.",
    "densities": "The model-based bound takes the estimated densities for the truth. It does not say how far they are "
    "from it; the attack and the check of the densities do.",
    "noise": "The noise key is secret, no person is encoded by two models or two keys, and identifiers, index and "
    "order of the rows are not released.",
    "look": "This is look {look} of these persons, and spends its share of δ. That covers models that were fixed "
    "beforehand, or tried because an earlier one did not meet the target. A model that was chosen after reading "
    "earlier bounds of the same persons needs new persons.",
    "looks not counted": "No identifier says whose rows these are, so earlier certificates of the same persons cannot "
    "be recognised, and none was counted: the bound holds for the first certificate that these persons give.",
    "errors add up": "Each statement has its own probability of error; all of them hold together except with "
    "probability of the sum.",
    "not comparable": "Persons are not named as in training, or not at all, and too many rows are alike: it is taken "
    "on trust that none of these was trained on.",
}
"""Text of each assumption, by its key."""

ABOUT_MODEL = ("densities",)
"""Assumptions of the model-based bound alone."""


@dataclass(frozen=True)
class StatementWords:
    """How statements of one kind are said.

    Each entry is a function of the statement and its certificate.
    """

    name: Callable[[Statement, Certificate], str]  # the name, indented where it belongs to the one above
    text: Callable[[Statement, Certificate], str]  # the statement in the terminal's list
    says: Callable[[Statement, Certificate], str]  # its meaning, in the page's table
    in_appendix: bool = False  # whether it holds only under a model


def percent(share: float, digits: int = 1) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.{digits}f} %"


def number(value: float) -> str:
    """Format a number with about four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent_at_most(share: float | None, digits: int = 1) -> str:
    """Format an upper bound, or a probability of error, as a percentage, rounded up."""
    return "–" if share is None else f"{rounded_up(100 * share, digits)} %"


def percent_at_least(share: float) -> str:
    """Format a lower bound as a percentage, rounded down."""
    return f"{rounded_down(100 * share, 1)} %"


def at_most(upper: float | None) -> str:
    """Format an upper bound on a distance Δ with three digits, rounded up."""
    return "–" if upper is None else rounded_up(upper, 3)


def at_least(lower: float | None) -> str:
    """Format a lower bound on a distance Δ with three digits, rounded down."""
    return "–" if lower is None else rounded_down(lower, 3)


# One entry for each kind of statement ------------------------------------------------------------------------------


def _name_of_population(s: Statement, c: Certificate) -> str:
    if s.given is not None:
        return f"  given label {s.given}"
    return "  a random person" if s.law == "person" else "true distribution"


def _text_of_population(s: Statement, c: Certificate) -> str:
    if s.law == "person":
        counted = ", ".join(f"{group}: {count:,}" for group, count in s.n.items())
        return f"Δ ≤ {rounded_up(s.distance)} (observed {s.observed:.4f}; {counted})"
    return f"{_bounds(s, c)} (observed {s.observed:.4f})"


def _says_population(s: Statement, c: Certificate) -> str:
    if s.law == "person":
        return "The same about one random row of a random person; the first line is about a random row."
    return "No classifier on the released cells does better, for whatever task."


def _text_of_table(s: Statement, c: Certificate) -> str:
    known = "; ".join(f"knowing the group of {percent(float(f), 0)}: {_guess_of(d)}" for f, d in s.known.items())
    return f"Δ = {rounded_up(s.distance)}, counted, {_adversary(c, s.distance)} ({known})"


def _says_table(s: Statement, c: Certificate) -> str:
    half = percent_at_most((1 + s.known["0.5"]) / 2)
    return (
        f"Looking at one of these {sum(c.n.values()):,} rows, nobody who was not told {c.sensitive} of rows in it is "
        f"expected to tell the groups apart more often. Knowing {c.sensitive} of a random half: {half}."
    )


def _text_of_new_persons(s: Statement, c: Certificate) -> str:
    n = ", ".join(f"{group}: {count:,.0f}" for group, count in s.persons.items())
    agree = "contradict" if s.contradicts else "agree with"
    return f"{n}; their cells {agree} the law of blocks (p = {s.p_value:.2g})"


def _guess_of(distance: float) -> str:
    return percent_at_most((1 + distance) / 2)


def _text_of_model(s: Statement, c: Certificate) -> str:
    if s.given is not None:
        return f"Δ ≤ {rounded_up(s.distance)}"
    how = f"estimate {s.observed:.4f}" if s.delta else "exact"
    return f"{_bounds(s, c)} ({how}), if the densities that the model was fitted with are the truth"


def _text_of_attack(s: Statement, c: Certificate) -> str:
    # Theorem 5.5 turned round: TV(p̂_a, p_a), summed over the two worst groups, is at least the difference.
    error = 0.0 if c.model_upper is None else s.distance - c.model_upper
    more = f": the densities err by at least {rounded_down(error)} together" if error > 0 else ""
    return f"Δ ≥ {rounded_down(s.distance)} by {s.source}{more}"


def _says_attack(s: Statement, c: Certificate) -> str:
    if s.distance > 0:
        return f"An actual adversary reaches this: {s.source}."
    return f"No adversary was shown to beat a blind guess; the most promising was {s.source}."


STATEMENTS: dict[tuple[str, str], StatementWords] = {
    ("table", "counted"): StatementWords(name=lambda s, c: "this table", text=_text_of_table, says=_says_table),
    ("population", "blocks"): StatementWords(
        name=lambda s, c: "persons to come",
        text=lambda s, c: f"{_bounds(s, c)}, with probability {100 * (1 - s.delta):g} %",
        says=lambda s, c: (
            "From the shared row of a person who is encoded later, nobody does better, for whatever task."
        ),
    ),
    ("new persons", "test"): StatementWords(
        name=lambda s, c: "new persons",
        text=_text_of_new_persons,
        says=_text_of_new_persons,
    ),
    ("population", "held-out"): StatementWords(
        name=_name_of_population,
        text=_text_of_population,
        says=_says_population,
    ),
    ("model", "model"): StatementWords(
        name=lambda s, c: "model" if s.given is None else f"  given label {s.given}",
        text=_text_of_model,
        says=lambda s, c: "No adversary does better, if the estimated densities are the truth.",
        in_appendix=True,
    ),
    ("attack", "adversary"): StatementWords(
        name=lambda s, c: "attack",
        text=_text_of_attack,
        says=_says_attack,
    ),
    ("density", "adversary"): StatementWords(
        name=lambda s, c: f"  density of {s.group}",
        text=lambda s, c: f"TV(p̂, p) ≥ {rounded_down(s.distance)}",
        says=lambda s, c: f"The estimated density of {s.group} is at least this far from the truth.",
        in_appendix=True,
    ),
}
"""The words of each kind of statement, by `about` and `by`."""

_ABSENT = {
    "population": ("persons to come", "no statement: that takes a release of cells, and enough persons"),
    "model": ("model", "no statement: there is no density of the release"),
    "attack": ("attack", "not attacked"),
}


# The terminal and the notebook --------------------------------------------------------------------------------------


def heading(c: Certificate) -> str:
    """Return the first line: the status and its meaning."""
    return f"{badge(c)[0]}: {meaning(c)}"


def meaning(c: Certificate) -> str:
    """Return the meaning of the status, separately for the table and for persons to come."""
    table, population = c.find("table"), c.find("population")
    tested = c.find("new persons")
    if c.status == "REFUTED" and tested is not None and tested.contradicts:
        return "new persons contradict the bound on persons to come"
    if c.status == "REFUTED":
        return "an actual adversary beats the model-based bound, so the estimated densities are wrong"
    if table is None and c.status == "CERTIFIED" and c.target is None:
        return "bounded, whatever the distribution is; no target was set"
    if table is None or c.status == "MODEL_ONLY":
        return MEANING[c.status]
    of_table = "this table is within the target" if table.met else "this table is not within the target"
    if c.target is None:
        of_table = "this table is counted"
    if population is None:
        return f"{of_table}; nothing is said about persons to come"
    if c.target is None:
        return f"{of_table}, and persons to come are bounded"
    return (
        f"{of_table}; persons to come are {'too' if population.met == table.met else 'not'}"
        if table.met
        else (f"{of_table}{'; persons to come are' if population.met else ', nor are persons to come'}")
    )


def badge(c: Certificate) -> tuple[str, str]:
    """Return the status as a word, and the colour to show it in."""
    if c.unchecked:
        claim = "NOT CHECKED (`fairflows check` does that). Somebody states: "
        return f"{claim}{c.status}", _COLOURS["NOT_MET"]
    return c.status, _COLOURS[c.status]


def lines(c: Certificate) -> list[tuple[str, str]]:
    """Return the contents of a certificate, one line each: name and text."""
    cells = f" ({c.n_cells} cells)" if c.n_cells is not None else ""
    found = [("sensitive", c.sensitive), ("released", " and ".join(c.released) + cells)]
    if c.target is not None:
        found.append(("target", f"Δ ≤ {c.target:.4g}, {_adversary(c, c.target)}"))
    stated = {s.about for s in c.statements}
    for about in dict.fromkeys([*_ABSENT, *(s.about for s in c.statements)]):
        if about not in stated:
            found.append(_ABSENT[about])
        for s in c.statements:
            if s.about == about:
                said = STATEMENTS[s.about, s.by]
                found.append((said.name(s, c), said.text(s, c)))
    counted = ", ".join(f"{group}: {count:,}" for group, count in c.n.items())
    unit = "rows of different persons" if c.most_rows > 1 else "persons"
    look = f"; look {c.look} of these persons" if c.look else ""
    if any(assumption.key == "looks not counted" for assumption in c.assumptions):
        look = "; without names, so that earlier looks are not counted"
    found.append(("counted", f"{unit if c.look else 'rows of the table'}, {counted}{look}"))
    if c.releases > 1:
        found.append(("releases", f"{c.releases} of these rows, by the producer's record; together they may tell more"))
    found.append(("probability of error", f"δ = {c.delta:g}; spent: {spent(c)}"))
    found.append(("about", f"model {c.model}, rows {c.rows}, seed {c.seed}"))
    return found


def spent(c: Certificate) -> str:
    """Return the probability of error of each subject, summed over its statements."""
    sums: dict[str, float] = {}
    for s in c.statements:
        sums[s.about] = sums.get(s.about, 0.0) + s.delta
    return ", ".join(f"{about} {delta:.4g}" for about, delta in sums.items()) or "nothing"


def _bounds(s: Statement, c: Certificate) -> str:
    """Say the bound on Δ and, of all rows, how often the best guess between two groups is right."""
    said = f"Δ ≤ {rounded_up(s.distance)}"
    return said if s.given is not None else f"{said}, {_adversary(c, s.distance)}"


def _adversary(c: Certificate, distance: float) -> str:
    who = "adversary" if c.is_plain else "between the worst pair of groups an adversary"
    return f"{who} {percent_at_most((1 + distance) / 2)}"


# The page -----------------------------------------------------------------------------------------------------------


def light(c: Certificate) -> dict[str, str]:
    """Return a traffic light for the reader in a hurry: its colour, and the meaning of the status.

    Green: a target was set, and is certified. Red: it is missed, or nothing is bounded, or an attack refuted the model.
    Amber: all between.
    """
    certified = "amber" if c.target is None else "green"
    colour = {"CERTIFIED": certified, "MODEL_ONLY": "amber"}.get(c.status, "red")
    return {"colour": colour, "text": f"{colour.capitalize()}: {meaning(c)}"}


def without_few(text: object) -> str:
    """Return a number, or a note about numbers of rows, in which 1 to 9 rows are "under 10"."""
    return re.sub(r"(?<=\()[1-9](?=\))|^[1-9](?= rows |$)", "under 10", str(text))


def verdict(c: Certificate) -> list[str]:
    """Return the meaning of the status for a decision: the main sentence, then a few more."""
    guess = "guesses the group" if c.is_plain else "tells any two of the groups apart"
    what = "cell" if "cell" in c.released else "encoded row"
    beside = ", the label included," if "label" in c.released else ""
    asked, model = _target(c), c.find("model")
    table, counted = c.find("table"), c.find("population")
    if c.status == "CERTIFIED" and table is not None:
        return achieved(c)
    if c.status == "CERTIFIED" and counted is not None:
        return [
            f"From a released row{beside} nobody {guess} correctly more than "
            f"{percent_at_most((1 + counted.distance) / 2)} of the time, when both are equally likely; a blind guess "
            "is right 50.0 % of the time.",
            "This holds for every method and any amount of computing, and for the true population: no model has to be "
            f"right. The statement itself may be wrong with a probability of {percent_at_most(counted.delta)} at most.",
            _covered(c),
            *asked,
        ]
    if c.status == "MODEL_ONLY" and model is not None:
        return [
            f"Nothing is guaranteed: only if the estimated densities are the truth, nobody {guess} from a released "
            f"{what} correctly more than {percent_at_most((1 + model.distance) / 2)} of the time (a blind guess: "
            "50.0 %).",
            "Nothing here proves that they are the truth. Treat this as the outcome of a model, not as a guarantee: "
            "neither for new persons nor, still less, for the rows that the encoder was trained on or chosen by.",
            *asked,
        ]
    if c.status == "REFUTED" and c.find("new persons") is not None:
        return ["Do not rely on the bound on persons to come: new persons contradict it.", *asked]
    if c.status == "REFUTED":
        return [
            "Do not rely on the model-based bound: an actual adversary tells the groups further apart than it allows.",
            f"They are at least Δ = {at_least(c.attack_lower)} apart, and the model says at most "
            f"{at_most(c.model_upper)}. The estimated densities are wrong.",
            *asked,
        ]
    if not asked:
        return ["Nothing is promised: no bound is below 1, so the release may reveal everything about the group."]
    if table is not None:
        return ["Do not share this as it is: the table is not within the target.", *achieved(c), *asked]
    upper = c.model_upper if c.cell_upper is None else c.cell_upper
    reached = "" if upper is None else f": it is Δ ≤ {at_most(upper)}"
    return [f"Do not share this as it is: the bound does not come down to the target{reached}.", *asked]


def achieved(c: Certificate) -> list[str]:
    """Return the statements about the table and about persons to come, as sentences."""
    table, population = c.find("table"), c.find("population")
    if table is None:
        return []
    matched = "each cell holds nearly the same share of every group"
    if table.met is False:
        matched = "the rows of every group are counted in each cell"
    worst = f"tell two groups of {c.sensitive} apart, even the worst pair,"
    who = f"guess {c.sensitive} right" if c.is_plain else worst
    found = [
        f"This table: a person who looks at one of its {sum(c.n.values()):,} rows, and was not told {c.sensitive} of "
        f"rows in it, is not expected to {who} more than {_guess_of(table.distance)} of the time (both groups counted "
        "alike; 50 % is guessing).",
        f"This is counted, not estimated: every row is {'a random draw from' if c.draws_rows else 'the number of'} a "
        f"cell, and {matched}.",
    ]
    if population is None:
        return [*found, "Persons to come: nothing is said; there are too few persons for that."]
    missed = "" if population.met is not False else ", which is above the target"
    return [
        *found,
        f"Persons to come, whose rows are encoded later: at most {_guess_of(population.distance)} of the time"
        f"{'' if c.is_plain else ', between the worst pair of groups'}{missed}. "
        f"This holds with a probability of {100 * (1 - population.delta):g} %, for every method, if they come from the "
        "same population.",
    ]


def not_covered(c: Certificate, usefulness: dict[str, Any] | None = None, merged: bool = False) -> list[str]:
    """Return the cases that the statements about a table do not cover, with their numbers."""
    table, found = c.find("table"), []
    recorded = f" (it is release {c.releases} of these rows, by the producer's record)" if c.releases > 1 else ""
    if table is not None:
        found = [
            f"somebody who already knows {c.sensitive} of many persons in the file and can place them (knowing a "
            f"random half: {_guess_of(table.known['0.5'])})",
            f"this file together with another release of the same persons{recorded}",
            "who is in the file",
        ]
        found += [] if c.find("population") else ["persons who are not in the file"]
    if merged:
        found.append("what differs inside a group that was merged from several")
    for label in (usefulness or {}).get("labels", []):
        if "trained" in label["rules"]:
            gap, raw = (_gap(label, label["rules"][name]) for name in ("trained", "raw"))
            found.append(
                f"what a model predicts from original rows: learnt from this table, its predictions of {label['name']} "
                f"differ between groups by up to {gap} (learnt from original rows: {raw})"
            )
    return found


def other_risks(audit: dict[str, Any] | None) -> list[str]:
    """Say how often attacks on persons succeed, beside the same on persons who are not in the table."""
    risks = (audit or {}).get("risks", [])
    return [
        f"{risk['name'].capitalize()}: {risk['said']}, in {percent(risk['found'])} of {risk['n']:,} cases (persons who "
        f"are not in the table: {percent(risk['baseline'])}; difference {100 * risk['lower']:.1f} to "
        f"{100 * risk['upper']:.1f} points)" + (": the table makes this easier." if risk["is_above"] else ".")
        for risk in risks
    ]


def _gap(label: dict[str, Any], rule: dict[str, Any]) -> str:
    """Say how much predictions differ between groups."""
    return f"{100 * rule['gap']:.1f} points" if label["classes"] else f"{rule['gap']:.2f} standard deviations"


def remedies(c: Certificate) -> list[str]:
    """Name the reason for a missed target, and the effect of each remedy; empty if it is met."""
    if c.status != "NOT_MET" or "latent" in c.released or len(c.n) < 2:
        return []
    (small, fewest), *others = sorted(c.n.items(), key=lambda item: item[1])
    found = [f"The smallest group decides how much can be promised: {small}, with {fewest:,} persons."]
    table, sizes = c.find("table"), [n for _, n in others]
    if table is not None and c.target is not None and max(table.distance, table.known_half or 0) <= c.target:
        found = ["A cell holds fewer than ten rows of a group, which would tell much of the few: take fewer cells."]
    plan = plan_cells([fewest, *sizes], None, c.delta)
    found += [f"As it is: {_planned(plan)}."] if plan else ["As it is, no table with two cells can be promised."]
    if len(others) > 1:
        plan = plan_cells([fewest + sizes[0], *sizes[1:]], None, c.delta)
        found.append(f"With {small} and {others[0][0]} as one group (merge_small={fewest + 1}): {_planned(plan)}.")
    plan = plan_cells([4 * n for n in (fewest, *sizes)], None, c.delta)
    return [*found, f"With four times as many persons: {_planned(plan)}."]


def _planned(plan: Any) -> str:
    """Return the statements that a plan of cells allows, as a sentence."""
    if plan is None:
        return "still nothing"
    to_come = "" if plan.population is None else f", persons to come Δ ≤ {at_most(plan.population)}"
    return f"target {plan.target:g} with {plan.n_cells} cells{to_come}"


def leaving_out_would_do(c: Certificate, before: dict[str, Any] | None) -> list[str]:
    """Return a note if the original rows without the column already reveal no more than is promised."""
    bounds = [s.distance for s in (c.find("table"), c.find("population")) if s is not None]
    if before is None or not bounds or 2 * before["balanced_accuracy"] - 1 >= max(bounds):
        return []
    raw = percent(before["balanced_accuracy"])
    return [
        f"Leaving out the column {c.sensitive} would do, as far as our adversaries find: from the original rows they "
        f"are right about {raw} of the time, less than what is promised about shared rows. What sharing by fairflows "
        "adds is the promise itself."
    ]


def statement_rows(c: Certificate) -> list[dict[str, str | bool]]:
    """Return the statements, but for those given a label, one row of the page's table each."""
    rows: list[dict[str, str | bool]] = []
    for s in c.statements:
        if s.given is not None:
            continue
        said = STATEMENTS[s.about, s.by]
        name = said.name(s, c).strip()
        relation = "≥" if s.is_lower else "=" if s.about == "table" else "≤"
        rows.append(
            {
                "name": name[0].upper() + name[1:],
                "bound": f"Δ {relation} {at_least(s.distance) if s.is_lower else at_most(s.distance)}",
                "accuracy": _guess(s, c) if s.group is None else "–",
                "says": said.says(s, c) + (f" Probability of error: {percent_at_most(s.delta)}." if s.delta else ""),
                "in_appendix": said.in_appendix,
            }
        )
    return rows


def consequences(c: Certificate) -> list[str]:
    """Return the consequences for decisions from the release; a refuted model has none."""
    modelled = c.status != "REFUTED"
    upper, kind, rules = c.cell_upper, "certified", "every decision rule on the release"
    table = c.find("table")
    if table is not None:
        upper, kind = table.distance, "in this table, counted"
    if table is not None and c.draws_rows:
        upper = drawn_rates_upper_bound(table.distance, list(table.n.values()), c.n_cells or 1, c.delta)
        kind = f"in this table, except with a probability of {percent_at_most(c.delta)} over the draws of its rows"
        rules = f"a decision rule on the release that was made without {c.sensitive} of its rows"
    if upper is None and modelled:
        upper, kind = c.model_upper, "model-based"
    if upper is None:
        return []
    if upper >= 1:
        return []
    found = [
        f"Demographic parity: two groups' selection rates differ by at most {at_most(upper)} ({kind}), for {rules}.",
        f"Four-fifths rule: kept by every such rule that selects at least {percent_at_most(min(1, 5 * upper))} of the "
        "group that it selects most."
        if 5 * upper < 1
        else "Four-fifths rule: not guaranteed by this bound.",
    ]
    odds, kind = c.cell_odds_upper, "certified"
    if not odds and modelled:
        odds = {s.given: s.distance for s in c.statements if s.about == "model" and s.given is not None}
        kind = "model-based"
    if odds:
        largest = at_most(max(odds.values()))
        found.append(f"Equalized odds: within one label, rates differ by at most {largest} ({kind}).")
    return found


def _guess(s: Statement, c: Certificate) -> str:
    """Say how often a guess between the worst two groups is right."""
    pair = (1 + s.distance) / 2
    said = f"≥ {percent_at_least(pair)}" if s.is_lower else f"≤ {percent_at_most(pair)}"
    return said if c.is_plain else f"{said} between two groups, equally likely"


def _covered(c: Certificate) -> str:
    """Say which persons a certified bound is about."""
    person = c.find("population", "person")
    n = sum((c.n if person is None else person.n).values())
    return (
        f"New persons are covered: the {n:,} it was certified on, and all of the same population whose rows are "
        "encoded later. Rows that the encoder was trained on or chosen by are not covered, even in the same file."
    )


def _target(c: Certificate) -> list[str]:
    return [] if c.target is None else [f"The target was a distance of at most Δ = {c.target:.4g}."]


# The result of `share` ------------------------------------------------------------------------------------------------


def shared_text(shared: Shared) -> str:
    """Return the result of `share` in a few lines."""
    lines = [f"  {name:<8} {text}" for name, text in guesses(shared)]
    parts = [f"{heading(shared.certificate)}.", "\n".join([question(shared), *lines])]
    for name, texts in sections(shared):
        parts.append("\n".join([f"{name}:", *(_wrapped(text) for text in texts)]))
    return "\n\n".join(parts)


def _wrapped(text: str) -> str:
    return fill(text, _WIDTH, initial_indent="  - ", subsequent_indent="    ")


def sections(shared: Shared) -> list[tuple[str, list[str]]]:
    """Return the text about a shared table beside its guesses, in named parts."""
    c, measured = shared.certificate, shared.report.contents
    found = {
        "What to do": remedies(c),
        "To know": [*leaving_out_would_do(c, measured["before"]), *_to_know(shared)],
        "What the table is good for": good_for(measured["usefulness"]),
        "Other risks, measured and not promised": other_risks(measured["audit"]),
        "Not covered": not_covered(c, measured["usefulness"], measured["data"]["merged"]),
    }
    return [(name, texts) for name, texts in found.items() if texts]


def _to_know(shared: Shared) -> Iterator[str]:
    c = shared.certificate
    if c.look > 1:
        yield f"This is look {c.look} of these persons: the bound is wider than that of a first look would be."
    if c.table_distance is None:
        yield (
            "The certificate covers persons who come later, but not the rows that the model was trained on or chosen "
            "by, which are most of the table: encode others with it to share covered rows alone."
        )
    if shared.audit is None:
        yield "Nothing was attacked or measured (quick=True, or too few persons): the statements hold without that."
    if shared.release.rules:
        yield from redrawn(shared.release.redrawn_, len(shared.table))


def redrawn(n_redrawn: int, n_rows: int) -> list[str]:
    """Say how many rows were drawn again because of rules.

    The number may be public: it depends on nothing but cells and fresh randomness, as the rows do.
    """
    return [f"{n_redrawn:,} rows of {n_rows:,} broke a rule and were drawn again."]


def question(shared: Shared) -> str:
    """Return the question that `guesses` answers."""
    c = shared.certificate
    pair = "" if len(c.n) == 2 else f", of the worst pair of {len(c.n)} groups"
    return f"Guessing {c.sensitive}{pair}, both groups counted alike (a blind guess is right 50 % of the time):"


def guesses(shared: Shared) -> list[tuple[str, str]]:
    """Return how often guesses of the group are right before, after, and in the attack."""
    c, before, found = shared.certificate, shared.report.contents["before"], []
    if before is not None:
        raw = percent(before["balanced_accuracy"])
        found = [("before", f"about {raw}, from the original rows, by the best of our adversaries")]
    table = c.find("table")
    if table is not None:
        after, half = _guess_of(table.distance), _guess_of(table.known["0.5"])
        found.append(("after", f"{after}, counted on this table, for anybody; {half} knowing it of a random half"))
    if c.cell_upper is not None:
        after, confidence = _guess_of(c.cell_upper), f"{100 * (1 - c.delta):g} %"
        found.append(("to come", f"at most {after}, for anybody, of persons to come ({confidence} confidence)"))
    elif table is None and c.model_upper is not None:
        after = _guess_of(c.model_upper)
        found.append(("after", f"at most {after} if the estimated densities were the truth; nothing about the world"))
    if shared.audit is not None:
        reached = percent_at_least((1 + shared.audit.attack_lower) / 2)
        found.append(("tried", f"at least {reached}, reached by an actual attack ({shared.audit.best})"))
    return found


# What a table is worth ----------------------------------------------------------------------------------------------


def usefulness_text(found: Usefulness) -> str:
    """Return the worth of a shared table, in a few lines."""
    lines = [f"What the shared table is worth, judged on {found.n:,} rows of persons whom nothing was learnt from"]
    return "\n".join([*lines, *(_wrapped(text) for text in good_for(found.to_dict()))])


def good_for(usefulness: dict[str, Any] | None) -> list[str]:
    """Return the uses of a shared table: to train on, to decide by, beside the real one, by column."""
    if usefulness is None:
        return []
    labels, rows = usefulness["labels"], usefulness["rows"]
    found = [text for label in labels for text in [*_to_train_on(label), *_to_decide_by(label)]]
    if not labels:
        found = ["No label was named: name one to see what a model learnt from the table is worth."]
    if rows is not None:
        found.append(_like_the_original(rows))
    told = [column for column in usefulness["columns"] if column["told"] >= 0.005]  # what is not printed as 0 %
    columns = [f"{column['name']} {percent(column['told'], 0)}" for column in told[:_MOST_COLUMNS]]
    more = [f"{len(told) - _MOST_COLUMNS} more in the report"] if len(told) > _MOST_COLUMNS else []
    none = len(usefulness["columns"]) - len(told)
    rest = [f"0 % of {none} {'other ' * bool(told)}column{'s' * (none != 1)}"] if none else []
    return [*found, f"About a person: {TOLD[0].lower()}{TOLD[1:]}: {', '.join([*columns, *more, *rest])}."]


def _to_train_on(label: dict[str, Any]) -> list[str]:
    rules, name = label["rules"], label["name"]
    if "trained" not in rules:
        return []
    made, raw = rules["trained"], rules["raw"]
    start = "To train on: a model learnt from shared rows and asked about original rows of other persons"
    if label["classes"]:
        if made["auc"] is not None:
            start += f" ranks them by {name} with an AUC of {made['auc']:.3f} (learnt from original rows: "
            start += f"{raw['auc']:.3f}) and"
        return [
            f"{start} is right for {percent(made['right'])} (learnt from original rows: {percent(raw['right'])}; "
            f"blind guess: {percent(label['blind'])})."
        ]
    return [
        f"{start} explains {percent(max(made['right'], 0))} of the variance of {name} (learnt from original rows: "
        f"{percent(max(raw['right'], 0))}) and errs by {number(made['error'])} on average ({number(raw['error'])}; "
        f"blind guess: {number(label['blind'])})."
    ]


def _to_decide_by(label: dict[str, Any]) -> list[str]:
    rules, name = label["rules"], label["name"]
    one = rules.get("score") or rules.get("row")
    if one is None:
        return []
    best = {d: right for d, right in label["best"].items() if right >= one["right"]}  # an estimate may lie below
    by = f"the score of {name} in a person's shared row" if "score" in rules else "a person's shared row"
    limits = ", and ".join(
        f"about {percent(right)} {f'within Δ = {float(d):.3f}' if float(d) else 'if it told nothing of the groups'}"
        for d, right in best.items()
    )
    limit = f" The best that any table could give is {limits}." if best else ""
    if not label["classes"]:
        return [
            f"To decide by: {by} explains {percent(max(one['right'], 0))} of the variance and errs by "
            f"{number(one['error'])} on average.{limit}"
        ]
    beside = f"by the drawn columns {percent(rules['row']['right'])}, " if {"score", "row"} <= set(rules) else ""
    useless = one["right"] <= label["blind"] + 0.001
    return [
        f"To decide by: {by} is right for {percent(one['right'])} of other persons ({beside}blind guess: "
        f"{percent(label['blind'])})."
        + (" That is no better than a blind guess: train on the table, and decide nothing by it." if useless else "")
        + limit
    ]


def _like_the_original(rows: dict[str, Any]) -> str:
    worst, apart = next(iter(rows["columns"].items()))
    strong = rows["correlations"]
    kept = "" if strong is None else f"{percent(min(strong, 1), 0)} of the strong correlations are kept; "
    return (
        f"Beside the original: the shares of a column's values differ by at most {percent(apart)} ({worst}); {kept}"
        f"three columns together score {1000 * rows['k_marginal'][0]:.0f} of 1,000 (other original rows: "
        f"{1000 * rows['k_marginal'][1]:.0f}); trees tell shared from original rows with a detection score of "
        f"{rows['detection']:.2f} (1: not at all, 0: always)."
    )


def which_file_goes_where(shared: Shared, out: Path, name: str) -> str:
    """Return which files of a saved result may leave, and which stay; `name` is the file to share."""
    files = f"{out / name}, {out / 'certificate.json'}, {out / 'report-public.html'}"
    return "\n".join(
        [
            f"Share        {files}" if shared.is_good else f"Not yet      {files}: the target is not reached",
            f"Keep         {out / 'report.html'}, {out / 'report.json'}",
            f"Never share  {out / 'model'}: with it and its key persons can be told apart",
            f"To check     fairflows check {out / 'certificate.json'} {out / name}",
        ]
    )
