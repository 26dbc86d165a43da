"""The paper's five datasets: table 3 to the printed digit, the files they come from, and bad files."""

import functools
import hashlib
import http.server
import lzma
import threading
import zipfile
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, DataWarning, load_adult
from fairflows.paper import datasets, folktables

# Table 3 of the paper: size, then P(a=1), P(y=1|a=0), P(y=1|a=1), P(y=1) in percent, for train, validation, test.
TABLE_3 = {
    "compas": [(3377, 60.6, 60.9, 46.8, 52.3), (845, 60.0, 60.1, 46.9, 52.2), (1056, 58.9, 61.8, 51.3, 55.6)],
    "crime": [(1276, 42.3, 71.3, 17.8, 48.7), (319, 40.8, 78.8, 21.5, 55.5), (399, 43.1, 74.9, 16.3, 49.6)],
    "health": [
        (139785, 35.7, 79.0, 48.3, 68.0),
        (34946, 35.6, 79.3, 49.2, 68.6),  # the paper's 34,947 less the row that health.csv lacks
        (43683, 35.4, 78.8, 48.3, 68.0),
    ],
}


def statistics(table):
    summary = table.summary()
    rates = summary.iloc[:, 2]
    return (len(table), *(round(100 * x, 1) for x in (summary["share"][1], rates[0], rates[1], rates["all"])))


@pytest.fixture(scope="module")
def health_rows(data_folder):
    """`read_health` that reads its file of 75 MB once, and parses it once for all columns and once for some."""
    read, parse = functools.cache(datasets.Source.read), datasets.read_health

    @functools.cache
    def rows(every_column):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(datasets.Source, "read", read)
            return parse(every_column)

    return rows


@pytest.fixture(scope="module")
def health(health_rows):
    def load(*args, **settings):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(datasets, "read_health", health_rows)
            return datasets.load_health(*args, **settings)

    return load


@pytest.fixture(scope="module")
def tables(data_folder, health):
    with pytest.warns(DataWarning, match="13 of 25 law schools"):
        law = datasets.load_law_school()
    return {
        "adult": load_adult(),
        "compas": datasets.load_compas(),
        "crime": datasets.load_crime(),
        "health": health(),
        "law_school": law,
    }


@pytest.fixture(scope="module")
def member_years(health_rows):
    """Health's rows with all their columns, and the paper's order of them."""
    rows, order, _ = health_rows(every_column=True)
    return rows, order


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FAIRFLOWS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.mark.parametrize("name", TABLE_3)
def test_splits_have_the_sizes_and_rates_of_table_3(tables, name):
    assert [statistics(part) for part in tables[name].paper_split()] == TABLE_3[name]


def test_adult_has_the_sizes_of_table_3_and_its_own_rates():
    parts = [statistics(part) for part in load_adult().paper_split()]
    assert [(size, a, y) for size, a, _, _, y in parts] == [
        (24129, 32.6, 24.9),
        (6033, 31.9, 24.9),
        (15060, 32.6, 24.6),
    ]
    assert parts[0][2:4] == (31.5, 11.3)  # the paper prints Law School's 28.5 and 21.6


def test_adult_holds_the_values_of_the_original_files(data_folder):
    columns = [
        *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
        *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
    ]
    originals = pd.concat(
        pd.read_csv(data_folder / "adult" / file, names=columns, skipinitialspace=True, na_values="?", comment="|")
        for file in ("adult.data.xz", "adult.test.xz")
    ).dropna()
    adult = load_adult(features="all")
    for column in adult.X:
        assert adult.X[column].tolist() == originals[column].tolist()
    assert adult.a.tolist() == (originals["sex"] == "Female").tolist()
    assert adult.y.tolist() == originals["income"].str.contains(">50K").tolist()
    assert list(load_adult().X) == ["workclass", "education", "marital_status", "occupation", "relationship", "race"]


def test_features_of_law_school(tables):
    law = tables["law_school"]
    assert list(law.X) == ["LSAT", "GPA", "college"]
    assert law.X["college"].nunique() == 13
    assert (law.X["GPA"] == law.X["GPA"].round(2)).all()  # one school's come as 3.179998
    with pytest.warns(DataWarning):
        everything = datasets.load_law_school(features="all")
    assert {column: everything.kinds[column] for column in ("resident", "year", "gender")} == dict.fromkeys(
        ("resident", "year", "gender"), "categorical"
    )


def test_features_of_health(tables, health):
    paper, transfer, everything = tables["health"], health("transfer", "METAB3"), health("all")
    assert tuple(paper.X) == datasets.HEALTH_FEATURES
    assert tuple(transfer.X) == datasets.HEALTH_TRANSFER_FEATURES
    assert everything.X.shape[1] == 123
    for column in ("PrimaryConditionGroup", "Specialty", "ProcedureGroup", "PlaceSvc"):
        counts = everything.X.filter(like=f"{column}=")  # one category each, none left out
        assert (counts.sum(axis=1) == everything.X["no_Claims"]).all()
    assert (transfer.y == (everything.X["PrimaryConditionGroup=METAB3"] > 0)).all()
    assert (paper.X["Specialty=Internal"] == everything.X["Specialty=Internal"]).all()
    for name in ("Drug", "Lab"):
        total, months = transfer.X[f"{name}Count_total"], transfer.X[f"{name}Count_months"]
        average = everything.X[f"{name.lower()}Count_ave"]  # cut to six decimals
        assert (total / months.clip(lower=1) - average).between(-1e-9, 1e-6).all()


def test_labels_of_health(tables, health, member_years):
    plain = health(label="charlson_zero")
    rows, _ = member_years
    assert sorted(rows["CharlsonIndexI_max"].unique()) == [0, 2, 4, 6]
    assert (tables["health"].y.to_numpy() == (rows["CharlsonIndexI_max"] != 2)).all()
    assert (plain.y.to_numpy() == (rows["CharlsonIndexI_max"] == 0)).all()


@pytest.fixture
def applications():
    rng = np.random.default_rng(0)
    n = 60
    races = ["White", "Black", "Hispanic", "Asian", ""]
    return pd.DataFrame(
        {
            "lsat": rng.integers(120, 181, n).astype(np.float32),
            "gpa": (rng.integers(200, 401, n) / 100).astype(np.float32),
            "race": [races[i % 5] for i in range(n)],
            "resident": rng.integers(0, 2, n).astype(np.float32),
            "college": rng.choice(["Akron", "Virginia"], n),
            "year": rng.choice(["2005", "200x"], n),
            "gender": rng.integers(0, 2, n).astype(np.float32),
            "admit": (np.arange(n) // 5 % 2).astype(np.float32),
            "urm": 0,
        }
    )


def test_law_school_from_the_full_file(folder, applications):
    applications.loc[0, "lsat"] = np.nan
    applications.to_stata(folder / "lawschs1_1.dta", write_index=False)
    with pytest.warns(DataWarning, match=r"lawschs1_1\.dta has 60 applications, the published one 124,557"):
        law = datasets.load_law_school(features="all")
    kept = applications[applications["race"].isin(["White", "Black", "Hispanic"]) & applications["lsat"].notna()]
    assert law.X["college"].tolist() == kept["college"].tolist()
    assert law.X["LSAT"].tolist() == kept["lsat"].astype(int).tolist()
    assert law.X["GPA"].tolist() == [round(float(gpa), 2) for gpa in kept["gpa"]]  # the file's are single precision
    assert law.a.tolist() == (kept["race"] != "White").astype(int).tolist()
    assert law.y.tolist() == kept["admit"].astype(int).tolist()


def test_law_school_file_without_a_column(folder, applications):
    applications.drop(columns="gpa").to_stata(folder / "lawschs1_1.dta", write_index=False)
    with pytest.raises(DataError, match=r"lawschs1_1\.dta: cannot be read as the law school data.*gpa"):
        datasets.load_law_school()


@pytest.fixture
def any_content(monkeypatch):
    """Files of the survey may have any content."""
    for name in ("ACS", "NIST"):
        monkeypatch.setattr(datasets, name, replace(getattr(datasets, name), sha256=()))


def test_acs_from_a_small_file(folder, any_content):
    names = pd.read_csv(files("fairflows.paper") / "files" / "acs_columns.csv").set_index("column")["readable"]
    rows = pd.DataFrame({name: ["x"] * 4 for name in names})
    rows["State"] = ["California/CA", "Puerto Rico/PR", "California/CA", "California/CA"]
    rows["Income"], rows["Age"] = [50_000.0, 50_001.0, 100.0, 90_000.0], [30.0, 40.0, 50.0, 60.0]
    rows["Gender"] = ["Female", "Male", "Male", "Male"]
    rows["Education"] = ["Grade 10", "Grade 10", "Grade 9", "Grade 9"]
    rows.astype({"Gender": "category"}).to_parquet(folder / "acs-income-2018-holdout.parquet")
    acs = datasets.load_acs()
    assert list(acs.X) == ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RAC1P"]
    assert (acs.a.tolist(), acs.y.tolist()) == ([1, 0, 0], [0, 1, 1]), "the person with 100 dollars is left out"
    assert acs.X["SCHL"].min() == "Grade 9", "schooling has the survey's order, not the alphabet's"
    california = datasets.load_acs("all", state="CA")
    assert california.X["AGEP"].tolist() == [30, 60]
    assert set(names.index) - set(california.X) == {"SEX", "PINCP"}
    with pytest.raises(ValueError, match=r"state must be .*'CA', 'PR'.*got 'California'"):
        datasets.load_acs(state="California")


def test_nist_from_a_small_file(folder, any_content):
    rows = {name: ["1", "2"] for name in ("PUMA", "SEX", "RAC1P", "MSP", "AGEP", "NOC", "NPF", "DENSITY", "PINCP")}
    rows |= {"MSP": ["N", "1"], "PINCP": ["N", "900.0"], "POVPIP": ["501", "N"], "PWGTP": [3, 4], "WGTP": [0, 5]}
    pd.DataFrame(rows).to_csv(folder / "national2019.csv", index=False)
    nist = datasets.load_nist()
    assert nist.y is None
    assert nist.a.tolist() == ["1", "2"]
    assert nist.X["PINCP"].tolist()[1] == 900
    assert nist.X.isna().sum().sum() == 3
    assert nist.X["MSP"].cat.categories.tolist() == ["1"], "a code is a category, and N is missing"
    assert datasets.load_nist("RAC1P").X["SEX"].tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("load", "file", "label"),
    [
        (folktables.load_acs_income, "acsincome-2018-ca-mi.parquet", "PINCP"),
        (folktables.load_acs_public_coverage, "acspubliccoverage-2018-ca-mi.parquet", "PUBCOV"),
    ],
)
def test_tasks_of_folktables_from_a_small_file(folder, monkeypatch, load, file, label):
    for name in ("ACS_INCOME", "ACS_COVERAGE"):
        monkeypatch.setattr(folktables, name, replace(getattr(datasets, name), sha256=()))
    monkeypatch.setattr(folktables, "_N_CALIFORNIA", 3)
    rows = pd.DataFrame({"AGEP": [20, 30, 40, 50, 60], "SEX": [0, 1, 0, 1, 0], "ST": [0, 0, 0, 20, 20]})
    rows.assign(MAR=[0, 4, 0, 4, 0], **{label: [0, 1, 1, 1, 0]}).to_parquet(folder / file)
    both, california, michigan = load(), load("CA"), load("MI")
    assert (len(both), california.y.tolist(), michigan.a.tolist()) == (5, [0, 1, 1], [1, 0])
    assert (both.X["AGEP"].dtype, both.X["MAR"].dtype) == (np.int64, "category"), "a code is a category, an age is not"
    assert not {"SEX", label} & set(both.X)
    with pytest.raises(ValueError, match=r"state must be .*'CA'.*'MI'.*got 'NY'"):
        load("NY")


def test_files_of_the_survey(data_folder):
    income, coverage = folktables.load_acs_income("CA"), folktables.load_acs_public_coverage()
    assert (income.X.shape, round(income.y.mean(), 4), income.group_names[1]) == ((195_665, 9), 0.4106, "female")
    rates = income.y.groupby(income.a.to_numpy()).mean().round(3).tolist()
    assert rates == [0.466, 0.349], "men earn more than 50,000 dollars more often"
    assert coverage.X.shape == (174_178, 18)
    assert (coverage.X["FER"].astype(int) > 0)[(coverage.a == 0).to_numpy()].sum() == 0, "men gave no birth"
    acs, nist = datasets.load_acs(), datasets.load_nist()
    assert (len(acs), acs.X["OCCP"].nunique(), round(acs.y.mean(), 3)) == (295_051, 529, 0.397)
    assert (nist.X.shape, nist.a.value_counts().to_dict()) == ((27_253, 23), {"2": 14_030, "1": 13_223})


@pytest.mark.parametrize(
    "load",
    [
        datasets.load_acs,
        datasets.load_nist,
        datasets.load_health,
        datasets.load_law_school,
        folktables.load_acs_income,
        folktables.load_acs_public_coverage,
    ],
)
def test_a_file_that_is_not_there(folder, load):
    with pytest.raises(
        DataError, match=r"not in .*no longer serves it\. Put .*\(.*\), as it is or as \.xz.*FAIRFLOWS_DATA"
    ):
        load()


def test_plain_and_packed_files_flat_or_in_their_folder_are_the_same(tables, data_folder, folder):
    packed = (data_folder / "crime" / "CommViolPredUnnormalizedData.txt.xz").read_bytes()
    plain = lzma.decompress(packed)
    name = "CommViolPredUnnormalizedData.txt"
    (folder / "crime").mkdir()
    for file, content in (
        (f"crime/{name}.xz", packed),
        (f"crime/{name}", plain),
        (f"{name}.xz", packed),
        (name, plain),
    ):
        (folder / file).write_bytes(content)  # each is preferred to the one before
        assert datasets.CRIME.find() == folder / file
        assert_frame_equal(datasets.load_crime().X, tables["crime"].X)


def test_crime_as_its_publisher_serves_it(tables, data_folder, folder):
    copy = lzma.decompress((data_folder / "crime" / "CommViolPredUnnormalizedData.txt.xz").read_bytes())
    lines = copy.decode().splitlines()
    published = "".join(",".join(field or "?" for field in line.split(",")) + "\r\n" for line in lines).encode()
    assert hashlib.sha256(published).hexdigest() == datasets.CRIME.sha256[0]  # so the copy differs in nothing else
    (folder / datasets.CRIME.name).write_bytes(published)
    assert_frame_equal(datasets.load_crime(features="paper").X, tables["crime"].X)


@pytest.mark.parametrize(
    ("load", "file"),
    [
        (datasets.load_compas, "compas-scores-two-years.csv"),
        (datasets.load_crime, "CommViolPredUnnormalizedData.txt"),
        (datasets.load_health, "health.csv"),
        (datasets.load_law_school, "lawschool.csv"),
        (datasets.load_acs, "acs-income-2018-holdout.parquet"),
        (datasets.load_nist, "national2019.csv"),
        (folktables.load_acs_income, "acsincome-2018-ca-mi.parquet"),
        (folktables.load_acs_public_coverage, "acspubliccoverage-2018-ca-mi.parquet"),
    ],
)
def test_wrong_checksum(folder, load, file):
    content = b"age,race\n31,Caucasian\n"
    (folder / file).write_bytes(content)
    with pytest.raises(
        DataError, match=f"{file}: the checksum .* must be [0-9a-f]{{64}}.*found {hashlib.sha256(content).hexdigest()}"
    ):
        load()


def test_damaged_and_cut_off_archives(data_folder, folder):
    packed = (data_folder / "compas" / "compas-scores-two-years.csv.xz").read_bytes()
    for damaged in (packed[:-1000], packed[:5000] + b"\0" * 100 + packed[5100:], b"", b"no archive"):
        (folder / "compas-scores-two-years.csv.xz").write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"compas-scores-two-years\.csv\.xz: the compressed file is damaged or cut off"
        ):
            datasets.load_compas()


@pytest.fixture
def publisher(tmp_path):
    """A server that hands out the files in a folder."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "served")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield tmp_path / "served", f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("file", ["numbers.csv", "archive.zip"])
def test_download(folder, publisher, file):
    served, address = publisher
    content = b"a,b\n1,2\n"
    if file.endswith(".zip"):
        with zipfile.ZipFile(served / file, "w") as archive:
            archive.writestr("numbers.csv", content)
    else:
        (served / file).write_bytes(content)
    source = datasets.Source("numbers.csv", "numbers", (hashlib.sha256(content).hexdigest(),), f"{address}/{file}")
    assert source.whereabouts() == f"download from {address}/{file}"
    assert source.read() == content
    (served / file).unlink()
    assert source.read() == content  # from the cache
    assert source.whereabouts().endswith("numbers.csv")


def test_download_of_something_else_is_refused_and_not_kept(folder, publisher):
    served, address = publisher
    (served / "numbers.csv").write_bytes(b"<html>moved</html>")
    source = datasets.Source("numbers.csv", "numbers", ("0" * 64,), f"{address}/numbers.csv")
    for _ in range(2):
        with pytest.raises(DataError, match=f"{address}/numbers.csv: the checksum .* must be {'0' * 64}; found"):
            source.read()
    assert source.whereabouts().startswith("download")
    with pytest.raises(DataError, match="numbers.csv: not in .* and the download from .* failed"):
        replace(source, url=f"{address}/numbers.zip").read()


def test_list_says_what_the_tables_hold(tables):
    listed = datasets.describe_datasets().set_index("name")
    assert list(listed.index) == list(tables)
    assert listed["at_hand"].all()
    for name, table in tables.items():
        summary = table.summary().drop("all")
        shares = (f"{table.group_names[group]} {100 * share:.1f} %" for group, share in summary["share"].items())
        assert listed.loc[name, "rows"] == len(table)
        assert listed.loc[name, "groups"] == ", ".join(shares)
        assert listed.loc[name, "rates"] == ", ".join(f"{100 * rate:.1f} %" for rate in summary.iloc[:, 2])


def test_list_without_any_data(folder):
    listed = datasets.describe_datasets().set_index("name")
    assert listed.index[listed["at_hand"]].tolist() == ["adult"]
    assert listed.loc["crime", "source"].startswith("download from https://archive.ics.uci.edu/")
    assert listed.loc["health", "source"].startswith("not at hand")
    assert listed.loc["law_school", "rows"] == 86_022  # the paper's
