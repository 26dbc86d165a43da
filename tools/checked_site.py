"""A hook of mkdocs: the site is refused where a page shows what it should not, or asks another host for a part."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads hooks by their path
from faults import faults_of, requests_of, untypeset

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

REFERENCE = "api"  # whose docstrings show errors on purpose


def on_post_build(config: MkDocsConfig) -> None:
    """Read all pages and style sheets."""
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)} shows {fault}"
        for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")])
        for fault in faults_of_page(path.read_text("utf-8"), has_errors=path.parent.name == REFERENCE)
    ]
    if found:
        raise PluginError("; ".join(found))


def faults_of_page(html: str, has_errors: bool = False) -> list[str]:
    """Return what a page shows and should not, or loads from elsewhere. Data inside a page are no text."""
    text = re.sub(r"data:[\w/]+;base64,[\w+/=]+", "", html)
    return requests_of(text) + untypeset(text) + ([] if has_errors else faults_of(text))
