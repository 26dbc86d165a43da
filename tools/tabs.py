"""A hook of mkdocs: code blocks that say the same in several languages become tabs.

On a page they follow each other below ``<!-- tabs: Python, Command -->``: GitHub shows one after the other.
"""

from __future__ import annotations

import re
from textwrap import indent

_TABS = re.compile(r"^<!-- tabs: (.+) -->\n((?:\n*^```\w+\n(?:.*\n)*?^```\n)+)", flags=re.MULTILINE)
_BLOCK = re.compile(r"^```\w+\n(?:.*\n)*?^```\n", flags=re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with its tabs."""
    return _TABS.sub(tabs, markdown)


def tabs(found: re.Match[str]) -> str:
    """One tab for each block."""
    names, blocks = found[1].split(", "), _BLOCK.findall(found[2])
    return "\n".join(f'=== "{name}"\n\n{indent(block, "    ")}' for name, block in zip(names, blocks, strict=True))
