"""Pages show what a reader should see: on GitHub, where they are as stored, and on the site."""

import importlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

import fairflows

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.md"))


def tool(name):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_shows_escape_sequences_warnings_or_tracebacks(page):
    assert tool("faults").faults_of(page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\x1b[2Ktraining", "an escape sequence"),
        ("[2Ktraining 3/30", "an escape sequence"),
        ("[91m3/30[0m", "an escape sequence"),
        ("training ━━━━━━━╸  40%", "a progress bar"),
        ("a.py:3: DataWarning: the rows have no names", "a warning"),
        ("UserWarning: Values outside", "a warning"),
        ("Traceback (most recent call last)\nCell In[1]", "a traceback"),
    ],
)
def test_faults_are_seen(text, fault):
    assert fault in tool("faults").faults_of(f"Some text.\n{text}\n")


def test_what_only_looks_like_a_fault_is_none():
    assert tool("faults").faults_of("x[0] and y[2K], `ff.DataWarning`, [1](a.md), a[91mm], Warnings are errors.") == []


@pytest.mark.parametrize(
    "output",
    [
        new_output("stream", name="stderr", text="loading"),
        new_output("stream", name="stdout", text="training \x1b[91m━━\x1b[0m"),
        new_output("display_data", {"text/html": "<pre>UserWarning: odd</pre>", "text/plain": "<Page>"}),
    ],
    ids=["stderr", "a bar", "a warning in HTML"],
)
def test_the_gallery_refuses_outputs_with_faults(output):
    gallery = tool("gallery")
    good = new_output("stream", name="stdout", text="Δ ≤ 0.1")
    gallery.check_outputs(new_notebook(cells=[new_code_cell("f()", outputs=[good])]))
    with pytest.raises(ValueError, match="A block shows"):
        gallery.check_outputs(new_notebook(cells=[new_code_cell("f()", outputs=[good, output])]))


@pytest.mark.parametrize("page", GALLERY, ids=lambda page: page.name)
def test_gallery_pages_hold_their_outputs_and_figures(page):
    """GitHub runs nothing: a page shows there what it holds."""
    text = page.read_text()
    assert text.count("<!-- output -->") >= 5
    assert re.search(r"^ax = .*\n```\n\n(?!<!-- output -->)", text, flags=re.MULTILINE) is None, "a figure lacks"
    figures = re.findall(r'<img [^>]*src="([^"]+)"', text)
    assert figures
    assert all((page.parent / figure).is_file() for figure in figures)


def test_stored_outputs_can_be_taken_away_and_put_back():
    gallery = tool("gallery")
    page = "# Page\n\n```python\n1 + 1\n```\n\nText.\n"
    notebook = new_notebook(cells=list(gallery.cells(page)))
    notebook.cells[1].outputs = [new_output("execute_result", {"text/plain": "2"})]
    shown = gallery.with_outputs(notebook, lambda _: "<!-- output -->\n```text\n2\n```\n<!-- end of output -->")
    assert "```text\n2\n```" in shown
    assert gallery.without_outputs(shown) == page


def test_no_figure_of_the_gallery_is_left_over():
    shown = "".join(page.read_text() for page in PAGES)
    assert [f.name for f in (ROOT / "docs/images/gallery").iterdir() if f"gallery/{f.name}" not in shown] == []


def test_blocks_below_a_mark_become_tabs():
    page = "<!-- tabs: Python, Command -->\n```python\nf()\n```\n\n```bash\nf\n```\n\nText.\n"
    assert tool("tabs").on_page_markdown(page) == (
        '=== "Python"\n\n    ```python\n    f()\n    ```\n\n=== "Command"\n\n    ```bash\n    f\n    ```\n\nText.\n'
    )


@pytest.mark.parametrize(
    ("html", "kinds"),
    [
        ('<script src="https://cdn.example.org/katex.js"></script>', ["a part from another host"]),
        ('<img src="//example.org/badge.svg">', ["a part from another host"]),
        ("@import url(https://fonts.example.org/css)", ["a style from another host"]),
        ('<link rel="canonical" href="https://example.org/"><a href="https://example.org">x</a><img src="a.png">', []),
    ],
)
def test_parts_from_other_hosts_are_seen(html, kinds):
    assert tool("faults").requests_of(html) == kinds


def test_a_page_of_the_site_is_refused_for_what_it_shows():
    check = tool("checked_site").faults_of_page
    assert check('<p>Fine.</p><img src="data:image/png;base64,TracebackWarning">') == []
    assert check("<pre>UserWarning: odd</pre>") == ["a warning"]
    assert check("<pre>UserWarning: odd</pre>", has_errors=True) == []
    assert check("<p>.. math:: x</p>", has_errors=True) == ["a formula as text"]
    assert check("<p>.674<em>, and of at most .091</em> <em>All</em></p>") == ["emphasis between two stars of notes"]


def test_a_folder_with_a_faulty_page_is_refused(tmp_path):
    exceptions = pytest.importorskip("mkdocs.exceptions", reason="mkdocs is not installed")
    (tmp_path / "page.html").write_text("<pre>Traceback (most recent call last)</pre>")
    with pytest.raises(exceptions.PluginError, match="page.html shows a traceback"):
        tool("checked_site").on_post_build(SimpleNamespace(site_dir=str(tmp_path)))


def test_the_site_has_what_its_pages_load():
    settings = (ROOT / "mkdocs.yml").read_text()
    loaded = re.findall(r"[\w/.-]+\.(?:js|css)", settings)
    assert len(loaded) == 4
    assert all((ROOT / "docs" / name).is_file() for name in loaded)
    fonts = re.findall(r"url\((fonts/[\w-]+\.woff2)\)", (ROOT / "docs/katex/katex.min.css").read_text())
    assert len(fonts) == 20
    assert all((ROOT / "docs/katex" / font).is_file() for font in fonts)


PROOFS = ROOT / "docs" / "proofs.md"


def test_every_proof_is_named_by_a_function_and_says_what_it_takes():
    """A section has pre- and postconditions, its tests are there, and a docstring leads to it."""
    sources = "".join(path.read_text() for path in Path(fairflows.__file__).parent.rglob("*.py"))
    sections = re.split(r"^## ", PROOFS.read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) >= 11
    for section in sections:
        heading = section.splitlines()[0]
        assert "**Precondition.**" in section, heading
        assert "**Postcondition" in section, heading
        assert f"proofs.md#{heading.lower().replace(' ', '-')})" in sources, heading
        for path in re.findall(r"`(tests/[\w/.]+)`", section):
            assert (ROOT / path).is_file(), path


def test_inline_formulas_hold_nothing_that_markdown_reads():
    """GitHub reads a backslash before a mark as the mark, inside a formula too."""
    for page in PAGES:
        text = re.sub(r"^(```.*?^```|\$\$.*?^\$\$)", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"`[^`\n]*`", "", text)
        for formula in re.findall(r"\$\$.*?\$\$", page.read_text(), flags=re.DOTALL):
            assert re.search(r"\\[^a-zA-Z]", formula) is None, f"{page.name}: {formula}"
        for formula in re.findall(r"\$([^$]+)\$", text):
            assert "\n" not in formula, f"{page.name}: {formula}"
            assert re.search(r"\\[^a-zA-Z]", formula) is None, f"{page.name}: {formula}"


def test_the_readme_has_at_most_90_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


def test_the_fields_that_officers_are_sent_to_are_there():
    schema = json.loads((Path(fairflows.__file__).parent / "certificate" / "certificate.schema.json").read_text())
    parts = [schema, *schema["$defs"].values()]
    fields = {name for part in parts for name in part.get("properties", {})}
    subjects = set(schema["$defs"]["Statement"]["properties"]["about"]["enum"])
    table = (ROOT / "docs" / "officers.md").read_text().split("## Where to look")[1].split("\n## ")[0]
    named = set(re.findall(r"`\.?(?:about\.|statements\[\w+\]\.)?([a-z_]+)`", table))
    assert len(named) > 25
    assert named - fields == {"watch"}
    assert set(re.findall(r"`statements\[(\w+)\]", table)) <= subjects
