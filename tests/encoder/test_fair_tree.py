"""FairTree: cells that hold the same share of every group."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, DataWarning, FairTree, Table, frontier
from fairflows.encoder.base import begin_fit
from fairflows.encoder.ranked_columns import NumberRanks, PrincipalComponents
from fairflows.table.domain import Domain, Seen, take

pytestmark = pytest.mark.usefixtures("few_trees")

KEY = bytes(range(32))


def population(n: int, seed: int, n_groups: int = 2, rows_each: int = 1) -> Table:
    """Numbers, counts and a text column, whose laws differ between the groups; some numbers are missing in no row."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n), rows_each)
    group = rng.integers(0, n_groups, n)[person]
    skill = rng.normal(size=len(person)) + 0.8 * group
    frame = pd.DataFrame(
        {
            "wage": np.exp(skill + rng.normal(size=len(person))),
            "visits": rng.poisson(np.exp(0.4 * group)),
            "town": np.where(rng.random(len(person)) < 0.3 + 0.1 * group, "Bonn", "Ulm"),
            "height": rng.normal(size=len(person)) - group,
            "group": group,
            "label": (skill + rng.normal(size=len(person)) > 0.5).astype(int),
            "person": seed * 10**6 + person,
        }
    )
    return Table(frame, sensitive="group", label="label", identifier="person")


def tree(n_cells: int = 8, **settings) -> FairTree:
    return FairTree(n_cells, **{"key": KEY, **settings})


def test_cells_tell_the_label_and_the_columns():
    encoder, test = tree(16).fit(population(6000, 0)), population(6000, 1)
    assert (encoder.predict(test) == test.y).mean() > 0.62 > 0.58 > max(test.y.mean(), 1 - test.y.mean())
    cell = encoder.transform(test)["cell"].to_numpy()
    height = test.X["height"].groupby(cell).transform("mean")
    assert np.corrcoef(height, test.X["height"])[0, 1] ** 2 > 0.2


def test_a_class_that_is_too_rare_for_the_structure_is_said_and_gets_no_score():
    table = population(2000, 0)
    structure = begin_fit(FairTree(key=KEY), table, None, None).split(0.5, 0)[0]
    other = np.setdiff1d(np.arange(2000), structure)[0]
    table.y = table.y.map({0: "no", 1: "yes"}).where(np.arange(2000) != other, "once")
    encoder = tree(16)
    with pytest.warns(DataWarning, match=r"among the persons who choose the tree \(rows\): 'once' \(1\)"):
        encoder.fit(table)
    assert encoder.split_scores_.n_of_label == 1
    assert set(encoder.predict(table)) == {"no", "yes"}


def test_the_law_of_a_random_row_is_made_alike():
    """Persons of one group have three rows when they earn much: the law of rows is not that of persons."""
    rng = np.random.default_rng(0)
    n = 6000
    person = np.arange(n)
    group, x = rng.integers(0, 2, n), rng.normal(size=n)
    rows = np.repeat(person, np.where((group == 1) & (x > 0), 3, 1))
    frame = pd.DataFrame({"x": x[rows], "group": group[rows], "person": rows})
    table = Table(frame, sensitive="group", identifier="person")
    encoder = FairTree(4, key=KEY).fit(table)
    cell = encoder.transform(table)["cell"].to_numpy()
    for places, largest in ((np.arange(len(rows)), 0.06), (np.unique(rows, return_index=True)[1], 1)):
        laws = [np.bincount(cell[places][group[rows[places]] == a], minlength=4) for a in (0, 1)]
        distance = np.abs(laws[0] / laws[0].sum() - laws[1] / laws[1].sum()).sum() / 2
        assert (distance < 0.06) == (largest < 1), "the law of a random row is made alike, not that of a random person"


@pytest.mark.parametrize("dtype", ["str", "category"])
def test_values_that_only_calibrating_persons_have_are_unknown(dtype):
    """Persons who set the thresholds decide nothing about scores, so that such rows go left at every node."""
    table = population(3000, 0)
    calibrating = begin_fit(tree(8), table, None, None).split(0.5, 0)[1][:40]
    table.X.loc[table.X.index[calibrating[:20]], "town"] = "Trier"
    table.X["town"] = table.X["town"].astype(dtype)  # which may declare the category
    table.X.loc[table.X.index[calibrating[20:]], "height"] = np.nan
    encoder = tree(8).fit(table)
    for column, value in (("town", "Trier"), ("height", np.nan)):
        new = population(500, 1)
        assert encoder.transform(new)["cell"].nunique() > 4
        new.X[column] = value
        assert encoder.transform(new)["cell"].nunique() == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cells": 0}, "n_cells must be a whole number of at least 1; got 0"),
        ({"spend": 1.5}, "spend must be a distance"),
        ({"calibration": 1.0}, r"calibration must be above 0 and below 1; got 1\.0"),
        ({"calibration": 0.0}, r"calibration must be above 0 and below 1; got 0\.0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        FairTree(**settings).fit(population(50, 0))


def components_of(X: pd.DataFrame, n_components: int) -> tuple[PrincipalComponents, dict]:
    domain, codes = Domain.of(X)
    return PrincipalComponents.fit(codes, Seen.of(domain, codes), n_components, 0), codes


def test_components_do_not_depend_on_the_batch():
    """Bit for bit: a row at a threshold must not change sides with the rows that come beside it."""
    components, codes = components_of(population(3000, 0).X, 3)
    whole = components.scores(codes)
    alone = np.concatenate([components.scores(take(codes, slice(i, i + 1))) for i in range(50)])
    np.testing.assert_array_equal(whole[:50], alone)
    variance = whole.var(axis=0)
    assert (np.diff(variance) <= 1e-6).all()
    assert variance.sum() < components.total_variance == 4


def test_rare_categories_share_an_indicator():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.zipf(1.3, 5000).clip(max=3000).astype(str), "x": rng.normal(size=5000)})
    components, codes = components_of(frame, 3)
    part = components.indicators["code"]
    assert part.n == 64 < frame["code"].nunique()
    indicator = part.place[codes["code"]]
    assert indicator.min() == 0
    assert indicator.max() == 63
    np.testing.assert_array_equal(frame["code"].groupby(indicator).nunique().iloc[:63], 1)
    assert part.place[-1] == -1, "a category outside the domain has none"


def test_a_gap_is_a_feature_of_its_own_and_has_the_mean_rank():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.where(rng.random(500) < 0.2, np.nan, rng.normal(size=500)), "y": rng.random(500)})
    components, codes = components_of(frame, 2)
    assert list(components.indicators) == ["x"]
    assert (components.numbers["x"].features(codes["x"])[frame["x"].isna()] == 0).all()
    assert components.total_variance == 3


def test_numbers_beyond_the_training_range_have_the_ranks_of_its_ends():
    trained = NumberRanks.fit(np.arange(18.0, 78))
    ranks = trained.features(np.array([5.0, 18, 77, 120]))
    assert ranks[0] == ranks[1] < ranks[2] == ranks[3]


@pytest.mark.parametrize(("last", "dtype"), [(2**63 - 1, np.int64), (2**64 - 1, np.uint64)])
def test_the_largest_whole_numbers_are_numbers_like_others(last, dtype):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"n": np.array([last - int(i) for i in rng.integers(0, 2**40, 400)], dtype=dtype)})
    rows, a = rows.rename_axis("person"), rng.choice(["f", "m"], 400)
    tree = FairTree(4, identifier="person").fit(rows, sensitive_features=a)
    assert tree.transform(rows, sensitive_features=a)["cell"].nunique() == 4


def test_the_blocks_are_those_of_the_persons_at_whom_the_tree_is_cut():
    """A block more than persons strictly inside; the persons at the cuts lie in a leaf, too."""
    table = population(1200, 0, n_groups=3, rows_each=2)
    encoder = tree(9).fit(table)
    read = begin_fit(tree(9), table, None, None)
    _, others = read.split(0.5, 0)
    cut_at = read.independent(others, 2, 0)
    cells, group = encoder.cells(read.take(cut_at)), read.group[cut_at]
    counts = np.zeros_like(encoder.blocks_)
    np.add.at(counts, (group, cells), 1)
    assert (counts >= encoder.blocks_ - 1).all()
    np.testing.assert_array_equal(encoder.blocks_.sum(axis=1), np.bincount(group) + 1)
    assert (counts - (encoder.blocks_ - 1)).sum() == 3 * (encoder.n_cells_ - 1)
    assert encoder.blocks_.min() >= 11
    np.testing.assert_array_equal(encoder.blocks_, encoder.structure_.blocks(np.bincount(group)))


@pytest.mark.parametrize(("n", "asked"), [(150, 64), (30, 2)])
def test_fewer_cells_than_were_asked_for_are_said(n, asked):
    table = population(n, 0)
    with pytest.warns(DataWarning, match=rf"{asked} cells were asked for; with 10 persons of every group .* there are"):
        encoder = tree(asked).fit(table)
    assert encoder.blocks_.min() >= 11 or encoder.n_cells_ == 1
    assert encoder.n_cells_ < asked
    assert encoder.transform(population(50, 1))["cell"].between(0, encoder.n_cells_ - 1).all()


def test_a_larger_share_of_calibrating_persons_has_more_blocks():
    few, many = (tree(8, calibration=share).fit(population(2000, 0)) for share in (0.3, 0.7))
    assert few.blocks_.sum() == pytest.approx(600, abs=4)
    assert many.blocks_.sum() == pytest.approx(1400, abs=4)


def test_a_label_must_fit_the_rows_and_none_is_predicted_without_one():
    table = population(300, 0)
    with pytest.raises(DataError, match="without a label"):
        tree(4).fit(table.X, sensitive_features=table.a).predict(table)
    with pytest.raises(DataError, match=r"one value per row \(300 rows\); got"):
        tree(4).fit(table.X, np.column_stack([table.y, table.y]), sensitive_features=table.a)


def test_a_frontier_over_numbers_of_cells():
    found = frontier(tree(), population(3000, 0), strengths=[2, 8], validation=population(2000, 1))
    assert [encoder.n_cells_ for encoder in found.encoders] == [2, 8]
    assert found.to_frame()["accuracy"].between(0.5, 1).all()
