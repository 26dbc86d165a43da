"""The default of `fit`: whole rows, every row covered; with or without the attribute or a label."""

import json

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, DataWarning, Table, audit
from fairflows.workflow.job import fit_table, refuse_a_release_that_tells_more
from fairflows.workflow.results import write_fit


def loans(n: int, seed: int) -> pd.DataFrame:
    """Numbers, text, dates and gaps; the groups differ in income."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    income = np.round(rng.lognormal(3, 0.4, n) + 4 * (sex == "m"), 1)
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame(
        {
            "person": np.arange(n) + seed * 10**6,
            "town": rng.choice(["Bonn", "Köln", "Ulm"], n),
            "age": rng.integers(18, 80, n),
            "income": income,
            "since": since.strftime("%Y-%m-%d"),
            "sex": sex,
            "repaid": np.where(income + rng.normal(0, 4, n) > 24, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    """A table, later rows of others, and what `fit` made of the table."""
    folder = tmp_path_factory.mktemp("sharing")
    loans(3000, 1).to_csv(folder / "loans.csv", index=False)
    loans(600, 2).to_csv(folder / "new.csv", index=False)
    words = [
        "--sensitive",
        "sex",
        "--label",
        "repaid",
        "--id",
        "person",
        "--target",
        "0.3",
        "--n-cells",
        "8",
        "--quick",
    ]
    code, out, err = run("fit", folder / "loans.csv", *words, "-o", folder / "out")
    assert code == 0, err
    (folder / "said.txt").write_text(out, encoding="utf-8")
    return folder


def test_the_shared_table_has_the_tables_own_columns(folder):
    raw, shared = pd.read_csv(folder / "loans.csv"), pd.read_csv(folder / "out" / "shared.csv")
    assert list(shared) == ["town", "age", "income", "since", "repaid"]
    assert len(shared) == len(raw), "nobody is held back"
    assert (shared.dtypes == raw[list(shared)].dtypes).all()
    assert set(shared["town"]) <= set(raw["town"])
    assert shared["age"].between(18, 79).all()
    assert shared["since"].between(raw["since"].min(), raw["since"].max()).all()


def test_the_terminal_says_who_can_guess_what_and_which_file_goes_where(folder):
    said = (folder / "said.txt").read_text(encoding="utf-8")
    for words in (
        "before   about",
        "after    at most",
        "learnt from the shared rows",
        "Never share",
        "drawn again",
        "fairflows check",
    ):
        assert words in said
    assert said.count("CERTIFIED") == 1


def test_the_pages_say_what_the_rows_still_tell(folder):
    for name in ("report.html", "report-public.html"):
        page = (folder / "out" / name).read_text(encoding="utf-8")
        assert "What a shared row still tells" in page
        assert "learnt from shared rows" in page
        assert "neither the column sex nor names of persons" in page


def test_the_receiver_checks_and_the_producer_verifies(run, folder):
    out = folder / "out"
    code, text, err = run("check", out / "certificate.json", out / "shared.csv")
    assert (code, err) == (0, "")
    assert "All checks passed" in text
    assert run("verify", out, folder / "loans.csv")[0] == 0
    certificate = json.loads((out / "certificate.json").read_text())
    assert sum(certificate["n"].values()) == 3000, "all persons certify"


def test_later_persons_get_rows_too(run, folder, tmp_path):
    code, _, err = run("encode", folder / "out", folder / "new.csv", "-o", tmp_path / "later.csv")
    assert code == 0, err
    later = pd.read_csv(tmp_path / "later.csv")
    assert list(later) == ["town", "age", "income", "since", "repaid"]
    assert len(later) == 600


def test_without_the_attribute_at_encoding(run, folder, tmp_path):
    words = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--target", "0.9", "--quick"]
    out = tmp_path / "out"
    code, _, err = run("fit", folder / "loans.csv", *words, "--without-attribute", "--cells", "-o", out)
    assert code == 0, err
    pd.read_csv(folder / "new.csv").drop(columns="sex").to_csv(tmp_path / "no-sex.csv", index=False)
    code, _, err = run("encode", out, tmp_path / "no-sex.csv", "-o", tmp_path / "cells.csv")
    assert code == 0, err
    assert list(pd.read_csv(tmp_path / "cells.csv")) == ["cell"]
    assert json.loads((out / "certificate.json").read_text())["status"] == "CERTIFIED"


def table(n: int = 3000, **roles: str) -> Table:
    frame = loans(n, 1).drop(columns=["since"])
    settings = {"sensitive": "sex", "label": "repaid", "identifier": "person", **roles}
    drop = {"person", "repaid"} - set(settings.values())
    return Table(frame.drop(columns=list(drop)), **{role: name for role, name in settings.items() if name})


@pytest.mark.filterwarnings("ignore:No identifier says which rows are the same person")
def test_nobody_named_the_persons():
    made = fit_table(table(1500, identifier=""), n_cells=8, quick=True, n_jobs=1)
    assert made.certificate.status == "CERTIFIED"
    assert len(made.shared) == 1500
    assert made.audit.attack_lower <= made.certificate.cell_upper


def test_no_label_is_needed():
    made = fit_table(table(label=""), target=0.3, n_cells=8, quick=True, n_jobs=1)
    assert made.certificate.status == "CERTIFIED"
    assert made.tells.label is None
    assert list(made.shared) == ["town", "age", "income"]


def test_one_model_for_most_persons():
    made = fit_table(table(1500), cross_fit=False, release="cells", quick=True, n_jobs=1)
    assert sum(made.certificate.n.values()) < 500
    assert "are not covered" in made.report.contents["data"]["split"]


def test_the_true_label_beside_the_row_is_certified_with_it():
    made = fit_table(table(1500), n_cells=4, with_label=True, quick=True, n_jobs=1)
    assert made.certificate.released == ("cell", "label")
    with pytest.warns(DataWarning, match="Another model was certified on some of these persons"):
        alone = fit_table(table(1500), n_cells=4, quick=True, n_jobs=1)
    assert made.certificate.cell_upper > alone.certificate.cell_upper


def test_a_release_that_tells_more_than_the_raw_rows_is_refused():
    rows = table(1000)
    learn, judge = rows.split(0.5, 0)
    noise, leak = (
        tuple(pd.DataFrame({"z": values(part)}) for part in (learn, judge))
        for values in (lambda part: np.random.default_rng(0).random(len(part)), lambda part: part.a == "m")
    )
    before, after = (audit(pair, learn, judge, quick=True) for pair in (noise, leak))
    with pytest.raises(DataError, match=r"tells more of the group than the raw rows do: .* \(force=True\)"):
        refuse_a_release_that_tells_more(before, after, force=False)
    refuse_a_release_that_tells_more(before, after, force=True)
    refuse_a_release_that_tells_more(after, before, force=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "tree", "without_attribute": True}, "method must be 'cells' to encode without"),
        ({"method": "tree", "release": "latent"}, "for a latent; got 'tree'"),
        ({"release": "magic"}, "release must be 'rows', 'cells' or 'latent'; got 'magic'"),
        ({"target": 0.01}, "A group is too small for the target"),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        fit_table(table(), quick=True, **settings)


def test_cells_need_a_label():
    with pytest.raises(DataError, match="Cells are made for a label"):
        fit_table(table(label=""), method="cells")


def test_names_of_persons_are_text_in_every_file(run, tmp_path):
    """Read as numbers, 12e400 and 13e400 would be one infinite person, with one coin and one fold."""
    rows = loans(1200, 1).drop(columns="since")
    rows["person"] = [f"{i}e{300 + i % 200}" for i in range(1200)]
    rows.to_csv(tmp_path / "loans.csv", index=False)
    later = loans(400, 2).drop(columns="since")
    later["person"] = [f"{i}e900" for i in range(400)]
    later.to_csv(tmp_path / "later.csv", index=False)
    words = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--cells", "--n-cells", "4", "--quick"]
    code, _, err = run("fit", tmp_path / "loans.csv", *words, "-o", tmp_path / "out")
    assert code == 0, err
    assert sum(json.loads((tmp_path / "out" / "certificate.json").read_text())["n"].values()) == 1200
    assert run("encode", tmp_path / "out", tmp_path / "later.csv", "-o", tmp_path / "cells.csv")[0] == 0
    cells = pd.read_csv(tmp_path / "cells.csv")["cell"]
    assert set(cells) == set(range(8)), "both folds, each with its own cells"


@pytest.mark.filterwarnings("ignore:Categories that the training rows did not have")
def test_shared_rows_keep_their_precision_and_name_no_category_that_nobody_is_given(tmp_path):
    rows = table(2000)
    X = rows.X.assign(income=rows.X["income"] + 12_345_678.0, town=pd.Categorical(rows.X["town"]))
    X["town"] = X["town"].cat.add_categories("Secret")
    X.iloc[7, X.columns.get_loc("town")] = "Secret"
    frame = X.assign(sex=rows.a.to_numpy(), repaid=rows.y.to_numpy()).reset_index()
    given = Table(frame, sensitive="sex", label="repaid", identifier="person")
    made = fit_table(given, n_cells=4, quick=True, n_jobs=1)
    run = {"sensitive": ["sex"], "label": "repaid", "identifier": "person", "drop": [], "rows": 2000, "seed": 0}
    write_fit(made, given, tmp_path / "out", run)
    shared = pd.read_parquet(tmp_path / "out" / "shared.parquet")
    assert shared["income"].dtype == np.float64
    np.testing.assert_allclose(shared["income"], shared["income"].round(1), rtol=0, atol=1e-6)
    assert b"Secret" not in (tmp_path / "out" / "shared.parquet").read_bytes()


def test_a_number_as_label_has_no_metrics_of_classes(tmp_path):
    frame = loans(1500, 1).drop(columns=["since", "repaid"])
    given = Table(frame, sensitive="sex", label="income", identifier="person", multiclass=True)
    made = fit_table(given, n_cells=4, quick=True, n_jobs=1)
    assert made.report.contents["metrics"] is None
    assert made.certificate.status == "CERTIFIED"


def test_a_person_with_more_rows_than_all_others_is_refused_early_and_by_number(tmp_path):
    frame = loans(1200, 1).drop(columns="since")
    frame.loc[:8, "person"] = frame.loc[0, "person"]
    given = Table(frame, sensitive="sex", label="repaid", identifier="person")
    for settings in ({}, {"cross_fit": False, "most_rows": 3}):
        with pytest.raises(DataError, match=r"A person has 9 rows, .* \(most_rows=9\)"):
            fit_table(given, n_cells=4, quick=True, n_jobs=1, **settings)


def test_metrics_that_got_worse_are_marked(folder):
    contents = json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))
    for line in contents["metrics"]["overall"]:
        if line["before"] is not None and line["after"] is not None:
            lower = line["after"] < line["before"]
            assert line["worse"] == (lower if "accuracy" in line["name"] else line["after"] > line["before"])
    worse = [line for line in contents["metrics"]["overall"] if line["worse"]]
    assert (folder / "out" / "report.html").read_text(encoding="utf-8").count("(worse)") == len(worse)
