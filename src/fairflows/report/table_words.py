"""The words about a shared table: the result of `share`, and which of its files may leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fairflows.bounds.derived import rounded_up
from fairflows.report.numbers import percent, percent_at_least
from fairflows.report.statement_words import allowed_by, guess_of, heading, taken_by_size
from fairflows.report.verdict import leaving_out_would_do, not_covered, other_risks, remedies
from fairflows.report.worth_words import good_for, wrapped

if TYPE_CHECKING:
    from fairflows.result import Shared


def shared_text(shared: Shared) -> str:
    """Return the result of `share` in a few lines."""
    lines = [f"  {name:<8} {text}" for name, text in guesses(shared)]
    parts = [f"{heading(shared.certificate)}.", "\n".join([question(shared), *lines])]
    for name, texts in sections(shared):
        parts.append("\n".join([f"{name}:", *(wrapped(text) for text in texts)]))
    return "\n\n".join(parts)


def sections(shared: Shared) -> list[tuple[str, list[str]]]:
    """Return the text about a shared table beside its guesses, in named parts."""
    c, measured = shared.certificate, shared.report.contents
    found = {
        "What to do": remedies(c),
        "To know": [*leaving_out_would_do(c, measured["before"]), *_to_know(shared)],
        "What the table is good for": good_for(measured["usefulness"]),
        "Other risks, measured and not promised": other_risks(measured["audit"]),
        "Not covered": not_covered(c, measured["usefulness"], measured["data"]["merged"]),
    }
    return [(name, texts) for name, texts in found.items() if texts]


def _to_know(shared: Shared) -> Iterator[str]:
    c = shared.certificate
    if taken := taken_by_size(c):
        yield f"The target is Δ ≤ {c.target:g}{taken}."
    if c.look > 1:
        yield f"This is look {c.look} of these persons: the bound is wider than that of a first look would be."
    if shared.audit is None:
        yield "Nothing was attacked or measured, as asked or for too few persons: the statements hold without that."
    if not shared.release.encodes_others:
        yield f"Persons who come later cannot be encoded, because there are too few persons for that{allowed_by(c)}."
    if rules := shared.release.kept_rules:
        yield f"Every shared row keeps: {'; '.join(rules)}."
        yield from redrawn(shared.release.redrawn_, len(shared.rows))


def redrawn(n_redrawn: int, n_rows: int) -> list[str]:
    """Say how many rows were drawn again because of rules.

    The number may be public: it depends on nothing but cells and fresh randomness, as the rows do.
    """
    said = "1 row" if n_redrawn == 1 else f"{n_redrawn:,} rows"
    return [f"{said} of {n_rows:,} broke a rule and {'was' if n_redrawn == 1 else 'were'} drawn again."]


def question(shared: Shared) -> str:
    """Return the question that `guesses` answers."""
    c = shared.certificate
    pair = "" if len(c.n) == 2 else f", of the worst pair of {len(c.n)} groups"
    return f"Guessing {c.attribute}{pair}, both groups counted alike (a blind guess is right 50 % of the time):"


def guesses(shared: Shared) -> list[tuple[str, str]]:
    """Return how often guesses of the group are right before, after, and in the attack."""
    c, before, found = shared.certificate, shared.report.contents["before"], []
    if before is not None:
        raw = percent(before["balanced_accuracy"])
        found = [("before", f"about {raw}, from the original rows, by the best of our adversaries")]
    table = c.find("table")
    if table is not None:
        after, half = guess_of(table.distance), guess_of(table.known["0.5"])
        found.append(("after", f"{after}, counted on this table, for anybody; {half} knowing it of a random half"))
    together = c.find("together")
    if together is not None:
        after = guess_of(together.distance)
        found.append(("linked", f"{after}, counted, from all rows of a person in {len(c.previous) + 1} releases"))
    if c.cell_upper is not None:
        after, confidence = guess_of(c.cell_upper), f"{100 * (1 - c.delta):g} %"
        found.append(("to come", f"at most {after}, for anybody, of persons to come ({confidence} confidence)"))
    rank = c.rank_upper
    if rank is not None:
        found.append(("rank", f"correlation at most {rounded_up(rank)} with anything in rows of persons to come"))
    if shared.audit is not None:
        reached = percent_at_least((1 + shared.audit.attack_lower) / 2)
        found.append(("tried", f"at least {reached}, reached by an actual attack ({shared.audit.best})"))
    return found


def which_file_goes_where(shared: Shared, out: Path, name: str) -> str:
    """Return which files of a saved result may leave, and which stay; `name` is the file to share, or one of two."""
    released, check = list(shared.certificate.released_files), f"{out / 'certificate.json'} {out / name}"
    files = ", ".join(str(out / file) for file in (*released, "certificate.json", "report-public.html"))
    return "\n".join(
        [
            f"Share        {files}" if shared.meets_target else f"Not yet      {files}: the target is not reached",
            f"Keep         {out / 'report.html'}, {out / 'report.json'}",
            f"Never share  {out / 'model'}: with it and its key persons can be told apart",
            f"To check     fairflows check {check if len(released) == 1 else out}",
        ]
    )
