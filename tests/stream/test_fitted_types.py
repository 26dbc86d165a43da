"""A file is encoded as the rows that it holds, whatever their columns look like in this file alone."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, FairMatching, Release, decode_file, encode_file, load, save

N = 2000
FEATURES = ["flag", "code", "owns"]


def rows(n=N, seed=0):
    """Women and men who answer differently; without the rare "unknown" and X9 the words look like other types."""
    rng = np.random.default_rng(seed)
    woman = rng.random(n) < 0.5
    flag = np.where(rng.random(n) < np.where(woman, 0.3, 0.6), "true", "false")
    code = rng.integers(1, 5, n).astype(str)
    flag[:5], code[:5] = "unknown", "X9"
    return pd.DataFrame(
        {
            "flag": flag,
            "code": code,
            "owns": rng.random(n) < 0.5,
            "sex": np.where(woman, "f", "m"),
            "repaid": rng.integers(0, 2, n),
        }
    )


def fitted(wrap=lambda encoder: encoder):
    frame = rows()
    encoder = FairMatching(1.0, density="counts", sensitive="sex")
    return wrap(encoder).fit(frame[[*FEATURES, "sex"]], frame["repaid"])


@pytest.fixture(scope="module")
def matching():
    return fitted()


@pytest.fixture
def later():
    """Rows without the rare words, as text."""
    return rows(300, seed=1).iloc[5:].reset_index(drop=True)


def as_a_reader_sees_it(frame):
    """The same rows where types are inferred from these rows alone."""
    return frame.assign(flag=frame["flag"] == "true", code=frame["code"].astype(int))


@pytest.mark.filterwarnings("ignore:The rows name no persons")
@pytest.mark.parametrize("wrap", [lambda encoder: encoder, lambda encoder: Release(encoder, n_cells=4, output="cell")])
def test_a_csv_file_without_the_rare_words_is_encoded_as_the_text_it_holds(wrap, later, tmp_path):
    model = fitted(wrap)
    save(model, tmp_path / "model")
    later.to_csv(tmp_path / "later.csv", index=False)
    for encoder in (model, load(tmp_path / "model")):
        encode_file(encoder, tmp_path / "later.csv", tmp_path / "z.parquet", keep_order=True)
        expected = model.transform(later[[*FEATURES, "sex"]])
        assert_frame_equal(pd.read_parquet(tmp_path / "z.parquet"), expected, check_dtype=False)


def test_the_cells_of_a_file_do_not_give_the_group_away(tmp_path):
    """Read as booleans every answer would be the unseen "other", which each group sends to a cell of its own."""
    answers = ["true", "false", "unknown", "other"]
    frame = pd.DataFrame(
        {
            "answer": np.concatenate([np.repeat(answers, [550, 425, 5, 20]), np.repeat(answers, [560, 415, 20, 5])]),
            "sex": np.repeat(["f", "m"], 1000),
        }
    )
    encoder = FairMatching(1.0, density="counts", sensitive="sex").fit(frame)
    later = frame[frame["answer"].isin(["true", "false"])]
    later.to_csv(tmp_path / "later.csv", index=False)
    encode_file(encoder, tmp_path / "later.csv", tmp_path / "z.parquet", keep=["sex"])
    z = pd.read_parquet(tmp_path / "z.parquet")
    law = pd.crosstab(z["answer"], z["sex"], normalize="columns")
    assert (law["f"] - law["m"]).abs().sum() / 2 == pytest.approx(10 / 975)


@pytest.mark.parametrize("column", ["flag", "code"])
def test_a_parquet_file_with_other_types_is_refused_before_anything_is_written(column, matching, later, tmp_path):
    other = later.assign(**{column: as_a_reader_sees_it(later)[column]})
    other.to_parquet(tmp_path / "later.parquet")
    with pytest.raises(DataError, match=rf"later.parquet: Column '{column}' must hold text, as in the rows that"):
        encode_file(matching, tmp_path / "later.parquet", tmp_path / "z.parquet")
    assert not (tmp_path / "z.parquet").exists()


def test_encoded_columns_are_decoded_with_the_types_they_were_written_with(matching, later, tmp_path):
    later.to_csv(tmp_path / "later.csv", index=False)
    encode_file(matching, tmp_path / "later.csv", tmp_path / "z.csv", keep=["sex"], keep_order=True)
    written = pd.read_csv(tmp_path / "z.csv", dtype=str)
    rare = written["flag"].isin(["true", "false"]) & written["code"].isin(list("1234"))
    written[rare].to_csv(tmp_path / "z.csv", index=False)
    decode_file(matching, tmp_path / "z.csv", tmp_path / "back.parquet", sensitive="sex")
    back = pd.read_parquet(tmp_path / "back.parquet")
    assert rare.sum() > 100
    assert_frame_equal(back, later.loc[rare, FEATURES].reset_index(drop=True), check_dtype=False)
