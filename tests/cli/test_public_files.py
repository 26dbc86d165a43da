"""No public file holds a value of one person, of a merged group or of a dropped column, or the name of a file."""

import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

PRIVATE = {"report.html", "report.json", "run.json"}
N = 900
NUMBER = 987_654_321  # no hash or count holds it by chance


def rows(seed=0, label="CANARYlabel", n=N):
    """Rows with canaries: texts and numbers of one person, of small groups, and of columns that are not shared."""
    rng, one = np.random.default_rng(seed), np.arange(n) == n // 2
    sex = rng.choice(["f", "m"], n).astype(object)
    sex[:39], sex[39:78] = "CANARYrace", "CANARYother"
    age = rng.integers(18, 80, n)
    moment = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    town = pd.Categorical(np.where(one, "CANARYtown", rng.choice(["Ulm", "Bonn", "Köln"], n)))
    return pd.DataFrame(
        {
            "age": age,
            "town": town.add_categories("CANARYunused"),
            "income": np.where(one, NUMBER, np.round(rng.lognormal(7, 0.4, n), 1) + age),
            "code": np.where(one, NUMBER + 1, rng.integers(0, 9, n)),
            "since": pd.Series(moment).mask(one, pd.Timestamp("1987-06-05")),
            "share": np.where(one, 0.987654321, rng.integers(0, 99, n) / 100),
            "remark": [f"CANARYremark{i}" if i % 9 else "none" for i in range(n)],
            "CANARYdropped": [f"CANARYvalue{i % 7}" for i in range(n)],
            "CANARYhouse": [f"CANARYhouse{i // 2}" for i in range(n)],
            "sex": sex,
            "repaid": np.where(one & (label is not None), label, rng.choice(["yes", "no"], n)),
            "CANARYperson": [f"CANARYid{i}" for i in range(n)],
        }
    )


WORDS = [
    "--sensitive", "sex", "--label", "repaid", "--id", "CANARYperson", "--household", "CANARYhouse",
    "--drop", "CANARYdropped", "--categorical", "code", "--merge-small", 40, "--target", 0.9,
]  # fmt: skip
METHODS = {
    "tree": [],
    "quick": ["--quick", "--no-derive", "--spend", 0.1],
    "cell numbers": ["--quick", "--output", "cell"],
    "cells": ["--quick", "--method", "cells"],
    "cells-without-attribute": ["--quick", "--method", "cells-without-attribute"],
    "sample": ["--quick", "--sample", 600],
}


def public_files(out):
    return [path for path in out.iterdir() if path.is_file() and path.name not in PRIVATE]


def canaries(path):
    """The canaries in a file, in whatever way its texts are written."""
    texts = [path.read_bytes().decode(errors="replace")]
    if path.suffix == ".parquet":
        file = pq.read_table(path)
        texts = [str(file.schema), *(str(column.to_pylist()) for column in file.columns)]
        texts += [str(c.dictionary) for column in file.columns for c in column.chunks if hasattr(c, "dictionary")]
    plain = [text.replace(",", "").replace("_", "").replace(" ", "") for text in texts]  # thousands
    return {c for text in (*texts, *plain) for c in re.findall(rf"CANARY\w+|{str(NUMBER)[:-1]}\d|1987.?06.?05", text)}


@pytest.mark.parametrize("kind", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_no_canary_leaves(method, kind, run, tmp_path):
    (folder := tmp_path / "CANARYfolder").mkdir()
    for name, seed in (("CANARYfile", 0), ("CANARYnew", 1)):
        takes_rare_labels = method in ("tree", "cell numbers", "sample")
        path, frame = folder / f"{name}.{kind}", rows(seed, "CANARYlabel" if takes_rare_labels else None)
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    out = tmp_path / "out"
    code, _, err = run("share", folder / f"CANARYfile.{kind}", *WORDS, *METHODS[method], "-o", out)
    assert code in (0, 1), err
    assert {c for path in PRIVATE for c in canaries(out / path)}, "canaries are found where they are"
    assert {path.name: canaries(path) for path in public_files(out) if canaries(path)} == {}
    new = folder / f"CANARYnew.{kind}"
    run("encode", out, new, "-o", tmp_path / f"more.{kind}", ends=0)
    assert canaries(tmp_path / f"more.{kind}") == canaries(out / "certificate.files.json") == set()
