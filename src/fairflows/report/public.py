"""What a receiver of a table may read about it: the one place that decides it for the public report.

The certificate, its exports and the shared rows hold nothing of the original table but the names of released columns,
of groups and of labels: the counts are merged as they are made (`fairflows.certificate.counting`), and rows are drawn.
"""

from __future__ import annotations

from typing import Any

from fairflows.report.numbers import without_few

Contents = dict[str, Any]

_NAMELESS = "the shared table"


def public_contents(contents: Contents) -> Contents:
    """Return the contents of a report without what only the owner of the table may read.

    Left out are the name of its file, the ranges of columns and the shares of their values, rates of labels of which a
    group has few persons, names of groups that were merged, and numbers of 1 to 9 rows.
    """
    data, useful = contents["data"], contents.get("usefulness")
    has_rates = data["rates_are_public"]
    data = data | {
        "name": _NAMELESS,
        "rate_names": data["rate_names"] if has_rates else [],
        "groups": [group if has_rates else group | {"rates": []} for group in data["groups"]],
        "columns": [
            {"name": c["name"], "kind": c["kind"], **{n: without_few(f"{c[n]:,}") for n in ("values", "missing")}}
            for c in data["columns"]
        ],
        "notes": [without_few(note) for note in data["public_notes"]],
        "first": [without_few(note) for note in data["first"]],
    }
    if useful is not None and useful["rows"] is not None:
        useful = useful | {"rows": {name: value for name, value in useful["rows"].items() if name != "shapes"}}
    return contents | {"data": data, "usefulness": useful}
