"""The first picture of a result: of 100 guesses of the group those that are right, before, after, and by a coin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairflows.bounds.derived import rounded_up
from fairflows.display import axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairflows.certificate.certificate import Certificate

Guesses = Sequence[tuple[str, float]]
"""Who guesses, and how many of 100 guesses are right."""

GUESSED = "#0072B2"  # is seen on light and on dark, and by colour-blind people
_OTHERS = "#80868b"
_BEFORE, _AFTER = "before, by an adversary", "after, at most"


def guesses_of_100(c: Certificate, before: Mapping[str, Any] | None) -> list[tuple[str, float]]:
    """Return how many of 100 guesses between two groups are right; empty where nothing is certified.

    The bound is rounded up; what an adversary reached is rounded to the nearest.

    `before` is the best adversary on the original rows, as a report has it.
    """
    stated = c.headline
    if stated is None:
        return []
    found = [] if before is None else [(_BEFORE, round(100 * before["balanced_accuracy"], 1))]
    return [*found, (_AFTER, float(rounded_up(50 * (1 + stated.distance), 1))), ("by a coin", 50.0)]


def headline(c: Certificate, before: Mapping[str, Any] | None) -> str:
    """Return all of it in at most 25 words; empty where nothing is certified."""
    right = dict(guesses_of_100(c, before))
    if not right:
        return ""
    is_short = c.has_two_groups and len(c.attribute.split()) == 1
    what = f"guesses of {c.attribute}" if is_short else "guesses between two groups"
    found = f"rom a shared row, at most {right[_AFTER]:g} of 100 {what} are right"
    start = f"F{found}" if c.status == "CERTIFIED" else f"Target missed: f{found}"
    raw = f"from the original rows {right[_BEFORE]:g}; " if _BEFORE in right else ""
    return f"{start}; {raw}a coin: 50."


def people_svg(guesses: Guesses) -> Markup:
    """Draw for each guess 100 persons, and those of them who are guessed right."""
    return Markup(_environment().get_template("people.svg.jinja").render(guesses=guesses, colour=GUESSED))


@cache
def _environment() -> Environment:
    loader = PackageLoader("fairflows.report", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def draw_people(guesses: Guesses, ax: Axes | None) -> Axes:
    """Draw the same as `people_svg` on axes."""
    axes = axes_of(ax, 2.4 * max(1, len(guesses)), 2.9)
    for place, (name, right) in enumerate(guesses):
        i = np.arange(100)
        x, y, is_right = i % 10 + 12 * place, -(i // 10), i < round(right)
        axes.scatter(x[~is_right], y[~is_right], s=40, facecolors="none", edgecolors=_OTHERS)
        axes.scatter(x[is_right], y[is_right], s=40, color=GUESSED)
        axes.annotate(f"{right:g}", (12 * place - 0.4, 2.1), fontsize=16, fontweight="bold")
        axes.annotate(name, (12 * place - 0.4, 1), fontsize=9)
    axes.set_ylim(-10, 4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return axes
