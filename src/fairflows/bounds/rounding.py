"""Bounds as they are printed: rounded, and never to the side that was not proved."""

from __future__ import annotations

import math
from collections.abc import Callable


def rounded_up(bound: float, digits: int = 4) -> str:
    """An upper bound as it is printed: never below what was proved.

    Examples
    --------
    >>> rounded_up(0.057727), rounded_up(0.05), rounded_down(0.05779)
    ('0.0578', '0.0500', '0.0577')
    """
    return f"{_on_grid(bound, digits, math.ceil):.{digits}f}"


def rounded_down(bound: float, digits: int = 4) -> str:
    """A lower bound as it is printed: never above what was proved."""
    return f"{_on_grid(bound, digits, math.floor):.{digits}f}"


def _on_grid(bound: float, digits: int, to_whole: Callable[[float], int]) -> float:
    scaled = bound * 10**digits
    nearest = round(scaled)
    return (nearest if abs(scaled - nearest) < 1e-9 else to_whole(scaled)) / 10**digits  # 0.05 is no 0.0501
