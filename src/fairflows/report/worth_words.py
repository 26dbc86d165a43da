"""The words about the worth of a shared table: to train on, to decide by, beside the real one."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from fairflows.report.numbers import number, percent

if TYPE_CHECKING:
    from fairflows.worth.usefulness import Usefulness

TOLD = "Share of blind-guess errors that the shared row removes"

_MOST_COLUMNS = 8  # of a shared table, in the terminal
_MANY_PERSONS = 9_604  # whose shares chance moves by less than a point

_WIDTH = 100  # of lines in the terminal


def usefulness_text(found: Usefulness) -> str:
    """Return the worth of a shared table, in a few lines."""
    lines = [f"What the shared table is worth, judged on {found.n:,} rows of persons whom nothing was learnt from"]
    return "\n".join([*lines, *(wrapped(text) for text in good_for(found.to_dict()))])


def good_for(usefulness: dict[str, Any] | None) -> list[str]:
    """Return the uses of a shared table: to train on, to decide by, beside the real one, by column."""
    if usefulness is None:
        return []
    labels, rows = usefulness["labels"], usefulness["rows"]
    found = [text for label in labels for text in [*_to_train_on(label), *_to_decide_by(label)]]
    if not labels:
        found = ["No label was named: name one to see what a model learnt from the table is worth."]
    if labels and usefulness["n"] < _MANY_PERSONS:
        off = 98 / usefulness["n"] ** 0.5
        found.append(
            f"These shares are of {usefulness['n']:,} persons: chance moves each by up to {off:.1f} points (95 %)."
        )
    if rows is not None:
        found.append(_like_the_original(rows))
    if (panels := usefulness.get("panels")) is not None:
        found.append(_like_the_histories(panels))
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


def _like_the_histories(panels: dict[str, Any]) -> str:
    """Compare histories: numbers of rows, steps in time, changes from row to row, and a model of the next row."""
    shared, others = map(percent, panels["lengths"])
    parts = [f"numbers of rows differ by {shared} (other persons: {others})"]
    if panels["steps"] is not None:
        shared, others = map(percent, panels["steps"])
        parts.append(f"steps in time by {shared} ({others})")
    texts = {"unchanged": "unchanged from row to row", "autocorrelation": "correlated with the row before"}
    for name, said in texts.items():
        if both := panels[name]:
            worst = max(both, key=lambda column: abs(both[column][0] - both[column][1]))
            real, shared = (f"{value:.2f}" for value in both[worst])
            parts.append(f"{said}, {worst} differs most: {shared} and not {real}")
    if panels["next_label"] is not None:
        shared, real = (f"{value:.3f}" for value in panels["next_label"])
        parts.append(f"a model of the next row's label learnt from them reaches {shared} (from original rows: {real})")
    return f"Histories beside the original: {'; '.join(parts)}."


def wrapped(text: str) -> str:
    """Return a text as an item of a list in a terminal."""
    return fill(text, _WIDTH, initial_indent="  - ", subsequent_indent="    ")
