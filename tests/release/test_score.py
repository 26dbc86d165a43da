"""The expected label of a row's cell: what it is, where it is released, and that it tells nothing beyond the cell."""

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells

import fairflows as ff
from fairflows import DataError
from fairflows.release.score import _reached_by_ten

QUARTERS = FixedCells(lambda X: (X["x"] // 25).to_numpy().astype(np.intp))  # cells by the column x


def rows(label: str, n: int = 4_000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 100, n)
    labels = {
        "two": np.where(rng.random(n) < (x // 25 + 1) / 5, "yes", "no"),
        "three": rng.choice(["a", "b", "c"], n),
        "number": 50.0 * rng.integers(0, 200, n) + 1_000 * (x // 25),
    }
    return pd.DataFrame({"x": x, "town": rng.choice(["Ulm", "Bonn"], n), "sex": rng.choice(["f", "m"], n),
                         "label": labels[label]})  # fmt: skip


def fitted(label: str, **settings: object) -> tuple[ff.Release, pd.DataFrame, ff.Table]:
    table = ff.Table(rows(label), sensitive="sex", label="label")
    release = ff.Release(QUARTERS, n_cells=4, **settings)
    return release, release.fit_transform(table), table


def test_two_classes_have_the_share_of_the_second_in_the_cell():
    release, drawn, table = fitted("two")
    cells = (table.X["x"] // 25).to_numpy()
    for cell in range(4):
        of_cell = drawn["label_score"].to_numpy()[cells == cell]
        assert (of_cell == round((table.y[cells == cell] == "yes").mean(), 2)).all()
    assert release.output_.dtypes["label_score"] == np.float64


def test_more_classes_have_a_column_each():
    drawn = fitted("three")[1]
    names = ["label_score_a", "label_score_b", "label_score_c"]
    assert list(drawn)[-3:] == names
    assert drawn[names].sum(axis=1).between(0.98, 1.02).all()
    assert len(drawn[names].drop_duplicates()) <= 4, "nothing but the cell decides"


def test_a_number_has_the_mean_on_the_grid_within_what_ten_persons_reach():
    _, drawn, table = fitted("number")
    score = drawn["label_score"]
    assert (score % 50 == 0).all()
    cells = (table.X["x"] // 25).to_numpy()
    for cell in range(4):
        assert score[cells == cell].iloc[0] == pytest.approx(table.y[cells == cell].mean(), abs=25)
    assert _reached_by_ten(np.arange(100.0), np.arange(100)) == (9.0, 90.0)
    assert _reached_by_ten(np.arange(5.0), np.arange(5)) == (2.0, 2.0)
    assert _reached_by_ten(np.arange(20.0), np.arange(20)) == (9.0, 10.0)


def test_no_score_without_a_label_or_where_persons_have_several_rows_unless_asked():
    data = rows("two")
    named = ff.Table(data.assign(person=np.arange(4_000) // 2), sensitive="sex", label="label", identifier="person")
    assert "label_score" not in ff.Release(QUARTERS, n_cells=4).fit_transform(named)
    assert "label_score" in ff.Release(QUARTERS, n_cells=4, with_score=True).fit_transform(named)
    assert "label_score" not in fitted("two", with_score=False)[1]
    plain = ff.Table(data.drop(columns="label"), sensitive="sex")
    assert list(ff.Release(QUARTERS, n_cells=4).fit_transform(plain)) == ["x", "town"]


def test_a_column_with_the_name_of_the_score_is_refused():
    table = ff.Table(rows("two").assign(label_score=1), sensitive="sex", label="label")
    with pytest.raises(DataError, match="'label_score'.*score=False"):
        ff.Release(QUARTERS, n_cells=4).fit(table)


def test_the_score_is_saved_with_the_release(tmp_path):
    table = ff.Table(rows("two", 1_000), sensitive="sex", label="label")
    release = ff.Release(n_cells=4).fit(table)
    ff.save(release, tmp_path / "model")
    assert ff.load(tmp_path / "model").cell_scores_.equals(release.cell_scores_)


def test_no_column_is_named_after_the_class_of_one_person(tmp_path):
    """Such a class is not drawn; neither may the certificate, the metadata or the table tell its name."""
    frame = rows("three").assign(disease=rows("two", seed=1)["label"])
    frame.loc[[0, 1], "disease"] = ["cholera", "unknown"]
    frame.loc[2, "disease"] = "unknown"
    table = ff.Table(frame, sensitive="sex", label=["label", "disease"])
    with pytest.warns(ff.DataWarning, match=r"too rare .*: 'cholera' \(1\)"):  # to the owner alone
        shared = ff.share(table, target=0.3, quick=True).save(tmp_path / "out")
    scores = [name for name in shared.table if name.startswith("disease_score")]
    assert scores == ["disease_score_no", "disease_score_unknown", "disease_score_yes"]
    public = {"shared.csv", "certificate.json", "report-public.html", "croissant.json", "card.md", "attestation.json"}
    assert [name for name in public if "cholera" in (tmp_path / "out" / name).read_text(encoding="utf-8")] == []


def test_two_classes_have_no_score_if_one_person_has_the_second():
    frame = rows("two").assign(label=["yes", *["no"] * 3_999])
    drawn = ff.Release(QUARTERS, n_cells=4).fit_transform(ff.Table(frame, sensitive="sex", label="label"))
    assert list(drawn) == ["x", "town", "label"]
