"""Dates in the forms in which files write them: read as dates, said, and written in the same form again."""

import json

import numpy as np
import pandas as pd
import pytest

N = 900


def people(seed=0, born="%d.%m.%Y", **columns):
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(0, 9000, N), unit="D")
    times = days + pd.to_timedelta(rng.integers(0, 86_400, N), unit="s")
    sex = rng.choice(["f", "m"], N)
    rows = pd.DataFrame({"person": [f"p{seed}-{i}" for i in range(N)], "income": rng.integers(10, 90, N), "sex": sex})
    return rows.assign(born=days.strftime(born), **{name: times.strftime(form) for name, form in columns.items()})


def shared(run, folder, frame, *words, ends=0, **settings):
    frame.to_csv(folder / "people.csv", index=False)
    words = ["share", folder / "people.csv", "--sensitive", "sex", "--id", "person", "--quick", *words]
    return run(*words, "--target", 0.3, "-o", folder / "out", ends=ends, **settings)


def test_the_one_form_that_fits_is_taken_said_and_kept(run, tmp_path):
    forms = {"seen": "%Y/%m/%d %H:%M:%S", "us": "%-m/%-d/%Y"}
    frame = people(**forms)
    err = shared(run, tmp_path, frame, notices="always")[2]
    for said in ("born:%d.%m.%Y", "'seen:%Y/%m/%d %H:%M:%S'", "us:%-m/%-d/%Y"):
        assert f"holds dates, read as --date {said}." in err
    found = pd.read_csv(tmp_path / "out" / "shared.csv")
    for column, form in (("born", "%d.%m.%Y"), ("seen", "%Y/%m/%d %H:%M:%S"), ("us", "%m/%d/%Y")):
        times = pd.to_datetime(found[column], format=form)  # raises for another form
        assert times.nunique() > 100, "drawn as times, and not as categories"
    assert not found["us"].str.match("0").any()
    run("check", tmp_path / "out", ends=0)

    people(1, **forms).to_csv(tmp_path / "b.csv", index=False)
    err = run("encode", tmp_path / "out", tmp_path / "b.csv", "-o", tmp_path / "c.csv", notices="always", ends=0)[2]
    assert "--date" not in err, "the form is known"
    pd.to_datetime(pd.read_csv(tmp_path / "c.csv")["born"], format="%d.%m.%Y")
    run("check", tmp_path / "out", tmp_path / "c.csv", ends=0)
    run("verify", tmp_path / "out", tmp_path / "people.csv", ends=0)


def test_a_form_that_cannot_be_known_is_asked_for(run, tmp_path):
    frame = people(born="%d/%m/%Y")
    frame = frame[frame["born"].str[:2].astype(int) < 13]
    frame.to_csv(tmp_path / "people.csv", index=False)
    words = ["describe", tmp_path / "people.csv", "--sensitive", "sex", "--id", "person"]
    said = run(*words, ends=0)[1]
    assert "State their form (--date born:%d/%m/%Y or --date born:%m/%d/%Y)." in said
    assert "can be read in several ways" in run(*words, "--date", "born", ends=2)[2]
    first = [run(*words, "--date", f"born:{form}", ends=0)[1] for form in ("%d/%m/%Y", "%m/%d/%Y")]
    assert all("born discrete datetime64" in " ".join(said.split()) for said in first)
    assert first[0] != first[1]


def test_a_stated_form_is_kept_in_parquet_and_workbooks(run, tmp_path):
    pytest.importorskip("openpyxl")
    frame = people(born="%Y%m%d")
    frame.to_parquet(tmp_path / "people.parquet")
    frame.to_excel(tmp_path / "people.xlsx", index=False)
    for name in ("people.parquet", "people.xlsx"):
        said = run(
            "describe", tmp_path / name, "--sensitive", "sex", "--date", "born:%Y%m%d", "--id", "person", ends=0
        )[1]
        assert "born discrete datetime64" in " ".join(said.split()), name


@pytest.mark.parametrize(
    ("date", "said"),
    [
        ("born:%d/%m/%Y", "row 2 (the header is row 1) holds"),
        ("born:%d.%m", "must have a year, a month and a day"),
        ("bron", "Did you mean 'born'?"),
        (":%d", "dates must be COLUMN or COLUMN:FORM"),
    ],
)
def test_a_wrong_form_is_named(run, tmp_path, date, said):
    err = shared(run, tmp_path, people(), "--date", date, ends=2)[2]
    assert said in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_a_day_that_no_calendar_has_is_text(run, tmp_path):
    frame = people(born="%d.%m.%Y")
    frame.loc[5, "born"] = "31.02.1999"
    frame.to_csv(tmp_path / "people.csv", index=False)
    said = json.loads(run("describe", tmp_path / "people.csv", "--sensitive", "sex", "--id", "person", "--json")[1])
    (born,) = [column for column in said["columns"] if column["column"] == "born"]
    assert born["kind"] == "categorical"
    assert any(problem.startswith("born holds text, such as") for problem in said["problems"])
