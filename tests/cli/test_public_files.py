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


def with_more(case):
    """Rows whose canaries are in what a table may have beside: more sensitive columns, further rows, a later month."""
    frame, rng = rows(), np.random.default_rng(1)
    frame["sex"] = rng.choice(["f", "m"], N)
    if case == "several":
        frame["race"] = rng.choice(["a", "b"], N).astype(object)
        frame.loc[5:49, "race"], frame.loc[N // 2, "race"] = "CANARYfew", "CANARYone"
    if case == "not cut":
        frame.loc[N // 2, "age"] = NUMBER
    if case == "histories":
        m = 1 + rng.poisson(1, N)
        frame = frame.loc[frame.index.repeat(m)].reset_index(drop=True)
        frame["day"] = 10 * (np.arange(len(frame)) - np.repeat(np.cumsum(m) - m, m)) + rng.integers(0, 5, len(frame))
    return frame


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("several", ["--sensitive", "sex,race"]),
        ("not cut", ["--sensitive", "age", "--uncut"]),
        ("histories", ["--sensitive", "sex", "--time", "day"]),
    ],
)
def test_no_canary_leaves_from_other_tables(case, words, run, tmp_path):
    with_more(case).to_csv(tmp_path / "CANARYfile.csv", index=False)
    merge = ["--merge-small", 40] if case == "several" else []
    words = [*WORDS[2:-4], *words, *merge, "--target", 0.9, "--quick", "-o", tmp_path / "out"]
    run("share", tmp_path / "CANARYfile.csv", *words, ends=0)
    assert canaries(tmp_path / "out" / "report.html")
    assert {path.name: canaries(path) for path in public_files(tmp_path / "out") if canaries(path)} == {}


def test_no_canary_leaves_from_linked_tables(run, tmp_path):
    """Both files have canaries, and so have their names, which the command says to the owner alone."""
    frame, rng = rows(label=None), np.random.default_rng(1)
    who = np.repeat(np.arange(N), 1 + rng.poisson(1, N))
    one = who == N // 2
    visits = pd.DataFrame(
        {
            "day": rng.integers(0, 99, len(who)),
            "ward": np.where(one, "CANARYward", rng.choice(["a", "b"], len(who))),
            "cost": np.where(one, NUMBER + 2, rng.integers(0, 90, len(who))),
            "note": [f"CANARYnote{i}" if i % 9 else "none" for i in range(len(who))],
            "CANARYleft": "CANARYvalue",
            "CANARYperson": frame["CANARYperson"].to_numpy()[who],
        }
    )
    for name, table in (("CANARYfile", frame), ("CANARYvisits", visits)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    linked = ["--with", tmp_path / "CANARYvisits.csv", "--time", "day", "--drop", "CANARYleft"]
    run("share", tmp_path / "CANARYfile.csv", *WORDS, *linked, "--quick", "-o", tmp_path / "out", ends=0)
    assert canaries(tmp_path / "out" / "report.html") >= {"CANARYrace", "CANARYother"}
    assert {path.name: canaries(path) for path in public_files(tmp_path / "out") if canaries(path)} == {}


@pytest.mark.parametrize(
    "more", [pytest.param([], marks=pytest.mark.slow), ["--extend", "--target", 0.5]], ids=["again", "extend"]
)
def test_no_canary_leaves_when_rows_are_drawn_again(more, run, tmp_path):
    first = with_more("")
    later = pd.concat(
        [first.iloc[60:], rows(2).iloc[100:300].assign(CANARYperson=[f"CANARYnew{i}" for i in range(200)])]
    )
    later = later.assign(sex=later["sex"].where(later["sex"].isin(["f", "m"]), "f"), hours=np.arange(len(later)) % 40)
    later.loc[later.index[500], "hours"] = NUMBER + 2
    later["plan"] = np.where(np.arange(len(later)) == 500, "CANARYplan", later["hours"] % 2)
    for name, table in (("CANARYfile", first), ("CANARYlater", later)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    roles = ["--sensitive", "sex", *WORDS[2:-4], "--quick"]
    run("share", tmp_path / "CANARYfile.csv", *roles, "--target", 0.2, "-o", tmp_path / "one", ends=0)
    words = ["--again", tmp_path / "one", *more, "-o", tmp_path / "two"]
    run("share", tmp_path / "CANARYlater.csv", *roles, *words, ends=0)
    assert canaries(tmp_path / "two" / "report.html")
    assert {path.name: canaries(path) for path in public_files(tmp_path / "two") if canaries(path)} == {}
