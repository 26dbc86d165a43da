"""Numbers as certificates and reports say them, rounded to the safe side."""

from __future__ import annotations

import re

from fairflows.bounds.derived import rounded_down, rounded_up


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


def without_few(text: object) -> str:
    """Replace counts of 1 to 9 by "under 10"."""
    return re.sub(r"(?<=\()[1-9](?=\))|^[1-9](?= rows |$)", "under 10", str(text))
