"""Persons with histories: one cell a person, all rows drawn together, and one certificate for all of them."""

from __future__ import annotations

import known_tables
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import cross_val_predict

import fairflows as ff
from fairflows import DataError
from fairflows.release.panel_law import PanelLaw
from fairflows.table.panels import Panels
from fairflows.table.persons import Persons

pytestmark = [
    pytest.mark.usefixtures("few_trees", "few_measured"),
    pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning"),
]

ROLES = {"sensitive": "sex", "label": "repaid", "identifier": "person", "time": "year"}
N = 1500


def table(rows: pd.DataFrame, **roles) -> ff.Table:
    return ff.Table(rows, **(ROLES | roles))


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return known_tables.histories(N)


@pytest.fixture(scope="module")
def release(rows) -> ff.Release:
    return ff.Release(unit="person", n_cells=8, rules=["year > previous.year"]).fit(table(rows))


@pytest.fixture(scope="module")
def shared(release, rows) -> pd.DataFrame:
    return release.fit_transform(table(rows))


# What is released.


def test_persons_have_fresh_numbers_and_their_rows_together_in_the_order_of_time(shared, rows):
    assert list(shared) == ["person", "year", "born", "town", "pay", "state", "age", "repaid"]
    assert shared["person"].is_monotonic_increasing
    assert shared["person"].unique().tolist() == list(range(1, N + 1))
    steps = shared.groupby("person")["year"].diff().dropna()
    assert (steps > 0).all()
    assert shared.dtypes.drop("person").equals(rows[list(shared)[1:]].dtypes)


def test_what_stays_and_what_follows_is_kept(shared):
    assert (shared.groupby("person")[["born", "town"]].nunique() == 1).all(axis=None)
    assert (shared["age"] == shared["year"] - shared["born"]).all()


def test_number_of_rows_times_and_transitions_are_alike(shared, rows):
    of = {"real": (rows.sort_values(["person", "year"]), 1), "shared": (shared, 1)}
    size = {name: part.groupby("person").size() for name, (part, _) in of.items()}
    assert size["shared"].mean() == pytest.approx(size["real"].mean(), rel=0.05)
    assert size["shared"].var() == pytest.approx(size["real"].var(), rel=0.25)
    correlation = {}
    for name, (part, _) in of.items():
        before = part.groupby("person")["pay"].shift()
        correlation[name] = part["pay"].corr(before)
    assert correlation["real"] > 0.9
    assert correlation["shared"] > 0.8
    assert shared.groupby("person")["year"].diff().value_counts(normalize=True)[1] > 0.95


def test_persons_are_in_no_order_of_the_table(rows):
    """Sorted persons, of whom the first half earn most: the order of what is released does not tell them."""
    rows = rows.assign(pay=rows["pay"] + 100 * (rows["person"].str[3:].astype(int) < N / 2))
    rows = rows.sort_values("pay", ascending=False)
    for drawn in (ff.Release(unit="person", n_cells=8).fit_transform(table(rows)),):
        high = drawn.groupby("person")["pay"].first() > 50
        assert 0.3 < high.mean() < 0.7
        assert abs(high[: N // 2].mean() - high[N // 2 :].mean()) < 0.15


def test_a_cell_is_released_once_for_each_person(rows):
    cells = ff.Release(unit="person", n_cells=8, output="cell").fit_transform(table(rows))
    assert list(cells) == ["cell"]
    assert len(cells) == N


def test_one_row_each_is_the_case_of_one(rows):
    single = rows.drop_duplicates("person")
    drawn = ff.Release(unit="person", n_cells=8).fit_transform(table(single))
    assert drawn["person"].tolist() == list(range(1, N + 1))
    assert (drawn["age"] == drawn["year"] - drawn["born"]).all()


def test_without_a_time_rows_are_a_set(rows):
    drawn = ff.Release(unit="person", n_cells=8).fit_transform(table(rows.drop(columns=["year", "age"]), time=None))
    assert drawn["person"].nunique() == N
    assert (drawn.groupby("person")["born"].nunique() == 1).all()
    assert drawn.groupby("person").size().mean() == pytest.approx(len(rows) / N, rel=0.06)


def test_columns_that_all_stay_are_the_same_in_all_rows(rows):
    part = rows[["person", "sex", "born", "town"]]
    drawn = ff.Release(unit="person", n_cells=4).fit_transform(table(part, label=None, time=None))
    assert (drawn.groupby("person")[["born", "town"]].nunique() == 1).all(axis=None)
    assert drawn.groupby("person").size().mean() == pytest.approx(len(rows) / N, rel=0.06)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_days_and_real_times(unit):
    rng = np.random.default_rng(0)
    rows = known_tables.histories(600, 5)
    moments = pd.to_datetime("2020-01-01") + pd.to_timedelta(rows["year"] * 7 - 14000, unit="D")
    days = rows.assign(year=moments.astype(f"datetime64[{unit}]")).drop(columns="age")
    drawn = ff.Release(unit="person", n_cells=4).fit_transform(table(days))
    assert drawn["year"].dtype == days["year"].dtype
    steps = drawn.groupby("person")["year"].diff().dropna().dt.days
    assert (steps % 7 == 0).all()
    assert steps.median() == 7
    assert drawn["year"].between(days["year"].min(), days["year"].max()).all()
    real = rows.assign(year=rows["year"] + rng.random(len(rows))).drop(columns="age")
    drawn = ff.Release(unit="person", n_cells=4).fit_transform(table(real))
    assert (drawn.groupby("person")["year"].diff().dropna() >= 0).all()
    assert drawn["year"].max() <= real["year"].max()


def test_gaps_in_time_and_equal_times_are_drawn():
    rows = known_tables.histories(1200, 3).sort_values(["person", "year"])
    place = rows.groupby("person").cumcount()
    rows["year"] = 2000 + 5 * (place >= 2) + (place > 3)  # the first two at once, then a gap
    drawn = ff.Release(unit="person", n_cells=4, derive=False).fit_transform(table(rows.drop(columns="age")))
    real, found = (
        part.groupby("person")["year"].diff().dropna().value_counts(normalize=True) for part in (rows, drawn)
    )
    for step in (0, 5):
        assert found[step] == pytest.approx(real[step], abs=0.06)


def test_steps_leave_time_for_the_rows_that_follow():
    """Every row was drawn without the time that is left: a tenth of the persons had it all before their last rows."""
    rng, n = np.random.default_rng(0), 600
    days = np.stack([np.sort(rng.choice(np.arange(1, 40), 3, replace=False)) for _ in range(n)])
    days = np.c_[np.zeros(n, int), days, np.full(n, 40)]
    rows = pd.DataFrame({"who": np.repeat(np.arange(n), 5), "day": days.ravel(), "x": rng.integers(0, 9, 5 * n)})
    panels = Panels.of(
        ff.Table(rows.assign(sex=np.where(rows["who"] % 2, "f", "m")), sensitive="sex", identifier="who", time="day")
    )
    drawn = PanelLaw.fit(panels, np.zeros(n, int), 1).sample(np.zeros(n, int), rng)
    smallest = [
        (part.groupby(who)["day"].diff().dropna() == 1).mean() for part, who in ((rows, "who"), (drawn, "person"))
    ]
    assert smallest[1] < smallest[0] + 0.015


def test_persons_with_1_2_50_and_5000_rows():
    rng = np.random.default_rng(0)
    m = np.r_[rng.choice([1, 2, 50], 200, p=[0.5, 0.4, 0.1]), 5000]
    who = np.repeat(np.arange(201), m)
    place = np.arange(len(who)) - np.repeat(np.cumsum(m) - m, m)
    rows = pd.DataFrame(
        {"year": place + who % 5, "x": rng.normal(size=len(who)).round(1), "kind": rng.choice(list("ab"), len(who))}
    )
    given = table(rows.assign(sex=np.where(who % 2, "f", "m"), person=who), label=None)
    drawn = ff.Release(unit="person", n_cells=2).fit_transform(given)
    sizes = drawn.groupby("person").size()
    assert len(sizes) == 201
    assert sizes.max() <= 50, "one person alone has 5,000 rows"
    assert {1, 2, 50} <= set(sizes)
    assert drawn["year"].max() < 60, "nor is a later time that one person alone has"


def test_a_running_total_follows_from_the_row_before(rows):
    rows = rows.sort_values(["person", "year"]).drop(columns=["age", "born"])
    rows["paid"] = np.random.default_rng(1).integers(1, 60, len(rows))
    rows["total"] = rows.groupby("person")["paid"].cumsum()
    drawn = ff.Release(unit="person", n_cells=4).fit_transform(table(rows))
    again = drawn.groupby("person")["total"].diff()
    later = again.notna()
    assert (again[later] == drawn["paid"][later]).mean() > 0.99


def test_rules_speak_of_the_row_before(rows):
    rows = rows.sort_values(["person", "year"])
    rows["grade"] = rows.groupby("person").cumcount() + rows["born"] % 3
    rule = "grade >= previous.grade and born == previous.born"
    release = ff.Release(unit="person", n_cells=4, rules=[rule], derive=False)
    drawn = release.fit_transform(table(rows))
    assert (drawn.groupby("person")["grade"].diff().dropna() >= 0).all()
    assert release.redrawn_ > 0
    broken = rows.sample(frac=1, random_state=1).reset_index(drop=True)
    last = broken.sort_values(["person", "year"]).groupby("person").tail(1).index
    many = last[broken.loc[last, "grade"] > 2][0]
    broken.loc[many, "grade"] = -1
    with pytest.raises(DataError, match=rf"1 of {len(rows):,} rows break it, the first is row {many}\."):
        ff.Release(unit="person", n_cells=4, rules=[rule]).fit(table(broken))


# Nothing that only one person has.


def test_nobodys_own(rows):
    odd = rows.copy()
    mine = odd["person"] == odd["person"].value_counts().index[0]
    odd.loc[mine, "town"] = "Oz"
    odd.loc[odd.index[0], "state"] = "only here"
    odd.loc[mine, "pay"] = 1e6
    rng = np.random.default_rng(0)
    panels, cells = Panels.of(table(odd)), rng.integers(4, size=N)
    law = PanelLaw.fit(panels, cells, 4)
    drawn = law.sample(np.tile(cells, 4), rng)
    assert set(drawn["town"]) == {"Bonn", "Köln", "Ulm"}
    assert set(drawn["state"]) == {"a", "b"}
    assert drawn["pay"].max() < 10
    assert drawn.groupby("person").size().max() <= odd["person"].value_counts().iloc[1]


def test_no_row_and_no_panel_of_one_person_is_drawn():
    """Two columns of two values, so that drawn panels would often be those of a single person by chance."""
    rng = np.random.default_rng(0)
    m = rng.integers(1, 8, 400)
    who = np.repeat(np.arange(400), m)
    rows = pd.DataFrame({"who": who, "x": rng.integers(0, 2, len(who)), "y": rng.integers(0, 2, len(who))})
    rows["t"] = rows.groupby("who").cumcount()
    panels = Panels.of(
        ff.Table(rows.assign(sex=np.where(who % 2, "f", "m")), sensitive="sex", identifier="who", time="t")
    )
    law = PanelLaw.fit(panels, np.zeros(400, int), 1)
    text = rows.assign(row=rows["x"].astype(str) + rows["y"].astype(str)).groupby("who")["row"].agg("-".join)
    own = set(text.value_counts()[lambda n: n == 1].index)
    assert len(own) > 100
    drawn = law.sample(np.zeros(4000, int), rng)
    found = drawn.assign(row=drawn["x"].astype(str) + drawn["y"].astype(str)).groupby("person")["row"].agg("-".join)
    assert not own & set(found)
    shared = set(text) - own
    assert shared & set(found), "panels that several persons have are drawn"


def test_no_panel_of_one_person_is_drawn_in_another_order_of_rows_of_one_time():
    rng, n = np.random.default_rng(1), 300
    rows = pd.DataFrame({"who": np.repeat(np.arange(n), 3), "x": rng.integers(0, 6, 3 * n), "t": [0, 0, 1] * n})
    roles = {"sensitive": "sex", "identifier": "who", "time": "t"}
    panels = Panels.of(ff.Table(rows.assign(sex=np.where(rows["who"] % 2, "f", "m")), **roles))
    texts = rows.sort_values(["who", "t", "x"]).astype(str).groupby("who")["x"].agg("".join)
    own = set(texts.value_counts()[lambda k: k == 1].index)
    assert len(own) > 20
    drawn = PanelLaw.fit(panels, np.zeros(n, int), 1).sample(np.zeros(3000, int), rng)
    drawn = drawn[drawn.groupby("person")["t"].transform("size") == 3].sort_values(["person", "t", "x"])
    of_persons = drawn.astype(str).groupby("person")
    same_times = of_persons["t"].agg("".join) == "001"
    found = of_persons["x"].agg("".join)[same_times]
    assert len(found) > 300
    assert not own & set(found)


# Persons as units.


def counts_of(rows: pd.DataFrame, **settings) -> np.ndarray:
    key = ff.FairTree(identifier="person", key=bytes(range(32)))
    found = ff.Release(key, unit="person", n_cells=8, output="cell", **settings).fit(table(rows))
    return found.table_.counts.sum(axis=0), found.table_.blocks


def test_doubling_somebodys_rows_changes_no_number_of_persons(rows):
    most = rows["person"].value_counts().index[:300]
    later = rows[rows["person"].isin(most)].assign(year=lambda d: d["year"] + 20)
    counts, blocks = counts_of(rows)
    again, blocks_again = counts_of(pd.concat([rows, later], ignore_index=True))
    assert counts.sum() == again.sum() == N
    np.testing.assert_array_equal(counts.sum(axis=1), again.sum(axis=1))
    np.testing.assert_array_equal(blocks.sum(axis=1), blocks_again.sum(axis=1))
    assert counts.min() >= 10
    same, _ = counts_of(rows.loc[np.repeat(rows.index, 2)].assign(state="a"))
    assert same.sum() == N


def test_a_certificate_counts_persons_and_covers_linked_rows(release, rows, tmp_path):
    given = table(rows)
    certificate = ff.certify(release, given, target=0.3)
    sizes = rows.drop_duplicates("person")["sex"].value_counts()
    assert certificate.n == {"f": sizes["f"], "m": sizes["m"]}
    assert (certificate.released, certificate.unit, certificate.most_rows) == ("panel", "person", 1)
    assert certificate.columns[0] == "person"
    assert ff.verify(certificate, release, given)
    said = repr(certificate)
    assert "All rows of a person" in said
    ff.save(release, tmp_path / "model")
    assert ff.verify(certificate, ff.load(tmp_path / "model"), given)
    changed = rows.assign(pay=rows["pay"] + (rows.index == 3))
    assert not ff.verify(certificate, release, table(changed))


def test_a_person_of_the_table_keeps_the_cell_whatever_comes_later(release, rows):
    known = release.read(table(rows))
    cells = release.cells(known)
    later = rows[rows["person"].isin(rows["person"].unique()[:200])].assign(pay=9.0, year=2011)
    again = release.read(table(later))
    where = dict(zip(known.persons.names, cells, strict=True))
    assert [where[name] for name in again.persons.names] == release.cells(again).tolist()


def test_changes_of_a_person_at_the_cut_leave_the_structure_as_it_is(rows):
    """Condition 1: whoever chose no node changes neither scores nor nodes."""
    from fairflows.certificate.model_hash import model_hash
    from fairflows.encoder.base import begin_fit

    key = bytes(range(32))

    def fitted(rows):
        tree = ff.FairTree(identifier="person", key=key)
        return ff.Release(tree, unit="person", n_cells=6, output="cell").fit(table(rows)).encoder_

    panels = Panels.of(table(rows))
    chosen = begin_fit(ff.FairTree(identifier="person", key=key), panels, None, None).split(0.5, 0)[0]
    others = ~rows["person"].isin(panels.identifier.iloc[chosen])
    changed = rows.copy()
    changed.loc[others, "pay"] = changed.loc[others, "pay"] * 2 + 1
    changed = pd.concat([changed, changed[others].assign(year=2050)], ignore_index=True)
    one, other = fitted(rows), fitted(changed)
    assert model_hash(one.structure_, key) == model_hash(other.structure_, key)
    assert model_hash(one.split_scores_, key) == model_hash(other.split_scores_, key)
    assert not np.array_equal(one.tree_.threshold, other.tree_.threshold)


def test_later_rows_are_summarised_as_those_of_the_table_were(release):
    """A later table that does not name its time, or whose numbers are all whole, has the same cells."""
    new = known_tables.histories(300, 21)
    with_time = release.read(table(new))
    without = release.read(Panels.of(table(new, time=None)))
    columns = new.drop(columns=["sex", "repaid", "person"])
    frame = release.read(columns, new["sex"].to_numpy(), Persons.of(new["person"]))
    for other in (without, frame):
        pd.testing.assert_frame_equal(with_time.X.reset_index(drop=True), other.X.reset_index(drop=True))
        assert (release.cells(with_time) == release.cells(other)).all()
    with pytest.raises(DataError, match="'year' must be known in every row"):
        release.read(table(new.assign(year=new["year"].where(new.index > 3)), time=None))


def test_nothing_that_only_one_household_has_is_drawn(rows):
    whole = rows.assign(house=rows["person"].str[3:].astype(int) // 2)
    mine = whole["house"] == 7
    whole.loc[mine, "town"] = "Oz"
    assert whole.loc[mine, "person"].nunique() == 2
    drawn = {
        household: PanelLaw.fit(Panels.of(table(whole, household=household, drop=drop)), np.zeros(N, int), 1).sample(
            np.zeros(4 * N, int), np.random.default_rng(0)
        )["town"]
        for household, drop in (("house", []), (None, ["house"]))
    }
    assert "Oz" not in set(drawn["house"])
    assert "Oz" in set(drawn[None]), "two persons have it"


def test_a_watch_counts_later_persons_once(release, tmp_path):
    watched = ff.watch(release, tmp_path / "watch.json", bound=0.3)
    watched.update(table(known_tables.histories(500, 31)))
    assert watched.persons == 500
    assert watched.moved is None


def attacked(summaries: pd.DataFrame, group: np.ndarray) -> float:
    """The distance that boosted trees reach on persons whom they have not seen."""
    X = summaries.apply(lambda c: c if c.dtype.kind in "if" else pd.factorize(c)[0])
    guess = cross_val_predict(HistGradientBoostingClassifier(max_iter=40, random_state=0), X, group, cv=5)
    return 2 * balanced_accuracy_score(group, guess) - 1


def told_by_number(n: int, seed: int) -> pd.DataFrame:
    """Persons whose group is told by their number of rows alone."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    m = np.where(sex == "f", 1, 4)
    who = np.repeat(np.arange(n), m)
    rows = pd.DataFrame({"x": rng.normal(size=len(who)).round(2), "c": rng.choice(list("ab"), len(who))})
    rows["year"] = rows.groupby(who).cumcount()
    return rows.assign(sex=sex[who], repaid=rng.choice(["y", "n"], len(who)), person=[f"{seed}-{i}" for i in who])


def told_by_order(n: int, seed: int) -> pd.DataFrame:
    """Persons with two rows, 0 and 1, whose order alone tells the group."""
    rng = np.random.default_rng(seed)
    sex, who = rng.choice(["f", "m"], n), np.repeat(np.arange(n), 2)
    year = np.tile([0, 1], n)
    x = np.where(sex[who] == "f", year, 1 - year)
    rows = pd.DataFrame({"x": x, "year": year, "c": rng.choice(list("ab"), 2 * n), "sex": sex[who]})
    return rows.assign(repaid=rng.choice(["y", "n"], 2 * n), person=[f"{seed}-{i}" for i in who])


@pytest.mark.parametrize("made", [told_by_number, told_by_order])
def test_what_tells_the_group_over_several_rows_is_hidden_and_linked_rows_show_it(made):
    release = ff.Release(unit="person", n_cells=8).fit(table(made(2400, 0)))
    new = Panels.of(table(made(1200, 1)))
    rows = release.read(new)
    assert attacked(new.X, rows.group) > 0.95
    hidden = attacked(release.encode(rows), rows.group)
    bound = ff.certify(release, table(made(2400, 0))).cell_upper
    assert bound < 0.2
    assert hidden <= bound + 0.06
    # Control: the true number and order of rows beside rows that are drawn one by one, and linked.
    by_row = ff.Release(n_cells=8).fit(table(made(2400, 0)))
    linked = by_row.encode(by_row.read(new.rows)).assign(year=new.rows.X["year"].to_numpy())
    assert attacked(new.form.summaries(linked, new.owner, len(new)), rows.group) > (
        0.9 if made is told_by_number else -1
    )


def test_the_audit_attacks_all_rows_of_a_person_together(release):
    train, test = (table(known_tables.histories(400, seed)) for seed in (11, 12))
    found = ff.audit(release, train, test, quick=True)
    assert found.released == "panel"
    assert sum(found.n) == 400
    raw = [Panels.of(part) for part in (train, test)]
    before = ff.audit(tuple(part.X for part in raw), *raw, quick=True)
    assert before.attack_lower > 0.3 > found.attack_lower


# Errors.


def test_what_a_release_of_persons_cannot_take_is_refused(rows, release):
    with pytest.raises(DataError, match=r"reads its roles from a Table"):
        ff.Release(unit="person").fit(rows, sensitive_features="sex")
    with pytest.raises(DataError, match="most_rows must be left out"):
        ff.Release(unit="person", most_rows=9).fit(table(rows))
    renamed = rows.rename(columns={"person": "who", "town": "person"})
    with pytest.raises(DataError, match="'person' has a name that the released table needs"):
        ff.Release(unit="person", n_cells=4).fit(table(renamed, identifier="who"))
    with pytest.raises(DataError, match="these rows name no persons"):
        release.transform(rows.drop(columns=["repaid", "person"]), sensitive_features=rows["sex"])
