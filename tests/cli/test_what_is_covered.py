"""What is encoded is what was certified: each test is a way in which the two were once different."""

import json

import numpy as np
import pandas as pd
import pytest
from known_tables import people

import fairflows as ff
from fairflows.cli import main as command
from fairflows.stream import files

ROLES = ["--sensitive", "sex", "--label", "repaid", "--quick", "--target", "0.4"]
TABLE = {"sensitive": "sex", "label": "repaid", "identifier": "person"}
NAMED = {**TABLE, "missing_label": "drop"}


def loans(n: int, seed: int) -> pd.DataFrame:
    """Rows that all differ; the label is known of the approved alone."""
    rng, rows = np.random.default_rng([seed, 1]), people(n, seed).drop(columns="grade")
    names = [f"{name:07d}" for name in rng.permutation(rows["person"])]
    income = np.round(rng.lognormal(10, 0.3, n), 2)
    return rows.assign(person=names, income=income, repaid=rows["repaid"].where(rng.random(n) > 0.2, None))


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("covered")
    frame = loans(1500, 0)
    frame.to_csv(folder / "loans.csv", index=False)
    frame.drop(columns="person").to_csv(folder / "unnamed.csv", index=False)
    for source, out, words in (("loans", "named", ["--id", "person"]), ("unnamed", "bare", [])):
        words = [*ROLES, *words, "--missing-label", "drop", "-o", folder / out]
        code, _, err = run("share", folder / f"{source}.csv", *words)
        assert code < 2, err
    return folder


def encode(run, folder, frame, *words, model="named"):
    frame.to_csv(folder / "new.csv", index=False)
    (folder / "z.csv").unlink(missing_ok=True)
    command._warned.clear()
    return run("encode", folder / model, folder / "new.csv", "-o", folder / "z.csv", *words, notices="always")


def test_a_missing_label_must_be_spoken_of(run, folder):
    err = run("share", folder / "loans.csv", *ROLES, "--id", "person", "-o", folder / "no", ends=2)[2]
    assert "'repaid' must be known in every row" in err
    assert "--missing-label" in err


def test_rows_without_a_label_are_left_out_of_later_files_too(run, folder):
    new = loans(300, 1)
    code, _, err = encode(run, folder, new)
    assert code == 0, err
    assert len(pd.read_csv(folder / "z.csv")) == new["repaid"].notna().sum()
    assert f"{new['repaid'].isna().sum()} rows without a group or a label were dropped" in err


def test_a_file_without_the_label_is_said_to_be_covered_in_part(run, folder):
    code, _, err = encode(run, folder, loans(300, 1).drop(columns="repaid"))
    assert code == 0
    assert "fitted to rows with a known 'repaid', a column that these rows lack" in err


@pytest.mark.filterwarnings("ignore:.* of these rows are of persons of the table that was released")
@pytest.mark.parametrize("spelling", ["{:d}", "{:d}.0", " {:d}", "{:09d} "])
def test_persons_are_known_however_another_program_writes_their_names(run, folder, spelling):
    """They are encoded by the model that has not seen them: not refused, and no stranger's fold."""
    frame = loans(1500, 0)
    frame["person"] = [spelling.format(int(name)) for name in frame["person"]]
    code, _, err = encode(run, folder, frame.head(400), "--keep", "person")
    assert code == 0, err
    release = ff.load(folder / "named" / "model")
    train = ff.Table(loans(1500, 0), **TABLE, missing_label="drop")
    respelt = ff.Table(frame, **TABLE, missing_label="drop")
    assert (release.cells(respelt) == release.cells(train)).all()


@pytest.mark.filterwarnings("ignore:.* of these rows are of persons of the table that was released")
def test_persons_keep_their_cells_where_numbers_are_written_with_exponents(run, tmp_path):
    """R writes 100000 as 1e+05: these persons came as new ones, once their rows had changed."""
    frame = loans(1500, 0).assign(person=np.arange(1, 1501) * 100_000, repaid=["yes", "no"] * 750)
    frame.to_csv(tmp_path / "loans.csv", index=False)
    assert run("share", tmp_path / "loans.csv", *ROLES, "--id", "person", "-o", tmp_path / "named")[0] < 2
    changed = frame.assign(age=50, person=[f"{name:.15g}" if name % 10**6 else f"{name:g}" for name in frame["person"]])
    assert changed["person"].str.contains("e").sum() == 150
    release, table = ff.load(tmp_path / "named" / "model"), ff.Table(frame, **TABLE)
    assert (release.cells(ff.Table(changed, **TABLE)) == release.cells(table)).all()
    code, _, err = encode(run, tmp_path, changed)
    assert (code, "1,500 of these rows are of persons of the table" in err) == (0, True)


def test_training_rows_under_other_names_are_refused(run, folder):
    frame = loans(1500, 0).assign(person=[f"q{i}" for i in range(1500)])
    code, _, err = encode(run, folder, pd.concat([loans(300, 1), frame.head(40)]))
    assert code == 2
    assert "of these rows at least (their values tell it) under other names" in err
    assert not (folder / "z.csv").exists()
    frame.head(1000).to_csv(folder / "new.csv", index=False)
    run("certify", folder / "named", folder / "new.csv", ends=2)


def test_two_spellings_of_one_name_in_a_table_are_an_error(run, folder):
    frame = loans(400, 3).assign(person=[*range(399), "0000007"], repaid=["yes", "no"] * 200)
    frame.to_csv(folder / "twice.csv", index=False)
    err = run("share", folder / "twice.csv", *ROLES, "--id", "person", "-o", folder / "no", ends=2)[2]
    assert "holds '7' and '0000007', which are one name" in err


def test_names_that_come_later_do_not_get_around_the_refusal(run, folder):
    code, _, err = encode(run, folder, loans(1500, 0), model="bare")
    assert (code, "The model was fitted to" in err, "--id" in err) == (2, True, False)
    with pytest.raises(ff.DataError, match="The model was fitted to"):
        ff.encode_file(ff.load(folder / "bare" / "model"), folder / "new.csv", folder / "z.csv", **NAMED)


def test_more_rows_of_a_person_than_in_training_are_refused(run, folder):
    new = pd.concat([loans(100, 2)] * 3).assign(repaid=["yes", "no"] * 150)
    code, _, err = encode(run, folder, new)
    assert code == 2
    assert "at most 1 row, " in err
    assert "100 of these 100 persons have more, up to 3" in err
    assert "--most-rows" in err
    assert not (folder / "z.csv").exists()
    release = ff.load(folder / "named" / "model")
    with pytest.raises(ff.DataError, match="100 of these 100 persons have more, up to 3"):
        release.transform(ff.Table(new, **TABLE))
    bare = ff.load(folder / "bare" / "model")
    with pytest.raises(ff.DataError, match="up to 3"):  # without an identifier it is about one row of a person
        ff.encode_file(bare, folder / "new.csv", folder / "z.csv", **NAMED)


def test_trees_are_not_certified_for_more_rows_of_a_person_than_they_were_cut_for(run, folder):
    """Who has several rows counts several times in a file: the law of rows that the trees were cut at is another."""
    new = pd.concat([loans(100, 2)] * 3).assign(repaid=["yes", "no"] * 150)
    new.to_csv(folder / "new.csv", index=False)
    for source in ("new.csv", "loans.csv"):
        code, _, err = run("certify", folder / "named", folder / source, "--most-rows", "3")
        assert (code, "must be 1, for which the thresholds of the trees were set; got 3" in err) == (2, True)


def test_numbers_in_another_unit_are_counted(run, folder):
    new = loans(300, 2)
    code, _, err = encode(run, folder, new)
    assert (code, "outside" in err) == (0, False), "fresh rows of the same law"
    code, _, err = encode(run, folder, new.assign(income=new["income"] * 100, age=new["age"].astype(float)))
    n = new["repaid"].notna().sum()
    assert (code, f"Values outside the training range, as in another unit: column 'income' ({n})" in err) == (0, True)


def test_groups_that_print_alike_are_one_group(run, folder):
    """Excel holds numbers and text in one column; a certificate has one name for both."""
    rng = np.random.default_rng(0)
    frame = loans(900, 5).assign(repaid=rng.choice(["yes", "no"], 900))
    codes = frame["sex"].map({"f": 1, "m": 2}).tolist()
    frame["sex"] = pd.Series([str(c) if n % 2 else c for n, c in enumerate(codes)], dtype=object)
    table = ff.Table(frame, **TABLE)
    shared = ff.share(table, target=0.5, quick=True, output="cell")
    assert list(shared.certificate.n) == [str(group) for group in shared.release.groups_] == ["1", "2"]
    assert sum(shared.certificate.n.values()) == 900


def test_a_name_twice_in_a_certificate_is_refused(run, folder):
    text = (folder / "named" / "certificate.json").read_text(encoding="utf-8")
    for name in ('"status"', '"distance"'):
        place = text.index(name)
        changed = text[:place] + f"{name}: 0.0011, " + text[place:]
        (folder / "certificate.json").write_text(changed, encoding="utf-8")
        err = run("check", folder / "certificate.json", folder / "named" / "shared.csv", ends=2)[2]
        assert f"the name {name.replace(chr(34), chr(39))} stands twice" in err


def test_a_file_with_other_columns_than_were_released_fails(run, folder):
    certificate, shared = folder / "named" / "certificate.json", pd.read_csv(folder / "named" / "shared.csv")
    run("check", certificate, folder / "named" / "shared.csv", ends=0)
    for frame, words, listing in (
        (shared.assign(sex="f"), "It holds the sensitive column 'sex'", "it holds the column 'sex', which was not"),
        (shared.assign(notes="x"), "It holds the column 'notes', which no released row has", "it holds the column 'n"),
        (shared.drop(columns="town"), "It lacks the column 'town'", "it lacks the column 'town'"),
    ):
        frame.to_csv(folder / "later.csv", index=False)
        with pytest.raises(ff.DataError, match=listing):
            ff.certificate.file_list.list_files(certificate, [folder / "later.csv"])
        out = run("check", certificate, folder / "later.csv", ends=1)[1]
        assert words in out


def test_persons_at_a_cut_point_keep_their_group_in_a_file_of_narrower_floats(run, tmp_path):
    """Certified at .099, and .29 in truth: as a float of 32 bits, a score of 0.7 was under 0.7."""
    for name, seed in (("loans", 0), ("new", 1)):
        frame = loans(1500, seed).drop(columns=["sex", "repaid"])
        frame["score"] = np.random.default_rng(seed).choice([0.2, 0.5, 0.7, 0.9], len(frame))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    frame.astype({"score": np.float32}).to_parquet(tmp_path / "new.parquet", index=False)
    words = ["--sensitive", "score", "--groups", "score:0.7", "--id", "person", "--quick", "--target", "0.4"]
    run("share", tmp_path / "loans.csv", *words, "-o", tmp_path / "out", ends=0)
    tested = [
        json.loads(run("certify", tmp_path / "out", tmp_path / name, "--json")[1])["statements"][-1]["persons"]
        for name in ("new.csv", "new.parquet")
    ]
    assert (
        tested[0]
        == tested[1]
        == {"0.7 and over": (frame["score"] >= 0.7).sum(), "under 0.7": (frame["score"] < 0.7).sum()}
    )


@pytest.mark.parametrize("target", ["z.csv", "z.parquet"])
@pytest.mark.parametrize("known", [0, 1, 600])
def test_rows_that_are_dropped_leave_a_table(run, folder, monkeypatch, target, known):
    """The header stood twice where the first batch was dropped whole; without a row the file had 0 bytes."""
    monkeypatch.setattr(files, "BATCH_ROWS", 300)
    new = loans(900, 2)
    new["repaid"] = new["repaid"].fillna("no").where(new.index >= 900 - known, None)
    new.to_csv(folder / "new.csv", index=False)
    (folder / target).unlink(missing_ok=True)
    said = run("encode", folder / "named", folder / "new.csv", "-o", folder / target, ends=0)[1]
    assert said.startswith(f"{known} rows written to ")
    written = pd.read_csv(folder / target) if target.endswith("csv") else pd.read_parquet(folder / target)
    assert list(written) == list(pd.read_csv(folder / "named" / "shared.csv", nrows=1))
    assert len(written) == known
    run("check", folder / "named" / "certificate.json", folder / target, ends=0)
