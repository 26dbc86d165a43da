"""The words of statements: the lines of a certificate in a terminal.

Certificates print themselves with these words, so this module knows them by their attributes and imports none of them.
A new kind of statement takes one entry of `STATEMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.bounds.planning import TARGETS, plan_cells
from fairflows.report.numbers import percent, percent_at_most

if TYPE_CHECKING:
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.statements import Statement

MEANING = {
    "CERTIFIED": "within the target, whatever the distribution is",
    "REFUTED": "the release tells more than is stated",
    "MODEL_ONLY": "holds only if the estimated densities are the truth",
    "NOT_MET": "no bound is low enough to promise what was asked, or anything",
}

ASSUMING = "  assuming that"

_COLOURS = {"CERTIFIED": "#1b7f4b", "REFUTED": "#b3261e", "MODEL_ONLY": "#8a6100", "NOT_MET": "#5f6368"}


@dataclass(frozen=True)
class StatementWords:
    """How statements of one kind are said.

    Each entry is a function of the statement and its certificate.
    """

    name: Callable[[Statement, Certificate], str]  # the name, indented where it belongs to the one above
    text: Callable[[Statement, Certificate], str]  # the statement in the terminal's list
    says: Callable[[Statement, Certificate], str]  # its meaning, in the page's table
    in_appendix: bool = False  # whether it holds only under a model


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
    known = "; ".join(f"knowing the group of {percent(float(f), 0)}: {guess_of(d)}" for f, d in s.known.items())
    return f"Δ = {rounded_up(s.distance)}, counted, {_adversary(c, s.distance)} ({known})"


def _says_table(s: Statement, c: Certificate) -> str:
    half = percent_at_most((1 + s.known["0.5"]) / 2)
    one_of, others = f"one of these {sum(c.n.values()):,} rows", "rows"
    if c.released == "panel":
        one_of, others = f"all rows of one of these {sum(c.n.values()):,} persons together", "persons"
    return (
        f"Looking at {one_of}, nobody who was not told {c.attribute} of {others} in it is expected to tell the groups "
        f"apart more often. Knowing {c.attribute} of a random half: {half}."
    )


def _text_of_new_persons(s: Statement, c: Certificate) -> str:
    n = ", ".join(f"{group}: {count:,.0f}" for group, count in s.persons.items())
    agree = "contradict" if s.contradicts else "agree with"
    return f"{n}; their cells {agree} the law of blocks (p = {s.p_value:.2g})"


def _persons_in_all(s: Statement) -> str:
    return f"{sum(s.persons.values()):,.0f} persons or more"


def guess_of(distance: float) -> str:
    """Say how often a guess between two groups is right at most, at a distance."""
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


def _text_of_columns(s: Statement) -> str:
    return f"Δ = {rounded_up(s.distance)}, counted, between any two values (knowing 50 %: {rounded_up(s.known['0.5'])})"


def _says_columns(s: Statement) -> str:
    return (
        f"The largest distance between two values of {' and '.join(s.of)}, counted. Knowing the groups of a random "
        f"half: {rounded_up(s.known['0.5'])}."
    )


def column_of(c: Certificate) -> str:
    """Return the sensitive columns as a text."""
    return " and ".join(c.sensitive)


_TO_COME = StatementWords(
    name=lambda s, c: "persons to come",
    text=lambda s, c: f"{_bounds(s, c)}, with probability {100 * (1 - s.delta):g} %",
    says=lambda s, c: (
        f"From the shared row{'s' * (c.released == 'panel')} of a person who is encoded later, nobody does better, "
        "for whatever task."
    ),
)

STATEMENTS: dict[tuple[str, str], StatementWords] = {
    ("table", "counted"): StatementWords(name=lambda s, c: "this table", text=_text_of_table, says=_says_table),
    ("table", "undisclosed"): StatementWords(
        name=lambda s, c: f"  its {' and '.join(s.of)}" if s.of else "this table",
        text=lambda s, c: _text_of_columns(s) if s.of else _text_of_table(s, c),
        says=lambda s, c: _says_columns(s) if s.of else _says_table(s, c),
    ),
    ("inside", "undisclosed"): StatementWords(
        name=lambda s, c: f"  inside {s.group}",
        text=lambda s, c: f"Δ = {rounded_up(s.distance)} by {' and '.join(s.of)}, counted: not hidden",
        says=lambda s, c: (
            f"The group {s.group!r} was merged from several, and is hidden as one. Inside of it, the values of "
            f"{' and '.join(s.of)} with ten persons or more differ by so much."
        ),
    ),
    ("table rank", "undisclosed"): StatementWords(
        name=lambda s, c: "  its rank",
        text=lambda s, c: (
            f"correlation ≤ {rounded_up(s.distance)}, counted, of anything in a row with the rank of {column_of(c)} "
            f"(knowing it of 50 %: ≤ {rounded_up(s.known['0.5'])})"
        ),
        says=lambda s, c: (
            f"No function of a row of this table has a larger correlation with the rank of {column_of(c)}. Knowing it "
            f"of a random half: {rounded_up(s.known['0.5'])}."
        ),
    ),
    ("together", "undisclosed"): StatementWords(
        name=lambda s, c: "all releases",
        text=lambda s, c: (
            f"Δ = {rounded_up(s.distance)}, counted, {_adversary(c, s.distance)}, from all rows of a person in "
            f"{len(c.previous) + 1} releases together ({_persons_in_all(s)} are in all of them)"
        ),
        says=lambda s, c: (
            f"All rows of a person in {len(c.previous) + 1} releases, linked, tell no more. {_persons_in_all(s)} are "
            "in all of them."
        ),
    ),
    ("population", "blocks"): _TO_COME,
    ("population", "narrow blocks"): _TO_COME,
    ("population", "mixed blocks"): StatementWords(
        name=lambda s, c: f"  their {' and '.join(s.of)}",
        text=lambda s, c: (
            f"Δ ≤ {rounded_up(s.distance)} between any two of {len(s.parts)} values, with probability "
            f"{100 * (1 - s.delta):g} %"
        ),
        says=lambda s, c: (
            f"From the shared row of a person who is encoded later, nobody tells two values of {' and '.join(s.of)} "
            "apart better, where groups have the same shares as in this table."
        ),
    ),
    ("population rank", "narrow blocks"): StatementWords(
        name=lambda s, c: "  their rank",
        text=lambda s, c: (
            f"correlation ≤ {rounded_up(s.distance)} of anything in a row with the rank of {column_of(c)}, with "
            f"probability {100 * (1 - s.delta):g} %"
        ),
        says=lambda s, c: (
            "No function of the shared row of a person who is encoded later has a larger correlation with the rank of "
            f"{column_of(c)}."
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

_RELEASED = {
    "row": "rows drawn from cells",
    "panel": "all rows of each person, drawn together from cells",
    "cell": "cell",
    "latent": "latent",
}
_ABSENT = {
    "population": ("persons to come", "no statement: that takes a release of cells, and enough persons"),
    "model": ("model", "no statement: there is no density of the release"),
    "attack": ("attack", "not attacked"),
}


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
    found = [("sensitive", c.attribute), ("released", " and ".join([_RELEASED[c.released] + cells, *c.labels]))]
    if c.target is not None:
        found.append(("target", f"Δ ≤ {c.target:.4g}, {_adversary(c, c.target)}{taken_by_size(c)}"))
    for s in c.statements:
        said = STATEMENTS[s.about, s.by]
        found.append((said.name(s, c), said.text(s, c)))
    if c.model_with_gaps is not None:
        text = f"Δ̂ + gaps = {rounded_up(c.model_with_gaps)}; no promise, because the gaps may be larger than measured"
        found.append(("  model and gaps", text))
    stated = {s.about for s in c.statements}
    found += [line for about, line in _ABSENT.items() if about not in stated]
    counted = ", ".join(f"{group}: {count:,}" for group, count in c.n.items())
    unit = "rows of different persons" if c.most_rows > 1 else "persons"
    look = f"; look {c.look} of these persons" if c.look else ""
    if any(assumption.key == "looks not counted" for assumption in c.assumptions):
        look = "; without names, so that earlier looks are not counted"
    of_table = "persons of the table, each with all of their rows" if c.released == "panel" else "rows of the table"
    found.append(("counted", f"{unit if c.look else of_table}, {counted}{look}"))
    if c.releases > 1:
        found.append(("releases", f"{c.releases} of these rows, by the producer's record; together they may tell more"))
    found.append(("probability of error", f"δ = {c.delta:g}; spent: {spent(c)}"))
    found += [("notice", text) for text in c.notices]
    found += [("issued", c.issued), *c.about.lines]
    found.append(("computed from", f"model {c.model}, rows {c.rows}, seed {c.seed}"))
    return found


def persons_of(c: Certificate) -> list[float]:
    """Return the numbers of persons of the groups, where these have several rows of equal weight, or of rows."""
    table = c.find("table")
    return list((table.persons if table is not None and table.persons else c.n).values())


def taken_by_size(c: Certificate) -> str:
    """Say that the target was taken for the number of persons, if it was, and what the usual one would allow."""
    if c.target_by == "user":
        return ""
    if c.find("table rank") is not None:
        return f" (taken for {sum(c.n.values()):,} persons)"
    persons = persons_of(c)
    usual = plan_cells(persons, TARGETS[0], c.delta) if c.target != TARGETS[0] else None
    cells = (
        ""
        if c.target == TARGETS[0]
        else f"; {TARGETS[0]:g} would allow {usual.n_cells if usual else 'fewer than 2'} cells"
    )
    return f" (taken for {round(sum(persons)):,} persons{cells})"


def allowed_by(c: Certificate) -> str:
    """Return the first of the usual targets that allows a statement about persons to come, if one does."""
    for target in TARGETS:
        plan = plan_cells(persons_of(c), target, c.delta) if c.target is None or target > c.target else None
        if plan is not None and plan.population is not None:
            return f": target={target:g} would allow it"
    return ""


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
    who = "adversary" if c.has_two_groups else "between the worst pair of groups an adversary"
    return f"{who} {percent_at_most((1 + distance) / 2)}"
