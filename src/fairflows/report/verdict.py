"""The words of a report: what a certificate means for a decision, what it does not cover, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairflows.bounds.planning import CellPlan, plan_cells
from fairflows.bounds.shared_table import drawn_rates_upper_bound
from fairflows.report.numbers import at_least, at_most, percent, percent_at_least, percent_at_most
from fairflows.report.statement_words import STATEMENTS, column_of, guess_of, meaning, taken_by_size

if TYPE_CHECKING:
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.statements import Statement


RANKS = ("table rank", "population rank")
"""Statements about a correlation, and not about a distance."""


def light(c: Certificate) -> dict[str, str]:
    """Return a traffic light for the reader in a hurry: its colour, and the meaning of the status.

    Green: a target was set, and is certified. Red: it is missed, or nothing is bounded, or an attack refuted the model.
    Amber: all between.
    """
    certified = "amber" if c.target is None else "green"
    colour = {"CERTIFIED": certified, "MODEL_ONLY": "amber"}.get(c.status, "red")
    return {"colour": colour, "text": f"{colour.capitalize()}: {meaning(c)}"}


def verdict(c: Certificate) -> list[str]:
    """Return the meaning of the status for a decision: the main sentence, then a few more."""
    guess = "guesses the group" if c.has_two_groups else "tells any two of the groups apart"
    what = "encoded row" if c.released == "latent" else "cell"
    beside = f", {' and '.join(c.labels)} included," if c.labels else ""
    asked, model = _target(c), c.find("model")
    table, counted = c.find("table"), c.find("population")
    if c.status == "CERTIFIED" and table is not None:
        return [*achieved(c), *asked]
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
    unit, one_of = "row", f"one of its {sum(c.n.values()):,} rows"
    if c.released == "panel":
        unit, one_of = "person", f"all rows of one of its {sum(c.n.values()):,} persons together"
    matched = "each cell holds nearly the same share of every group"
    if table.met is False:
        matched = f"the {unit}s of every group are counted in each cell"
    drawn = {"row": "every row is a random draw from", "panel": "all rows of a person are drawn together from"}
    worst = f"tell two groups of {c.attribute} apart, even the worst pair,"
    who = f"guess {c.attribute} right" if c.has_two_groups else worst
    found = [
        f"This table: a person who looks at {one_of}, and was not told {c.attribute} of {unit}s in it, is not expected "
        f"to {who} more than {guess_of(table.distance)} of the time (both groups counted alike; 50 % is guessing).",
        *_linked(c),
        *_of_ranks(c),
        f"This is counted, not estimated: {drawn.get(c.released, 'every row is the number of')} a cell, and {matched}.",
    ]
    if population is None:
        return [*found, "Persons to come: nothing is said; there are too few persons for that."]
    missed = "" if population.met is not False else ", which is above the target"
    return [
        *found,
        f"Persons to come, whose rows are encoded later: at most {guess_of(population.distance)} of the time"
        f"{'' if c.has_two_groups else ', between the worst pair of groups'}{missed}. "
        f"This holds with a probability of {100 * (1 - population.delta):g} %, for every method, if they come from the "
        "same population.",
    ]


def _of_ranks(c: Certificate) -> list[str]:
    """State the correlation with the rank of an attribute that is not cut."""
    of_table, to_come = c.find("table rank"), c.find("population rank")
    if of_table is None:
        return []
    later = ""
    if to_come is not None:
        later = (
            f"; in rows of persons to come none above {at_most(to_come.distance)}, with a probability of "
            f"{100 * (1 - to_come.delta):g} %"
        )
    return [
        f"{column_of(c)} was not cut into groups. Nothing in a row of this table has a correlation above "
        f"{at_most(of_table.distance)} with its rank{later}."
    ]


def _linked(c: Certificate) -> list[str]:
    """Say whether the rows of one person are covered together, where persons have several."""
    if c.released == "panel":
        return ["All rows of a person are covered together, their number and their order in time included."]
    if c.most_rows > 1:
        return ["The rows of one person are not covered together: a reader who links them may learn more."]
    return []


def not_covered(c: Certificate, usefulness: dict[str, Any] | None = None, merged: bool = False) -> list[str]:
    """Return the cases that the statements about a table do not cover, with their numbers."""
    table, found = c.find("table"), []
    recorded = f" (it is release {c.releases} of these rows, by the producer's record)" if c.releases > 1 else ""
    if table is not None:
        linked = "several rows of one person that are linked (all rows of a person are covered by unit='person')"
        found = [
            *([linked] if c.most_rows > 1 else []),
            f"somebody who already knows {c.attribute} of many persons in the file and can place them (knowing a "
            f"random half: {guess_of(table.known['0.5'])})",
            "this file together with a release of the same persons that the certificate does not name"
            if c.previous
            else f"this file together with another release of the same persons{recorded}",
            "who is in the file",
        ]
        found += [] if c.find("population") else ["persons who are not in the file"]
    if merged:
        inside = [f"{' and '.join(s.of)}: Δ = {at_most(s.distance)}" for s in c.statements if s.about == "inside"]
        measured = f" ({', '.join(inside)}, counted)" if inside else ""
        found.append(f"what differs inside a group that was merged from several{measured}")
    for label in (usefulness or {}).get("labels", []):
        if "trained" in label["rules"]:
            gap, raw = (_gap(label, label["rules"][name]) for name in ("trained", "raw"))
            found.append(
                f"what a model predicts from original rows: learnt from this table, its predictions of {label['name']} "
                f"differ between groups by up to {gap} (learnt from original rows: {raw}; 95 % intervals)"
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
    """Say how much predictions differ between groups, with a 95 % interval."""
    if label["classes"]:
        return f"{100 * rule['gap']:.1f} ± {100 * rule['gap_chance']:.1f} points"
    return f"{rule['gap']:.2f} ± {rule['gap_chance']:.2f} standard deviations"


def remedies(c: Certificate) -> list[str]:
    """Name the reason for a missed target, and the effect of each remedy; empty if it is met."""
    if c.status != "NOT_MET" or c.released == "latent" or len(c.n) < 2:
        return []
    if c.find("table rank") is not None:
        return [f"{column_of(c)} is not cut (uncut=...): state a higher target, or cut it into groups (cuts=...)."]
    (small, fewest), *others = sorted(c.n.items(), key=lambda item: item[1])
    found = [f"The smallest group decides how much can be promised: {small}, with {fewest:,} persons."]
    table, sizes = c.find("table"), [n for _, n in others]
    if table is not None and c.target is not None and max(table.distance, table.known_half or 0) <= c.target:
        found = ["A cell holds fewer than ten rows of a group, which would tell much of the few: take fewer cells."]
    plan = plan_cells([fewest, *sizes], None, c.delta)
    found += [f"As it is: {_planned(plan)}."] if plan else ["As it is, no table with two cells can be promised."]
    if len(others) > 1:
        plan = plan_cells([fewest + sizes[0], *sizes[1:]], None, c.delta)
        found.append(f"With {small} and {others[0][0]} as one group (merge_small={sizes[0] + 1}): {_planned(plan)}.")
    plan = plan_cells([4 * n for n in (fewest, *sizes)], None, c.delta)
    return [*found, f"With four times as many persons: {_planned(plan)}."]


def _planned(plan: CellPlan | None) -> str:
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
        f"Leaving out the column {c.attribute} would do, as far as our adversaries find: from the original rows they "
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
        letter = "r" if s.about in RANKS else "Δ"
        relation = "≥" if s.is_lower else "=" if s.about == "table" else "≤"
        rows.append(
            {
                "name": name[0].upper() + name[1:],
                "bound": f"{letter} {relation} {at_least(s.distance) if s.is_lower else at_most(s.distance)}",
                "accuracy": "–" if s.group is not None or s.about in RANKS else _guess(s, c),
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
    if table is not None and c.released in ("row", "panel"):
        upper = drawn_rates_upper_bound(table.distance, list((table.n or c.n).values()), c.n_cells or 1, c.delta)
        kind = f"in this table, except with a probability of {percent_at_most(c.delta)} over the draws of its rows"
        unit = "persons" if c.released == "panel" else "rows"
        rules = f"a decision rule on the release that was made without {c.attribute} of its {unit}"
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
    return said if c.has_two_groups else f"{said} between two groups, equally likely"


def _covered(c: Certificate) -> str:
    """Say which persons a certified bound is about."""
    person = c.find("population", "person")
    n = sum((c.n if person is None else person.n).values())
    return (
        f"New persons are covered: the {n:,} it was certified on, and all of the same population whose rows are "
        "encoded later. Rows that the encoder was trained on or chosen by are not covered, even in the same file."
    )


def _target(c: Certificate) -> list[str]:
    return [] if c.target is None else [f"The target was a distance of at most Δ = {c.target:.4g}{taken_by_size(c)}."]
