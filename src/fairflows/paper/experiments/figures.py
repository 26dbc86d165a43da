"""How the figures look: one size, one palette that colour-blind readers can tell apart, no display needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def new_figure(n_columns: int = 1, n_rows: int = 1, width: float = 4.2, height: float = 3.4) -> tuple[Figure, Any]:
    """An empty figure that needs no display, and its axes as an array (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)
