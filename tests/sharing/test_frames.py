"""Frames of any kind are shared with their roles, and come back as the kind that came."""

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

import fairflows as ff

ROLES = {"sensitive": "sex", "label": "repaid", "identifier": "person"}
QUICK = {"quick": True, "target": 0.9, "output": "row"}


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "person": [f"p{seed}-{i}" for i in range(n)],
            "age": rng.integers(18, 80, n),
            "sex": rng.choice(["f", "m"], n),
            "repaid": rng.integers(0, 2, n),
        }
    )


@pytest.mark.parametrize("of", [pd.DataFrame, polars.from_pandas, lambda frame: pa.Table.from_pandas(frame)])
def test_a_frame_is_shared_with_its_roles_and_keeps_its_kind(of, tmp_path):
    given = of(rows())
    shared = ff.share(given, **ROLES, **QUICK)
    assert type(shared.table) is type(given)
    assert set(shared.rows) == {"age", "repaid", "repaid_score"}
    assert shared.save(tmp_path / "out").certificate.status == shared.certificate.status
    again = ff.share(of(rows()), again=tmp_path / "out", **ROLES)
    assert type(again.table) is type(given)


def test_roles_are_needed_once():
    with pytest.raises(ff.DataError, match=r"name the sensitive column \(sensitive=...\)"):
        ff.share(rows(), label="repaid")
    with pytest.raises(ff.DataError, match="A Table has its roles already; got label=..."):
        ff.share(ff.Table(rows(), **ROLES), label="repaid")
    with pytest.raises(TypeError, match="unexpected keyword argument 'taget'"):
        ff.share(rows(), **ROLES, taget=0.1)


@pytest.mark.parametrize("of", [pd.DataFrame, polars.from_pandas, lambda frame: pa.Table.from_pandas(frame)])
def test_batches_of_every_kind_are_encoded(of):
    model = ff.FairTree(n_cells=2, identifier="person").fit(ff.Table(rows(), **ROLES))
    given = of(rows(seed=1))
    encoded = ff.encode_batch(model, given, sensitive="sex", identifier="person")
    assert type(encoded) is type(given)
    assert len(encoded) == 600
    with pytest.raises(ff.DataError, match="A batch must be a table of Arrow, pandas or polars.* got list"):
        ff.encode_batch(model, [1, 2], sensitive="sex", identifier="person")


def test_streams_of_arrow_are_encoded():
    model = ff.FairTree(n_cells=2, identifier="person").fit(ff.Table(rows(), **ROLES))
    stream = pa.RecordBatchReader.from_batches(
        (table := pa.Table.from_pandas(rows(seed=1), preserve_index=False)).schema, table.to_batches()
    )
    encoded = ff.encode_batch(model, stream, sensitive="sex", identifier="person")
    assert isinstance(encoded, pa.Table)
    assert encoded.column_names == ["cell"]


def test_cells_are_as_many_as_the_target_allows():
    rng = np.random.default_rng(0)
    n = 1200
    frame = rows(n).assign(age=lambda r: r["age"] + 10 * (r["sex"] == "m"))
    frame = frame.assign(repaid=(frame["age"] + rng.normal(0, 10, n) > 50).astype(int))
    table = ff.Table(frame, **ROLES)
    cells = ff.FairCells(8, target=0.18, n_bins=64).fit(table)
    assert 2 <= cells.n_cells_ < 8
    assert cells.planned_ <= 0.18
    assert ff.FairCells(8, target=0.5, n_bins=64).fit(table).n_cells_ > cells.n_cells_
    with pytest.raises(ff.DataError, match="out of reach for 2 cells"):
        ff.FairCells(8, target=0.12, n_bins=64).fit(table)
