"""fit and certify read a sample of the persons in a folder of Parquet files; encode takes the others."""

import json

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def folder(tmp_path):
    """Two thousand persons with two rows each, in four files."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 4000),
            "town": rng.choice(["Ulm", "Bonn"], 4000),
            "sex": np.tile(rng.choice(["f", "m"], 2000), 2),
            "repaid": rng.integers(0, 2, 4000),
            "person": np.tile(np.arange(2000), 2),
        }
    )
    (tmp_path / "rows").mkdir()
    for i in range(4):
        rows.iloc[1000 * i : 1000 * (i + 1)].to_parquet(tmp_path / "rows" / f"{i}.parquet", index=False)
    return tmp_path


def test_fit_and_certify_read_a_sample_of_persons(run, folder, monkeypatch):
    roles = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "-q"]
    code, _, err = run("fit", folder / "rows", *roles, "-o", folder / "out")
    assert code == 2
    assert "is a folder" in err
    assert "--sample" in err
    monkeypatch.chdir(folder / "rows")
    fit = ["fit", ".", *roles]  # the current folder, too
    code, _, err = run(*fit, "--sample", 600, "--n-cells", 2, "--force", "-o", folder / "out")
    assert code == 0, err
    assert len(pd.read_parquet(folder / "out" / "shared.parquet")) == 1200
    found = []
    for _ in range(2):
        words = ["certify", folder / "out", folder / "rows", "--sample", 800, "--json"]
        code, out, err = run(*words, "-o", folder / "out.json")
        assert code in (0, 1), err
        found.append(json.loads(out))
    assert sum(found[0]["n"].values()) == 800
    assert found[0]["rows"] == found[1]["rows"], "one model reads the same persons again"
    verify = ["verify", folder / "out", folder / "rows"]
    code, out, err = run(*verify)
    assert code == 2
    assert "--sample" in err
    code, out, err = run(*verify, "--sample", 600)
    assert code == 0, out + err
    code, out, err = run(*verify, "--sample", 800, "--certificate", folder / "out.json")
    assert code == 0, out + err
    assert run(*verify, "--sample", 700)[0] == 1
    assert sorted(path.name for path in folder.iterdir()) == ["out", "out.json", "rows"]


def test_one_model_is_certified_on_a_sample_of_other_persons(run, folder):
    fit = ["fit", folder / "rows", "--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "-q"]
    code, _, err = run(*fit, "--sample", 600, "--n-cells", 2, "--force", "--no-cross-fit", "-o", folder / "out")
    assert code in (0, 1), err
    code, _, err = run("certify", folder / "out", folder / "rows", "--sample", 800, "-q")
    assert code == 2
    assert "fitted to, or chosen by" in err
    (folder / "others").mkdir()
    for part in (folder / "rows").iterdir():
        rows = pd.read_parquet(part)
        rows.assign(person=rows["person"] + 10_000).to_parquet(folder / "others" / part.name, index=False)
    code, out, err = run("certify", folder / "out", folder / "others", "--sample", 800, "--json")
    assert code in (0, 1), err
    assert sum(json.loads(out)["n"].values()) == 800


def test_names_of_folders_are_columns(run, folder):
    for year in (2024, 2025):
        (folder / "parts" / f"year={year}").mkdir(parents=True)
        (folder / "rows" / f"{year - 2024}.parquet").rename(folder / "parts" / f"year={year}" / "part.parquet")
    fit = ["fit", folder / "parts", "--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "-q"]
    code, _, err = run(*fit, "--sample", 600, "--n-cells", 2, "--force", "-o", folder / "out")
    assert code in (0, 1), err
    assert set(pd.read_parquet(folder / "out" / "shared.parquet")["year"]) <= {2024, 2025}
    code, _, err = run("certify", folder / "out", folder / "parts", "--sample", 800, "--json")
    assert code in (0, 1), err
    code, _, err = run("certify", folder / "out", folder / "rows", "--sample", 800)
    assert code == 2
    assert "'year'" in err
    code, _, err = run("encode", folder / "out", folder / "parts", "-o", folder / "encoded.csv")
    assert code == 2
    assert "is a folder, not a file" in err
    assert "encode --engine ray" in err
