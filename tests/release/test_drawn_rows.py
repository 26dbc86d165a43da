"""Whole rows drawn from cells: types in and out, one law for every group, saved, certified and attacked as written."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency

import fairflows as ff
from fairflows import Release
from fairflows.bounds import cell_upper_bound
from fairflows.encoder.base import Cells, Traits
from fairflows.encoder.rows import Rows
from fairflows.paper.baselines import RawFeatures

pytestmark = pytest.mark.usefixtures("few_trees")


class OwnCells(RawFeatures):
    """An encoder whose output is a cell: whether `score` is above zero, the other way round in group 1."""

    traits = Traits(n_cells=2)
    n_cells_ = 2

    def cells(self, rows: Rows) -> Cells:
        return ((rows.X["score"] > 0) ^ (rows.group == 1)).to_numpy().astype(np.intp)

    def encode(self, rows: Rows) -> pd.DataFrame:
        return pd.DataFrame({"cell": self.cells(rows)})


def frame(n: int = 3_000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group, score = rng.integers(2, size=n), np.round(rng.normal(size=n), 1)
    up = (score > 0) ^ (group == 1)
    return pd.DataFrame(
        {
            "score": score,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n) + 300 * up, unit="D"),
            "town": np.where(rng.random(n) < 0.2 + 0.6 * up, "Ulm", "Bonn"),
            "visits": pd.array(rng.poisson(2, n) + up, dtype="Int64"),
            "group": np.where(group == 1, "b", "a"),
            "repaid": np.where(rng.random(n) < 0.2 + 0.6 * up, "yes", "no"),
            "person": np.arange(n) + 1_000_000 * seed,
        }
    )  # fmt: skip


def table(n: int = 3_000, seed: int = 0) -> ff.Table:
    return ff.Table(frame(n, seed), sensitive="group", label="repaid", identifier="person")


@pytest.fixture(scope="module")
def release() -> Release:
    return Release(OwnCells()).fit(table())


def test_rows_have_the_tables_columns_and_the_label_and_neither_group_nor_person(release):
    new = table(seed=1)
    drawn = release.transform(new)
    columns = ["score", "day", "town", "visits", "repaid"]
    assert [*columns, "repaid_score"] == list(drawn) == release.get_feature_names_out().tolist()
    assert drawn[columns].dtypes.equals(pd.concat([new.X, new.y], axis=1).dtypes)
    assert drawn.index.equals(new.X.index)
    assert release.output_.schema.kinds["day"] == "times without a time zone"


def test_groups_with_equal_cells_get_the_same_law_of_rows(release):
    """In group b the cell is turned round: score and cell are opposed there, but what is released looks the same."""
    new = table(20_000, seed=2)
    drawn, cells = release.transform(new), release.cells(release.read(new))
    a = (new.a == "a").to_numpy()
    for cell in (0, 1):
        for column in (drawn["score"] > 0, drawn["town"], drawn["repaid"], drawn["day"] > "2024-10-27"):
            of_cell = pd.crosstab(column.to_numpy()[cells == cell], a[cells == cell])
            assert chi2_contingency(of_cell).pvalue > 1e-4
    raw = pd.crosstab((new.X["score"] > 0).to_numpy()[cells == 1], a[cells == 1])
    assert chi2_contingency(raw).pvalue < 1e-9, "the rows themselves tell the groups apart within a cell"


def test_one_person_gets_another_row_every_time(release):
    one = table(seed=1).take(np.zeros(200, dtype=int))
    drawn = release.encode(release.read(one))
    assert len(drawn.drop_duplicates()) > 150
    assert len(set(release.cells(release.read(one)))) == 1


def test_the_certificate_is_the_cells_and_says_why_it_covers_the_row(release):
    new = table(4_000, seed=5)
    certificate = ff.certify(release, new)
    counts = pd.crosstab(new.a.to_numpy(), release.cells(release.read(new))).to_numpy()
    assert certificate.cell_upper == pytest.approx(cell_upper_bound(counts, certificate.headline.delta))
    text = " ".join(assumption.text for assumption in certificate.assumptions)
    assert "The row drawn from the cell is all that is released" in text
    assert "so the bounds of the cell cover the row" in text
    assert ff.verify(certificate, release, new)


@pytest.mark.filterwarnings("ignore:.*They keep the cell that they have there")
def test_an_audit_attacks_the_rows_as_they_are_written():
    """Cells by group: numbers and times of the rows drawn from them tell it to a logistic regression, as numbers."""

    class ByGroup(OwnCells):
        def cells(self, rows: Rows) -> Cells:
            return rows.group

    train, test = table(), table(seed=5)
    data = [part.X.assign(size=(part.a == "b") * 50.0 + part.X["score"]) for part in (train, test)]
    train, test = (
        ff.Table(X, sensitive=part.a, label=part.y, identifier=part.identifier)
        for X, part in zip(data, (train, test), strict=True)
    )
    found = ff.audit(Release(ByGroup()).fit(train), train, test, quick=True)
    assert found.to_frame().loc["logistic regression", "lower"] > 0.8
    assert ff.audit(Release(OwnCells()).fit(train), train, test, quick=True).attack_lower < 0.05


def test_a_column_that_the_table_declares_categorical_is_drawn_from_its_own_values():
    data = frame(2_000).assign(code=np.random.default_rng(0).choice([110, 230, 4_020, 9_920, 9_991], 2_000))
    rare = data["code"].where(data.index > 0, 7)  # a code that only one person has
    table = ff.Table(
        data.assign(code=rare), sensitive="group", label="repaid", identifier="person", kinds={"code": "categorical"}
    )
    for release in (Release(n_cells=2), Release(OwnCells())):  # which has a setting for kinds, or none
        drawn = release.fit_transform(table)
        assert set(drawn["code"]) == {110, 230, 4_020, 9_920, 9_991}
