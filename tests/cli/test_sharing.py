"""`share` and its defaults: whole rows, every row covered; with or without the attribute or a label."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fairflows import Certificate, DataError, Table, audit, share
from fairflows.bounds.planning import plan_cells
from fairflows.display import CERTIFIED, MISSED
from fairflows.report.pictures import bounds_of
from fairflows.sharing import refuse_a_release_that_tells_more


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


ROLES = ["--sensitive", "sex", "--label", "repaid", "--id", "person"]


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    loans(3000, 1).to_csv(folder / "loans.csv", index=False)
    loans(600, 2).to_csv(folder / "new.csv", index=False)
    out = run("share", folder / "loans.csv", *ROLES, "--target", "0.3", "-o", folder / "out", ends=0)[1]
    (folder / "said.txt").write_text(out, encoding="utf-8")
    return folder


def test_the_terminal_says_who_can_guess_what_and_which_file_goes_where(folder):
    said = (folder / "said.txt").read_text(encoding="utf-8")
    guesses = ["before   about", "counted on this table, for anybody", "to come  at most"]
    worth = ["To train on: a model learnt from shared rows", "To decide by: the score of repaid"]
    for words in (*guesses, *worth, "Never share", "fairflows check"):
        assert words in said
    assert said.count("CERTIFIED") == 1
    page = (folder / "out" / "report-public.html").read_text(encoding="utf-8")
    assert "What a shared row tells about the person" in page
    assert "neither the column sex nor names of persons" in page


def test_without_the_attribute_at_encoding(run, folder, tmp_path):
    out, many = tmp_path / "out", tmp_path / "many.csv"
    loans(12_000, 1).to_csv(many, index=False)  # of 3,000, every third release has a cell with few persons of a group
    words = [*ROLES, "--target", "0.5", "--method", "cells-without-attribute", "--output", "cell", "--quick"]
    run("share", many, *words, "-o", out, ends=0)
    pd.read_csv(folder / "new.csv").drop(columns="sex").to_csv(tmp_path / "no-sex.csv", index=False)
    run("encode", out, tmp_path / "no-sex.csv", "-o", tmp_path / "cells.csv", ends=0)
    assert list(pd.read_csv(tmp_path / "cells.csv")) == ["cell"]
    assert json.loads((out / "certificate.json").read_text())["status"] == "CERTIFIED"


def table(n: int = 3000, **roles: str) -> Table:
    frame = loans(n, 1).drop(columns=["since"])
    settings = {"sensitive": "sex", "label": "repaid", "identifier": "person", **roles}
    drop = {"person", "repaid"} - set(settings.values())
    return Table(frame.drop(columns=list(drop)), **{role: name for role, name in settings.items() if name})


def test_no_label_is_needed():
    shared = share(table(label=""), target=0.3)
    assert shared.certificate.status == "CERTIFIED"
    assert "No label was named" in repr(shared)
    assert shared.usefulness.label is None
    assert list(shared.table) == ["town", "age", "income"]


def test_a_release_that_misses_its_target_and_tells_more_than_the_raw_rows_is_refused():
    rows = table(1000)
    learn, judge = rows.split(0.5, 0)
    noise, leak = (
        tuple(pd.DataFrame({"z": values(part)}) for part in (learn, judge))
        for values in (lambda part: np.random.default_rng(0).random(len(part)), lambda part: part.a == "m")
    )
    before, after = (audit(pair, learn, judge, quick=True) for pair in (noise, leak))
    missed, met = SimpleNamespace(meets_target=False), SimpleNamespace(meets_target=True)
    with pytest.raises(DataError, match="would tell more of the group than the raw rows do"):
        refuse_a_release_that_tells_more(before, after, missed)
    refuse_a_release_that_tells_more(before, after, met)
    refuse_a_release_that_tells_more(after, before, missed)


def test_names_of_persons_are_text_in_every_file(run, tmp_path):
    """Read as numbers, 12e400 and 13e400 would be one infinite person, with one coin and one fold."""
    rows = loans(1200, 1).drop(columns="since")
    rows["person"] = [f"{i}e{300 + i % 200}" for i in range(1200)]
    rows.to_csv(tmp_path / "loans.csv", index=False)
    later = loans(400, 2).drop(columns="since")
    later["person"] = [f"{i}e900" for i in range(400)]
    later.to_csv(tmp_path / "later.csv", index=False)
    words = [*ROLES, "--output", "cell", "--target", "0.4", "--quick"]
    run("share", tmp_path / "loans.csv", *words, "-o", tmp_path / "out", ends=0)
    run("encode", tmp_path / "out", tmp_path / "later.csv", "-o", tmp_path / "cells.csv", ends=0)
    cells = pd.read_csv(tmp_path / "cells.csv")["cell"]
    assert cells.nunique() > 0.8 * cells.max(), "both folds, each with its own cells"


@pytest.mark.filterwarnings("ignore:Categories that the training rows did not have")
def test_shared_rows_keep_their_precision_and_name_no_category_that_nobody_is_given(tmp_path):
    rows = table(2000)
    X = rows.X.assign(income=rows.X["income"] + 12_345_678.0, town=pd.Categorical(rows.X["town"]))
    X["town"] = X["town"].cat.add_categories("Secret")
    X.iloc[7, X.columns.get_loc("town")] = "Secret"
    frame = X.assign(sex=rows.a.to_numpy(), repaid=rows.y.to_numpy()).reset_index()
    given = Table(frame, sensitive="sex", label="repaid", identifier="person")
    share(given, target=0.3, quick=True).save(tmp_path / "out", kind="parquet")
    shared = pd.read_parquet(tmp_path / "out" / "shared.parquet")
    assert shared["income"].dtype == np.float64
    np.testing.assert_allclose(shared["income"], shared["income"].round(1), rtol=0, atol=1e-6)
    assert b"Secret" not in (tmp_path / "out" / "shared.parquet").read_bytes()


def test_a_person_with_more_rows_than_all_others_is_refused_early_and_by_number(tmp_path):
    frame = loans(1200, 1).drop(columns="since")
    frame.loc[:8, "person"] = frame.loc[0, "person"]
    given = Table(frame, sensitive="sex", label="repaid", identifier="person")
    more = r"(up to|has) 9.* \(most_rows=(9|\.\.\.)\)"
    for method in ("tree", "cells"):
        with pytest.raises(DataError, match=more):
            share(given, target=0.9, quick=True, method=method, most_rows=3)

    def stated(seed):
        try:
            settings = {"output": "cell", "unit": "row", "random_state": seed}
            return share(given, target=0.9, quick=True, **settings).certificate.most_rows
        except DataError as error:
            return re.search(more, str(error)) is not None

    found = [stated(seed) for seed in range(5)]
    assert set(found) == {9, True}, "those who choose the tree say how many rows a person may have"


def test_columns_that_follow_from_others_are_computed_unless_all_are_to_be_drawn(run, tmp_path):
    loans(600, 3).eval("twice = age * 2").to_csv(tmp_path / "loans.csv", index=False)
    for option in ("--derive", "--no-derive"):
        run("share", tmp_path / "loans.csv", *ROLES, option, "--quick", "-o", tmp_path / option, ends=0)
        shared = pd.read_csv(tmp_path / option / "shared.csv")
        assert (shared["twice"] == 2 * shared["age"]).all() == (option == "--derive")


def test_share_says_what_describe_finds(run, tmp_path):
    rows = loans(600, 3).assign(title=lambda x: x["sex"].map({"f": "Mrs", "m": "Mr"}))
    rows.to_csv(tmp_path / "loans.csv", index=False)
    words = ["share", tmp_path / "loans.csv", "--sensitive", "sex", "--output", "cell", "--quick"]
    code, _, err = run(*words, "-o", tmp_path / "out")
    said = " ".join(err.split())
    assert code == 2
    assert "! Column 'person' holds 600 different whole numbers in 600 rows, which follow the rows" in said
    code, _, err = run(*words, "--keep-number", "person", "-o", tmp_path / "out")
    assert code == 0, err
    said = " ".join(err.split())
    assert "Columns that give sex away by themselves, most first: title (100%)" in said


@pytest.mark.parametrize(("gaps", "words"), [(0, []), (9, ["--missing-group", "drop"])])
def test_groups_may_be_coded_by_floats(run, tmp_path, gaps, words):
    """The parts of a table hold 0 and 1 where the table holds 0.0 and 1.0."""
    rows = loans(900, 3).drop(columns="since")
    sex = (rows["sex"] == "f").astype(float).where(rows.index >= gaps)
    rows.assign(sex=sex).to_csv(tmp_path / "loans.csv", index=False)
    words = [*ROLES, *words, "--quick", "--target", "0.5", "-o", tmp_path / "out"]
    run("share", tmp_path / "loans.csv", *words, ends=0)
    n = json.loads((tmp_path / "out" / "certificate.json").read_text())["n"]
    assert n == {"0": (sex == 0).sum(), "1": (sex == 1).sum()}
    run("verify", tmp_path / "out", tmp_path / "loans.csv", ends=0)


def test_a_target_below_what_half_known_tells_is_refused(run, tmp_path):
    """With 170 persons in each group two cells tell .1155 in one half of twenty; .0975 was stated, and certified."""
    rows = loans(340, 3).assign(sex=["f", "m"] * 170)
    rows.to_csv(tmp_path / "loans.csv", index=False)
    words = ["share", tmp_path / "loans.csv", *ROLES, "--output", "cell", "--quick", "-o", tmp_path / "out"]
    err = run(*words, "--target", "0.1", ends=2)[2]
    assert "is too small for the target Δ ≤ 0.1: it has 170 persons, and the lowest target" in err
    run(*words, "--target", "0.12", ends=0)
    stated = json.loads((tmp_path / "out" / "certificate.json").read_text())["statements"][0]
    assert 0.106 < stated["known_half"] < 0.12


def test_public_files_name_no_group_that_was_merged(run, tmp_path):
    rows = loans(900, 3).drop(columns="since")
    rows.loc[:9, "sex"], rows.loc[10:29, "sex"] = "CANARYrace", "CANARYother"
    rows.to_csv(tmp_path / "loans.csv", index=False)
    words = [*ROLES, "--merge-small", "25", "--quick", "--target", "0.9", "-o", tmp_path / "out"]
    run("share", tmp_path / "loans.csv", *words, ends=0)
    out = tmp_path / "out"
    assert "&#39;CANARYother&#39; and &#39;CANARYrace&#39; are one group" in (out / "report.html").read_text()
    private = {"report.html", "report.json", "run.json"}
    public = [path for path in out.iterdir() if path.is_file() and path.name not in private]
    assert len(public) == 7
    assert "small groups are one group" in (out / "report-public.html").read_text()
    assert not [path.name for path in public if b"CANARY" in path.read_bytes()]


def test_dates_of_any_century_are_shared_and_encoded(run, tmp_path):
    """9999-12-31 is the usual "no end"; nanoseconds since 1970 end in 2262, and begin in 1677."""
    for name, seed in (("loans", 3), ("new", 4)):
        rows = loans(900, seed)
        rows["until"] = rows["since"].where(rows["age"] < 40, "9999-12-31") + " 23:59:59"
        rows["since"] = rows["since"].str.replace("202", "158")
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    words = [*ROLES, "--target", "0.5", "--quick", "-o", tmp_path / "out"]
    assert "9999-12-31" in run("describe", tmp_path / "loans.csv", *ROLES, ends=0)[1]
    run("share", tmp_path / "loans.csv", *words, ends=0)
    run("encode", tmp_path / "out", tmp_path / "new.csv", "-o", tmp_path / "z.csv", ends=0)
    run("check", tmp_path / "out", ends=0)
    for path in (tmp_path / "out" / "shared.csv", tmp_path / "z.csv"):
        shared = pd.read_csv(path)
        assert 0.4 < (shared["until"] == "9999-12-31 23:59:59").mean() < 0.8
        assert shared["since"].str.match(r"158\d-\d\d-\d\d$").all()


def test_the_target_that_was_taken_is_said(run, folder, tmp_path):
    """On the terminal, in the first box of the report and in the certificate."""
    rows = pd.read_csv(folder / "loans.csv").iloc[:1600]
    rows.to_csv(tmp_path / "few.csv", index=False)
    said = run("share", tmp_path / "few.csv", *ROLES, "--quick", "-o", tmp_path / "out", ends=0)[1]
    stated = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert (stated["target_by"], stated["target"] > 0.1) == ("size", True)
    taken = (
        f"(taken for 1,600 persons; 0.1 would allow {plan_cells(list(stated['n'].values()), 0.1, 0.01).n_cells} cells)"
    )
    assert f"Δ ≤ {stated['target']:g} {taken}" in " ".join(said.split())
    box = (tmp_path / "out" / "report-public.html").read_text().split('class="verdict"')[1].split("</div>")[0]
    assert taken in box
    run("share", tmp_path / "few.csv", *ROLES, "--target", 0.2, "--quick", "-o", tmp_path / "asked", ends=0)
    assert json.loads((tmp_path / "asked" / "certificate.json").read_text()).get("target_by", "user") == "user"


def test_a_bound_beyond_the_target_is_not_green(folder):
    asked = Certificate.read(folder / "out" / "certificate.json")
    colours = {bound.name: bound.colour for bound in bounds_of(asked)}
    assert colours["persons to come at most"] == CERTIFIED
    missed = {bound.name: bound.colour for bound in bounds_of(replace(asked, target=asked.cell_upper - 0.01))}
    assert (missed["persons to come at most"], missed["this table, counted"]) == (MISSED, CERTIFIED)
