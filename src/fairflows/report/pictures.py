"""The picture of a certificate: its bounds on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairflows.display import ATTACK, CERTIFIED, MISSED, MODEL, Bound, draw_bounds
from fairflows.exceptions import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairflows.certificate.certificate import Certificate


def bounds_of(c: Certificate) -> list[Bound]:
    """Return the bounds on Δ as they are drawn: by the attack, by the model, of the table, and certified."""
    certified = "certified at most" if c.table_distance is None else "persons to come at most"

    def colour(bound: float | None) -> str:
        return MISSED if c.target is not None and bound is not None and bound > c.target else CERTIFIED

    stated = [
        ("attack reached at least", c.attack_lower, ATTACK),
        ("model says at most", c.model_upper, MODEL),
        ("this table, counted", c.table_distance, colour(c.table_distance)),
        (certified, c.cell_upper, colour(c.cell_upper)),
    ]
    return [Bound(name, value, colour) for name, value, colour in stated if value is not None]


def draw_certificate(c: Certificate, before: float | None, ax: Axes | None) -> Axes:
    """Draw the bounds of a certificate, and above them what adversaries prove on the raw rows."""
    if before is not None and not 0 <= before <= 1:
        raise DataError(f"before must be a distance in [0, 1]; got {before!r}.")
    raw = [] if before is None else [Bound("raw rows: attack reached at least", before, ATTACK)]
    return draw_bounds([*raw, *bounds_of(c)], ax, target=c.target, percent=c.has_two_groups)
