"""From plain values to one self-contained HTML page."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairflows.certificate.certificate import Certificate
from fairflows.report import plots
from fairflows.report.words import (
    ABOUT_MODEL,
    at_least,
    consequences,
    light,
    more_persons,
    percent,
    percent_at_least,
    percent_at_most,
    recomputing,
    spent,
    statement_rows,
    title,
    verdict,
)

Contents: TypeAlias = dict[str, Any]
"""What a report is about, by section: values as JSON has them."""


class Report:
    """A report about one model, in plain values.

    Parameters
    ----------
    contents : dict
        The result of `fairflows.report.contents.report_contents`: the certificate, and what belongs to it, as JSON.
    verified : bool
        Whether the certificate's seal was checked with the model's key; the page says so. It is no part of the
        contents, since a file cannot vouch for itself.
    """

    def __init__(self, contents: Contents, *, verified: bool = False) -> None:
        self.contents: Contents = json.loads(json.dumps(contents))  # plain values only, and ours alone
        self.verified = verified

    def to_html(self, *, public: bool = False) -> str:
        """Return the page; a public one leaves out the ranges of columns, and advice to the producer."""
        template = _environment().get_template("report.html.jinja")
        certificate = Certificate.from_dict(self.contents["certificate"])
        said = statement_rows(certificate)
        by_model = [assumption.text for assumption in certificate.assumptions if assumption.key in ABOUT_MODEL]
        return template.render(
            c=certificate,
            r=self.contents,
            public=public,
            verified=self.verified,
            title=title(certificate),
            verdict=verdict(certificate),
            light=light(certificate),
            advice="" if public else more_persons(certificate),
            statements=[row for row in said if not row["in_appendix"]],
            modelled=[row for row in said if row["in_appendix"]],
            assumed=[a.text for a in certificate.assumptions if a.key not in ABOUT_MODEL],
            assumed_of_model=by_model,
            spent=spent(certificate),
            consequences=consequences(certificate),
            recomputing=recomputing(certificate),
            figures=self._figures,
        )

    @cached_property
    def _figures(self) -> dict[str, Markup]:
        """Draw all figures of the contents, once for both pages."""
        return _figures(self.contents)

    def save(self, path: str | Path, *, public: bool = False) -> None:
        """Write the page to a file."""
        from fairflows.table.folders import new_file

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
        drawn_bounds = [row for row in statement_rows(c) if not row["in_appendix"] or c.cell_upper is None]
        said = "; ".join(f"{str(row['name']).lower()}: {row['bound']}" for row in drawn_bounds)
        drawn["gauge"] = plots.gauge(c), f"Distance between the groups on a scale from 0 to 1: {said}."
    if r.get("tells"):
        columns = [*r["tells"]["columns"], r["tells"]["sensitive"]]
        text = "; ".join(f"{column['name']} {100 * column['told']:.0f} %" for column in columns)
        drawn["told"] = plots.told(columns), f"Share of blind-guess errors that the shared row removes: {text}."
    if r.get("metrics"):
        m = r["metrics"]
        for side in ("rates", "accuracy"):
            names, series = m["groups"], {"before": m["before"][side], "after": m["after"][side]}
            sides = [[f"{value:.3f}" if value is not None else "–" for value in values] for values in series.values()]
            texts = [f"{g}: {b} before, {a} after" for g, b, a in zip(names, *sides, strict=True)]
            x_name = f"share predicted {m['positive']}" if side == "rates" else "accuracy"
            drawn[side] = plots.bars(names, series, x_name), f"{x_name} by group. {'; '.join(texts)}."
    if r.get("cells"):
        cells = r["cells"]
        text = f"Share of each of {len(cells['names'])} cells in every group; groups that look alike have equal bars."
        drawn["cells"] = plots.shares(cells["names"], cells["shares"], "share of the group"), text
    return {name: _image(svg, text) for name, (svg, text) in drawn.items()}


def _image(svg: str, text: str) -> Markup:
    """Return an HTML image with the SVG inside: no script in it runs, and nothing is fetched."""
    data = base64.b64encode(svg.encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, text)


@cache
def _environment() -> Environment:
    loader = PackageLoader("fairflows.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "percent": percent,
        "percent_at_least": percent_at_least,
        "percent_at_most": percent_at_most,
        "at_least": at_least,
        "thousands": _thousands,
        "named": _named,
    }
    return environment


def _thousands(n: int) -> str:
    return f"{n:,}"


def _named(groups: str, names: Mapping[str, str]) -> str:
    """Return a pair of groups by their readable names."""
    return " / ".join(names.get(group, group) for group in groups.split(" / "))
