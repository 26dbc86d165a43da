"""What no page may show: escape sequences of a terminal, warnings, tracebacks, parts that another host sends."""

from __future__ import annotations

import re

FAULTS = {
    "an escape sequence": r"\x1b|\u241b|&#27;|\[\?\d+[hl]|\[[0-2]K(?!\])|\[\d+(?:;\d+)*m(?!\w)",
    "a progress bar": "[━╸╺]",
    "a warning": r"\b\w*Warning: ",
    "a traceback": r"Traceback \(most recent call last\)",
}
REQUESTS = {
    "a part from another host": r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//",
    "a style from another host": r"(?:@import|url\()\s*[\"']?(?:https?:)?//",
}
UNTYPESET = {
    "a formula as text": r"\.\. math::|:math:|\$\$|```math",
    "emphasis between two stars of notes": r"<em>[\s,.;:)]",
}
# What search engines and readers of feeds are told; a browser requests none of them.
_UNREQUESTED = r'<link\b[^>]*\brel="?(?:canonical|prev|next|alternate)\b[^>]*>'


def faults_of(text: str) -> list[str]:
    """Return what a page shows and should not."""
    return [name for name, pattern in FAULTS.items() if re.search(pattern, text)]


def requests_of(html: str) -> list[str]:
    """Return the kinds of parts that a page of the site, or a style sheet, loads from other hosts."""
    html = re.sub(_UNREQUESTED, "", html)
    return [name for name, pattern in REQUESTS.items() if re.search(pattern, html)]


def untypeset(html: str) -> list[str]:
    """Return whether a page shows the marks of a formula instead of the formula, or takes stars of notes for marks."""
    return [name for name, pattern in UNTYPESET.items() if re.search(pattern, html)]
