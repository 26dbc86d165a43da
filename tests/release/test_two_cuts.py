"""One structure, two cuts: the conditions of the law of blocks, one by one, and persons of the table, never new."""

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
from fairflows.bounds import blocks_upper_bound, table_distance
from fairflows.bounds.planning import lowest_target, plan_cells
from fairflows.certificate.model_hash import model_hash
from fairflows.encoder.base import begin_fit
from fairflows.encoder.matched_tree import cut
from fairflows.release.drawn_again import draw_again
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


def of_structure(shared: ff.Release, rows: pd.DataFrame) -> tuple[str, bytes]:
    """The structure of the tree, and the scores of the persons who chose it."""
    tree = shared.encoder_
    scores = np.concatenate(list(tree._scores(tree.read(table(rows)))))
    return model_hash(tree.structure_, KEY), scores.tobytes()


def is_structure(shared: ff.Release, rows: pd.DataFrame) -> np.ndarray:
    """Whether a person's rows chose scores and nodes."""
    chosen, _ = begin_fit(ff.FairTree(identifier="person", key=KEY), table(rows), None, None).split(0.5, 0)
    return np.isin(np.arange(len(rows)), chosen)


def cells(shared: ff.Release, new: pd.DataFrame) -> np.ndarray:
    return shared.transform(table(new))["cell"].to_numpy()


# The conditions, in their order.


def changed(rows: pd.DataFrame, mine: np.ndarray) -> pd.DataFrame:
    """Values, categories, types, gaps and labels of some persons changed."""
    rng, found = np.random.default_rng(9), rows.copy()
    found.loc[mine, "town"] = rng.choice([f"C{i}" for i in range(40)], mine.sum())
    found["grade"] = np.where(mine, np.round(rng.normal(50, 20, len(rows)), 2), rows["grade"])
    found["income"] = rows["income"].where(~mine | (rng.random(len(rows)) < 0.5))
    found.loc[mine, "repaid"] = rng.choice(["no", "yes"], mine.sum(), p=[0.9, 0.1])
    return found


@pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning")
@pytest.mark.parametrize("n_cells", [4, "auto"])
def test_1_the_structure_does_not_depend_on_the_persons_it_is_cut_at(n_cells, rows):
    """Bit for bit, whatever is changed about them, the number of cells included."""
    first = release(n_cells, target=0.2).fit(table(rows))
    chose = is_structure(first, rows)
    assert 0.48 < chose.mean() < 0.52
    after = release(n_cells, target=0.2).fit(table(changed(rows, ~chose)))
    assert of_structure(after, rows[chose]) == of_structure(first, rows[chose])
    assert after.n_cells_ == first.n_cells_
    thresholds = [shared.encoder_.tree_.threshold for shared in (first, after)]
    assert not np.array_equal(*thresholds)
    other = release(n_cells, target=0.2).fit(table(changed(rows, chose)))
    assert of_structure(other, rows[chose])[1] != of_structure(first, rows[chose])[1]


def test_a_column_that_is_text_because_of_the_others_alone_is_refused(rows):
    chose = is_structure(release().fit(table(rows)), rows)
    digits = np.where(np.arange(len(rows)) % 2, "7", "8")
    numeric = rows.assign(code=np.where(chose | (np.arange(len(rows)) % 50 > 0), digits, "B9"))
    with pytest.raises(DataError, match=r"Column 'code' is text .* read as numbers\. Declare it categorical"):
        release().fit(table(numeric))
    stated = ff.Release(ff.FairTree(identifier="person", key=KEY, kinds={"code": "categorical"}), n_cells=4)
    stated.fit(table(numeric))
    release().fit(table(rows.assign(code=digits)))  # text for everybody, as the owner decided


def test_2_the_population_cut_never_sees_a_structure_person(rows):
    """Their rows, however changed, move no threshold: the tree that is cut at the others is the same."""
    first = release().fit(table(rows))
    chose = is_structure(first, rows)
    tree, others = first.encoder_, rows[~chose].reset_index(drop=True)
    read = tree.read(table(others))
    scores = np.concatenate(list(tree._scores(read)))
    again = cut(tree.structure_, scores, read.group, tree.coin(read.persons, 0))
    np.testing.assert_array_equal(again.threshold, tree.tree_.threshold)
    np.testing.assert_array_equal(again.coin, tree.tree_.coin)
    sizes = np.bincount(read.group)
    np.testing.assert_array_equal(tree.blocks_.sum(axis=1) - 1, sizes)
    counts = np.zeros_like(tree.blocks_)
    np.add.at(counts, (read.group, tree.cells(read)), 1)
    assert (counts >= tree.blocks_ - 1).all(), "a block more than persons strictly inside"
    assert counts.sum() - (tree.blocks_ - 1).sum() == 2 * (tree.n_cells_ - 1), "the persons at the cuts"


def test_3_shares_are_the_same_for_all_groups(rows):
    structure = release("auto", target=0.2).fit(table(rows)).encoder_.structure_
    assert (structure.share == structure.share[:, :1]).all()
    assert set(np.round(structure.share[:, 0], 1)) <= {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}


def test_7_ties_are_parted_by_coins_and_a_person_has_the_same_coins_for_ever():
    """A column of two values is cut into four cells of equal size, in both groups."""
    flags = people()[["sex", "person"]]
    flags = flags.assign(flag=(np.random.default_rng(1).random(1200) < np.where(flags["sex"] == "m", 0.8, 0.3)) * 1)
    binary = table(flags, label=None)
    shared = release().fit(binary)
    counts = shared.table_.counts[0]
    n = counts.sum(axis=1, keepdims=True)
    blocks = shared.encoder_.structure_.blocks(n[:, 0])
    assert np.abs(counts / n - blocks / (n + 1)).max() < 0.01
    again = shared.table_.counted_again(binary, shared.groups_, shared.key_)
    np.testing.assert_array_equal(again, shared.table_.counts)
    new = people(400, seed=1)[["sex", "person"]].assign(flag=1)
    first = shared.transform(table(new, label=None))
    assert first["cell"].nunique() > 2, "equal rows are in several cells"
    assert first.equals(shared.transform(table(new, label=None)))


def test_7_a_row_by_itself_has_the_cell_that_it_has_among_others(rows):
    numbers = rows.drop(columns="town")
    shared = release(8).fit(table(numbers))
    assert shared.encoder_.split_scores_.of_labels
    new = people(200, seed=2).drop(columns="town")
    new["grade"] = new["grade"] // 4  # heavy ties
    together = cells(shared, new)
    whole = table(new)
    one_by_one = [shared.transform(whole.take([i]))["cell"].iloc[0] for i in range(len(new))]
    np.testing.assert_array_equal(together, one_by_one)
    order = np.random.default_rng(0).permutation(len(new))
    np.testing.assert_array_equal(cells(shared, new.iloc[order]), together[order])


def test_7_a_person_with_several_rows_counts_once(rows, shared):
    np.testing.assert_array_equal(shared.encoder_.blocks_.sum(axis=1) - 1, [240, 360])
    each = np.random.default_rng(3).integers(1, 4, len(rows))
    several = rows.iloc[np.repeat(np.arange(len(rows)), each)].reset_index(drop=True)
    several["income"] += np.arange(len(several)) / 100
    thinned = release().fit(table(several))
    cut_at = thinned.encoder_.blocks_.sum(axis=1) - 1
    expected = np.array([each[(rows["sex"] == a).to_numpy()].sum() / 3 / 2 for a in ("f", "m")])  # with m/M each
    assert (np.abs(cut_at - expected) < 5 * np.sqrt(expected)).all()
    certificate = ff.certify(thinned, table(several))
    assert certificate.find("table").persons["f"] < sum(each[(rows["sex"] == "f").to_numpy()])
    assert certificate.n == {"f": int((several["sex"] == "f").sum()), "m": int((several["sex"] == "m").sum())}


@pytest.mark.parametrize("change", [{"town": "Jena"}, {"income": np.nan}], ids=["category", "gap"])
def test_7_what_the_structure_cannot_know_has_one_cell_in_every_group(change, shared):
    new = people(400, seed=4).assign(**change)
    with pytest.warns(DataWarning):
        found = shared.transform(table(new))["cell"]
    assert found.nunique() == 1, "the same cell, whatever else the row holds"


def test_3_the_number_of_cells_does_not_depend_on_the_persons_it_is_cut_at(rows):
    first = release("auto", target=0.2).fit(table(rows))
    others, shuffled = ~is_structure(first, rows), rows.copy()
    for seed, name in enumerate(["age", "grade", "income", "town", "repaid"]):
        values = rows[name].to_numpy(copy=True)
        values[others] = np.random.default_rng(seed).permutation(values[others])
        shuffled[name] = values
    assert release("auto", target=0.2).fit(table(shuffled)).n_cells_ == first.n_cells_ > 4


def apart(rows: pd.DataFrame) -> pd.DataFrame:
    """The same persons, with groups that differ much."""
    is_m = rows["sex"] == "m"
    return rows.assign(grade=rows["grade"] + 6 * is_m, income=rows["income"] + 30 * is_m, age=rows["age"] + 30 * is_m)


def test_6_new_persons_test_the_law(rows):
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


def test_4_every_cell_has_ten_persons_of_every_group(shared):
    """Of the persons of the table, and of those who come later, at whom the tree is cut."""
    assert (shared.table_.counts.sum(axis=(0, 2)) == [480, 720]).all()
    with pytest.warns(DataWarning, match="group 'f' has 240 persons to set thresholds at, .* there are \\d+ cells"):
        finest = release(500).fit(table(people()))
    assert finest.n_cells_ > 10
    assert finest.table_.counts.sum(axis=0).min() >= 10
    assert finest.encoder_.blocks_.min() >= 11


def test_6_the_bound_follows_from_the_blocks_and_the_table_from_its_counts(shared, rows):
    certificate = ff.certify(shared, table(rows))
    assert certificate.cell_upper == blocks_upper_bound(shared.encoder_.blocks_, 0.01)
    assert certificate.table_distance == table_distance(shared.table_.counts.sum(axis=0))
    assert shared.bound_follows_from(table(rows)) is True


def test_files_are_encoded_in_batches_as_tables_are(shared, rows, cells_of, tmp_path, monkeypatch):
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


def test_5_a_person_of_the_table_keeps_her_cell_whatever_her_row_holds(shared, rows):
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


def test_a_changed_model_is_found_out_by_counting_again(shared, rows, tmp_path):
    certificate = ff.certify(shared, table(rows))
    ff.save(shared, tmp_path / "model")
    forged = ff.load(tmp_path / "model")
    forged.table_ = replace(forged.table_, cell=np.roll(forged.table_.cell, 1))
    assert not ff.verify(certificate, forged, table(rows))
    blocks = forged.table_.blocks.copy()
    blocks[0, :2] += [1, -1]
    assert not ff.verify(certificate, replace_table(ff.load(tmp_path / "model"), blocks=blocks), table(rows))


def replace_table(shared: ff.Release, **changes) -> ff.Release:
    shared.table_ = replace(shared.table_, **changes)
    return shared


def test_the_label_beside_the_cell_is_stated_of_the_table_alone(shared, rows):
    pairs = ff.certify(shared, table(rows), with_labels=True)
    assert [s.about for s in pairs.statements] == ["table"]
    assert pairs.n_cells == 2 * shared.n_cells_
    by_label = pd.crosstab(rows["repaid"], rows["sex"], normalize="columns")
    assert pairs.table_distance >= (by_label["f"] - by_label["m"]).abs().sum() / 2 - 1e-9


def test_few_persons_have_one_cut_and_nobody_comes_later():
    few = people(60)
    shared = release("auto", target=0.4)
    shared.fit(table(few))
    assert shared.plan_.population is None
    certificate = ff.certify(shared, table(few), target=0.4)
    assert [s.about for s in certificate.statements] == ["table"]
    assert certificate.status == "CERTIFIED"
    again = shared.table_.counted_again(table(few), shared.groups_, shared.key_)
    np.testing.assert_array_equal(again, shared.table_.counts)
    with pytest.raises(DataError, match="20 of these rows are of persons who come later, .* too few persons"):
        shared.transform(table(people(20, seed=9)))
    more = pd.concat([few, people(20, seed=9).assign(person=[f"new {i}" for i in range(20)])])
    with pytest.raises(DataError, match="20 persons are new, and the release was fitted to too few persons to encode"):
        draw_again(shared, table(more), "origin")


def test_a_group_that_is_too_small_is_named_with_what_would_do():
    few, more = (people(1200).assign(sex=lambda r, n=n: np.where(np.arange(1200) < n, "d", r["sex"])) for n in (12, 60))
    with pytest.raises(DataError, match=r"Group 'd' is too small.* has 12 persons, and .* needs 21 .*\(merge_small=.*"):
        release("auto").fit(table(few))
    with pytest.raises(DataError, match=r"60 persons, \d of whom are drawn to cut cells at.* needs 21 of these"):
        release("auto").fit(table(pd.concat([more, *[more[1000:]] * 20])))  # whoever has one row is seldom drawn
    with pytest.raises(DataError, match=r"Group 'f' .* has 480 persons, and the lowest target .* 0\.0"):
        release("auto", target=0.01).fit(table(people()))
    assert plan_cells([30, 30], lowest_target([30, 30]), 0.01) is not None
    release("auto", target=0.07).fit(table(people()))
    with pytest.raises(DataError, match=r"Two cells need 21 persons of every group, and group 'f' has 20 persons"):
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
    """A target that the table meets, with too few persons for those to come."""
    people(700).to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick",
             "--output", "cell", "--target", "0.1"]  # fmt: skip
    run(*words, "-o", tmp_path / "table", ends=0)
    certificate = ff.Certificate.read(tmp_path / "table" / "certificate.json")
    assert (certificate.find("table").met, certificate.find("population")) == (True, None)
    run(*words, "--require", "population", "-o", tmp_path / "both", ends=1)
    wide = [*words[:-1], "0.3", "--require", "population"]
    run(*wide, "-o", tmp_path / "wide", ends=0)
    run(*words[:-1], "0.3", "--spend", "0.05", "-o", tmp_path / "spent", ends=0)
    spent = ff.Certificate.read(tmp_path / "spent" / "certificate.json")
    unspent = ff.Certificate.read(tmp_path / "wide" / "certificate.json")
    assert unspent.table_distance < spent.table_distance <= 0.07, "groups of few persons spend less"
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
