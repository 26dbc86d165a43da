"""One Arrow batch at a time: the rows of encode_file and of transform, in a schema that is known beforehand."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from known_tables import people
from pandas.testing import assert_frame_equal

import fairflows as ff
from fairflows.density import MixtureDensity

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:.* of these rows are of persons of the table that was released"),
]

N = 600
FEATURES = ["age", "income", "town", "since", "owns"]


def rows(n=N, seed=0):
    rng = np.random.default_rng([seed, 1])
    days = pd.to_timedelta(rng.integers(0, 900, n), "D")
    return people(n, seed).assign(
        town=pd.Categorical(rng.choice(["Ulm", "Bonn", "12"], n)),
        since=pd.Timestamp("2020-01-01", tz="Europe/Berlin") + days,
        owns=rng.random(n) < 0.5,
        weight=rng.random(n),
        person=[f"p{seed}-{i}" for i in range(n)],
    )


MODELS = {
    "flow": (lambda: ff.FairFlow(n_epochs=1, hidden=(8,), density=MixtureDensity(1)), ["age", "income"]),
    "matching": (lambda: ff.FairMatching(0.5, density="counts"), ["town", "owns"]),
    "cells": (lambda: ff.FairCells(n_cells=4, target=0.5, n_bins=16), FEATURES),
    "released cells": (lambda: ff.Release(n_cells=4, output="cell"), FEATURES),
    "released rows": (lambda: ff.Release(n_cells=4), FEATURES),
    "rows of held-out cells": (lambda: ff.Release(ff.FairCells(n_bins=16), n_cells=4, target=0.5), FEATURES),
}
DRAWN = {"released rows", "rows of held-out cells"}


@pytest.fixture(scope="module")
def models():
    frame, made = rows(), {}
    for name, (make, features) in MODELS.items():
        table = ff.Table(
            frame[[*features, "sex", "repaid", "person"]], sensitive="sex", label="repaid", identifier="person"
        )
        made[name] = make().fit(table)
    return made


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


ROLES = {"sensitive": "sex", "identifier": "person"}


@pytest.mark.filterwarnings("ignore:Values outside the training range")
@pytest.mark.parametrize("name", MODELS)
def test_batches_are_encoded_like_a_file_and_have_the_schema_that_was_told(name, models, tmp_path):
    model, frame = models[name], rows(seed=1)
    settings = {**ROLES, "keep": ["weight", "person"]}
    told = ff.encode_batch(model, arrow(frame[:0]), **settings).schema
    empty = pa.RecordBatch.from_pylist([], schema=arrow(frame).schema)
    assert ff.encode_batch(model, empty, **settings).schema.equals(told)
    batches = arrow(frame).to_batches(max_chunksize=170)
    made = [ff.encode_batch(model, batch, **settings) for batch in batches]
    assert [batch.num_rows for batch in made] == [170, 170, 170, 90]
    assert all(batch.schema.equals(told) for batch in made)

    frame.to_parquet(tmp_path / "a.parquet", index=False)
    ff.encode_file(model, tmp_path / "a.parquet", tmp_path / "z.parquet", keep_order=True, **settings)
    written = pd.read_parquet(tmp_path / "z.parquet")
    encoded = pa.Table.from_batches(made).to_pandas()
    assert list(encoded) == [*model.get_feature_names_out(), "weight", "person"]
    assert (encoded["weight"].to_numpy() == frame["weight"].to_numpy()).all()  # kept as it is, and not rounded
    if name in DRAWN:  # rows are drawn anew at each call
        encoded, written = encoded[["weight", "person"]], written[["weight", "person"]]
    assert_frame_equal(encoded, written, check_dtype=False, rtol=1e-6, atol=1e-6)


def test_unknown_values_are_counted():
    frame = rows()
    model = ff.FairMatching(1.0, density="counts").fit(frame[["town"]].astype(str), sensitive_features=frame["sex"])
    later = pd.DataFrame({"town": ["Ulm", "Jena", "Jena"], "sex": ["f", "f", "m"]})
    with pytest.warns(ff.DataWarning, match=r"Categories that the training rows did not have.*'town' \(2\)"):
        ff.encode_batch(model, arrow(later), sensitive="sex")


def test_what_is_missing_or_written_twice_is_refused(models):
    batch = arrow(rows())
    with pytest.raises(ff.DataError, match="'person'"):
        ff.encode_batch(models["flow"], batch.drop_columns("person"), **ROLES)
    with pytest.raises(ff.DataError, match="Column 'town' is written by the model"):
        ff.encode_batch(models["matching"], batch, keep=["town"], **ROLES)
    with pytest.raises(ff.DataError, match="Column names must be unique; 'town' occurs more than once"):
        ff.encode_batch(models["matching"], batch.append_column("town", batch["town"]), **ROLES)
    with pytest.raises(ff.DataError, match="precision must be"):
        ff.encode_batch(models["flow"], batch, precision="half", **ROLES)


@pytest.mark.parametrize("name", ["flow", "cells", "released rows"])
def test_a_worker_encodes_only_with_the_key_that_was_sent_along(name, models):
    batch, roles = arrow(rows()), {"sensitive": "sex", "identifier": "person"}
    sent = pickle.loads(pickle.dumps(models[name]))
    with pytest.raises(ff.DataError, match="leaves out the secret key"):
        ff.encode_batch(sent, batch, **roles)
    with pytest.raises(ff.DataError, match="key of another model"):
        ff.encode_batch(sent, batch, key=b"guessed", **roles)
    one = ff.encode_batch(models[name], batch, **roles)
    other = ff.encode_batch(sent, batch, key=bytes(models[name].key_), **roles)
    assert one.schema.equals(other.schema)
    assert name in DRAWN or one.equals(other)
    with pytest.raises(ff.DataError, match="leaves out the list of the rows"):
        assert sent.ledger_.used
    assert models[name].ledger_.used, "the model itself keeps it"


def test_categories_that_are_intervals_are_named(models):
    """As pandas' cut makes them; Arrow handed them over as objects that pandas could not read."""
    frame = rows(60, 1).assign(wages=lambda f: pd.cut(f["income"], 3))
    settings = {"sensitive": "sex", "identifier": "person"}
    with pytest.raises(ff.DataError, match="Column 'town' must hold text, .* got interval"):
        ff.encode_batch(models["cells"], arrow(frame.assign(town=frame["wages"])), **settings)
    with pytest.raises(ff.DataError, match="Column 'wages' cannot be kept as it is, .*: convert it to text"):
        ff.encode_batch(models["cells"], arrow(frame), keep=["wages"], **settings)


def test_columns_of_arrows_types_are_taken_and_saved(tmp_path):
    arrow_types = {
        "town": "string[pyarrow]",
        "age": "int16[pyarrow]",
        "income": "double[pyarrow]",
        "owns": "bool[pyarrow]",
    }
    frame = (
        rows()
        .drop(columns=["weight", "since"])
        .astype({"town": str})
        .astype(
            {
                name: pd.ArrowDtype(pa.type_for_alias(kind.removesuffix("[pyarrow]")))
                for name, kind in arrow_types.items()
            }
        )
    )
    shared = ff.share(ff.Table(frame, sensitive="sex", label="repaid", identifier="person"), quick=True, target=0.5)
    shared.save(tmp_path / "out")
    assert ff.check(tmp_path / "out")
    assert set(shared.table["town"]) == {"Ulm", "Bonn", "12"}


@pytest.mark.filterwarnings("error:Values outside the training range")
def test_floats_of_another_width_are_in_the_same_unit():
    """The largest value, 0.7, is more than 0.7 as a float of 32 bits, and half of the rows have it."""
    frame, new = (rows(600, seed).assign(share=lambda f: np.where(f["owns"], 0.7, 0.1)) for seed in (0, 1))
    columns, settings = ["age", "share", "sex", "repaid", "person"], {"sensitive": "sex", "label": "repaid"}
    for before, after in ((np.float32, np.float64), (np.float64, np.float32)):
        train = ff.Table(frame[columns].astype({"share": before}), identifier="person", **settings)
        model = ff.FairTree(n_cells=4, kinds={"share": "continuous"}).fit(train)
        later = ff.Table(new[columns].astype({"share": after}), identifier="person", **settings)
        model.transform(later)
