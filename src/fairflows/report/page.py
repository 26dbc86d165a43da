"""The report about a model: its contents as plain values, and one self-contained HTML page.

The public page holds one script, `check.js`, by which a receiver checks the shared table in a browser.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairflows.attack.auditing import Audit
from fairflows.bounds.cells import has_few_persons
from fairflows.certificate.certificate import Certificate
from fairflows.display import MODEL
from fairflows.encoder.base import Model
from fairflows.report import assumptions, numbers, statement_words, table_words, verdict, worth_words
from fairflows.report.people import guesses_of_100, headline, people_svg
from fairflows.report.pictures import bounds_of
from fairflows.report.public import public_contents
from fairflows.table.columns import is_continuous, sorted_values
from fairflows.table.folders import new_file
from fairflows.table.table import Table
from fairflows.worth.usefulness import Usefulness

Contents: TypeAlias = dict[str, Any]
"""What a report is about, by section: values as JSON has them."""

_NOT_SHOWN = ("key", "kinds", "identifier", "progress", "encoder", "release")  # settings


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
        """Return the page; a public one says what a receiver may read (`fairflows.report.public`)."""
        template = _environment().get_template("report.html.jinja")
        certificate = Certificate.from_dict(self.contents["certificate"])
        bounds = bounds_of(certificate)
        if certificate.headline is not None:  # the bound of the model is in the appendix then
            bounds = [bound for bound in bounds if bound.colour != MODEL]
        command = ["fairflows", "check", "certificate.json", *list(certificate.released_files)[:1]]
        return template.render(
            c=certificate,
            r=public_contents(self.contents) if public else self.contents,
            public=public,
            verdict=verdict,
            statement_words=statement_words,
            worth_words=worth_words,
            assumptions=assumptions,
            bounds=bounds,
            headline=headline(certificate, self.contents.get("before")),
            people=people_svg(guesses_of_100(certificate, self.contents.get("before"))),
            command=shlex.join(command),
            checker=_checker(certificate) if public and certificate.released_files else None,
        )

    def save(self, path: str | Path, *, public: bool = False) -> None:
        """Write the page to a file."""
        with new_file(Path(path)) as side:
            side.write_text(self.to_html(public=public), encoding="utf-8")

    def _repr_html_(self) -> str:
        page = base64.b64encode(self.to_html().encode()).decode()
        return f'<iframe src="data:text/html;base64,{page}" style="width:100%;height:40em;border:0"></iframe>'


@cache
def _environment() -> Environment:
    loader = PackageLoader("fairflows.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    for name in ("percent", "percent_at_least", "percent_at_most", "at_least"):
        environment.filters[name] = getattr(numbers, name)
    environment.filters |= {"thousands": "{:,}".format, "named": _named}
    return environment


def _checker(certificate: Certificate) -> dict[str, Markup]:
    """Return the script that checks a certificate in a browser, with its hash, the certificate and its schema."""
    here = files("fairflows")
    script = (here / "report" / "check.js").read_text(encoding="utf-8")
    schema = json.loads((here / "certificate" / "certificate.schema.json").read_text(encoding="utf-8"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "script": Markup(script),
        "hash": Markup(f"sha256-{digest}"),
        "certificate": _json_in_html(json.loads(certificate.to_json())),
        "schema": _json_in_html(schema),
    }


def _json_in_html(value: object) -> Markup:
    """Return JSON that no text in it can end the element around."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _named(groups: str, names: Mapping[str, str]) -> str:
    """Return a pair of groups by their readable names."""
    return " / ".join(names.get(group, group) for group in groups.split(" / "))


def report_contents(
    model: Model,
    table: Table,
    certificate: Certificate,
    *,
    audit: Audit | None = None,
    before: Audit | None = None,
    usefulness: Usefulness | None = None,
    split: str = "",
) -> Contents:
    """Return the contents of a `Report`, as plain values.

    `audit` and `before` are attacks on the release and on the raw rows; `split` is a sentence about the parts of the
    table.
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
        "data": _data(table, split, _told_of_columns(model, table)),
        "settings": settings_of(model),
    }


def _told_of_columns(model: Any, table: Table) -> list[str]:
    """Say which columns of shared rows follow from others, which rules they keep, and what a score means."""
    if not model.traits.draws_rows:
        return []
    notes = [f"Computed instead of drawn: {text}." for text in model.derived]
    notes += [f"True in every shared row: {rule}." for rule in model.kept_rules]
    notes += table_words.redrawn(model.redrawn_, len(table)) if model.kept_rules else []
    scores = [] if model.cell_scores_ is None else list(model.cell_scores_)
    return notes + [
        f"{name}_score is the probability of {name} = {sorted_values(label)[1]}, given the cell."
        for name, label in table.label_columns().items()
        if f"{name}_score" in scores and not is_continuous(label)
    ]


def _of_rows(notes: Sequence[str]) -> list[str]:
    """Return the notes about rows that were dropped or broke rules: a reader needs these before all numbers."""
    return [note[0].upper() + note[1:].removesuffix(".") + "." for note in notes if re.match(r"[\d,]+ rows ", note)]


def settings_of(model: Model) -> dict[str, str]:
    """Return the settings of a model that are not the defaults; never the key."""
    found = {}
    for step in dict.fromkeys([model.inner_encoder, model]):
        defaults = inspect.signature(type(step)).parameters
        given = {name: v for name, v in step.get_params(deep=False).items() if name not in _NOT_SHOWN}
        changed = [f"{name} = {v!r}" for name, v in given.items() if repr(v) != repr(defaults[name].default)]
        found[type(step).__name__] = ", ".join(changed) or "as by default"
    return found


def _data(table: Table, split: str, notes: list[str]) -> Contents:
    table = table.in_halves()
    summary, grouping = table.summary(), table.grouping
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
        "first": [*_of_rows(table.notes), *_of_rows(notes)],
        "public_notes": [*(n for n in table.notes if n not in grouping.notes), *grouping.public_notes, *notes],
        "merged": any(names > 1 for names in Counter(grouping.merged.values()).values()),
    }
