"""Show work and results to a person: stages and progress bars, HTML for notebooks, bounds drawn on one scale."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from fairflows.bounds.derived import rounded_down, rounded_up

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from rich.progress import Progress

Result = TypeVar("Result")
ShowProgress = Callable[[int, int | None, str], None]
"""Called with what is done, of how much (None if that is not known), and a text to show beside the bar."""

CardPart = str | Sequence[str] | Sequence[tuple[str, str]]

Hear = Callable[[str, int | None, int | None], None]
"""Called with the stage that begins; or with the work inside it, what is done of it, and of how much."""

_stages: ContextVar[Progress | None] = ContextVar("stages", default=None)
_hear: ContextVar[Hear | None] = ContextVar("hear", default=None)


@contextmanager
def listening(hear: Hear) -> Iterator[None]:
    """Let a function hear what the work inside says; the function stops the work by raising an error."""
    before = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(before)


@contextmanager
def stages() -> Iterator[None]:
    """Print what the work inside says, on standard error; on a terminal show its bars, too."""
    bars = _bars(transient=True)
    bars.add_task("", total=None, text="")  # moves while there is no other bar, and counts the time
    before = _stages.set(bars)
    try:
        with bars if bars.console.is_terminal else nullcontext():  # elsewhere rich would print an empty line at the end
            yield
    finally:
        _stages.reset(before)


def say(text: str) -> None:
    """Print the stage of the work that begins, with the time so far, if it is done within `stages`."""
    if hear := _hear.get():
        hear(text, None, None)
    if bars := _stages.get():
        line = f"[{bars.tasks[0].elapsed:5.0f} s] {' '.join(text.split())}"
        bars.console.print(line, markup=False, highlight=False)


@contextmanager
def progress_bar(verb: str, *, enabled: bool = False) -> Iterator[ShowProgress]:
    """Show a bar if it is enabled or within `stages`: the verb, the bar, a text, and the time left."""
    around, hear = _stages.get(), _hear.get()
    if hear is not None:
        yield lambda done, total, text: hear(verb, done, total)
        return
    if around is None and not enabled:
        yield lambda done, total, text: None
        return
    with nullcontext(around) if around else _bars() as bars:
        task = bars.add_task(verb, total=None, text="")
        if around:
            bars.update(bars.task_ids[0], visible=False)
        try:
            yield lambda done, total, text: bars.update(task, completed=done, total=total, text=text, refresh=True)
        finally:
            if around:
                bars.remove_task(task)
                bars.update(bars.task_ids[0], visible=True)


def tracked(results: Iterable[Result], verb: str, total: int) -> Iterator[Result]:
    """Yield results as they come; within `stages` show how many there are."""
    with progress_bar(verb) as show:
        for done, result in enumerate(results, 1):
            show(done, total, f"{done} of {total}")
            yield result


def _bars(*, transient: bool = False) -> Progress:
    """Return bars on standard error, without a line as yet."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    verb, text = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[text]}", markup=False)
    shown = verb, BarColumn(), text, TimeRemainingColumn()
    console = Console(stderr=True, force_jupyter=False)  # in a notebook rich would ask for widgets
    is_read = (
        sys.stdout is not None and sys.stdout.isatty()
    )  # what is printed goes above the bar, but not if it goes to a file
    return Progress(*shown, console=console, transient=transient, redirect_stdout=is_read)


def html_card(
    heading: str, *parts: CardPart, badge: tuple[str, str] | None = None, picture: Markup | None = None
) -> str:
    """Return a result as HTML for a notebook, without scripts or style sheets, and with all text escaped.

    The parts are sentences, lists of sentences, and lists of names with a text; the badge is a word to put before the
    heading, white on the colour that comes with it; the picture, which is SVG, comes below the heading.
    """
    return _template().render(heading=heading, parts=parts, badge=badge, picture=picture or "")


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("fairflows", ".")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("card.html.jinja")


ATTACK, MODEL, CERTIFIED = "#D55E00", "#E69F00", "#009E73"  # of bounds, by where they come from
MISSED = "#AA3377"  # of a bound beyond the target
INK, FAINT = "#202124", "#dadce0"


@dataclass(frozen=True)
class Bound:
    """A bound on the distance Δ between groups, to be drawn."""

    name: str  # what is written beside it
    value: float  # the bound, in [0, 1]
    colour: str  # of its mark: an attack's is a lower bound, the others are upper bounds

    @property
    def text(self) -> str:
        """The bound with three digits, rounded to the safe side."""
        return f"≥ {rounded_down(self.value, 3)}" if self.colour == ATTACK else f"≤ {rounded_up(self.value, 3)}"


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes that are given, else those of a new figure of this size."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    axes: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def draw_bounds(
    bounds: Sequence[Bound], axes: Axes | None = None, *, target: float | None = None, percent: bool = False
) -> Axes:
    """Draw bounds on one scale of Δ, one line each, from the top; the target is a line across.

    Lower bounds point to the right, from where the truth begins; upper ones are bars that end at a mark. With `percent`
    there is a second scale above, of (1 + Δ)/2 in percent.
    """
    axes = axes_of(axes, 6.5, 1.3 + 0.28 * len(bounds))
    end = min(1.0, max(0.1, 1.25 * max([bound.value for bound in bounds] + [target or 0])))
    for i, bound in enumerate(reversed(bounds)):
        value, colour = bound.value, bound.colour
        axes.plot([0, end], [i, i], color=FAINT, linewidth=5, solid_capstyle="round", zorder=1)
        if colour != ATTACK:
            axes.plot([0, value], [i, i], color=colour, linewidth=5, alpha=0.45, solid_capstyle="round", zorder=2)
        marker = {ATTACK: ">", MODEL: "D", CERTIFIED: "<", MISSED: "<"}[colour]
        axes.plot(value, i, marker=marker, markersize=9, color=colour, zorder=3, clip_on=False)
        axes.annotate(bound.text, (1, i), (11, 0), ("axes fraction", "data"), "offset points", va="center")
    axes.set_yticks(range(len(bounds)), [bound.name for bound in reversed(bounds)], parse_math=False)
    if target is not None:
        axes.axvline(target, color=INK, linestyle="--", linewidth=1)
        axes.annotate("target", (target, -0.55), xytext=(4, 0), textcoords="offset points", ha="left", va="bottom")
    axes.set_xlim(0, end)
    axes.set_ylim(-0.6, len(bounds) - 0.3)
    axes.set_xlabel("distance Δ between the groups (0: alike)")
    axes.tick_params(axis="y", length=0, pad=11)
    axes.spines[["left", "top", "right"]].set_visible(False)
    if percent:
        scales = (lambda distance: 50 * (1 + distance)), (lambda right: right / 50 - 1)  # and back
        axes.secondary_xaxis("top", functions=scales).set_xlabel("best guess of the group is right, %")
    return axes
