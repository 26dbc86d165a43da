"""What a watch says: its lines in a terminal, and its picture, on axes and for a page."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.display import ATTACK, CERTIFIED, FAINT, INK
from fairflows.report.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairflows.watching.watch import Watch

CUT_AGAIN = "Cut again: share a table of newer persons, and encode by it from now on."
"""What to do when the population has moved."""


def lines(watched: Watch) -> list[str]:
    """Return what is known, in three lines, and others for who waits or was not counted."""
    last, lamps = watched.last, watched.lamps
    if last is None:
        return ["Nobody was counted yet."]
    alarm = f"(alarm at {1 / watched.alpha:,.0f})"
    law = f"law    {lamps['law']:<8} evidence {_evidence(last.law)} {alarm}"
    bound = (
        f"bound  {lamps['bound']:<8} evidence {_evidence(last.gap)} {alarm} against Δ ≤ {rounded_up(watched.bound, 3)}"
    )
    now = f"now    Δ between {rounded_down(last.lower, 3)} and {rounded_up(last.upper, 3)}"
    found = [
        law if watched.moved is None else f"{law}, since {watched.moved}. {CUT_AGAIN}",
        bound if watched.refuted is None else f"{bound}, refuted on {watched.refuted}",
        f"{now}, {watched.persons:,} persons, since {last.since}",
    ]
    if watched.waiting:
        found.append(f"waiting {watched.waiting:,} persons, for one of every group: not in Δ and the bound yet")
    if last.not_counted:
        found.append(f"not counted: {', '.join(f'{n:,} {what}' for what, n in last.not_counted.items())}")
    return found


def draw(watched: Watch, ax: Axes | None) -> Axes:
    """Draw the present Δ with its lower and upper sequence, the certified bound, and the days of alarms."""
    from matplotlib.dates import ConciseDateFormatter, date2num

    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(7, 3), layout="constrained")[1]
    days = np.array([look.date for look in watched.looks], dtype="datetime64[D]")
    lower, upper = (np.array([getattr(look, name) for look in watched.looks]) for name in ("lower", "upper"))
    ax.fill_between(days, lower, upper, color=FAINT, label="Δ, lower and upper sequence")
    ax.plot(days, lower, color=INK, linewidth=1)
    ax.axhline(watched.bound, color=CERTIFIED, linestyle="--", label="certified for persons to come")
    for day, name in ((watched.moved, "MOVED"), (watched.refuted, "REFUTED")):
        if day is not None:
            at = date2num(np.datetime64(day))
            ax.axvline(at, color=ATTACK, linewidth=1)
            ax.annotate(name, (at, 1), (3, -10), ("data", "axes fraction"), "offset points")
    ax.set_ylim(0, min(1.0, 1.1 * max([watched.bound, *np.minimum(upper, 2.5 * watched.bound)])))
    ax.xaxis.set_major_formatter(ConciseDateFormatter(ax.xaxis.get_major_locator()))
    ax.set_ylabel("distance Δ between the groups")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0.2)
    return ax


def curve(watched: Watch) -> dict[str, Any] | None:
    """Return the present Δ with its band over time, in a box of 100 × 40, for the picture of a watch."""
    looks = watched.looks
    if not looks:
        return None
    days = [date.fromisoformat(look.date).toordinal() for look in looks]
    shown = [min(look.upper, max(2.5 * watched.bound, 2 * look.lower)) for look in looks]
    top = min(1.0, 1.1 * max(watched.bound, *shown))

    def point(day: int, height: float) -> str:
        return f"{100 * (day - days[0]) / max(1, days[-1] - days[0]):.1f},{40 * (1 - min(1.0, height / top)):.1f}"

    lower = [point(day, look.lower) for day, look in zip(days, looks, strict=True)]
    upper = [point(day, look.upper) for day, look in zip(days, looks, strict=True)]
    if days[0] == days[-1]:  # of one day: its last values, all the way
        lower, upper = (
            ["0" + part[-1][part[-1].index(",") :], "100" + part[-1][part[-1].index(",") :]] for part in (lower, upper)
        )
    at = {name: day for name, day in (("MOVED", watched.moved), ("REFUTED", watched.refuted)) if day is not None}
    return {
        "lower": " ".join(lower),
        "band": " ".join([*lower, *reversed(upper)]),
        "bound": point(days[0], watched.bound).split(",")[1],
        "alarms": {name: point(date.fromisoformat(day).toordinal(), 0).split(",")[0] for name, day in at.items()},
        "top": number(top),
        "days": (looks[0].date, looks[-1].date),
    }


def _evidence(log_e: float) -> str:
    """Return an e-value as text."""
    return f"{np.exp(log_e):.2g}" if log_e < np.log(1e6) else f"10^{log_e / np.log(10):.0f}"
