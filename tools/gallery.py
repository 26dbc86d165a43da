"""A hook of mkdocs: the pages in docs/gallery are run as notebooks, and the site shows them with what they gave.

A page is Markdown with Python blocks. It is run from top to bottom by a Jupyter kernel of its own, in an empty folder
and with a book of looks of its own. An error in it stops the build. The notebook lies beside the page, to be
downloaded.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

if TYPE_CHECKING:  # the tests do without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

FOLDER = "gallery/"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n?", flags=re.MULTILINE | re.DOTALL)
_SHARP_FIGURES = "%config InlineBackend.figure_format = 'retina'"
_SECONDS = 1800  # that a cell may take, on a busy machine too


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Run the pages, and add their notebooks to the site's files."""
    from mkdocs.structure.files import File

    for file in [file for file in files.documentation_pages() if file.src_uri.startswith(FOLDER)]:
        notebook = run(file.content_string)
        files.append(File.generated(config, notebook_uri(file), content=nbformat.writes(notebook)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str | None:
    """The page with its outputs, in the place of the page."""
    if not page.file.src_uri.startswith(FOLDER):
        return None
    link = f"[Download this page as a notebook]({Path(notebook_uri(page.file)).name})"
    return f"{with_outputs(run(page.file.content_string))}\n{link}\n"


def notebook_uri(file: File) -> str:
    """Where the notebook of a page lies."""
    return str(Path(file.src_uri).with_suffix(".ipynb").as_posix())


@cache  # `mkdocs serve` builds the site again and again
def run(markdown: str) -> NotebookNode:
    """The page as a notebook with its outputs."""
    setting = new_code_cell(_SHARP_FIGURES)
    notebook = new_notebook(cells=[setting, *cells(markdown)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as folder:
        # The looks of whoever builds the site must not change what its pages certify.
        env = {"OMP_NUM_THREADS": "1", **os.environ, "FAIRFLOWS_LEDGER": str(Path(folder) / "ledger")}
        env.pop("MPLBACKEND", None)  # figures go into the page, whatever else this shell draws them with
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=_SECONDS, resources=place, extra_arguments=["--log-level=ERROR"])
        client.execute(env=env)
    notebook.cells.remove(setting)
    return notebook


def cells(markdown: str) -> Iterator[NotebookNode]:
    """The text and the Python blocks of a page, in order."""
    for i, part in enumerate(_BLOCK.split(markdown)):  # text and blocks in turn
        if part.strip():
            yield new_code_cell(part.rstrip()) if i % 2 else new_markdown_cell(part.strip())


def with_outputs(notebook: NotebookNode) -> str:
    """The notebook as Markdown, each output below its block."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [f'<div class="output">{as_html(output)}</div>' for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def as_html(output: NotebookNode) -> str:
    """An output in its richest form."""
    if output.output_type == "stream":
        return f"<pre>{escape(output.text)}</pre>"
    if "text/html" in output.data:
        return output.data["text/html"]
    if "image/png" in output.data:
        data, width = output.data["image/png"].strip(), output.metadata["image/png"]["width"]
        return f'<img alt="The figure that the code above draws." width="{width}" src="data:image/png;base64,{data}">'
    return f"<pre>{escape(output.data['text/plain'])}</pre>"
