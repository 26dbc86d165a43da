"""Dividing one δ over several statements, so that all of them hold together with probability 1 - δ."""

from __future__ import annotations

import math

from fairflows.bounds.arguments import checked_delta


def delta_of_look(delta: float, look: int) -> float:
    r"""The share of δ that the j-th certificate drawn from the same persons may spend, δ · 6 / (π² j²).

    The shares of all looks, however many come, add up to δ. The first one spends 0.61 δ; a certificate that is known
    to be the only one may spend all of it.

    Examples
    --------
    >>> [round(delta_of_look(0.05, look), 4) for look in (1, 2, 3)]
    [0.0304, 0.0076, 0.0034]
    """
    if look < 1:
        raise ValueError(f"look must be 1 or more; got {look!r}.")
    return checked_delta(delta) * 6 / (math.pi * look) ** 2


def delta_of_each(delta: float, m: int) -> float:
    """δ/m: what each of m statements may spend when all must hold at once, or the best of them is reported.

    Examples
    --------
    >>> delta_of_each(0.05, 5)
    0.01
    """
    if m < 1:
        raise ValueError(f"m must be 1 or more; got {m!r}.")
    return checked_delta(delta) / m
