"""Models of other libraries: their output is attacked as a pair; everything else takes an encoder."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

import fairflows as ff
from fairflows import DataError, Release, Table, audit, certify
from fairflows.paper.baselines import RawFeatures


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    n = 4000
    group = rng.choice(["f", "m"], n)
    frame = pd.DataFrame({"u": rng.normal((group == "m") * 0.5, 1), "v": rng.normal(0, 1, n), "sex": group})
    return Table(frame, sensitive="sex").split(test=0.5, validation=0)


@pytest.mark.parametrize(
    "model",
    [PCA(1), make_pipeline(StandardScaler(), PCA(1)), KBinsDiscretizer(5, quantile_method="averaged_inverted_cdf")],
)
def test_an_audit_attacks_what_any_transformer_gives(model, parts):
    train, test = parts
    model.fit(train.X)
    found = audit((model.transform(train.X), model.transform(test.X)), train, test, quick=True)
    assert 0.03 < found.attack_lower < 0.25  # the best adversary reaches Φ(1/4) − Φ(−1/4), about 0.197


@pytest.mark.parametrize(
    "call",
    [
        lambda model, train, test: certify(model, test),
        lambda model, train, test: ff.verify(None, model, test),
        lambda model, train, test: audit(model, train, test),
        lambda model, train, test: ff.usefulness(model, train, test),
        lambda model, train, test: ff.encode_batch(model, pa.Table.from_pandas(test.X)),
        lambda model, train, test: ff.encode_file(model, "rows.csv", "encoded.csv"),
    ],
    ids=["certify", "verify", "audit", "usefulness", "encode_batch", "encode_file"],
)
def test_a_pipeline_is_refused_with_the_remedy(parts, call):
    train, test = parts
    cells = Release(RawFeatures(), n_cells=4, output="cell")
    pipeline = make_pipeline(StandardScaler(), cells).fit(train.X, train.X["u"] > 0)
    with pytest.raises(
        DataError, match=r"an encoder or a Release of fairflows; got Pipeline.*audit\(\(Z_train, Z_test\)"
    ):
        call(pipeline, train, test)
    with pytest.raises(DataError, match="Pipeline cannot be saved"):
        ff.save(pipeline, "model")


def test_the_output_of_a_transformer_is_certified_as_a_table(parts):
    part = parts[0]
    z = make_pipeline(StandardScaler(), PCA(1)).fit_transform(part.X[["u", "v"]])[:, 0]
    table = Table({"z": z, "y": part.X["u"] > 0, "sex": part.a}, sensitive="sex", label="y")
    release = Release(RawFeatures(), n_cells=4, output="cell").fit(table)
    assert certify(release, table).cell_upper < 0.5
