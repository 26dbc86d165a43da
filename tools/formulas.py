"""A hook of mkdocs: formulas become MathML, which browsers typeset without a script and without asking another host.

On pages they stand as GitHub shows them, $…$ and $$…$$; in docstrings as Sphinx does, ``.. math::`` and ``:math:`…```.
"""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

_PARSED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)
_DIRECTIVE = re.compile(r"^( *)\.\. math:: *(.*)$")
_ALIGNED = r"\begin{{aligned}}{}\end{{aligned}}"
_BEFORE_ARITHMATEX = 26  # and before fenced code: docstrings have neither in formulas


class Docstrings(Preprocessor):
    """The formulas of docstrings, as those of pages."""

    def run(self, lines: list[str]) -> list[str]:
        """Turn directives and roles into dollars."""
        done: list[str] = []
        rest = list(lines)
        while rest:
            line = rest.pop(0)
            if not (found := _DIRECTIVE.match(line)):
                done.append(re.sub(r":math:`([^`]+)`", r"$\1$", line))
                continue
            indent, first = found.groups()
            parts = [first]
            while rest and rest[0].startswith(f"{indent} ") and rest[0].strip():
                parts.append(rest.pop(0).strip())
            formula = " ".join(parts)
            if r"\\" in formula:
                formula = _ALIGNED.format(formula)
            done += ["", f"{indent}$$", f"{indent}{formula}", f"{indent}$$", ""]
        return done


class Formulas(Extension):
    """Markdown with the formulas of docstrings."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802, the name that Markdown calls
        """Read directives before all else."""
        md.preprocessors.register(Docstrings(md), "formulas-of-docstrings", _BEFORE_ARITHMATEX)


def on_config(config: MkDocsConfig) -> None:
    """Let pages and docstrings read formulas."""
    config.markdown_extensions.append(Formulas())


def on_page_content(html: str, **_: object) -> str:
    """The page with its formulas as MathML."""
    return _PARSED.sub(lambda found: as_mathml(unescape(found[2]), is_block=found[1] == "div"), html)


def as_mathml(formula: str, is_block: bool) -> str:
    """A formula in LaTeX as MathML."""
    mathml = convert(formula.strip(), display="block" if is_block else "inline")
    return f'<div class="formula">{mathml}</div>' if is_block else mathml
