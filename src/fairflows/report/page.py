"""The report about a model: its contents as plain values, and one self-contained HTML page with its figures as SVG."""

from __future__ import annotations

import base64
import inspect
import io
import json
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fairflows.attack.auditing import Audit
from fairflows.bounds.cells import has_few_persons
from fairflows.certificate.certificate import Certificate
from fairflows.display import FAINT, GUESS, INK, MODEL, draw_bounds, height_of_bounds
from fairflows.encoder.base import Encoder
from fairflows.release.release import Release
from fairflows.report import words
from fairflows.table.columns import is_continuous, sorted_values
from fairflows.table.folders import new_file
from fairflows.table.table import Table
from fairflows.worth import Usefulness

Contents: TypeAlias = dict[str, Any]
"""What a report is about, by section: values as JSON has them."""

_NOT_SHOWN = ("key", "kinds", "progress", "encoder", "release")  # settings
_WIDTH = 5.4  # inches of a figure
_BLUE = "#0072B2"  # of Okabe and Ito, as the colours of bounds

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


class Report:
    """A report about one model, in plain values.

    Parameters
    ----------
    contents : dict
        The result of `report_contents`: the certificate, and what belongs to it, as JSON.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents: Contents = json.loads(json.dumps(contents))  # plain values only, and ours alone

    def to_html(self, *, public: bool = False) -> str:
        """Return the page; a public one leaves out the ranges of columns, and numbers of 1 to 9 rows."""
        template = _environment().get_template("report.html.jinja")
        certificate = Certificate.from_dict(self.contents["certificate"])
        command = ["fairflows", "check", "certificate.json", *list(certificate.released_files)[:1]]
        return template.render(
            c=certificate,
            r=self.contents,
            public=public,
            words=words,
            command=shlex.join(command),
            figures=self._figures,
        )

    @cached_property
    def _figures(self) -> dict[str, Markup]:
        """Draw all figures of the contents, once for both pages."""
        return _figures(self.contents)

    def save(self, path: str | Path, *, public: bool = False) -> None:
        """Write the page to a file."""
        with new_file(Path(path)) as side:
            side.write_text(self.to_html(public=public), encoding="utf-8")

    def _repr_html_(self) -> str:
        page = base64.b64encode(self.to_html().encode()).decode()
        return f'<iframe src="data:text/html;base64,{page}" style="width:100%;height:40em;border:0"></iframe>'


def _figures(r: Contents) -> dict[str, Markup]:
    """Draw each figure as an image with its alternative text; those without data are left out."""
    c = Certificate.from_dict(r["certificate"])
    drawn: dict[str, tuple[str, str]] = {}
    if c.bounds():
        drawn_bounds = [row for row in words.statement_rows(c) if not row["in_appendix"] or c.cell_upper is None]
        said = "; ".join(f"{str(row['name']).lower()}: {row['bound']}" for row in drawn_bounds)
        drawn["gauge"] = gauge(c), f"Distance between the groups on a scale from 0 to 1: {said}."
    useful = r.get("usefulness")
    if useful and useful["rows"]:
        rows = useful["rows"]
        text = "; ".join(f"{name} {100 * apart:.1f} %" for name, apart in rows["columns"].items())
        drawn["shapes"] = shapes(rows["shapes"]), f"Each column, original beside shared; difference of shares: {text}."
    return {name: _image(svg, text) for name, (svg, text) in drawn.items()}


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
    """Draw the bounds on Δ on one scale: of the attack, of the table, of persons to come, or else of the model."""
    is_stated = certificate.headline is not None
    bounds = [bound for bound in certificate.bounds() if not (is_stated and bound.colour == MODEL)]
    percent = GUESS if certificate.is_plain else ""
    with _canvas(_WIDTH, height_of_bounds(len(bounds))) as (figure, to_svg):
        draw_bounds(figure.add_subplot(), bounds, target=certificate.target, percent=percent)
        return to_svg()


def shapes(columns: list[Contents]) -> str:
    """Draw the distribution of every column, original beside shared."""
    across = 3
    down = -(-len(columns) // across)
    with _canvas(1.6 * _WIDTH, 0.5 + 1.25 * down) as (figure, to_svg):
        for number, column in enumerate(columns):
            axes = figure.add_subplot(down, across, number + 1)
            place = np.arange(len(column["values"]))
            axes.bar(place - 0.2, [100 * share for share in column["real"]], 0.4, color=FAINT, label="original")
            axes.bar(place + 0.2, [100 * share for share in column["shared"]], 0.4, color=_BLUE, label="shared")
            axes.set_title(_short(column["name"]), size=9, loc="left")
            ends = [0, len(place) - 1] if len(place) > 4 else place
            axes.set_xticks(ends, [_short(column["values"][i], 12) for i in ends], size=7)
            axes.tick_params(axis="y", labelsize=7)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        figure.supylabel("share of the rows, %", size=9)
        return to_svg()


def _short(text: str, length: int = 28) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _image(svg: str, text: str) -> Markup:
    """Return an HTML image with the SVG inside: no script in it runs, and nothing is fetched."""
    data = base64.b64encode(svg.encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, text)


@cache
def _environment() -> Environment:
    loader = PackageLoader("fairflows.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    for name in ("percent", "percent_at_least", "percent_at_most", "at_least", "without_few"):
        environment.filters[name] = getattr(words, name)
    environment.filters |= {"thousands": "{:,}".format, "named": _named}
    return environment


def _named(groups: str, names: Mapping[str, str]) -> str:
    """Return a pair of groups by their readable names."""
    return " / ".join(names.get(group, group) for group in groups.split(" / "))


def report_contents(
    model: Encoder,
    table: Table,
    certificate: Certificate,
    *,
    audit: Audit | None = None,
    before: Audit | None = None,
    usefulness: Usefulness | None = None,
    rows: pd.DataFrame | None = None,
    split: str = "",
) -> Contents:
    """Return the contents of a `Report`, as plain values.

    Parameters
    ----------
    model : encoder
        The fitted encoder.
    table : Table
        The rows that are described.
    certificate : Certificate
        Certificate of the model.
    audit, before : Audit, default=None
        Attacks on the release, and on the raw rows.
    usefulness : Usefulness, default=None
        What the shared table is worth.
    rows : DataFrame, default=None
        The rows that are shared.
    split : str, default=""
        A sentence about the parts of the rows.
    """
    raw = None
    if before is not None:  # which bounds nothing, because better adversaries may exist
        best = max(before.attacks, key=lambda attack: attack.validation)
        raw = {"adversary": best.name, "balanced_accuracy": 0.5 * (1 + best.validation)}
    return {
        "made": date.today().isoformat(),
        "certificate": certificate.to_dict(),
        "audit": None if audit is None else audit.to_dict(),
        "before": raw,
        "usefulness": None if usefulness is None else usefulness.to_dict(),
        "data": _data(table, split, _told_of_columns(model, table, rows)),
        "settings": settings_of(model),
    }


def _told_of_columns(model: Encoder, table: Table, rows: pd.DataFrame | None) -> list[str]:
    """Say which columns of shared rows follow from others, which rules they keep, and what a score means."""
    if not isinstance(model, Release):
        return []
    notes = [f"Computed instead of drawn: {text}." for text in model.derived]
    notes += [f"True in every shared row: {rule}." for rule in model.rules]
    notes += [] if rows is None else words.redrawn(rows)
    scores = [] if model.scores_ is None else list(model.scores_)
    return notes + [
        f"{name}_score is the probability of {name} = {sorted_values(label)[1]}, given the cell."
        for name, label in table.label_columns().items()
        if f"{name}_score" in scores and not is_continuous(label)
    ]


def settings_of(model: Encoder) -> dict[str, str]:
    """Return the settings of a model that are not the defaults; never the key."""
    found = {}
    for step in [model.models_[0].encoder, model] if isinstance(model, Release) else [model]:
        defaults = inspect.signature(type(step)).parameters
        given = {name: v for name, v in step.get_params(deep=False).items() if name not in _NOT_SHOWN}
        changed = [f"{name} = {v!r}" for name, v in given.items() if repr(v) != repr(defaults[name].default)]
        found[type(step).__name__] = ", ".join(changed) or "as by default"
    return found


def _data(table: Table, split: str, notes: list[str]) -> Contents:
    summary = table.summary()
    rates = [name for name in summary if name.startswith("P(")]
    columns = table.columns().reset_index(names="name")[["name", "kind", "values", "missing", "range"]]
    return {
        "name": table.name,
        "rows": len(table),
        "sensitive": str(table.a.name),
        "labels": list(map(str, table.label_columns())),
        "split": split,
        "group_names": {str(group): str(table.group_names.get(group, group)) for group in table.groups},
        "groups": [
            {
                "name": str(table.group_names.get(group, group)),
                "rows": int(row["rows"]),
                "share": float(row["share"]),
                "rates": [float(row[name]) for name in rates],
            }
            for group, row in summary.iterrows()
        ],
        "rate_names": rates,
        "rates_are_public": not has_few_persons(table.label_counts()).any(),
        "columns": columns.astype({"name": str, "range": str}).to_dict("records"),
        "notes": [*table.notes, *notes],
        "merged": any(names > 1 for names in Counter(table.grouping.merged.values()).values()),
    }
