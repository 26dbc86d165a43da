"""FairTree: cells that hold the same share of every group."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, DataWarning, FairTree, Table, frontier
from fairflows.bounds import even_blocks
from fairflows.encoder.fair_tree import best_rates
from fairflows.encoder.matched_tree import Coin, MatchedTree, StructureRows, cut, grow
from fairflows.encoder.ranked_columns import NumberRanks, PrincipalComponents
from fairflows.encoder.scores import score_columns

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


def structure_rows(n: int, n_groups: int = 2, seed: int = 0, ties: bool = False) -> StructureRows:
    rng = np.random.default_rng(seed)
    group = rng.choice(n_groups, n, p=np.arange(1, n_groups + 1) / np.arange(1, n_groups + 1).sum())
    scores = rng.normal(size=(n, 3)) + group[:, None]
    if ties:
        scores = np.round(scores)
    targets = scores[:, 1:] - group[:, None] + 0.1 * rng.normal(size=(n, 2))
    return StructureRows.of(scores, group, targets, n_groups, seed)


def coins(seed: int, n: int) -> Coin:
    u = np.random.default_rng([seed, 1]).random((n, 16))
    return lambda depth, places: u[places, depth]


def counts_of(found: MatchedTree, rows: StructureRows, coin: Coin) -> np.ndarray:
    cell = found.cells(rows.scores, rows.group, coin)
    k = found.structure.n_cells
    return np.stack([np.bincount(cell[rows.group == a], minlength=k) for a in range(rows.n_groups)])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n_cells", "n_groups"), [(1, 2), (2, 2), (8, 2), (5, 2), (7, 5), (16, 5)])
def test_blocks_are_those_of_even_leaves_and_the_persons_inside(n_cells, n_groups, ties):
    """The persons of a leaf are those strictly inside, one fewer than its blocks, and those at a cut who end there."""
    structure = grow(structure_rows(4000, n_groups, ties=ties), n_cells)
    rows = structure_rows(3000, n_groups, seed=1, ties=ties)
    found, blocks = cut(structure, rows.scores, rows.group, coins(0, 3000))
    sizes = np.bincount(rows.group, minlength=n_groups)
    assert structure.n_cells == n_cells
    np.testing.assert_array_equal(blocks.sum(axis=1), sizes + 1)
    expected = [sorted(even_blocks(size, n_cells)) for size in sizes]
    np.testing.assert_array_equal(np.sort(blocks, axis=1), expected)
    counts = counts_of(found, rows, coins(0, 3000))
    assert (counts >= blocks - 1).all()
    np.testing.assert_array_equal(counts.sum(axis=1), sizes)
    assert np.abs(counts / sizes[:, None] - 1 / n_cells).max() <= n_cells / sizes.min()


def test_the_structure_does_not_depend_on_the_order_of_the_rows():
    rows = structure_rows(2000)
    order = np.random.default_rng(3).permutation(2000)
    one, other = grow(rows, 16), grow(rows.take(order), 16)
    np.testing.assert_array_equal(one.score, other.score)
    np.testing.assert_array_equal(one.children, other.children)


def test_the_split_that_explains_most_is_taken():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1000, 3))
    group = rng.integers(0, 2, 1000)
    rows = StructureRows.of(scores, group, scores[:, [2]] + 0.1 * rng.normal(size=(1000, 1)), 2, 0)
    structure = grow(rows, 2)
    assert structure.score.tolist() == [2]
    found, _ = cut(structure, scores, group, coins(0, 1000))
    medians = [np.median(scores[group == a, 2]) for a in (0, 1)]
    np.testing.assert_allclose(found.threshold[0], medians, atol=0.02)


def test_rates_differ_by_what_is_spent():
    """By brute force over a grid; how a tree keeps to them is tested in tests/release/test_two_folds.py."""
    rng = np.random.default_rng(0)
    eta = [rng.beta(2, 4, 500), rng.beta(4, 2, 300)]

    def accuracy(rates):
        chosen = [np.arange(len(e)) < round(r * len(e)) for e, r in zip(eta, rates, strict=True)]
        return np.concatenate(
            [np.where(c, -np.sort(-e), 1 + np.sort(-e)) for c, e in zip(chosen, eta, strict=True)]
        ).mean()

    grid = np.linspace(0, 1, 101)
    for spend in (0.0, 0.1, 0.3):
        rates = best_rates(eta, spend)
        assert rates.max() - rates.min() <= spend + 1e-9
        tried = [accuracy((a, b)) for a in grid for b in grid if abs(a - b) <= spend + 1e-9]
        assert accuracy(rates) >= max(tried) - 0.003


def test_cells_tell_the_label_and_the_columns():
    encoder, test = tree(16).fit(population(6000, 0)), population(6000, 1)
    assert (encoder.predict(test) == test.y).mean() > 0.62 > 0.58 > max(test.y.mean(), 1 - test.y.mean())
    cell = encoder.transform(test)["cell"].to_numpy()
    height = test.X["height"].groupby(cell).transform("mean")
    assert np.corrcoef(height, test.X["height"])[0, 1] ** 2 > 0.2


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
    table, new = population(3000, 0), population(500, 1)
    calibrating = table.persons.split(0.5, random_state=0)[1][:40]
    table.X.loc[table.X.index[calibrating[:20]], "town"] = "Trier"
    table.X["town"] = table.X["town"].astype(dtype)  # which may declare the category
    table.X.loc[table.X.index[calibrating[20:]], "height"] = np.nan
    encoder = tree(8).fit(table)
    for column, value in (("town", "Trier"), ("height", np.nan)):
        new.X[column] = value
        with pytest.warns(DataWarning, match=column):
            assert encoder.transform(new)["cell"].nunique() == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cells": 0}, "n_cells must be a whole number of at least 1; got 0"),
        ({"spend": 1.5}, "spend must be a distance"),
        ({"calibration": 1.0}, r"calibration must be above 0 and below 1, or None; got 1\.0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        FairTree(**settings).fit(population(50, 0))


def test_components_do_not_depend_on_the_batch():
    """Bit for bit: a row at a threshold must not change sides with the rows that come beside it."""
    X = population(3000, 0).X
    components = PrincipalComponents.fit(X, score_columns(X, {}), 3, 0)
    whole = components.scores(X)
    alone = np.concatenate([components.scores(X.iloc[[i]]) for i in range(50)])
    np.testing.assert_array_equal(whole[:50], alone)
    variance = whole.var(axis=0)
    assert (np.diff(variance) <= 1e-6).all()
    assert variance.sum() < components.total_variance == 4


def test_rare_categories_share_an_indicator():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.zipf(1.3, 5000).clip(max=3000).astype(str), "x": rng.normal(size=5000)})
    (part,) = PrincipalComponents.fit(frame, score_columns(frame, {}), 3, 0).indicators
    assert part.n == 64 < frame["code"].nunique()
    indicator = part.places(frame["code"])
    assert indicator.min() == 0
    assert indicator.max() == 63
    np.testing.assert_array_equal(frame["code"].groupby(indicator).nunique().iloc[:63], 1)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "int64"])
@pytest.mark.parametrize("first", [18, 1018])
def test_numbers_beyond_the_training_range_have_the_ranks_of_its_ends(dtype, first):
    trained = NumberRanks.fit(pd.Series(np.arange(first, first + 60), name="x"))
    later = pd.Series([5, 18, 77, 120], dtype=dtype)
    expected = np.interp(later, trained.knots, trained.ranks)
    np.testing.assert_allclose(trained.features(later), expected, atol=1e-3)


@pytest.mark.parametrize(("last", "dtype"), [(2**63 - 1, np.int64), (2**64 - 1, np.uint64)])
def test_the_largest_whole_numbers_are_numbers_like_others(last, dtype):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"n": np.array([last - int(i) for i in rng.integers(0, 2**40, 400)], dtype=dtype)})
    rows, a = rows.rename_axis("person"), rng.choice(["f", "m"], 400)
    tree = FairTree(4, identifier="person").fit(rows, sensitive_features=a)
    assert tree.transform(rows, sensitive_features=a)["cell"].nunique() == 4


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
