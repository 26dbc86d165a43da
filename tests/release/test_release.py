"""CellRelease: what comes out, that cells are functions of z alone, and the number of cells chosen by plan."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairflows import FairTransport, Table, load_adult
from fairflows.bounds import cell_upper_bound, delta_of_look, randomised_counts
from fairflows.encoder.pipelines import fit_pipeline, transform_pipeline, transform_table
from fairflows.exceptions import DataError, DataWarning
from fairflows.release.cell_release import CellRelease

METHODS = ["tree", "quantiles", "kmeans"]


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(3)
    y = rng.integers(2, size=4000)
    z = pd.DataFrame(rng.normal(size=(4000, 2)) + y[:, None], columns=["z0", "z1"])
    z["town"] = np.where(rng.random(4000) < 0.2 + 0.5 * y, "Ulm", "Bonn")
    z.index = pd.Index([f"p{i}" for i in range(4000)], name="person")
    return z, y


@parametrize_with_checks([CellRelease(n_cells=4), CellRelease(n_cells=4, method="kmeans")])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", METHODS)
def test_releases_a_number_below_k(blobs, method):
    z, y = blobs
    release = CellRelease(n_cells=8, method=method).fit(z, y)
    released = release.transform(z)
    assert list(released) == ["cell"] == release.get_feature_names_out().tolist()
    assert released.index.equals(z.index)
    assert set(released["cell"]) == set(range(release.n_cells_)), "every cell has rows that it was fitted on"
    assert 2 < release.n_cells_ <= 8
    assert (release.cells(z) == released["cell"]).all()


def test_tree_cells_are_the_leaves_of_scikit_learns_tree():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 3))
    y = (z.sum(axis=1) + rng.normal(size=3000) > 0).astype(int)
    release = CellRelease(n_cells=16).fit(z, y)
    tree = DecisionTreeClassifier(max_leaf_nodes=16, random_state=0).fit((z - z.mean(0)) / z.std(0), y)
    fresh = rng.normal(size=(3000, 3))
    pairs = pd.Series(release.cells(fresh)).groupby(tree.apply((fresh - z.mean(0)) / z.std(0))).nunique()
    assert len(pairs) == release.n_cells_ == 16
    assert (pairs == 1).all()


def test_tree_cells_are_ordered_by_label_rate(blobs):
    z, y = blobs
    cells = CellRelease(n_cells=8).fit(z, y).cells(z)
    assert pd.Series(y).groupby(cells).mean().is_monotonic_increasing


def test_quantiles_of_one_column_are_even_bins():
    score = np.random.default_rng(1).random((8000, 1))
    release = CellRelease(n_cells=8, method="quantiles").fit(score)
    assert np.bincount(release.cells(score)).tolist() == [1000] * 8
    assert np.array_equal(np.argsort(score[:, 0]), np.argsort(release.cells(score) + score[:, 0]))


def test_ties_give_fewer_cells_not_empty_ones():
    score = np.repeat([[0.0], [0.5], [1.0]], [700, 200, 100], axis=0)
    release = CellRelease(n_cells=8, method="quantiles").fit(score)
    assert np.bincount(release.cells(score)).min() > 0
    assert release.n_cells_ == 2, "seven of eight quantiles are the same number"


def test_typical_rows_are_in_the_tables_own_columns(blobs):
    z, y = blobs
    rows = pd.DataFrame({"age": np.arange(4000) % 60 + 20, "town": z["town"].to_numpy()}, index=z.index)
    release = CellRelease(n_cells=4, output="row").fit(z, y, rows=rows)
    released = release.transform(z)
    assert list(released) == ["age", "town"] == release.get_feature_names_out().tolist()
    assert released.dtypes.equals(rows.dtypes)
    assert released.drop_duplicates().shape[0] <= release.n_cells_
    for cell in range(release.n_cells_):
        mine = rows[release.cells(z) == cell]
        assert release.typical_rows_.loc[cell, "town"] == mine["town"].mode()[0]
        assert (mine["age"] <= release.typical_rows_.loc[cell, "age"]).mean() >= 0.5


def test_same_kind_of_table_out_as_in(blobs):
    import polars

    z, y = blobs
    assert isinstance(CellRelease().fit(z, y).transform(z), pd.DataFrame)
    assert isinstance(CellRelease().fit(z[["z0"]].to_numpy(), y).transform(z[["z0"]].to_numpy()), np.ndarray)
    frame = polars.from_pandas(z)
    assert isinstance(CellRelease().fit(frame, y).transform(frame), polars.DataFrame)
    asked = CellRelease().set_output(transform="pandas").fit(z[["z0"]].to_numpy(), y)
    assert list(asked.transform(z[["z0"]].to_numpy())) == ["cell"]


def test_predicts_the_label_of_the_cell(blobs):
    z, y = blobs
    release = CellRelease(n_cells=8).fit(z, np.where(y, "yes", "no"))
    assert (release.predict(z) == np.where(y, "yes", "no")).mean() > 0.8
    with pytest.raises(DataError, match="without a label"):
        CellRelease(method="kmeans").fit(z).predict(z)


def test_randomised_response_follows_its_channel_and_the_person(blobs):
    z, y = blobs
    release = CellRelease(n_cells=4, randomise=0.6).fit(z, y)
    released = release.transform(z)
    assert released.equals(release.transform(z)), "a second encoding with a fresh coin would give the cell away"
    shuffled = z.sample(frac=1, random_state=0)
    assert release.transform(shuffled).sort_index().equals(released.sort_index())
    own, seen = release.cells(z), released["cell"].to_numpy()
    for cell in range(4):
        counts = np.bincount(seen[own == cell], minlength=4)
        assert chisquare(counts, counts.sum() * release.channel_[cell]).pvalue > 1e-6
    soft, eta = randomised_counts([np.bincount(own), np.bincount(own)], release.channel_)
    assert eta == pytest.approx(0.4)
    assert cell_upper_bound(soft, 0.05, eta=eta) < cell_upper_bound([np.bincount(own)] * 2, 0.05)


def test_randomising_rows_that_nobody_named_warns(blobs):
    z, y = blobs
    release = CellRelease(n_cells=4, randomise=0.5).fit(z, y)
    with pytest.warns(DataWarning, match="identifier"):
        release.transform(z.reset_index(drop=True))


def test_auto_takes_the_most_cells_within_the_target(blobs):
    z, y = blobs
    a = np.random.default_rng(0).integers(2, size=len(z))
    release = CellRelease(n_cells="auto", target=0.12, random_state=1).fit(z, y, sensitive_features=a)
    planned = release.planned_
    assert planned[release.n_cells_] <= 0.12 < planned[2 * release.n_cells_]
    spent = CellRelease(n_cells="auto", target=0.12, delta=0.3, random_state=1).fit(z, y, sensitive_features=a)
    radii = [math.sqrt(math.log(1 / delta_of_look(delta, 1))) for delta in (0.05, 0.3)]
    shares = [sum(a == g) for g in (0, 1)]
    radius = math.sqrt(0.5 * sum(1 / (0.3 * n) for n in shares))
    drop = planned[2] - spent.planned_[2]
    assert drop == pytest.approx(radius * (radii[0] - radii[1]), rel=0.05), "with what the first certificate spends"
    assert list(planned.values()) == sorted(planned.values()), "more cells cost more"
    with pytest.raises(DataError, match=r"target 0.001 is out of reach.*lowest bound to expect is 0\.\d+, with 2"):
        CellRelease(n_cells="auto", target=0.001).fit(z, y, sensitive_features=a)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cells": 1}, "n_cells must be .* at least 2; got 1"),
        ({"n_cells": "many"}, "n_cells must be .* got 'many'"),
        ({"method": "magic"}, "method must be .* got 'magic'"),
        ({"output": "all"}, "output must be .* got 'all'"),
        ({"randomise": 1.0}, r"randomise must be in \[0, 1\); got 1.0"),
        ({"n_cells": "auto"}, "set target"),
    ],
)
def test_wrong_settings_are_named(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        CellRelease(**settings).fit(*blobs)


def test_what_a_method_cannot_do_without_is_named(blobs):
    z, y = blobs
    with pytest.raises(DataError, match="requires y"):
        CellRelease().fit(z)
    with pytest.raises(DataError, match="two classes"):
        CellRelease(method="quantiles").fit(z, np.arange(len(z)) % 3)
    with pytest.raises(DataError, match="pass sensitive_features"):
        CellRelease(n_cells="auto", target=0.1).fit(z, y)


def test_a_pipeline_runs_without_any_global_setting():
    train, _, test = load_adult().split(random_state=0)
    train, test = train.take(np.arange(6000)), test.take(np.arange(2000))
    encoder, release = FairTransport(density="counts", identifier="row"), CellRelease("auto", target=0.3, output="row")
    pipeline = make_pipeline(encoder, release)
    fit_pipeline(pipeline, train.X, train.y, sensitive_features=train.a)
    released = transform_pipeline(pipeline, test.X, sensitive_features=test.a)
    assert list(released) == list(train.X), "typical rows are rows of the table"
    assert len(released.drop_duplicates()) <= pipeline[-1].n_cells_
    by_hand = pipeline[-1].transform(pipeline[0].transform(test.X, sensitive_features=test.a))
    assert released.equals(by_hand)
    with_column = clone(pipeline).set_params(fairtransport__sensitive="sex", cellrelease__n_cells=4)
    frame = train.X.assign(sex=train.a)
    assert with_column.fit(frame, train.y).transform(frame).shape[0] == len(frame)


def test_typical_rows_show_no_group_and_no_person():
    train = load_adult().split(random_state=0)[0].take(np.arange(3000))
    frame = train.X.reset_index(drop=True).assign(sex=train.a.to_numpy(), who=[f"p{i}" for i in range(3000)])
    encoder = FairTransport(density="counts", sensitive="sex", identifier="who")
    release = CellRelease(n_cells="auto", target=0.5, output="row")
    pipeline = fit_pipeline(make_pipeline(encoder, release), frame, train.y)
    assert list(pipeline[-1].typical_rows_) == list(train.X)
    assert pipeline[-1].planned_, "the attribute was found in its column"


def test_a_table_keeps_apart_what_the_encoder_saw_as_columns():
    """An encoder that was told its sensitive and identifier columns gets them back from a table."""
    train = load_adult().split(random_state=0)[0].take(np.arange(3000))
    frame = train.X.reset_index(drop=True).assign(sex=train.a.to_numpy(), who=[f"p{i}" for i in range(3000)])
    encoder = FairTransport(density="counts", sensitive="sex", identifier="who").fit(frame, train.y)
    table = Table(frame.assign(y=train.y.to_numpy()), sensitive="sex", label="y", identifier="who")
    assert "sex" not in table.X
    expected = encoder.transform(frame).reset_index(drop=True)
    assert transform_table(encoder, table).reset_index(drop=True).equals(expected)
