"""Every recipe of docs/how-to/engines.md runs, and gives the rows of our own stream."""

import re
import shutil
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

import fairflows as ff

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "engines.md").read_text()
START = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
RECIPES = {
    "Plain pyarrow": "pyarrow",
    "DuckDB": "duckdb",
    "Dask": "dask.dataframe",
    "Spark": "pyspark",
    "Ray Data": "ray.data",
}


def code_of(heading):
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^```py\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL))


def test_every_recipe_of_the_page_is_run():
    with_code = [heading for heading in re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE) if code_of(heading)]
    assert with_code == list(RECIPES)


@pytest.mark.parametrize("heading", RECIPES)
def test_a_recipe_gives_the_rows_of_our_own_stream(heading, tmp_path, monkeypatch):
    pytest.importorskip(RECIPES[heading], reason=f"{RECIPES[heading]} is not installed: make test-engines")
    if heading == "Spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(START, "engines.md", "exec"), names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engines' own
        warnings.simplefilter("error", ff.DataWarning)
        exec(compile(code_of(heading), f"engines.md: {heading}", "exec"), names)
    pd.concat([pd.read_parquet(f"rows-{i}.parquet") for i in (0, 1)]).to_parquet("rows.parquet", index=False)
    ff.encode_file(names["model"], "rows.parquet", "expected.parquet", **names["roles"])
    expected = cells_of(pd.read_parquet("expected.parquet"))
    assert cells_of(names["encoded"]) == expected
    assert len(expected) == 2000


def cells_of(encoded):
    assert list(encoded) == ["cell", "person"]
    return dict(zip(encoded["person"], encoded["cell"].tolist(), strict=True))
