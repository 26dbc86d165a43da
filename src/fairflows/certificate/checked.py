"""Results of the checks of a certificate and a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairflows.certificate.certificate import Certificate, Plain

Verdict = Literal["ok", "FAILED", "UNKNOWN", "note"]


@dataclass(frozen=True)
class Result:
    """Result of one check."""

    what: str  # the subject of the check
    verdict: Verdict  # UNKNOWN: a check that was asked for could not be made; note: no receiver can check it
    text: str  # the finding, in a sentence


@dataclass(frozen=True)
class Checked:
    """Results of `check`; true if every check passed."""

    certificate: Certificate  # it counts as checked where every check passed
    results: tuple[Result, ...]  # one for each check

    def __bool__(self) -> bool:
        return all(result.verdict in ("ok", "note") for result in self.results)

    @property
    def conclusion(self) -> str:
        """All of it in one sentence."""
        failed = sum(result.verdict == "FAILED" for result in self.results)
        if failed:
            return f"Do not rely on this certificate: {failed} {'checks' if failed > 1 else 'check'} failed."
        has_counts = any(statement.counts or statement.blocks for statement in self.certificate.statements)
        shown = "the bounds follow from the counts" if has_counts else "nothing is certified of the true distribution"
        if any(statement.by == "undisclosed" for statement in self.certificate.statements):
            shown += ", but for bounds whose counts are not printed"
        if not self:
            return f"{shown.capitalize()}; that a file belongs to the certificate is only claimed."
        status = (
            "" if self.certificate.meets_target else f" It is not a promise: its status is {self.certificate.status}."
        )
        if any(result.what == "file" for result in self.results):
            return f"All checks passed: {shown}, and the file is one that the producer names.{status}"
        return f"All checks passed: {shown}. No file was compared.{status}"

    def to_dict(self) -> dict[str, Plain]:
        """Return plain values, as JSON holds them."""
        return {"passed": bool(self), "conclusion": self.conclusion, "results": [vars(r) for r in self.results]}

    def __repr__(self) -> str:
        width = max(len(result.what) for result in self.results)
        lines = [_plain(f"{result.verdict:<8} {result.what:<{width}}  {result.text}") for result in self.results]
        return "\n".join([*lines, "", self.conclusion])


def _plain(text: str) -> str:
    """Write out line ends and characters that move a cursor: a file that is checked could show verdicts of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
