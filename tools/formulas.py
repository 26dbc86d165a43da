"""A hook of mkdocs: formulas of pages and docstrings in the one form that the site typesets.

On pages they stand as GitHub shows them, $…$ and blocks of "math"; in docstrings as Sphinx does, ``.. math::`` and
``:math:`…```.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

_DIRECTIVE = re.compile(r"^( *)\.\. math:: *(.*)$")
_BEFORE_CODE = 30  # superfences have 25


class Dollars(Preprocessor):
    """Write each formula between dollars."""

    def run(self, lines: list[str]) -> list[str]:
        """Turn blocks, directives and roles into dollars."""
        done: list[str] = []
        rest = list(lines)
        while rest:
            line = rest.pop(0)
            if line == "```math":
                end = rest.index("```")
                done += ["", "$$", *rest[:end], "$$", ""]
                del rest[: end + 1]
            elif found := _DIRECTIVE.match(line):
                indent, formula = found.groups()
                while rest and rest[0].startswith(f"{indent} ") and rest[0].strip():
                    formula += " " + rest.pop(0).strip()
                if "&" in formula:
                    formula = rf"\begin{{aligned}}{formula}\end{{aligned}}"
                done += ["", f"{indent}$$", f"{indent}{formula}", f"{indent}$$", ""]
            else:
                done.append(re.sub(r":math:`([^`]+)`", r"$\1$", line))
        return done


class Formulas(Extension):
    """Markdown with formulas."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802, the name that Markdown calls
        """Read formulas before all else."""
        md.preprocessors.register(Dollars(md), "formulas", _BEFORE_CODE)


def on_config(config: MkDocsConfig) -> None:
    """Let pages and docstrings have formulas."""
    config.markdown_extensions.append(Formulas())
