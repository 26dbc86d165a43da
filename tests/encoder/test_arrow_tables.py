"""Tables of Arrow and of whatever speaks it: names are kept, and what comes out is an Arrow table."""

import datetime
import warnings

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from fairflows import DataWarning, FairMatching, FairTree, Release

pytestmark = pytest.mark.usefixtures("few_trees")


ROLES = {"sensitive": "sex", "identifier": "person", "key": b"k" * 32}


def people(n=400):
    rng = np.random.default_rng(0)
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(int(d)) for d in rng.integers(0, 90, n)]
    return pa.table(
        {
            "person": [f"p{i}" for i in range(n)],
            "age": rng.integers(18, 80, n),
            "town": rng.choice(["Ulm", "Bonn"], n),
            "day": pa.array(days, pa.date32()),
            "sex": rng.choice(["f", "m"], n),
        }
    )


FORMS = {
    "table": lambda table: table,
    "reader": lambda table: table.to_reader(max_chunksize=100),
    "relation": lambda table: duckdb.from_arrow(table),
    "polars": polars.from_arrow,
    "pandas": lambda table: table.to_pandas(date_as_object=False),
}


def tree():
    return Release(FairTree(**ROLES), n_cells=4)


@pytest.mark.parametrize("form", FORMS)
def test_names_are_kept_and_the_kind_of_table_too(form):
    given, encoder = FORMS[form], tree()
    encoder.fit(given(people()))
    assert list(encoder.schema_.kinds) == ["age", "town", "day"]
    with pytest.warns(DataWarning, match="They keep the cell that they have there"):
        rows = encoder.transform(given(people()))
    expected = {"polars": polars.DataFrame, "pandas": pd.DataFrame}.get(form, pa.Table)
    assert isinstance(rows, expected)
    if expected is pa.Table:
        assert pa.types.is_timestamp(rows.schema.field("day").type), "dates come back as midnights"
        assert rows.column_names == ["age", "town", "day"]
        assert rows.num_rows == 400


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "encoder",
    [
        Release(FairMatching(density="counts", **ROLES), n_cells=2, output="cell"),
        Release(FairTree(**ROLES), n_cells=2, output="cell"),
        FairMatching(density="counts", **ROLES),
    ],
    ids=["held out", "cut twice", "matching"],
)
def test_what_can_be_read_once_is_read_once(encoder, form):
    columns = ["person", "town", "sex"]
    y = np.asarray(people()["age"]) > 50
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        out = encoder.fit_transform(FORMS[form](people().select(columns)), y)
        same = encoder.fit_transform(people().select(columns).to_pandas(), y)
    first = np.asarray(out[out.columns[0]] if isinstance(out, pd.DataFrame | polars.DataFrame) else out.column(0))
    assert first.tolist() == same.iloc[:, 0].tolist()
