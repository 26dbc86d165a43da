"""Who is who: names, coins that belong to a person, splits by person, one random row of each, a random row of all."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from fairflows import DataError
from fairflows.table.keys import Key, content_hashes, keyed_hashes
from fairflows.table.persons import Persons

KEY = b"a secret of thirty-two bytes ...."
IMPROBABLE = 1e-4  # seeds are fixed: a right rule fails once in ten thousand choices of them


def contents_of(frame: pd.DataFrame) -> np.ndarray:
    return content_hashes(frame, b"test")


def shuffled(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n)


@pytest.mark.parametrize(
    ("identifiers", "names"),
    [
        (np.array([3, 1, 3, -7]), ["3", "1", "3", "-7"]),
        (np.array([2**63 + 5, 1, 1], dtype=np.uint64), [str(2**63 + 5), "1", "1"]),
        (np.array([3, 1], dtype=np.int8), ["3", "1"]),
        (pd.RangeIndex(5, 26, 7), ["5", "12", "19"]),
        (pd.Index([10, 2, 10]), ["10", "2", "10"]),
        ([True, False], ["True", "False"]),
        (np.array([1.5, 2.0]), ["1.5", "2"]),
        (pd.array([4, 2, 4], dtype="Int64"), ["4", "2", "4"]),
        (pd.to_datetime(["2020-01-01", "2021-05-06"]), ["2020-01-01", "2021-05-06"]),
        (pd.Categorical(["b", "a", "b"]), ["b", "a", "b"]),
        (["x", "y", "x"], ["x", "y", "x"]),
    ],
)
def test_a_person_is_known_by_the_text_of_her_identifier(identifiers, names):
    persons = Persons.of(identifiers)
    assert persons.named
    assert persons.names[persons.codes].tolist() == names
    assert persons.n == len(set(names))
    assert persons.rows_each().tolist() == [names.count(name) for name in persons.names]


def test_one_person_has_one_name_whatever_type_a_reader_chose():
    """7 is an integer in one file, 7.0 where another row is missing or has a half, and text in a third."""
    alone, with_a_half, text = Persons.of([7, 8]), Persons.of([7.0, 8.0, 8.5]), Persons.of(["7", "8"])
    assert alone.names.tolist() == text.names.tolist() == with_a_half.names.tolist()[:2] == ["7", "8"]
    mixed = Persons.of(pd.Series([7, "7", 7.0, "ann"], dtype=object))
    assert mixed.names.tolist() == ["7", "ann"], "one person, not three"
    assert mixed.codes.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(("column", "identifier"), [(None, "The identifier"), ("id", "The identifier 'id'")])
def test_every_row_needs_a_name(column, identifier):
    rule = "must name a person in every row; 2 are missing, the first in row 1"
    with pytest.raises(DataError, match=f"^{identifier} {rule}"):
        Persons.of(pd.Series(["ann", None, "bob", np.nan], name=column))


def test_numbers_belong_to_persons_and_purposes():
    persons = Persons.of(np.arange(5000) // 2)
    coin, noise = persons.uniform(KEY, "coin"), persons.uniform(KEY, "noise")
    assert (coin[::2] == coin[1::2]).all()
    assert len(np.unique(coin)) == 2500
    np.testing.assert_array_equal(coin, persons.uniform(KEY, "coin"))
    order = shuffled(5000)
    np.testing.assert_array_equal(persons.take(order).uniform(KEY, "coin"), coin[order])
    assert not np.isin(coin, noise).any()
    assert not np.isin(coin, persons.uniform(b"another", "coin")).any()
    assert 0 <= coin.min() < 0.01 < 0.99 < coin.max() < 1
    assert abs(np.corrcoef(coin[::2], noise[::2])[0, 1]) < 4 / np.sqrt(2500)


def test_without_names_numbers_are_fresh():
    """Never the row's number: where everybody sends one row, all would have row 0's coin."""
    persons = Persons.unnamed(1000)
    first, second = persons.uniform(KEY, "coin"), persons.uniform(KEY, "coin")
    assert not np.isin(first, second).any()
    assert len(np.unique(first)) == 1000
    alone = [Persons.unnamed(1).uniform(KEY, "coin")[0] for _ in range(50)]
    assert len(set(alone)) == 50


def few_values(n_persons: int = 4000) -> tuple[Persons, pd.DataFrame]:
    """Eight rows per person and one column: two of her rows are "a", six are "b"."""
    frame = pd.DataFrame({"x": np.tile(["b", "a", "b", "b", "b", "a", "b", "b"], n_persons)})
    return Persons.of(np.repeat(np.arange(n_persons), 8)), frame


def test_the_one_row_of_a_person_is_drawn_from_all_of_her_rows():
    """A row chosen by the smallest hash of its contents would be the same value for everybody."""
    persons, frame = few_values()
    rows = persons.one_row_each(contents_of(frame), seed=0)
    assert (persons.codes[rows] == np.arange(persons.n)).all()
    n_a = int((frame["x"].iloc[rows] == "a").sum())
    assert binomtest(n_a, persons.n, 2 / 8).pvalue > IMPROBABLE


@pytest.mark.parametrize("draw", [Persons.one_row_each, lambda *args: Persons.random_rows(*args, 8)])
def test_the_order_of_the_file_does_not_choose(draw):
    persons, frame = few_values(500)
    frame["y"] = np.arange(4000) % 3
    order = shuffled(len(frame))
    rows = draw(persons, contents_of(frame), 0)
    again = order[draw(persons.take(order), contents_of(frame.iloc[order]), 0)]
    named = [frame.assign(person=persons.codes).iloc[places].sort_values("person") for places in (rows, again)]
    pd.testing.assert_frame_equal(*(part.reset_index(drop=True) for part in named))


def unequal(n_persons: int = 30_000) -> tuple[Persons, pd.DataFrame]:
    """Persons with one row, "a", and with four, of which one is "a" and three are "b": 40 % of all rows are "a"."""
    m = np.where(np.arange(n_persons) % 2, 4, 1)
    codes = np.repeat(np.arange(n_persons), m)
    first = np.cumsum(m) - m
    return Persons.of(codes), pd.DataFrame(
        {"x": np.where(np.isin(np.arange(len(codes)), first), "a", "b"), "m": m[codes]}
    )


@pytest.mark.parametrize("most", [4, 6])
def test_random_rows_have_the_law_of_the_files_rows(most):
    persons, frame = unequal()
    rows = persons.random_rows(contents_of(frame), 0, most)
    assert len(np.unique(persons.codes[rows])) == len(rows), "at most one row per person, so they are independent"
    assert binomtest(len(rows), persons.n, (1 + 4) / 2 / most).pvalue > IMPROBABLE
    taken = frame.iloc[rows]
    for value in ("a", "b"):
        expected = float((frame["x"] == value).mean())
        assert binomtest(int((taken["x"] == value).sum()), len(rows), expected).pvalue > IMPROBABLE
    per_person = frame.iloc[persons.one_row_each(contents_of(frame), 0)]
    assert (per_person["x"] == "a").mean() > 0.6, "a random person's row has another law: 62.5 % are a"


def test_whoever_is_taken_draws_her_row_anew():
    """One hash for acceptance and row would let persons with few rows give their first ones only."""
    n = 20_000
    m = 2
    persons, frame = Persons.of(np.repeat(np.arange(n), m)), pd.DataFrame({"x": np.arange(n * m) % m})
    rows = persons.random_rows(contents_of(frame), 0, 8)
    assert binomtest(len(rows), n, m / 8).pvalue > IMPROBABLE
    assert binomtest(int((frame["x"].iloc[rows] == 0).sum()), len(rows), 0.5).pvalue > IMPROBABLE


def test_acceptance_row_and_coin_are_independent():
    persons, frame = few_values(20_000)
    contents = contents_of(frame)
    coin = persons.uniform(KEY, "coin")[::8]
    accepted = np.isin(np.arange(persons.n), persons.codes[persons.random_rows(contents, 0, 16)])
    place = persons.one_row_each(contents, 0) % 8
    limit = 4 / np.sqrt(persons.n)
    for one, other in ((accepted, place), (accepted, coin), (place, coin)):
        assert abs(np.corrcoef(one, other)[0, 1]) < limit


def test_a_person_with_more_rows_than_stated_is_refused():
    persons = Persons.of([1, 1, 1, 2])
    with pytest.raises(DataError, match=r"at most 2 rows, .*; 1 of these 2 persons have more, up to 3"):
        persons.random_rows(np.arange(4, dtype=np.uint64), 0, 2)
    with pytest.raises(DataError, match=r"at most 0 row"):
        Persons.unnamed(2).random_rows(np.arange(2, dtype=np.uint64), 0, 0)


def test_rows_known_by_their_contents_keep_their_coins_in_any_order():
    frame = pd.DataFrame({"x": np.repeat(["a", "b", "c"], [500, 300, 200])})
    persons = Persons.by_contents(contents_of(frame))
    assert persons.n == 1000, "equal rows are different persons"
    coin, order = persons.uniform(KEY, "coin"), shuffled(1000)
    assert len(np.unique(coin)) == 1000
    again = Persons.by_contents(contents_of(frame.iloc[order])).uniform(KEY, "coin")
    for value in ("a", "b", "c"):  # equal rows may swap their coins, which nobody can tell
        mine = (frame["x"] == value).to_numpy()
        np.testing.assert_array_equal(np.sort(again[mine[order]]), np.sort(coin[mine]))


def test_pickles_leave_the_secret_out_and_say_so():
    key, same, other = Key(b"a very secret key"), Key(b"a very secret key"), Key(b"another one")
    packed = pickle.dumps({"one": key, "the same": key})
    assert b"very secret" not in packed
    lost = pickle.loads(packed)
    assert lost["one"] is lost["the same"]
    assert lost["one"] != key
    assert repr(lost["one"]) == "<secret key>"
    with pytest.raises(DataError, match=r"model\.key_\.restore\(key\)"):
        keyed_hashes(["ann"], lost["one"], "coin")
    with pytest.raises(DataError, match="key of another model"):
        lost["one"].restore(other)
    lost["one"].restore(b"a very secret key")
    assert lost["the same"] == key == same
    assert hash(lost["one"]) == hash(same)
    assert copy.deepcopy([key])[0] is copy.copy(key) is key


@pytest.mark.parametrize("dtype", [object, "string", "category", None])
def test_a_missing_value_has_one_hash_whatever_marks_it(dtype):
    """Also under another release of pandas: rows that a model was fitted to must be known again there."""
    texts = pd.Series(["Ulm", None], dtype=dtype)
    assert content_hashes(texts.to_frame(), b"key").tolist() == [14479340249927295365, 578964408558029722]
    written = pd.Series(["nan", "None", "<NA>", "NaT"])
    assert not set(content_hashes(written.to_frame(), b"key")) & set(content_hashes(texts.to_frame(), b"key"))
    row = pd.DataFrame({"town": texts, "n": [7, None], "day": pd.to_datetime(["2020-02-29", None])})
    assert content_hashes(row, b"key").tolist() == [4325629328662167358, 15195962688407141184]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_the_hash_of_a_time_depends_on_its_row_alone(unit, zone):
    texts = ["2020-02-29", "2020-02-29 10:30", "2020-03-01 00:00:01"]
    times = pd.Series(pd.to_datetime(texts, format="ISO8601")).dt.as_unit(unit)
    for column in (times.dt.tz_localize(zone), times - times[0]):
        together = content_hashes(column.to_frame(), KEY)
        alone = [content_hashes(column.iloc[[i]].to_frame(), KEY)[0] for i in range(3)]
        assert together.tolist() == alone
        assert len(set(alone)) == 3


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float64", 53), ("Float64", 53), ("double[pyarrow]", 53), ("float32", 24), ("Float32", 24)]
)
def test_floats_that_stand_for_several_persons_are_refused(dtype, bits):
    last = 2**bits - 1
    assert Persons.of(pd.Series([last, last - 1], dtype=dtype)).names.tolist() == [str(last), str(last - 1)]
    with pytest.raises(DataError, match=rf"floats up to {2**bits}, and from 2\^{bits} on .* several persons"):
        Persons.of(pd.Series([1, 2**bits], dtype=dtype))


def test_persons_of_equal_weight():
    """(Σm)²/Σm² for the rows m of each person in a group: 1 + 2 + 3 rows stand for 36/14 persons."""
    persons = Persons.of(["a", "b", "b", "c", "c", "c", "d", "d"])
    found = persons.equal_weight(np.array([0, 0, 0, 0, 0, 0, 1, 0]), 3)
    np.testing.assert_allclose(found, [49 / 15, 1, 0])
