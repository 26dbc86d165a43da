"""The result on disk: a folder that is whole, replaced only when asked, read and verified again."""

import json

import pandas as pd
import pytest

import fairflows as ff
from fairflows.result import read_run


@pytest.fixture(autouse=True)
def ledger_of_test(ledger_of_module):
    """Results that are shared once are saved under the records that they were made with."""


def test_a_saved_result_can_be_loaded_and_verified(shared, adult, tmp_path):
    out = tmp_path / "out"
    shared.save(out, kind="parquet")
    names = {"model", "certificate.json", "report.html", "report.json", "report-public.html", "run.json"}
    names.add("shared.parquet")
    names |= {"attestation.json", "card.md", "croissant.json", "spdx.json"}
    assert {path.name for path in out.iterdir()} == names
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o777 == 0o700
    pd.testing.assert_frame_equal(pd.read_parquet(out / "shared.parquet"), shared.table)
    model, certificate = ff.load(out / "model"), ff.Certificate.read(out / "certificate.json")
    assert ff.verify(certificate, model, adult)
    assert certificate.seal in (out / "report.html").read_text()
    assert json.loads((out / "report.json").read_text())["usefulness"]["n"] == shared.usefulness.n


def test_cells_that_held_out_persons_count_are_verified_on_the_whole_table(
    held_out, records_of_held_out, adult, tmp_path, monkeypatch
):
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(records_of_held_out))
    held_out.save(tmp_path / "out")
    model, certificate = ff.load(tmp_path / "out" / "model"), ff.Certificate.read(tmp_path / "out" / "certificate.json")
    assert "everything was computed again" in repr(ff.verify(certificate, model, adult))
    assert ff.check(tmp_path / "out")


def test_what_was_shared_by_a_sample_cannot_be_verified_by_one_table(adult, few, tmp_path, monkeypatch):
    """The certificate counts all rows of the file, and `share` saw a third of them."""
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(tmp_path / "records"))
    whole, out = tmp_path / "whole.csv", tmp_path / "out"
    rows = adult.X.assign(sex=adult.a, income=adult.y).reset_index()
    rows.to_csv(whole, index=False)
    saved = ff.share(few, target=0.3, output="cell", quick=True).save(out, whole=whole)
    assert sum(saved.certificate.n.values()) == 12_000
    assert ff.verify(saved.certificate, saved.release, adult)
    assert not ff.verify(saved.certificate, saved.release, few)
    assert ff.check(out)


def test_only_an_earlier_result_is_replaced_and_only_when_asked(shared, tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine"
    shared.save(out)
    with pytest.raises(ff.DataError, match="the key of an earlier result"):
        shared.save(out)
    shared.save(out, replace=True)
    mine.mkdir()
    (mine / "thesis.txt").write_text("")
    with pytest.raises(ff.DataError, match="choose another one"):
        shared.save(mine, replace=True)
    (mine / "run.json").write_text('{"script": "train.py"}')  # of somebody else
    with pytest.raises(ff.DataError, match="not a result of `fairflows share`"):
        shared.save(mine, replace=True)
    for place in (out / "thesis.txt", out / "model" / "notes.txt"):
        place.write_text("")
        with pytest.raises(ff.DataError, match=f"holds '{place.name}', which fairflows did not write"):
            shared.save(out, replace=True)
        place.unlink()
    with pytest.raises(ff.DataError, match="kind must be one of 'csv', 'parquet'; got 'xlsx'"):
        shared.save(tmp_path / "new", kind="xlsx")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "written by another release of fairflows"),
        ({"sensitive": []}, "damaged: a run cannot state sensitive = "),
        ({"sensitive": [7]}, r"damaged: a run cannot state sensitive\[0\] = 7: expected `str`"),
        ({"grouping": {"kinds": {}}}, "damaged: a run cannot state grouping = "),
        ({"grouping": {"kinds": {"sex": "text"}, "more": 1}}, "damaged: a run has no field 'grouping.more'"),
        ({"released": ["latent"]}, "damaged: a run has no field 'released'"),
        ({"missing_label": "never"}, "damaged: a run cannot state missing_label = "),
        ({"random_state": "0"}, "damaged: a run cannot state random_state = "),
        ({"format": None}, "states no format"),
    ],
)
def test_a_changed_record_of_a_run_is_refused(change, message, tmp_path):
    run = {"format": 1, "sensitive": ["sex"], "columns": ["age"], "rows": 9, "random_state": 0}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert read_run(tmp_path).missing_label == "error"
    (tmp_path / "run.json").write_text(json.dumps({**run, **change}))
    with pytest.raises(ff.DataError, match=message):
        read_run(tmp_path)
