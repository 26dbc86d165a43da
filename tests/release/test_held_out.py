"""Release with encoders that are not cut apart: every person is encoded by a model that never saw her, for ever.

Releases of `FairTree` are in `test_two_folds`.
"""

import threading
import time
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells
from known_tables import people
from sklearn.base import clone

import fairflows as ff
from fairflows import DataError, DataWarning
from fairflows.bounds import cell_upper_bound
from fairflows.certificate.certify import Case
from fairflows.certificate.model_hash import model_hash
from fairflows.encoder.base import CELL, Traits
from fairflows.paper.baselines import RawFeatures
from fairflows.table.keys import Key
from fairflows.table.ledger import RowsSeen
from fairflows.table.persons import Persons
from fairflows.workflow import naming_released_file

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")

KEY = Key(range(32))
QUICK = {"key": KEY}
TARGET = 0.5  # which persons of half of the table can certify


def best_cells(n_cells: int = 4, **settings) -> ff.FairCells:
    return ff.FairCells(n_cells, target=TARGET, **QUICK, **settings)


class LearntCells(RawFeatures):
    """Two cells, which need the attribute in training alone."""

    traits = Traits(needs_attribute=False, n_cells=2)
    n_cells_, output_ = 2, CELL

    def encode(self, rows):
        return pd.DataFrame({"cell": self.cells(rows)})


def two_cells() -> FixedCells:
    """Cells that need no persons to be made from."""
    return FixedCells(lambda X: (X["grade"] > 4).to_numpy().astype(np.intp), key=KEY)


def frame(n: int = 1200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 1])
    days = pd.to_timedelta(rng.integers(0, 400, n), unit="D")
    persons = people(n, seed).astype({"grade": float, "town": "category"})
    persons = persons.assign(code=rng.choice(["A7", "B2"], n), seen=pd.Timestamp("2024-01-01") + days)
    persons["owner"] = rng.random(n) < 0.4
    rows = persons.iloc[np.repeat(np.arange(n), rng.integers(1, 4, n))].reset_index(drop=True)
    return rows.assign(income=np.round(rows["income"] + rng.random(len(rows)), 2))


def table(rows: pd.DataFrame, named: bool = True) -> ff.Table:
    if named:
        return ff.Table(rows, sensitive="sex", label="repaid", identifier="person")
    return ff.Table(rows, sensitive="sex", label="repaid", drop="person")


def fold_of(rows: pd.DataFrame) -> np.ndarray:
    return np.floor(Persons.of(rows["person"]).uniform(KEY, "fold") * 2)


def hashes(shared: ff.Release) -> list[str]:
    return [model_hash(model, KEY) for model in shared.models_]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return frame()


@pytest.fixture(scope="module")
def shared(rows) -> ff.Release:
    return ff.Release(best_cells(), output="cell").fit(table(rows))


def test_everybody_is_encoded_by_the_model_that_never_saw_her(shared, rows):
    """Also in parts, one by one, in another order, and whoever comes later."""
    whole, fold = table(rows), fold_of(rows)
    Z, first = shared.transform(whole), shared.models_[0].n_cells
    assert shared.n_cells_ == sum(model.n_cells for model in shared.models_) > 2
    np.testing.assert_array_equal(Z["cell"] >= first, fold)
    for f in (0, 1):
        part = whole.take(np.flatnonzero(fold == f))
        persons = part.persons
        ledger = shared.models_[f].encoder.ledger_
        assert ledger.already_used(RowsSeen.of(part.X, persons, ledger.key)) == 0
        expected = shared.models_[f].encoder.transform(part)["cell"] + first * f
        np.testing.assert_array_equal(Z["cell"][fold == f], expected)
    order = np.random.default_rng(1).permutation(len(rows))
    np.testing.assert_array_equal(shared.transform(whole.take(order)), Z.iloc[order])
    for i in (0, 1, 2, 3):
        assert shared.transform(whole.take([i]))["cell"].tolist() == [Z["cell"].iloc[i]]
    new = frame(200, seed=1)
    np.testing.assert_array_equal(shared.transform(table(new))["cell"] >= first, fold_of(new))


def test_a_model_is_what_the_release_learns_from_the_other_persons(rows):
    """With its share of δ to plan with."""
    whole, fold = table(rows), fold_of(rows)
    shared = ff.Release(best_cells(), output="cell", delta=0.1).fit(whole)
    for f in (0, 1):
        others = np.flatnonzero(fold != f)
        alone = best_cells(delta=0.05)
        part = rows.iloc[others].astype({"grade": int})  # which is how these rows would be read
        alone.fit(table(part))
        assert model_hash(alone, KEY) == model_hash(shared.models_[f].encoder, KEY)


def worse(rows: pd.DataFrame, mine: np.ndarray) -> pd.DataFrame:
    """Everything about some persons changed, types of columns included, and some rows gone."""
    rng = np.random.default_rng(9)
    changed = rows.copy()
    changed["town"] = changed["town"].cat.add_categories(["Jena"])
    changed.loc[mine, "town"] = "Jena"
    changed.loc[mine, "grade"] = np.round(rng.normal(50, 20, mine.sum()), 2)
    changed["age"] = changed["age"].astype("Int64")
    changed.loc[mine, "age"] = rng.integers(1000, 2000, mine.sum())
    changed["owner"] = changed["owner"].astype(object)
    changed.loc[mine, "code"] = rng.choice([f"C{i}" for i in range(40)], mine.sum())
    changed.loc[mine, "sex"] = rng.permutation(changed.loc[mine, "sex"].to_numpy())
    changed.loc[mine, "repaid"] = rng.choice(["no", "yes"], mine.sum(), p=[0.9, 0.1])
    return changed.drop(index=np.flatnonzero(mine)[:60]).reset_index(drop=True)


AS_TEXT = {"encoder__kinds": {"code": "categorical"}}
RELEASES = {
    "best cells": lambda: ff.Release(best_cells(), output="cell"),
    "rows of best cells": lambda: ff.Release(best_cells()),
    "cells of matched rows": lambda: ff.Release(ff.FairMatching(key=KEY, density="counts"), n_cells=4),
}


@pytest.fixture(scope="module", params=RELEASES)
def unchanged(request, rows) -> tuple[str, list[str]]:
    """The name of a release, and the models that it makes of the rows as they are."""
    return request.param, hashes(RELEASES[request.param]().set_params(**AS_TEXT).fit(table(rows)))


@pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning")
@pytest.mark.parametrize("f", [0, 1])
def test_changing_anything_in_a_fold_leaves_its_model_as_it_was(unchanged, f, rows):
    name, before = unchanged
    changed = worse(rows, fold_of(rows) == f)
    after = hashes(RELEASES[name]().set_params(**AS_TEXT).fit(table(changed)))
    assert after[f] == before[f], "types, categories, numbers of cells and all that was learnt"
    assert after[1 - f] != before[1 - f]


@pytest.mark.parametrize("encoder", [best_cells(), ff.FairTree(4, **QUICK)], ids=type)
def test_a_column_whose_type_depends_on_the_fold_is_refused(encoder, rows):
    numeric = rows.assign(code=rows["code"].map({"A7": "7", "B2": "8"}))
    mine = fold_of(rows) == 0
    mixed = numeric.assign(code=np.where(mine & (np.arange(len(rows)) % 50 == 0), "B9", numeric["code"]))
    with pytest.raises(DataError, match=r"Column 'code' is text .* read as int64: .*Declare it categorical"):
        ff.Release(encoder, output="cell").fit(table(mixed))
    with pytest.warns(DataWarning, match="Categories that the training rows did not have"):
        ff.Release(encoder, output="cell").set_params(**AS_TEXT).fit_transform(table(mixed))
    ff.Release(encoder, output="cell").fit(table(numeric))  # text in both folds, as somebody decided
    objects = rows.assign(code=pd.Series(np.where(mine, 7, rows["code"]), dtype=object))
    own = clone(encoder).set_params(sensitive="sex", identifier="person")
    either = "Column 'code' (holds|must hold) (text|values of one type)"
    with pytest.raises(DataError, match=either):
        ff.Release(own, output="cell").fit(objects.drop(columns="repaid"), rows["repaid"])


def test_a_group_or_label_that_a_fold_lacks_is_refused(rows):
    mine = (fold_of(rows) == 1) & (np.arange(len(rows)) % 20 == 0)
    few = table(rows.assign(sex=np.where(mine, "d", rows["sex"])))
    with pytest.raises(DataError, match="Group 'd' is missing in the persons of one fold"):
        ff.Release(two_cells(), output="cell").fit(few)
    labels = ff.Table(
        rows.assign(repaid=np.where(mine, "late", rows["repaid"])),
        sensitive="sex", label="repaid", identifier="person",
    )  # fmt: skip
    with pytest.raises(DataError, match="Label 'late' is missing in the persons of one fold"):
        ff.Release(two_cells(), output="cell").fit(labels)


def test_all_persons_certify(shared, rows):
    whole = table(rows)
    certificate = ff.certify(shared, whole, target=0.5, most_rows=3)
    statement, first = certificate.find("population"), shared.models_[0].n_cells
    sample = whole.random_rows(0, 3)
    cells, fold = shared.transform(sample)["cell"].to_numpy(), fold_of(rows)
    uppers, k, part = [], shared.n_cells_, [slice(first), slice(first, None)]
    for f in (0, 1):
        counts = np.array([np.bincount(cells[(sample.a == a).to_numpy()], minlength=k) for a in ("f", "m")])
        uppers.append(cell_upper_bound(counts[:, part[f]], statement.delta / 2))
        assert set(statement.counts[f].cells) <= set(np.arange(k)[part[f]])
    assert certificate.cell_upper >= np.mean(uppers) - 1e-12
    assert certificate.cell_upper == pytest.approx(np.mean([fold.upper for fold in statement.counts]))
    assert sum(certificate.find("population", "person").n.values()) == whole.persons.n, "nobody is held back"
    assert set(fold) == {0, 1}
    table_ = certificate.headline
    assert (table_.about, table_.delta, sum(table_.n.values())) == ("table", 0, len(rows)), "and it is counted exactly"
    by_group = pd.crosstab(shared.transform(whole)["cell"].to_numpy(), whole.a.to_numpy(), normalize="columns")
    assert table_.distance == pytest.approx((by_group["f"] - by_group["m"]).abs().sum() / 2)
    assert any("covers every row of the table" in a.text for a in certificate.assumptions)
    assert not any("trained on are not covered" in a.text for a in certificate.assumptions)
    assert ff.verify(certificate, shared, whole)
    later = ff.certify(shared, table(frame(600, seed=5)), most_rows=3)
    assert (certificate.look, later.look) == (1, 1), "other persons"


def test_a_receiver_compares_the_cells_of_a_file_with_the_counts(shared, rows, tmp_path):
    """All rows were counted, so that the file's own histogram is that of the counts, both folds told apart."""
    one_each = table(rows.drop_duplicates("person"))
    cells, file = shared.transform(one_each), tmp_path / "cells.csv"
    cells.to_csv(file, index=False)
    certificate = naming_released_file(
        ff.certify(shared, one_each, most_rows=1), file, len(cells), {"cell": "whole numbers"}
    )
    assert certificate.counted_file == "cells.csv"
    (tmp_path / "certificate.json").write_text(certificate.to_json())
    assert ff.check(tmp_path / "certificate.json", file)
    for changed in (cells.iloc[10:], cells.assign(cell=(cells["cell"] + 8) % 16)):
        changed.to_csv(file, index=False)
        failed = [r.what for r in ff.check(tmp_path / "certificate.json", file).results if r.verdict == "FAILED"]
        assert failed == ["file"]


@pytest.mark.filterwarnings("ignore:Another model was certified")
def test_the_most_rows_of_a_person_must_not_be_what_her_own_fold_shows(rows):
    """M is one number for all folds: seen in the others, or stated."""
    first = rows["person"] == rows["person"].iloc[0]
    many = pd.concat([rows, *[rows[first]] * 5], ignore_index=True)
    shared = ff.Release(two_cells(), output="cell").fit(table(many))
    assert shared.most_rows_ == 3
    with pytest.raises(DataError, match=r"A person must have at most 3 rows, .* up to \d+"):
        ff.certify(shared, table(many))
    assert ff.certify(shared, table(many), most_rows=20).most_rows == 20
    stated = ff.Release(two_cells(), output="cell", most_rows=20).fit(table(many))
    assert ff.certify(stated, table(many)).most_rows == 20


class Memorising(LearntCells):
    """Gives away the group of every row that it was fitted to, and of others a cell that tells nothing."""

    def learn(self, rows):
        self.group_of_ = dict(zip(rows.X["x"].tolist(), rows.group.tolist(), strict=True))

    def cells(self, rows):
        return np.array([self.group_of_.get(x, int(1e6 * x) % 2) for x in rows.X["x"]], dtype=np.intp)


def memorised(n: int, seed: int, named: bool) -> ff.Table:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"x": rng.random(n), "sex": rng.choice(["f", "m"], n), "person": np.arange(n) + seed * 10**6})
    return ff.Table(rows, sensitive="sex", **({"identifier": "person"} if named else {"drop": "person"}))


def distance(cells: np.ndarray, table: ff.Table) -> float:
    laws = [pd.Series(cells[(table.a == a).to_numpy()]).value_counts(normalize=True) for a in ("f", "m")]
    return float(laws[0].sub(laws[1], fill_value=0).abs().sum() / 2)


def test_a_map_that_memorises_gives_nobody_away():
    """Its own rows it would give away for certain; dealt out anew, they would seem to be covered at about one half."""
    people = memorised(2000, 0, named=True)
    shared = ff.Release(Memorising(key=KEY), output="cell")
    cells = shared.fit_transform(people)["cell"].to_numpy()
    assert distance(cells, people) < 0.1
    assert ff.certify(shared, people).cell_upper < 0.2, "and that is the truth, for new persons too"
    own = [distance(model.encoder.transform(people.X)["cell"].to_numpy(), people) for model in shared.models_]
    assert all(one > 0.4 for one in own)

    renamed = ff.Table(
        people.X.assign(sex=people.a, person=np.arange(2000) + 7_000_000).reset_index(drop=True),
        sensitive="sex", identifier="person",
    )  # fmt: skip
    wrong = distance(shared.cells(shared.models_[0].encoder.read(renamed)), renamed)
    assert 0.3 < wrong < 0.7, "what a certificate from renamed persons would be about"
    with pytest.raises(DataError, match="2,000 of these rows at least .* under other names"):
        shared.transform(renamed)
    with pytest.raises(DataError, match="fitted to, or chosen by, 2,000 of the 2,000 persons"):
        ff.certify(shared, renamed)


@pytest.mark.filterwarnings("ignore:No identifier says")
def test_nor_does_it_where_nobody_has_a_name():
    people, strangers = memorised(2000, 0, named=False), memorised(2000, 1, named=False)
    shared = ff.Release(Memorising(key=KEY), output="cell")
    cells = shared.fit_transform(people)["cell"].to_numpy()
    assert distance(cells, people) < 0.1
    assert ff.certify(shared, people).cell_upper < 0.2
    for rows in (people, people.take(np.arange(500)), people.X.iloc[::-1]):
        with pytest.raises(DataError, match="The model was fitted to .* of these rows"):
            shared.transform(rows)
    with pytest.raises(DataError, match="fitted to, or chosen by, 1,000 of the 1,000 rows"):
        ff.certify(shared, people.take(np.arange(1000)))
    assert ff.certify(shared, strangers).cell_upper < 0.2


def test_the_bound_covers_the_truth():
    """Maps that are learnt from few rows of a population of known law, over 60 tables.

    A bound that misses twice as often as it says would pass once in a thousand times.
    """
    laws = np.array([[0.3, 0.3, 0.2, 0.1, 0.1], [0.1, 0.2, 0.2, 0.2, 0.3]])

    class Likely(LearntCells):
        """Two cells: the kinds that the second group has more often among the rows it is fitted to, and the others."""

        def learn(self, rows):
            counts = [np.bincount(rows.X["kind"][rows.group == a], minlength=5) for a in (0, 1)]
            self.cell_of_ = (counts[1] / counts[1].sum() > counts[0] / counts[0].sum()).astype(np.intp)

        def cells(self, rows):
            return self.cell_of_[rows.X["kind"].to_numpy()]

    delta, misses, slack = 0.2, 0, []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        group = rng.integers(2, size=400)
        kind = (rng.random(400)[:, None] > np.cumsum(laws, axis=1)[group][:, :-1]).sum(axis=1)
        people = ff.Table(
            {"kind": kind, "group": group, "person": np.arange(400)}, sensitive="group", identifier="person"
        )
        shared = ff.Release(Likely(), output="cell").fit(people)
        case = Case(shared, people, "")
        folds = [part.fold(["0", "1"], delta / 2) for part in case.counted["row"]]
        upper = sum(fold.share * fold.upper for fold in folds)
        sent = [
            np.array([np.bincount(m.encoder.cell_of_, weights=law, minlength=2) for law in laws])
            for m in shared.models_
        ]
        truth = np.mean([np.abs(law[0] - law[1]).sum() / 2 for law in sent])
        misses += truth > upper
        slack.append(upper - truth)
    assert misses <= 0.2 * 60
    assert np.mean(slack) < 0.25


@pytest.mark.filterwarnings("ignore:No identifier says", "ignore:Another model was certified")
def test_a_table_without_names_is_certified_as_a_whole(rows, tmp_path):
    single = rows.drop_duplicates("person").reset_index(drop=True)
    whole = table(single, named=False)
    shared = ff.Release(best_cells(), output="cell")
    cells = shared.fit_transform(whole)
    assert shared.most_rows_ is None
    certificate = ff.certify(shared, whole, target=0.5)
    counts = certificate.headline
    by_cell = cells["cell"].value_counts()
    for fold in counts.counts:
        for j, cell in enumerate(fold.cells):
            assert sum(fold.counts[group][j] for group in ("f", "m")) == by_cell[cell], "the cells that were released"
    assert certificate.n == {"f": int((whole.a == "f").sum()), "m": int((whole.a == "m").sum())}
    assert any("as they were released, once" in a.text for a in certificate.assumptions)
    pairs = ff.certify(shared, whole, released=["cell", "label"])
    assert pairs.n_cells == 16
    assert pairs.headline.observed > counts.observed, "bounds also count cells of few persons, which differ"

    ff.save(shared, tmp_path / "model")
    again = ff.load(tmp_path / "model")
    shuffled = whole.take(np.random.default_rng(0).permutation(len(whole)))
    assert ff.verify(certificate, again, shuffled)
    with pytest.raises(DataError, match="The model was fitted to"):
        again.transform(whole)
    with pytest.raises(DataError, match="The model was fitted to"):
        ff.audit(again, *whole.split(validation=0), quick=True)
    with pytest.raises(DataError, match="fitted to, or chosen by"):
        ff.certify(again, whole.take(np.arange(len(whole) - 5)))
    new = table(frame(300, seed=3).drop_duplicates("person"), named=False)
    assert set(again.transform(new)["cell"] // 4) == {0, 1}
    assert ff.certify(again, new).look == 1


def test_folds_of_persons_without_names_are_dealt_anew_and_evenly(rows):
    single = table(rows.drop_duplicates("person"), named=False)
    shared = ff.Release(best_cells(), output="cell").fit(single)
    new = table(frame(400, seed=4).drop_duplicates("person"), named=False)
    with pytest.warns(DataWarning, match="No identifier says .* fitted to are not covered"):
        first = shared.transform(new)["cell"] // 4
    with pytest.warns(DataWarning):
        second = shared.transform(new)["cell"] // 4
    assert 0.4 < (first == second).mean() < 0.6
    assert 0.4 < first.mean() < 0.6


def test_rows_keep_the_types_of_the_table(rows):
    """Though numbers are whole in one fold and not in the other, and a fold lacks a category."""
    mine = (fold_of(rows) == 0) & (np.arange(len(rows)) % 7 == 0)
    changed = rows.assign(
        grade=np.where(mine, rows["grade"] + 0.5, rows["grade"]),
        visits=pd.array(np.where(mine, None, 3), dtype="Int64"),
        town=rows["town"].cat.add_categories(["Jena"]),
    )
    changed.loc[mine, "town"] = "Jena"
    whole = ff.Table(changed, sensitive="sex", label="repaid", identifier="person")
    shared = ff.Release(best_cells())
    with pytest.warns(DataWarning):
        released = shared.fit_transform(whole)
    expected = {name: dtype.name for name, dtype in whole.X.dtypes.items()}
    assert {name: released[name].dtype.name for name in expected} == expected
    one = shared.transform(whole.take([1]))
    assert {name: one[name].dtype.name for name in expected} == expected
    assert set(released["town"].cat.categories) == set(released["town"]) <= {"Bonn", "Köln", "Ulm", "Jena"}
    assert list(released) == [name for name in changed if name not in ("sex", "person")]
    assert shared.get_feature_names_out().tolist() == list(released)
    assert shared.schema_.kinds["grade"] == "numbers"


@pytest.mark.parametrize("output", ["cell", "row"])
def test_what_was_released_once_is_attacked_as_it_was_released(rows, output):
    """Nobody can encode persons without names again."""
    whole = table(rows.drop_duplicates("person"), named=False)
    shared = ff.Release(best_cells(), output=output)
    released = shared.fit_transform(whole)
    places = whole.persons.split(0.3, random_state=0)
    train, test = (whole.take(part) for part in places)
    encoded = tuple(released.iloc[part] for part in places)
    with pytest.raises(DataError, match="The model was fitted to"):
        ff.audit(shared, train, test, quick=True)
    found = ff.audit(shared, train, test, encoded=encoded, quick=True)
    assert (found.released, found.attack_lower < 0.3) == (("cell",), True)
    told = ff.audit(shared, train, test, encoded=(train.a.to_frame(), test.a.to_frame()), quick=True)
    assert told.attack_lower > 0.8, "it is this that was attacked"
    certificate = ff.certify(shared, whole, audit=found)
    assert certificate.attack_lower == found.attack_lower
    kept = ff.usefulness(shared, train, test, encoded=encoded)
    assert len(kept.columns) == whole.X.shape[1]
    with pytest.raises(DataError, match="encoded must hold cells"):
        ff.audit(RawFeatures(key=KEY).fit(train), train, test, encoded=encoded, quick=True)


@pytest.mark.filterwarnings("ignore:Values outside the training range")
def test_drawn_rows_stream_with_one_type_per_column(rows, tmp_path, monkeypatch):
    """Also where a batch has rows of one fold only."""
    monkeypatch.setattr("fairflows.stream.files.BATCH_ROWS", 50)
    halves = rows.assign(grade=np.where(fold_of(rows) == 0, rows["grade"] + 0.5, rows["grade"]))
    halves = halves.iloc[np.argsort(fold_of(rows), kind="stable")].drop(columns=["seen"])
    shared = ff.Release(best_cells()).fit(table(halves))
    source, target = tmp_path / "rows.parquet", tmp_path / "shared.parquet"
    halves.reset_index(drop=True).to_parquet(source)
    ff.encode_file(shared, source, target, sensitive="sex", identifier="person")
    found = pd.read_parquet(target)
    assert found["grade"].dtype == np.float64
    assert len(found) == len(halves)


class FailingInOneFold(LearntCells):
    """One of two fits fails at once; the other one takes longer."""

    ended: ClassVar[list[str]] = []
    first = threading.Lock()

    def learn(self, rows):
        if self.first.acquire(blocking=False):
            raise DataError("out of reach")
        time.sleep(0.3)
        self.ended.append("the other fit")


def test_a_fit_that_fails_waits_for_the_other_one(rows):
    """A solver that still runs in a thread when the interpreter ends brings the process down (SIGABRT)."""
    with pytest.raises(DataError, match="out of reach"):
        ff.Release(FailingInOneFold(sensitive="sex"), output="cell").fit(rows)
    assert FailingInOneFold.ended == ["the other fit"]
