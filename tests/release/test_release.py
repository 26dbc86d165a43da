"""Release as an estimator: its settings, its cells around any encoder, and scikit-learn's conventions."""

import numpy as np
import pandas as pd
import pytest
from known_tables import people
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import fairflows as ff
from fairflows import DataError, DataWarning, Encoder, FairCells, FairFlow, FairTree, Release, Table
from fairflows.certificate.released import most_rows_of
from fairflows.density import MixtureDensity
from fairflows.encoder.base import Model
from fairflows.paper.baselines import RawFeatures
from fairflows.release.partitions import TreePartition
from sklearn_checks import run_check

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(3)
    y = rng.integers(2, size=4000)
    z = pd.DataFrame(rng.normal(size=(4000, 2)) + y[:, None], columns=["z0", "z1"])
    z["town"] = np.where(rng.random(4000) < 0.2 + 0.5 * y, "Ulm", "Bonn")
    z.index = pd.Index([f"p{i}" for i in range(4000)], name="person")
    return z, y


EXPECTED = {
    "check_estimators_pickle": "pickles leave out the secret key, and an encoder does nothing without it",
    **dict.fromkeys(
        [
            "check_dict_unchanged",
            "check_dtype_object",
            "check_estimators_dtypes",
            "check_f_contiguous_array_estimator",
            "check_transformer_data_not_an_array",
            "check_transformer_general",
        ],
        "rows that the release was fitted to are recognised and refused: they are released once, by fit_transform",
    ),
}


@pytest.mark.filterwarnings("ignore:The rows name no persons")
@parametrize_with_checks([Release(RawFeatures(), n_cells=4, output="cell")])
def test_scikit_learn_conventions(estimator, check):
    run_check(check, estimator, EXPECTED)


@pytest.mark.filterwarnings("ignore:The rows name no persons")
@parametrize_with_checks([Release(RawFeatures(), n_cells=4)])
def test_scikit_learn_conventions_of_drawn_rows(estimator, check):
    run_check(check, estimator, EXPECTED | {"check_fit_idempotent": "every call draws other rows"})


def tabled(rows: pd.DataFrame) -> Table:
    return Table(rows, sensitive="sex", label="repaid", identifier="person")


def test_a_release_stands_beside_an_encoder():
    release = Release(n_cells=4, output="cell").fit(tabled(people(400)))
    assert not isinstance(release, Encoder)
    asked = {*Model.__annotations__, *(name for name in vars(Model) if not name.startswith("_"))}
    assert {"traits", "read", "cells", "draw", "ledger_"} < asked
    for model in (release, release.encoder_):
        assert [name for name in asked if not hasattr(model, name)] == []


class TestSettings:
    def test_a_fit_changes_none(self):
        release = Release(FairTree(calibration=0.4, identifier="person"), n_cells=4, target=0.3, random_state=7)
        before = release.get_params()
        release.fit(tabled(people(400)))
        after = release.get_params()
        assert before.keys() == after.keys()
        assert all(after[name] is before[name] for name in before)
        fitted = release.encoder_
        assert (fitted.calibration, fitted.n_cells, fitted.random_state) == (0.4, 4, 7)

    @pytest.mark.parametrize(
        ("encoder", "settings", "said"),
        [
            (FairTree(4), {}, "n_cells = 4 of FairTree contradicts n_cells = 'auto' of the release"),
            (FairTree(8), {"n_cells": 4}, "n_cells = 8 of FairTree contradicts n_cells = 4 of the release"),
            (FairTree(spend=0.02), {}, r"spend = 0\.02 of FairTree contradicts spend = 0\.0 of the release"),
            (FairTree(random_state=3), {}, "random_state = 3 of FairTree contradicts random_state = 0"),
            (FairCells(target=0.5), {}, r"target = 0\.5 of FairCells contradicts target = None"),
            (FairCells(delta=0.05), {"delta": 0.1}, r"delta = 0\.05 of FairCells contradicts delta = 0\.1"),
            (
                FairFlow(random_state=1),
                {"random_state": 2},
                "random_state = 1 of FairFlow contradicts random_state = 2",
            ),
        ],
    )
    def test_another_value_of_the_encoder_is_an_error(self, encoder, settings, said):
        with pytest.raises(DataError, match=said + ".*: state it in the release alone"):
            Release(encoder, **settings).fit(tabled(people(300)))

    def test_the_same_value_or_the_default_of_the_encoder_is_none(self):
        for encoder in (FairTree(4), FairTree(64), FairTree()):
            assert Release(encoder, n_cells=4, output="cell").fit(tabled(people(400))).n_cells_ == 4


@pytest.fixture(scope="module")
def table() -> Table:
    return tabled(people(900).drop(columns="town"))


@pytest.fixture(scope="module")
def flow(table) -> FairFlow:
    return FairFlow(n_epochs=1, hidden=(8,), density=MixtureDensity(1), identifier="person").fit(table)


class TestAround:
    def test_the_encoder_is_held_as_it_is(self, flow, table):
        release = Release.around(flow, table, n_cells=4, output="cell", random_state=3)
        assert release.encoder_ is release.encoder is release.inner_encoder is flow
        assert (release.n_cells, release.output, release.random_state) == (4, "cell", 3)
        assert release.released_table is None
        assert not release.traits.cut_twice
        Z, cells = flow.transform(table), release.transform(table)["cell"]
        assert cells.nunique() == release.n_cells_ == 4
        np.testing.assert_array_equal(release.partition_.cells(Z), cells)
        assert not hasattr(clone(release), "n_cells_")

    def test_other_persons_certify_it(self, flow, table):
        release = Release.around(flow, table, n_cells=4, output="cell")
        with pytest.raises(DataError, match="fitted to, or chosen by, 900 of the 900 persons"):
            ff.certify(release, table)
        new = tabled(people(900, seed=1).drop(columns="town"))
        certificate = ff.certify(release, new)
        assert [statement.about for statement in certificate.statements][:1] == ["population"]
        assert certificate.find("table") is None, "no table was released"
        choosing = tabled(people(600, seed=2).drop(columns="town"))
        by_others = Release.around(flow, choosing, n_cells=4, output="cell")
        with pytest.raises(DataError, match="fitted to, or chosen by, 600 of the 600 persons"):
            ff.certify(by_others, choosing)

    def test_rows_are_drawn_from_the_law_of_the_table(self, flow, table):
        release = Release.around(flow, table, n_cells=4)
        drawn = release.transform(tabled(people(200, seed=1).drop(columns="town")))
        assert list(drawn) == ["age", "grade", "income", "repaid", "repaid_score"]
        assert drawn["grade"].isin(table.X["grade"]).all()

    def test_encoders_of_cells_keep_theirs(self, table):
        tree = FairTree(4).fit(table)
        release = Release.around(tree, table, output="cell")
        assert release.n_cells_ == 4
        new = tabled(people(200, seed=1).drop(columns="town"))
        np.testing.assert_array_equal(release.transform(new), tree.transform(new))

    def test_wrong_settings_are_named(self, flow, table):
        with pytest.raises(DataError, match="output must be"):
            Release.around(flow, table, output="all")
        with pytest.raises(DataError, match="requires y"):
            Release.around(flow, Table(table.X.assign(sex=table.a), sensitive="sex"))


def test_tree_cells_are_the_leaves_of_scikit_learns_tree():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 3))
    y = (z.sum(axis=1) + rng.normal(size=3000) > 0).astype(int)
    frame = pd.DataFrame(z, columns=list("uvw")).assign(a=rng.integers(0, 2, 3000), y=y)
    table = Table(frame, sensitive="a", label="y")
    release = Release.around(RawFeatures().fit(table), table, n_cells=16, output="cell")
    tree = DecisionTreeClassifier(max_leaf_nodes=16, random_state=0).fit((z - z.mean(0)) / z.std(0), y)
    fresh = rng.normal(size=(3000, 3))
    cells = pd.Series(release.cells(release.read(pd.DataFrame(fresh, columns=list("uvw")))))
    pairs = cells.groupby(tree.apply((fresh - z.mean(0)) / z.std(0))).nunique()
    assert len(pairs) == release.n_cells_ == 16
    assert (pairs == 1).all()


def test_numbers_far_from_zero_are_told_apart():
    y = np.arange(40) % 2
    partition = TreePartition.fit(pd.DataFrame({"at": 1e9 + y}), y, 2, 0)
    assert partition.cells(pd.DataFrame({"at": 1e9 + y})).tolist() == y.tolist(), "in single precision 1e9 + 1 is 1e9"


def test_predicts_the_label_of_the_cell(blobs):
    z, y = blobs
    y = np.where(y, "yes", "no")
    release = Release(RawFeatures(identifier="person"), n_cells=8, output="cell").fit(z[:3000], y[:3000])
    assert (release.predict(z[3000:]) == y[3000:]).mean() > 0.78


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cells": 1}, "n_cells must be .* at least 2; got 1"),
        ({"n_cells": "many"}, "n_cells must be .* got 'many'"),
        ({"output": "all"}, "output must be .* got 'all'"),
        ({"most_rows": 0}, "most_rows must be .* at least 1; got 0"),
        ({"target": 0}, r"target must be in \(0, 1\]; got 0"),
        ({"delta": 1}, "delta must be"),
        ({"target": 0.1, "spend": 0.1}, r"spend must be below the target, 0\.1"),
    ],
)
def test_wrong_settings_are_named(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        Release(RawFeatures(), **{"output": "cell", **settings}).fit(*blobs)


def test_what_a_method_cannot_do_without_is_named(blobs):
    with pytest.raises(DataError, match="requires y"):
        Release(RawFeatures(), output="cell").fit(blobs[0])


def test_several_rows_take_an_identifier():
    """How many rows a person may have can be stated only where somebody says whose rows they are."""
    frame = pd.DataFrame(
        {"x": np.arange(200) % 2, "a": np.arange(200) // 2 % 2, "y": np.arange(200) % 2, "who": np.arange(200) // 4}
    )
    nobody = Table(frame.drop(columns="who"), sensitive="a", label="y", kinds={"x": "categorical"})
    named = Table(frame, sensitive="a", label="y", identifier="who", kinds={"x": "categorical"})
    release = Release(RawFeatures(), n_cells=2, output="cell")
    release.fit(nobody)
    assert most_rows_of(release, nobody) == 1
    assert most_rows_of(release, named, 6) == 6
    with pytest.raises(DataError, match=r"most_rows must be 1 where no identifier .*; got 6\."):
        most_rows_of(release, nobody, 6)
    with pytest.raises(DataError, match=r"fitted without persons.*state the most rows.*\(most_rows=\.\.\.\)"):
        most_rows_of(release, named)
    assert most_rows_of(release.fit(named), named) == 4


def test_a_sensitive_column_that_fit_names_is_not_released():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=900).round(1), "sex": rng.choice(["f", "m"], 900)})
    release = Release(n_cells=4)
    rows = release.fit_transform(X, rng.integers(0, 2, 900), sensitive_features="sex")
    assert list(rows) == ["x", "y", "y_score"]
    new = X.assign(x=rng.normal(size=900).round(1))
    with pytest.warns(DataWarning, match="fresh randomness"):
        assert list(release.transform(new, sensitive_features="sex")) == list(rows)
