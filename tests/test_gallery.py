"""The pages of docs/gallery become notebooks with outputs; their code runs with that of all pages (test_docs.py)."""

import sys
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tools"))

import gallery  # noqa: E402

PAGE = """# Title

```python
from pathlib import Path
import os
text = "<b>&"
print(text)
Path("here.txt").touch()
```

Some *words*.

```python
import matplotlib.pyplot as plt

fig, ax = plt.subplots()
```

```python
import pandas as pd

pd.DataFrame({"x": [1]})
```

```python
os.environ["FAIRFLOWS_LEDGER"]
```
"""

pytestmark = pytest.mark.filterwarnings("ignore")  # of Jupyter's own


def test_a_page_is_shown_with_its_outputs_below_each_block(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = gallery.run(PAGE)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "markdown", "code", "code", "code"]
    page = gallery.with_outputs(notebook)
    parts = ["# Title", "print(text)", "<pre>&lt;b&gt;&amp;\n</pre>", "Some *words*.", "plt.subplots()",
             'src="data:image/png;base64,', "pd.DataFrame", '<table border="1"', "os.environ", "ledger"]  # fmt: skip
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert list(tmp_path.iterdir()) == [], "a page writes into a folder of its own"
    assert "retina" not in page


def test_an_error_stops_the_build():
    with pytest.raises(CellExecutionError, match="KeyError"):
        gallery.run("```python\nraise KeyError\n```\n")


def test_every_page_of_the_gallery_has_code():
    pages = list((ROOT / "docs" / "gallery").glob("*.md"))
    assert len(pages) == 4
    for page in pages:
        assert sum(cell.cell_type == "code" for cell in gallery.cells(page.read_text())) >= 5
