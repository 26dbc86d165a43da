"""Two linked tables: one cell a person, from which the person's row and all rows in the other table are drawn."""

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

pytestmark = [
    pytest.mark.usefixtures("few_trees", "few_measured"),
    pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning"),
]

N = 1500
ROLES = {"identifier": "patient", "sensitive": "sex", "label": "frail", "time": "day"}


def linked(tables: dict[str, pd.DataFrame], **roles) -> ff.LinkedTables:
    return ff.LinkedTables(tables, **(ROLES | roles))


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return known_tables.patients_and_visits(N)


@pytest.fixture(scope="module")
def fitted(tables) -> tuple[ff.Release, dict[str, pd.DataFrame]]:
    release = ff.Release(unit="person", n_cells=8, rules=["day > previous.day", "born < turns"])
    return release, release.fit_transform(linked(tables))


def test_both_tables_are_drawn_with_one_number_a_person(fitted, tables):
    patients, visits = fitted[1].values()
    assert list(fitted[1]) == ["patients", "visits"]
    assert list(patients) == ["person", "born", "town", "frail"]
    assert list(visits) == ["person", "day", "pulse", "ward", "turns"]
    assert patients["person"].tolist() == list(range(1, N + 1))
    assert visits["person"].is_monotonic_increasing
    assert visits["person"].isin(patients["person"]).all(), "keys are whole"
    for drawn, real in zip((patients, visits), tables.values(), strict=True):
        columns = list(drawn)[1:]
        assert drawn[columns].dtypes.equals(real[columns].dtypes)


def test_a_rule_about_all_columns_of_a_person_holds(tables):
    patients = tables["patients"][["patient", "sex", "born"]]
    patients = patients.assign(until=patients["born"] + np.random.default_rng(0).integers(1, 9, N))
    visits = tables["visits"].drop(columns="turns")
    both = linked({"patients": patients, "visits": visits}, label=None)
    drawn = ff.Release(unit="person", n_cells=4, rules=["born < until"], derive=False).fit_transform(both)["patients"]
    assert (drawn["born"] < drawn["until"]).all()


def test_numbers_of_visits_and_relations_between_the_tables_are_kept(fitted, tables):
    sizes = {
        name: part[1].groupby(part[1].columns[0]).size().reindex(part[0].iloc[:, 0], fill_value=0)
        for name, part in (("real", list(tables.values())), ("shared", list(fitted[1].values())))
    }
    assert (sizes["real"] == 0).mean() > 0.2
    assert (sizes["shared"] == 0).mean() == pytest.approx((sizes["real"] == 0).mean(), abs=0.03)
    assert sizes["shared"].mean() == pytest.approx(sizes["real"].mean(), rel=0.06)
    patients, visits = fitted[1].values()
    born = patients.set_index("person")["born"].loc[visits["person"]].to_numpy()
    steps = visits.groupby("person")["day"].diff().dropna()
    assert (steps > 0).all()
    assert (born < visits["turns"]).all()
    share = (visits["turns"] == born + 50 + visits["day"] // 10).mean()
    assert share > 0.1, "which is 0.02 for a turn of any other person"
    young = patients.assign(young=patients["born"] > 1965).groupby("young")["frail"].agg(lambda c: (c == "yes").mean())
    assert young[False] > young[True] + 0.3


def test_a_sum_over_both_tables_is_computed(tables):
    patients, visits = tables.values()
    born = patients.set_index("patient")["born"].loc[visits["patient"]].to_numpy()
    both = {"patients": patients, "visits": visits.drop(columns="turns").assign(age=visits["day"] + 2000 - born)}
    release = ff.Release(unit="person", n_cells=4)
    drawn = release.fit_transform(linked(both))
    born = drawn["patients"].set_index("person")["born"].loc[drawn["visits"]["person"]].to_numpy()
    assert (drawn["visits"]["age"] == drawn["visits"]["day"] + 2000 - born).all()
    assert any("age" in text for text in release.derived)


def test_nothing_that_only_one_person_has_is_drawn_in_either_table(tables):
    patients, visits = (part.copy() for part in tables.values())
    mine = visits["patient"].value_counts().index[0]
    patients.loc[patients["patient"] == mine, "town"] = "Oz"
    visits.loc[visits["patient"] == mine, "ward"] = "mine"
    patients.loc[0, "born"] = 1800
    both = linked({"patients": patients, "visits": visits})
    law = PanelLaw.fit(both, np.zeros(N, int), 1)
    drawn = law.draw(np.zeros(4 * N, int), np.random.default_rng(0))
    assert set(drawn.parents["town"]) == {"Bonn", "Köln", "Ulm"}
    assert drawn.parents["born"].min() >= 1940
    assert set(drawn.rows["ward"]) == {"a", "b"}
    assert drawn.rows.groupby("person").size().max() <= visits["patient"].value_counts().iloc[1]
    columns = ["born", "town", "frail"]
    own = patients[columns].value_counts()[lambda count: count == 1].index
    assert not set(own) & set(drawn.parents[columns].itertuples(index=False, name=None))


def test_a_certificate_counts_persons_of_both_tables(fitted, tables, tmp_path):
    release, both = fitted[0], linked(tables)
    certificate = ff.certify(release, both, target=0.3)
    sizes = tables["patients"]["sex"].value_counts()
    assert certificate.n == {"f": sizes["f"], "m": sizes["m"]}, "those without visits, too"
    assert (certificate.released, certificate.unit) == ("panel", "person")
    assert ff.verify(certificate, release, both)
    ff.save(release, tmp_path / "model")
    assert ff.verify(certificate, ff.load(tmp_path / "model"), both)
    patients, visits = tables.values()
    for changed in (
        {"patients": patients.assign(born=patients["born"] + (patients.index == 3)), "visits": visits},
        {"patients": patients, "visits": visits.assign(pulse=visits["pulse"] + (visits.index == 3))},
    ):
        assert not ff.verify(certificate, release, linked(changed))


def test_later_persons_get_rows_in_both_tables_and_known_ones_keep_their_cell(fitted, tables):
    release = fitted[0]
    drawn = release.transform(linked(known_tables.patients_and_visits(200, 7)))
    assert drawn["patients"]["person"].tolist() == list(range(1, 201))
    assert drawn["visits"]["person"].isin(drawn["patients"]["person"]).all()
    known, visits = release.read(linked(tables)), tables["visits"]
    changed = release.read(linked({**tables, "visits": visits.assign(pulse=99.0)}))
    assert (release.cells(known) == release.cells(changed)).all()


def test_cells_of_linked_tables_are_released_once_for_each_person(tables):
    cells = ff.Release(unit="person", n_cells=8, output="cell").fit_transform(linked(tables))
    assert list(cells) == ["cell"]
    assert len(cells) == N


def attacked(summaries: pd.DataFrame, group: np.ndarray) -> float:
    """The distance that boosted trees reach on persons whom they have not seen."""
    X = summaries.apply(lambda c: c if c.dtype.kind in "if" else pd.factorize(c)[0])
    guess = cross_val_predict(HistGradientBoostingClassifier(max_iter=40, random_state=0), X, group, cv=5)
    return 2 * balanced_accuracy_score(group, guess) - 1


def told_by_visits(n: int, seed: int) -> dict[str, pd.DataFrame]:
    """Persons whose group is told by whether they have visits, and by nothing else."""
    tables = known_tables.patients_and_visits(n, seed)
    patients, has = tables["patients"], tables["patients"]["patient"].isin(tables["visits"]["patient"])
    return tables | {"patients": patients.assign(sex=np.where(has, "f", "m"))}


def test_whether_a_person_has_visits_tells_no_group():
    release = ff.Release(unit="person", n_cells=8).fit(linked(told_by_visits(2400, 0)))
    rows = release.read(later := linked(told_by_visits(1200, 1)))
    assert attacked(later.X, rows.group) > 0.95, "the control: from the original tables everybody is known"
    bound = ff.certify(release, linked(told_by_visits(2400, 0))).cell_upper
    assert bound < 0.2
    assert attacked(release.encode(rows), rows.group) <= bound + 0.06


def test_share_takes_two_frames(tables):
    shared = ff.share(tables, **ROLES, target=0.4)
    assert len(shared.parents) == N
    assert set(shared.table["person"]) <= set(shared.parents["person"])
    assert sum(shared.certificate.n.values()) == N
    assert shared.usefulness.label.name == "frail"
    assert {column.name for column in shared.usefulness.columns} >= {"patients: born", "pulse: mean"}
    assert shared.before.attack_lower > shared.audit.attack_lower
    with pytest.raises(DataError, match="again draws one table"):
        ff.share(tables, **ROLES, again=shared)
    with pytest.raises(DataError, match=r"has its roles already; got identifier="):
        ff.share(linked(tables), **ROLES)


def test_what_linked_tables_cannot_take_is_refused(fitted, tables):
    with pytest.raises(DataError, match="released by persons: unit must be 'person'"):
        ff.Release(n_cells=4).fit(linked(tables))
    with pytest.raises(DataError, match="fitted to two linked tables"):
        fitted[0].transform(
            ff.Table(
                tables["visits"].assign(sex=np.tile(["f", "m"], len(tables["visits"]))[: len(tables["visits"])]),
                identifier="patient",
                sensitive="sex",
            )
        )
    patients, visits = tables.values()
    numbered = {"patients": patients.rename(columns={"town": "person"}), "visits": visits}
    with pytest.raises(DataError, match="'person' has a name that the released table needs"):
        ff.Release(unit="person", n_cells=4).fit(linked(numbered))
