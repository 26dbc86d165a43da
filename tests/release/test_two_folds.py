"""Releases of trees: conditions of the law of blocks, one by one, and persons of the table, who are never new."""

from __future__ import annotations

from dataclasses import replace

import known_tables
import numpy as np
import pandas as pd
import pytest
from pandas.api.types import is_numeric_dtype
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

import fairflows as ff
from fairflows import DataError, DataWarning
from fairflows.bounds import blocks_upper_bound
from fairflows.bounds.planning import lowest_target, plan_cells
from fairflows.certificate.model_hash import model_hash
from fairflows.table.keys import Key

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")

KEY = Key(range(32))


def people(n: int = 1200, seed: int = 0) -> pd.DataFrame:
    return known_tables.people(n, seed, sex=np.where(np.arange(n) < 0.6 * n, "m", "f"))


def table(rows: pd.DataFrame, named: bool = True, label: str | None = "repaid") -> ff.Table:
    who = {"identifier": "person"} if named else {"drop": "person"}
    return ff.Table(rows, sensitive="sex", label=label, **who)


def release(n_cells: int | str = 4, **settings) -> ff.Release:
    tree = ff.FairTree(identifier="person", key=KEY)
    return ff.Release(tree, n_cells=n_cells, **({"output": "cell"} | settings))


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return people()


@pytest.fixture(scope="module")
def cells_of(rows) -> pd.Series:
    return pd.Series(release().fit_transform(table(rows))["cell"].to_numpy(), index=rows["person"])


@pytest.fixture(scope="module")
def shared(rows) -> ff.Release:
    return release().fit(table(rows))


def fold_of(shared: ff.Release, cells: pd.Series) -> np.ndarray:
    return (cells >= shared.models_[0].n_cells).to_numpy().astype(int)


def of_structure(encoder: ff.FairTree) -> str:
    return model_hash([encoder.structure_, encoder.scores_, encoder.columns_], KEY)


def cells(shared: ff.Release, new: pd.DataFrame) -> np.ndarray:
    return shared.transform(table(new))["cell"].to_numpy()


# The nine conditions, in their order.


@pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning")
@pytest.mark.parametrize("f", [0, 1])
def test_1_the_structure_of_a_tree_does_not_depend_on_whom_it_is_cut_at(f, shared, rows, cells_of):
    """Whatever is changed about them, bit for bit: values, categories, types, gaps, labels."""
    rng, mine, changed = np.random.default_rng(9), fold_of(shared, cells_of) == f, rows.copy()
    changed.loc[mine, "town"] = rng.choice([f"C{i}" for i in range(40)], mine.sum())
    changed["grade"] = np.where(mine, np.round(rng.normal(50, 20, len(rows)), 2), rows["grade"])
    changed["income"] = rows["income"].where(~mine | (rng.random(len(rows)) < 0.5))
    changed.loc[mine, "repaid"] = rng.choice(["no", "yes"], mine.sum(), p=[0.9, 0.1])
    after = release().fit(table(changed))
    models = list(zip(shared.models_, after.models_, strict=True))
    same = [of_structure(one.encoder) == of_structure(other.encoder) for one, other in models]
    assert same == [f == 0, f == 1]
    assert model_hash(models[f][0], KEY) != model_hash(models[f][1], KEY), "but the thresholds are others"


def test_2_ties_are_parted_by_coins_and_a_person_has_the_same_coins_for_ever():
    """A column of two values is cut into four cells of equal size, in both groups."""
    flags = people()[["sex", "person"]]
    flags = flags.assign(flag=(np.random.default_rng(1).random(1200) < np.where(flags["sex"] == "m", 0.8, 0.3)) * 1)
    binary = table(flags, label=None)
    shared = release().fit(binary)
    counts = shared.table_.counts[0]
    assert (counts.max(axis=1) - counts.min(axis=1) <= 2).all()
    np.testing.assert_array_equal(shared.counts_again(binary), shared.table_.counts)
    new = people(400, seed=1)[["sex", "person"]].assign(flag=1)
    first = shared.transform(table(new, label=None))
    assert first["cell"].nunique() > 4, "equal rows are in several cells"
    assert first.equals(shared.transform(table(new, label=None)))


def test_3_a_row_by_itself_has_the_cell_that_it_has_among_others(rows):
    numbers = rows.drop(columns="town")
    shared = release(8).fit(table(numbers))
    assert any(model.encoder.scores_.of_labels for model in shared.models_)
    new = people(200, seed=2).drop(columns="town")
    new["grade"] = new["grade"] // 4  # heavy ties
    together = cells(shared, new)
    whole = table(new)
    one_by_one = [shared.transform(whole.take([i]))["cell"].iloc[0] for i in range(len(new))]
    np.testing.assert_array_equal(together, one_by_one)
    order = np.random.default_rng(0).permutation(len(new))
    np.testing.assert_array_equal(cells(shared, new.iloc[order]), together[order])


def test_4_a_person_counts_once_and_has_one_fold(rows, shared):
    sizes = [sum(model.encoder.blocks_.sum(axis=1) - 1 for model in shared.models_)]
    np.testing.assert_array_equal(sizes[0], [480, 720])
    each = np.random.default_rng(3).integers(1, 4, len(rows))
    several = rows.iloc[np.repeat(np.arange(len(rows)), each)].reset_index(drop=True)
    several["income"] += np.arange(len(several)) / 100
    thinned = release()
    found = thinned.fit_transform(table(several))["cell"]
    fold = pd.Series((found >= thinned.models_[0].n_cells).to_numpy())
    assert (fold.groupby(several["person"].to_numpy()).nunique() == 1).all(), "whatever rows she has"
    cut_at = sum(model.encoder.blocks_.sum(axis=1) - 1 for model in thinned.models_)
    expected = [each[(rows["sex"] == a).to_numpy()].sum() / 3 for a in ("f", "m")]  # with m/M each
    assert (np.abs(cut_at - expected) < 5 * np.sqrt(expected)).all()
    certificate = ff.certify(thinned, table(several))
    assert certificate.find("table").persons["f"] < sum(each[(rows["sex"] == "f").to_numpy()])
    assert certificate.n == {"f": int((several["sex"] == "f").sum()), "m": int((several["sex"] == "m").sum())}


@pytest.mark.parametrize("change", [{"town": "Jena"}, {"income": np.nan}], ids=["category", "gap"])
def test_5_what_the_structure_cannot_know_has_one_cell_in_every_group(change, shared):
    new = people(400, seed=4).assign(**change)
    with pytest.warns(DataWarning):
        found = shared.transform(table(new))["cell"]
    leftmost = [found[found // 4 == f].unique() for f in (0, 1)]
    assert [len(cell) for cell in leftmost] == [1, 1], "the same cell, whatever else the row holds"
    for f in (0, 1):
        assert set(new["sex"][(found // 4 == f).to_numpy()]) == {"f", "m"}


def test_6_the_number_of_cells_follows_from_the_numbers_of_persons(rows):
    shuffled = rows.copy()
    for seed, name in enumerate(["age", "grade", "income", "town", "repaid"]):
        shuffled[name] = np.random.default_rng(seed).permutation(rows[name].to_numpy())
    constant = rows.assign(age=1, grade=1, income=2.5, town="Ulm")
    found = [release("auto", target=0.2).fit(table(each)).n_cells_ for each in (rows, shuffled, constant)]
    assert found[0] == found[1] == found[2] > 4


def apart(rows: pd.DataFrame) -> pd.DataFrame:
    """The same persons, with groups that differ much."""
    is_m = rows["sex"] == "m"
    return rows.assign(grade=rows["grade"] + 6 * is_m, income=rows["income"] + 30 * is_m, age=rows["age"] + 30 * is_m)


def test_7_new_persons_test_the_law(rows):
    whole, fresh = apart(rows), apart(people(2000, seed=5))
    shared = release().fit(table(whole))
    certificate = ff.certify(shared, table(fresh))
    tested = certificate.find("new persons")
    assert (certificate.status, tested.p_value > 0.001) == ("CERTIFIED", True)
    assert sum(tested.persons.values()) == 2000
    both = ff.certify(shared, table(pd.concat([fresh, whole], ignore_index=True)))
    assert both.find("new persons").persons == tested.persons, "nobody of the table is new"
    assert certificate.find("population").distance == ff.certify(shared, table(whole)).cell_upper
    swapped = fresh.assign(sex=np.where(fresh["sex"] == "m", "f", "m"))
    shifted = people(2000, seed=5)
    for contradicting in (swapped, shifted):
        assert ff.certify(shared, table(contradicting)).status == "REFUTED"


def test_8_counts_are_counted_and_no_cell_is_small(shared):
    counts = shared.table_.counts.sum(axis=0)
    blocks = np.hstack(shared.table_.blocks)
    assert (counts >= blocks - 1).all()
    assert (counts.sum(axis=1) == [480, 720]).all()
    assert counts.min() >= 10
    with pytest.warns(DataWarning, match="group 'f' has 240 persons in a fold: .* there are 21 cells"):
        finest = release(500).fit(table(people()))
    assert finest.table_.counts.sum(axis=0).min() >= 10


def test_9_files_are_encoded_in_batches_as_tables_are(shared, rows, cells_of, tmp_path, monkeypatch):
    monkeypatch.setattr("fairflows.stream.files.BATCH_ROWS", 50)
    new = people(300, seed=6)
    mixed = pd.concat([rows.iloc[:300], new]).sample(frac=1, random_state=0)
    mixed.drop(columns="repaid").to_csv(tmp_path / "mixed.csv", index=False)
    with pytest.warns(DataWarning, match="persons of the table"):
        ff.encode_file(
            shared, tmp_path / "mixed.csv", tmp_path / "cells.csv", sensitive="sex", identifier="person",
            keep=["person"],
        )  # fmt: skip
    found = pd.read_csv(tmp_path / "cells.csv").set_index("person")["cell"]
    kept = cells_of_table(shared, rows)
    assert (found[rows["person"].iloc[:300]] == kept.iloc[:300]).all()
    np.testing.assert_array_equal(found[new["person"]], cells(shared, new))


def cells_of_table(shared: ff.Release, rows: pd.DataFrame) -> pd.Series:
    with pytest.warns(DataWarning):
        return pd.Series(cells(shared, rows), index=rows["person"])


def test_a_person_of_the_table_keeps_her_cell_whatever_her_row_holds(shared, rows):
    before = cells_of_table(shared, rows)
    turned = rows.assign(grade=rows["grade"].max() - rows["grade"], sex=np.where(rows["sex"] == "m", "f", "m"))
    mixed = pd.concat([turned.iloc[:500], people(100, seed=7)], ignore_index=True)
    with pytest.warns(DataWarning, match="500 of these rows are of persons of the table that was released"):
        found = cells(shared, mixed)
    np.testing.assert_array_equal(found[:500], before.iloc[:500])
    np.testing.assert_array_equal(found[500:], cells(shared, people(100, seed=7)))


def test_the_cells_that_are_kept_are_those_that_were_released(rows, tmp_path):
    shared = release()
    released = shared.fit_transform(table(rows))["cell"].to_numpy()
    np.testing.assert_array_equal(cells_of_table(shared, rows), released)
    ff.save(shared, tmp_path / "model")
    again = ff.load(tmp_path / "model")
    np.testing.assert_array_equal(cells_of_table(again, rows), released)
    assert model_hash(again, KEY) == model_hash(shared, KEY)
    assert ff.verify(ff.certify(shared, table(rows)), again, table(rows))


def test_a_person_with_several_rows_keeps_one_of_her_cells(rows):
    twice = pd.concat([rows, people().assign(grade=rows["grade"].max() - rows["grade"])], ignore_index=True)
    shared = release()
    released = shared.fit_transform(table(twice))["cell"].to_numpy().reshape(2, -1)
    kept = cells_of_table(shared, rows).to_numpy()
    assert ((kept == released[0]) | (kept == released[1])).all()
    assert (kept != released[0]).any()
    assert (kept != released[1]).any()


def test_persons_who_were_released_are_no_new_persons(shared, rows):
    changed = rows.assign(grade=rows["grade"] + 1)
    with pytest.raises(DataError, match="All of these persons are in the table"):
        ff.certify(shared, table(changed))


def test_certificates_look_at_nobody(shared, rows, ledger_of_test):
    first = ff.certify(shared, table(rows), target=0.3)
    assert ff.certify(shared, table(rows), target=0.3) == first
    assert first.look == 0
    assert not list(ledger_of_test.glob("*.npz"))
    assert ff.verify(first, shared, table(rows))
    assert ff.certify(shared, table(rows), delta=0.05).cell_upper < first.cell_upper
    exact = [blocks_upper_bound(blocks, 0.005) for blocks in shared.table_.blocks]
    assert first.cell_upper == pytest.approx(np.mean(exact))


def test_a_changed_model_is_found_out_by_counting_again(shared, rows, tmp_path):
    certificate = ff.certify(shared, table(rows))
    ff.save(shared, tmp_path / "model")
    forged = ff.load(tmp_path / "model")
    tree = forged.models_[0].encoder.tree_
    forged.models_[0].encoder.tree_ = replace(tree, threshold=tree.threshold[:, ::-1].copy())
    assert not np.array_equal(forged.counts_again(table(rows)), forged.table_.counts)
    assert not ff.verify(certificate, forged, table(rows))


def test_the_label_beside_the_cell_is_stated_of_the_table_alone(shared, rows):
    pairs = ff.certify(shared, table(rows), released=["cell", "label"])
    assert [s.about for s in pairs.statements] == ["table"]
    assert pairs.n_cells == 2 * shared.n_cells_
    by_label = pd.crosstab(rows["repaid"], rows["sex"], normalize="columns")
    assert pairs.table_distance >= (by_label["f"] - by_label["m"]).abs().sum() / 2 - 1e-9


def test_few_persons_have_one_tree_and_nobody_comes_later():
    few = people(90)
    shared = release("auto", target=0.3)
    shared.fit(table(few))
    assert (shared.plan_.n_folds, len(shared.models_)) == (1, 1)
    certificate = ff.certify(shared, table(few), target=0.3)
    assert [s.about for s in certificate.statements] == ["table"]
    assert certificate.status == "CERTIFIED"
    np.testing.assert_array_equal(shared.counts_again(table(few)), shared.table_.counts)
    with pytest.raises(DataError, match="20 of these rows are of persons who come later, .* too few persons"):
        shared.transform(table(people(20, seed=9)))


def test_a_group_that_is_too_small_is_named_with_what_would_do():
    few, more = (people(1200).assign(sex=lambda r, n=n: np.where(np.arange(1200) < n, "d", r["sex"])) for n in (12, 60))
    with pytest.raises(
        DataError, match=r"Group 'd' is too small .* has 12 persons, and .* needs 21 .*\(merge_small=.*"
    ):
        release("auto").fit(table(few))
    with pytest.raises(DataError, match=r"60 persons, \d of whom are drawn to cut cells at.* needs 21 of these"):
        release("auto").fit(table(pd.concat([more, *[more[1000:]] * 20])))  # whoever has one row is seldom drawn
    with pytest.raises(DataError, match=r"Group 'f' .* has 480 persons, and the lowest target .* 0\.0"):
        release("auto", target=0.01).fit(table(people()))
    assert plan_cells([30, 30], lowest_target([30, 30]), 0.01) is not None
    release("auto", target=0.07).fit(table(people()))
    with pytest.raises(DataError, match=r"Group 'f' is too small for two cells: 20 of its persons .* takes 21"):
        release(2).fit(table(people(100)))


@pytest.mark.parametrize("spend", [0.05, 0.1])
def test_what_is_spent_is_what_the_table_tells(spend):
    """The root parts the groups at rates that differ by so much, and the law of blocks holds as it stands."""
    rows = people(4000)
    shared = release("auto", target=0.3, spend=spend).fit(table(rows))
    certificate = ff.certify(shared, table(rows), target=0.3)
    assert certificate.table_distance == pytest.approx(spend, abs=0.01)
    assert certificate.status == "CERTIFIED"
    assert shared.table_.counts.sum(axis=0).min() >= 10
    assert ff.certify(shared, table(people(4000, seed=1))).find("new persons").p_value > 0.001


def test_spending_needs_a_label_of_two_classes_and_less_than_the_target(rows):
    with pytest.raises(DataError, match="spend needs a label with two classes"):
        release("auto", spend=0.02).fit(table(rows.drop(columns="repaid"), label=None))
    with pytest.raises(DataError, match="spend must be below the target"):
        release("auto", target=0.1, spend=0.1).fit(table(rows))


def test_a_second_release_of_the_same_rows_is_warned_of(rows, tmp_path):
    one, two = (ff.share(table(rows), output="cell", quick=True) for _ in range(2))
    one.save(tmp_path / "one")
    with pytest.warns(DataWarning, match=r"Some of these rows were released before \(1 time"):
        two.save(tmp_path / "two")
    found = [ff.Certificate.read(tmp_path / name / "certificate.json").releases for name in ("one", "two")]
    assert found == [1, 2]
    said = "It is release 2 of these rows"
    checks = [str(ff.check(tmp_path / name / "certificate.json")) for name in ("one", "two")]
    assert [said in text for text in checks] == [False, True]
    for public in ("report-public.html", "card.md", "croissant.json"):
        texts = [(tmp_path / name / public).read_text(encoding="utf-8").lower() for name in ("one", "two")]
        assert [said.lower() in text for text in texts] == [False, True], public
    with pytest.warns(DataWarning, match="released before"):
        one.save(tmp_path / "again")
    assert ff.Certificate.read(tmp_path / "again" / "certificate.json").releases == 1, "the same release"


def test_the_command_goes_by_what_is_required(run, tmp_path):
    """A target that the table meets, and persons to come do not."""
    people(900).to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick",
             "--output", "cell", "--target", "0.1"]  # fmt: skip
    run(*words, "-o", tmp_path / "table", ends=0)
    certificate = ff.Certificate.read(tmp_path / "table" / "certificate.json")
    assert [certificate.find(about).met for about in ("table", "population")] == [True, False]
    run(*words, "--require", "population", "-o", tmp_path / "both", ends=1)
    wide = [*words[:-1], "0.3", "--require", "population"]
    run(*wide, "-o", tmp_path / "wide", ends=0)
    run(*words[:-1], "0.3", "--spend", "0.05", "-o", tmp_path / "spent", ends=0)
    spent = ff.Certificate.read(tmp_path / "spent" / "certificate.json")
    assert spent.table_distance == pytest.approx(0.05, abs=0.02)
    run(*words, "--spend", "0.2", "-o", tmp_path / "more", ends=2)


def told(learn: pd.DataFrame, groups: pd.Series, judged: pd.DataFrame, truth: pd.Series) -> float:
    """The difference of the groups' rates that the better of two adversaries reaches, trained on released rows."""
    learn, judged = (part.apply(lambda c: c if is_numeric_dtype(c) else c.map(len)) for part in (learn, judged))
    boosted = HistGradientBoostingClassifier(max_iter=30, class_weight="balanced", random_state=0)
    reached = []
    for model in (boosted, RandomForestClassifier(50, class_weight="balanced", random_state=0)):
        guess = model.fit(learn, groups).predict(judged)
        rates = [(guess[(truth == a).to_numpy()] == "m").mean() for a in ("f", "m")]
        reached.append(abs(rates[1] - rates[0]))
    return max(reached)


def chance(n: list[int], n_cells: int, delta: float = 0.001) -> float:
    """How much more a decision rule may reach on drawn rows by chance, except with probability δ."""
    s2 = sum(1 / m for m in n)
    return float(np.sqrt(0.5 * s2 * (1 + n_cells * sum(n) / (2 * n[0] * n[1])) * np.log(2 / delta)))


def test_adversaries_who_learnt_elsewhere_do_no_better_on_the_file():
    rows, elsewhere = people(4000), people(4000, seed=11)
    shared = release("auto", target=0.1, output="row")
    file = shared.fit_transform(table(rows))
    stated = ff.certify(shared, table(rows)).table_distance
    learnt = shared.transform(table(elsewhere))
    reached = told(learnt, elsewhere["sex"], file, rows["sex"])
    assert reached <= stated + chance([1600, 2400], shared.n_cells_)
    raw = [each.drop(columns=["sex", "person"]) for each in (elsewhere, rows)]
    assert told(raw[0], elsewhere["sex"], raw[1], rows["sex"]) > 0.2, "the raw rows tell much more"


@pytest.mark.parametrize("seed", range(3))
def test_adversaries_who_know_half_of_the_groups_stay_within_what_is_stated(seed):
    """Cells, since drawn rows tell no more; the 95 % point, and chance on the half that is judged."""
    rows = people(4000, seed=seed + 20)
    shared = release("auto", target=0.1)
    file = shared.fit_transform(table(rows)).astype(str)
    certificate = ff.certify(shared, table(rows))
    known = np.random.default_rng(seed).random(4000) < 0.5
    one_hot = pd.get_dummies(file["cell"])
    guess_rates = told(one_hot[known], rows["sex"][known], one_hot[~known], rows["sex"][~known])
    assert certificate.table_distance < guess_rates <= certificate.known_half
    counts = pd.crosstab(file["cell"].to_numpy()[~known], rows["sex"].to_numpy()[~known], normalize="columns")
    assert (counts["f"] - counts["m"]).abs().sum() / 2 <= certificate.known_half, "nor does the best rule"
