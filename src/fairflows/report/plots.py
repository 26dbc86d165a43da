"""The report's figures, as SVG, from plain values. Colour is never the only key: markers and hatches differ too."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict, cast

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from fairflows.certificate.certificate import Certificate
from fairflows.display import FAINT, GUESS, INK, draw_bounds, height_of_bounds, stated_bounds

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES = ("", "///", "...", "xx", "++")

_WIDTH = 5.4  # inches of a figure
_LEGEND_LINE = 0.22  # inches

_SETTINGS: dict[str, Any] = {
    "text.parse_math": False,  # a column called $x$ is text
    "svg.fonttype": "none",  # text stays text: small, sharp, and in the reader's own fonts
    "svg.hashsalt": "fairflows",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": "#5f6368",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#3c4043",
    "ytick.color": "#3c4043",
    "grid.color": FAINT,
    "legend.frameon": False,
}


@contextmanager
def _canvas(width: float, height: float) -> Iterator[tuple[Figure, Callable[[], str]]]:
    with rc_context(cast(Any, _SETTINGS)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # the reader's browser has fonts that we lack
        figure = Figure(figsize=(width, height), layout="constrained")

        def to_svg() -> str:
            stream = io.StringIO()
            FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
            return stream.getvalue()

        yield figure, to_svg


def gauge(certificate: Certificate) -> str:
    """Draw the bounds on Δ on one scale: of the attack, and the certified one, or else that of the model."""
    certified = certificate.cell_upper
    bounds = stated_bounds(certificate.attack_lower, certificate.model_upper if certified is None else None, certified)
    percent = GUESS if certificate.is_plain else ""
    with _canvas(_WIDTH, height_of_bounds(len(bounds))) as (figure, to_svg):
        draw_bounds(figure.add_subplot(), bounds, target=certificate.target, percent=percent)
        return to_svg()


def bars(names: list[str], series: dict[str, list[float | None]], x_name: str) -> str:
    """Draw horizontal bars, several series side by side; the value is written at each bar's end."""
    n, k = len(names), len(series)
    legend = _legend_columns(list(series))
    with _canvas(_WIDTH, 1.1 + max(0.34 * n * k * 0.8, 0.6) + _legend_room(k, legend)) as (figure, to_svg):
        axes = figure.add_subplot()
        height = 0.8 / k
        for j, (name, values) in enumerate(series.items()):
            places = np.arange(n) + (j - (k - 1) / 2) * height
            known = [value if value is not None else 0.0 for value in values]
            drawn = axes.barh(
                places, known, height * 0.92, color=COLOURS[j % 7], label=_short(name), alpha=0.85,
                hatch=_HATCHES[j % 5], edgecolor="white",
            )  # fmt: skip
            texts = ["–" if value is None else f"{value:.3f}" for value in values]
            axes.bar_label(drawn, texts, padding=3, fontsize=8)
        axes.set_yticks(np.arange(n), [_short(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlabel(_short(x_name, 48))
        axes.margins(x=0.14)
        if k > 1:
            figure.legend(loc="outside upper left", ncols=legend)
        return to_svg()


def shares(names: list[str], series: dict[str, list[float]], y_name: str) -> str:
    """Draw many small bars, side by side, cell by cell."""
    n, k = len(names), len(series)
    legend = _legend_columns(list(series))
    with _canvas(_WIDTH, 3.0 + _legend_room(k, legend)) as (figure, to_svg):
        axes = figure.add_subplot()
        width = 0.84 / k
        for j, (name, values) in enumerate(series.items()):
            left = np.arange(n) + (j - (k - 1) / 2) * width - width * 0.475
            right, bottom = left + width * 0.95, np.zeros(n)
            corners = np.stack([left, bottom, left, values, right, values, right, bottom], axis=1).reshape(n, 4, 2)
            # One artist for all bars of a group: hundreds of patches take most of a report's time.
            drawn = PolyCollection(list(corners), facecolors=COLOURS[j % 7], label=_short(name), hatch=_HATCHES[j % 5],
                                   edgecolors="white", linewidths=0)  # fmt: skip
            axes.add_collection(drawn)
        every = max(1, -(-n // 16))
        axes.set_xticks(np.arange(n)[::every], [_short(name, 12) for name in names[::every]])
        if max(map(len, names)) > 4:
            axes.tick_params(axis="x", labelrotation=90)
        axes.set_ylabel(_short(y_name))
        axes.margins(x=0.01)
        axes.set_ylim(0, 1.05 * max(map(max, series.values())) or 1)  # earlier matplotlib does not look at collections
        figure.legend(loc="outside upper left", ncols=legend)
        return to_svg()


class ToldColumn(TypedDict):
    """How well a column is predicted from a shared row: shares of right guesses, and of blind-guess errors removed."""

    name: str
    released: float
    majority: float
    raw: float
    told: float


def told(columns: list[ToldColumn]) -> str:
    """Draw one bar per column: the share of blind-guess errors that the shared row removes, and the raw table's."""
    n, size = len(columns), 9 if len(columns) <= 30 else 7
    with _canvas(5.4, 0.9 + n * (0.26 if size == 9 else 0.17)) as (figure, to_svg):
        axes = figure.add_subplot()
        place = np.arange(n)
        axes.barh(place, [100 * column["told"] for column in columns], 0.7, color=COLOURS[0], label="from a shared row")
        raw = [100 * max(0.0, c["raw"] - c["majority"]) / max(1 - c["majority"], 1e-9) for c in columns]
        axes.plot(raw, place, "|", color=INK, markersize=size, label="from the other columns of the raw row")
        for i, column in enumerate(columns):
            text = f"{100 * column['told']:.0f} %"
            axes.annotate(text, (100 * column["told"], i), xytext=(3, 0), textcoords="offset points", va="center",
                          size=size)  # fmt: skip
        axes.set_yticks(place, [_short(column["name"], 28) for column in columns], size=size)
        axes.set_ylim(n - 0.4, -0.6)
        axes.set_xlim(0, 108)
        axes.set_xlabel("share of blind-guess errors removed, %")
        figure.legend(loc="outside upper left", ncols=1)
        return to_svg()


def _legend_columns(names: list[str]) -> int:
    """Return how many names fit side by side: a letter is about 0.08 inches wide, a key and its margins take 0.6."""
    longest = max(len(_short(name)) for name in names)
    return max(1, min(3, len(names), int(_WIDTH / (0.6 + 0.08 * longest))))


def _legend_room(n_names: int, n_columns: int) -> float:
    """Return the inches that the lines of a legend after its first take."""
    return _LEGEND_LINE * (-(-n_names // n_columns) - 1)


def _short(text: str, length: int = 28) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
