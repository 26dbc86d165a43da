"""The pages in docs/gallery are run as notebooks, and shown with what they gave.

    python tools/gallery.py [PAGE ...]    # writes the outputs into the pages, where GitHub shows them

A page is Markdown with Python blocks. It is run from top to bottom by a Jupyter kernel of its own, in an empty folder
and with a book of looks of its own. As a hook of mkdocs this file runs the pages anew and shows outputs in their
richest form. An error, a warning or a progress bar stops the run. The notebook lies beside the page, to be downloaded.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads hooks by their path
from faults import faults_of

if TYPE_CHECKING:  # the tests do without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent.parent / "docs"
FOLDER = "gallery/"
_FIGURES = "images/gallery"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n?", flags=re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"\n*<!-- output -->\n.*?<!-- end of output -->\n", flags=re.DOTALL)
_SHARP_FIGURES = "%config InlineBackend.figure_format = 'retina'"
_SECONDS = 1800  # that a cell may take, on a busy machine too
_ALT = "The figure that the code above draws."
_COLOURS = 64  # of a stored figure


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Run the pages, and add their notebooks to the site's files."""
    from mkdocs.structure.files import File

    for file in [file for file in files.documentation_pages() if file.src_uri.startswith(FOLDER)]:
        notebook = run(without_outputs(file.content_string))
        files.append(File.generated(config, notebook_uri(file), content=nbformat.writes(notebook)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str | None:
    """The page with its outputs, in the place of the page."""
    if not page.file.src_uri.startswith(FOLDER):
        return None
    link = f"[Download this page as a notebook]({Path(notebook_uri(page.file)).name})"
    return f"{with_outputs(run(without_outputs(page.file.content_string)), as_html)}\n{link}\n"


def notebook_uri(file: File) -> str:
    """Where the notebook of a page lies."""
    return str(Path(file.src_uri).with_suffix(".ipynb").as_posix())


def without_outputs(markdown: str) -> str:
    """The page as its author wrote it."""
    return _OUTPUT.sub("\n", markdown)


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
    check_outputs(notebook)
    return notebook


def check_outputs(notebook: NotebookNode) -> None:
    """Raise if an output is nothing that a reader should see."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            faults = faults_of(as_text(output) + as_html(output))
            if output.get("name") == "stderr":
                faults.append("text on stderr")
            if faults:
                raise ValueError(f"A block shows {' and '.join(faults)}:\n{cell.source}\n---\n{as_text(output)}")


def cells(markdown: str) -> Iterator[NotebookNode]:
    """The text and the Python blocks of a page, in order."""
    for i, part in enumerate(_BLOCK.split(markdown)):  # text and blocks in turn
        if part.strip():
            yield new_code_cell(part.rstrip()) if i % 2 else new_markdown_cell(part.strip())


def with_outputs(notebook: NotebookNode, shown: Callable[[NotebookNode], str]) -> str:
    """The notebook as Markdown, each output below its block."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def as_html(output: NotebookNode) -> str:
    """An output in its richest form."""
    if output.output_type == "stream":
        inside = f"<pre>{escape(output.text)}</pre>"
    elif "text/html" in output.data:
        inside = output.data["text/html"]
    elif "image/png" in output.data:
        data, width = output.data["image/png"].strip(), output.metadata["image/png"]["width"]
        inside = f'<img alt="{_ALT}" width="{width}" src="data:image/png;base64,{data}">'
    else:
        inside = f"<pre>{escape(output.data['text/plain'])}</pre>"
    return f'<div class="output">{inside}</div>'


def as_text(output: NotebookNode) -> str:
    """The lines of an output; none for a figure."""
    if output.output_type == "stream":
        return output.text.rstrip()
    return "" if "image/png" in output.data else output.data["text/plain"].rstrip()


def store(page: Path) -> None:
    """Run a page, and write it anew with its outputs: texts as blocks, figures as files."""
    n_figures = 0

    def shown(output: NotebookNode) -> str:
        nonlocal n_figures
        if text := as_text(output):
            inside = "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```"
        else:
            n_figures += 1
            figure = DOCS / _FIGURES / f"{page.stem}-{n_figures}.png"
            small_figure(output.data["image/png"], figure)
            width = output.metadata["image/png"]["width"]
            inside = f'<img alt="{_ALT}" width="{width}" src="../{_FIGURES}/{figure.name}">'
        return f"<!-- output -->\n{inside}\n<!-- end of output -->"

    text = with_outputs(run(without_outputs(page.read_text("utf-8"))), shown)
    page.write_text(text, "utf-8")


def small_figure(data: str, path: Path) -> None:
    """Write a figure with few colours."""
    from PIL import Image

    path.parent.mkdir(exist_ok=True)
    Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB").quantize(_COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    for name in parser.parse_args().pages or sorted((DOCS / FOLDER).glob("*.md")):
        store(name)
