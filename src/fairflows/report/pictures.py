"""The pictures of a certificate, of usefulness and of a frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairflows.display import ATTACK, CERTIFIED, FAINT, INK, MISSED, MODEL, Bound, axes_of, draw_bounds
from fairflows.exceptions import DataError
from fairflows.report.people import GUESSED
from fairflows.report.worth_words import TOLD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairflows.certificate.certificate import Certificate
    from fairflows.tradeoff import Frontier
    from fairflows.worth.usefulness import Usefulness


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


def draw_usefulness(found: Usefulness, ax: Axes | None) -> Axes:
    """Draw how much a shared row tells of each column, and of the sensitive attribute."""
    told = [*found.columns, found.sensitive]
    axes = axes_of(ax, 6.5, 1 + 0.24 * len(told))
    colours = [GUESSED] * len(found.columns) + [ATTACK]
    axes.barh(range(len(told)), [100 * line.told for line in told], color=colours, height=0.6)
    axes.set_yticks(range(len(told)), [line.name for line in told], parse_math=False)
    axes.set_ylim(len(told) - 0.4, -0.6)  # the first on top
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"{TOLD}, %")
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_frontier(found: Frontier, ax: Axes | None) -> Axes:
    """Draw the models of a frontier, Δ against accuracy, and the mean of each strength with its 95 % interval.

    Without a label it is Δ against the strength.
    """
    models, means = found.to_frame(), found.summary().reset_index()
    measure = "accuracy" if "accuracy" in models else "strength"
    axes = axes_of(ax, 5.5, 3.6)
    axes.scatter(models["distance"], models[measure], color=FAINT, edgecolors=INK, s=25, label="models", zorder=2)
    widths = {"xerr": means["distance ±"].fillna(0)}
    if measure == "accuracy":
        widths["yerr"] = means["accuracy ±"].fillna(0)
    axes.errorbar(means["distance"], means[measure], **widths, color=GUESSED, marker="o", label="mean, 95 %", zorder=3)
    axes.set_xlabel("distance Δ between the groups (0: alike)")
    axes.set_ylabel(measure)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
