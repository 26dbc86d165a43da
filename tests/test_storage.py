"""Saving and loading: the same behaviour afterwards, private files, and a clear word about damage."""

import json
import os
import random
import re
import shutil
import stat
import tracemalloc
import warnings
from hashlib import sha256

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from damages import flipped
from torch import distributions as td

from fairflows import DataError, FairCells, FairFlow, FairMatching, FairTree, Release, Table, load, save
from fairflows.certificate.model_hash import model_hash
from fairflows.density import FlowDensity, KnownDensity, MixtureDensity
from fairflows.storage import _HOMES, FORMAT, class_named

pytestmark = pytest.mark.usefixtures("few_trees", "short_made")


@pytest.fixture(scope="module")
def mixed():
    """Numbers, text, dates, booleans and missing values; three groups and three classes."""
    rng = np.random.default_rng(0)
    n = 400
    group = rng.choice(["north", "mid", "south"], n)
    income = np.round(rng.lognormal(3, 0.5, n) + 4 * (group == "north"), 2)
    town = np.array(["Ulm", "Bonn", None], dtype=object)[rng.integers(0, 3, n)]
    frame = pd.DataFrame(
        {
            "income": np.where(rng.random(n) < 0.05, np.nan, income),
            "age": rng.integers(18, 80, n),
            "town": town,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "owns": rng.random(n) < 0.4,
            "size": pd.Categorical(rng.choice(["s", "m", "l"], n), categories=["s", "m", "l"], ordered=True),
            "x": rng.normal(size=n),
            "one": 7,
            "group": group,
            "y": np.digitize(income + rng.normal(size=n), [18, 25]),
            "name": [f"p{i}" for i in range(n)],
        }
    )
    return Table(frame, sensitive="group", label="y", identifier="name")


def categorical(table):
    return Table(table.X[["town", "owns", "size"]], sensitive=table.a.to_numpy(), label=table.y.to_numpy(),
                 identifier=table.identifier.to_numpy())  # fmt: skip


# Loaded weights are the saved ones bit by bit; products of them may round otherwise where they lie otherwise in memory.
SAME_NUMBERS = {"rtol": 1e-9, "atol": 1e-9}
QUICK = {"n_epochs": 2, "n_blocks": 2, "hidden": (8,), "head": (8,)}
ENCODERS = {
    "flow": (FairFlow(**QUICK, density=MixtureDensity(1)), None),
    "flow, spline": (FairFlow(**QUICK, bijection="spline", density=FlowDensity(n_steps=5)), None),
    "flow, equalized odds": (FairFlow(**QUICK, criterion="equalized_odds", density=MixtureDensity(1)), None),
    "matching": (FairMatching(0.4, density="counts"), categorical),
    "matching, made": (FairMatching(0.4, density="made", hidden=(8,)), categorical),
    "tree": (FairTree(4), None),
    "cells": (FairCells(4, target=0.5, n_certify=20_000), None),
    "cells without the attribute": (FairCells(4, target=0.5, n_certify=20_000, attribute="training"), None),
    "release": (Release(FairTree(identifier="name"), n_cells=4, output="cell"), None),
    "held-out cells": (
        Release(FairCells(n_certify=20_000, identifier="name"), n_cells=4, target=0.5, output="cell"),
        None,
    ),
}


def quietly(do):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return do()


@pytest.mark.parametrize("name", ENCODERS)
def test_a_loaded_encoder_does_what_the_saved_one_did(name, mixed, tmp_path):
    encoder, part = ENCODERS[name]
    table = part(mixed) if part else mixed
    if "identifier" in encoder.get_params(deep=False):
        encoder.set_params(identifier="name")
    quietly(lambda: encoder.fit(table))
    save(encoder, tmp_path / "model")
    again = load(tmp_path / "model")

    def compare(method, *words, **settings):
        one, other = (quietly(lambda e=e: getattr(e, method)(*words, **settings)) for e in (encoder, again))
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other, **SAME_NUMBERS)
        elif np.issubdtype(one.dtype, np.floating):
            np.testing.assert_allclose(one, other, **SAME_NUMBERS)
        else:
            np.testing.assert_array_equal(one, other)
        return one

    Z = compare("transform", table)
    compare("predict", table)
    law, law_again = encoder.latent_law(), again.latent_law()
    assert (law is None) == (law_again is None)
    if law is not None:
        np.testing.assert_allclose(law.log_density_table(50), law_again.log_density_table(50), **SAME_NUMBERS)
    if encoder.traits.invertible:
        compare("inverse_transform", Z.set_axis(table.identifier.rename("name"), axis=0), sensitive_features=table.a)
        for one, other in zip(encoder.latent_law().sample_rows(20), again.latent_law().sample_rows(20), strict=True):
            pd.testing.assert_frame_equal(one, other, **SAME_NUMBERS)
    assert again.get_params().keys() == encoder.get_params().keys()
    assert again.groups_ == encoder.groups_
    assert model_hash(again, b"key") == model_hash(encoder, b"key")
    assert list(again.get_feature_names_out()) == list(encoder.get_feature_names_out())
    assert len(json.loads((tmp_path / "model" / "key.json").read_text())) == 1, "one key for all parts"

    save(again, tmp_path / "again")  # and once more: what was loaded can be saved
    for file in ("weights.safetensors", "key.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()


DISTRIBUTIONS = {
    "multivariate normal": lambda: td.MultivariateNormal(torch.zeros(2), torch.eye(2)),
    "independent normals": lambda: td.Independent(td.Normal(torch.zeros(2), torch.ones(2)), 1),
    "laplace": lambda: td.Independent(td.Laplace(torch.zeros(2), torch.ones(2)), 1),
    "student": lambda: td.Independent(td.StudentT(torch.full((2,), 4.0)), 1),
    "gamma": lambda: td.Independent(td.Gamma(torch.full((2,), 2.0), torch.ones(2)), 1),
    "beta": lambda: td.Independent(td.Beta(torch.full((2,), 2.0), torch.full((2,), 3.0)), 1),
    "exponential": lambda: td.Independent(td.Exponential(torch.ones(2)), 1),
    "mixture": lambda: td.MixtureSameFamily(
        td.Categorical(torch.tensor([0.7, 0.3])), td.MultivariateNormal(torch.zeros(2, 2), torch.eye(2))
    ),
}


@pytest.mark.parametrize("make", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_a_known_distribution(make, tmp_path):
    density = KnownDensity(make())
    save(density, tmp_path / "density")
    again = load(tmp_path / "density")
    x = density.sample(5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(again.log_prob(x), density.log_prob(x))
    torch.testing.assert_close(again.sample(5, torch.Generator().manual_seed(0)), x)


def test_a_spline_keeps_its_halves_when_torch_draws_others(tmp_path, monkeypatch):
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    density = FlowDensity("spline", n_blocks=2, n_steps=5).fit(x)
    save(density, tmp_path / "density")
    others = torch.tensor([[True, False, True, False], [False, True, False, True]])
    monkeypatch.setattr("fairflows.bijection.couplings.passive_features", lambda *_: others)
    torch.testing.assert_close(load(tmp_path / "density").log_prob(x), density.log_prob(x))
    assert [sorted(half) for half in density.flows.passive] != [[0, 2], [1, 3]], "else nothing is tested"


def test_column_types_are_saved_under_names_that_every_pandas_knows(tmp_path):
    """A model saved under pandas 3, where text is of the type "str", is loaded under pandas 2.3, and the reverse."""
    text = ["a", "b", None] * 40
    columns = {
        "inferred": pd.Series(text),
        "object": pd.Series(text, dtype=object),
        "string": pd.Series(text, dtype="string"),
        "category": pd.Series(text, dtype="category"),
        "category of string": pd.Series(text, dtype="string").astype("category"),
        "whole": pd.Series([1, 2, None] * 40, dtype="Int64"),
        "yes": pd.Series([True, False, None] * 40, dtype="boolean"),
        "x": np.linspace(0, 1, 120),
        "day": pd.date_range("2020-01-01", periods=120),
        "hour": pd.date_range("2020-01-01", periods=120, freq="h", tz="Europe/Berlin"),
        "lasts": pd.to_timedelta(range(120), unit="min"),
    }
    table = Table(pd.DataFrame(columns), sensitive=["f", "m"] * 60, label=[0, 0, 1] * 40)
    save(Release(n_cells=2).fit(table), tmp_path / "model")
    names = {
        value["text"] for kind in ("type", "pandas type") for value in saved_values(tmp_path / "model", "kind", kind)
    }
    assert names >= {"float64", "Int64", "boolean", "object"}
    times = r"datetime64\[.s(, Europe/Berlin)?\]|timedelta64\[.s\]"
    known = re.compile(rf"bool|boolean|object|u?int\d+|U?Int\d+|float\d+|{times}")
    assert [name for name in names if not known.fullmatch(name)] == []
    texts = [value["text"].split() for value in saved_values(tmp_path / "model", "kind", "string type")]
    assert {storage for storage, _ in texts} <= {"python", "pyarrow"}
    assert "NA" in {missing for _, missing in texts} <= {"NA", "nan"}


def saved_values(model, entry, content):
    def walk(value):
        if isinstance(value, dict):
            yield from [value] if value.get(entry) == content else []
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            yield from walk(item)

    return list(walk(json.loads((model / "model.json").read_text())["content"]))


def test_every_class_of_the_list_is_there():
    for name in _HOMES:
        assert class_named(name).__name__ == name


def test_a_class_that_only_has_the_name_of_one_of_ours_is_refused(tmp_path):
    namesake = type("FairFlow", (FairFlow,), {})
    with pytest.raises(DataError, match="a FairFlow cannot be saved"):
        save(namesake(), tmp_path / "model")


@pytest.mark.parametrize(
    ("setting", "said"), [(len, "a function"), (pd.ArrowDtype(pa.string()), r"a column of type string\[pyarrow\]")]
)
def test_what_cannot_be_saved_is_named(mixed, tmp_path, setting, said):
    table = categorical(mixed)
    encoder = FairMatching(density="counts").fit(table)
    encoder.set_params(density=setting)
    with pytest.raises(DataError, match=rf"FairMatching.settings\['density'\]: {said} cannot be saved"):
        save(encoder, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []  # nothing half-written
    save(encoder.set_params(density="counts"), tmp_path / "model")


@pytest.fixture
def saved(tmp_path, mixed):
    table = categorical(mixed)
    encoder = FairMatching(0.4, density="counts").fit(table)
    save(encoder, tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_is_private_and_the_key_is_in_no_other_file(saved):
    assert stat.S_IMODE(saved.stat().st_mode) == 0o700
    assert stat.S_IMODE((saved / "key.json").stat().st_mode) == 0o600
    key = json.loads((saved / "key.json").read_text())[0]
    assert len(bytes.fromhex(key)) == 32
    for name in ("model.json", "weights.safetensors"):
        content = (saved / name).read_bytes()
        assert key.encode() not in content
        assert bytes.fromhex(key) not in content


def cut(path, keep=0.7):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "model.json").unlink(), "model.json is missing"),
        (lambda f: (f / "weights.safetensors").unlink(), "cannot be rebuilt.*No such file"),
        (lambda f: (f / "key.json").unlink(), "the key is missing"),
        (lambda f: cut(f / "model.json"), "damaged or cut off"),
        (lambda f: cut(f / "weights.safetensors"), "damaged or cut off"),
        (lambda f: (f / "key.json").write_text('["00"]'), "the key is damaged"),
        (lambda f: edit(f / "model.json", format=FORMAT + 1), "reads format 1"),
        (lambda f: edit(f / "model.json", format=FORMAT - 1), "reads format 1"),
        (lambda f: edit(f / "model.json", format=True), "states no format"),
        (lambda f: (f / "model.json").write_text("[" * 100_000), "nested more than 100 levels deep"),
        (lambda f: (f / "model.json").write_bytes(b"\xff"), "not UTF-8 text"),
        (lambda f: (f / "ledger.json").write_text('{"used":' + "[" * 999 + "]" * 999 + "}"), "the ledger is damaged"),
        (lambda f: (f / "ledger.json").unlink(), r"ledger\.json: there is no such file"),
        (lambda f: os.truncate(f / "weights.safetensors", 2**40), "damaged or cut off"),
        (lambda f: edit(f / "model.json", format="new"), "states no format"),
        (lambda f: edit(f / "model.json", content={"is": "object", "class": "os.system", "state": {}}), "damaged"),
        (lambda f: (f / "model.json").write_text("[]"), "states no format"),
        (lambda f: shutil.rmtree(f), "no such folder"),
    ],
)
def test_damage_is_reported(saved, harm, message):
    harm(saved)
    with pytest.raises(DataError, match=message):
        load(saved)


def test_no_changed_bit_of_the_ledger_goes_unnoticed(saved):
    """Of 100 bits 60 could change: rows of the training table then passed for new ones."""
    rng, path = random.Random(0), saved / "ledger.json"
    whole = path.read_bytes()
    for _ in range(100):
        path.write_bytes(flipped(whole, rng))
        with pytest.raises(DataError, match="ledger"):
            load(saved)


def forge(folder, change):
    """Change a model and make its checksums fit: what remains must still be refused, by its structure."""
    from safetensors.numpy import load_file, save_file

    header = json.loads((folder / "model.json").read_text())
    arrays = load_file(folder / "weights.safetensors")
    change(header["content"], arrays)
    save_file(arrays, folder / "weights.safetensors")
    text = json.dumps(header["content"], ensure_ascii=False, separators=(",", ":"))
    header["model"] = sha256(text.encode()).hexdigest()
    weights = (folder / "weights.safetensors").read_bytes()
    header["weights"], header["weights_bytes"] = sha256(weights).hexdigest(), len(weights)
    (folder / "model.json").write_text(json.dumps(header))


def safetensors(entry, data=b""):
    header = entry if isinstance(entry, bytes) else json.dumps({"a0": entry}).encode()
    return len(header).to_bytes(8, "little") + header + data


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        (2**63).to_bytes(8, "little") + b"{}",
        (2**40).to_bytes(8, "little") + b"{}",
        safetensors({"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}),
        safetensors({"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 8]}, b"\0" * 8),
        safetensors({"dtype": "F64", "shape": [2**63, 0], "data_offsets": [0, 0]}),
        safetensors({"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}, b"\0" * 8),
        safetensors({"dtype": "F64", "shape": [1], "data_offsets": [8, 0]}, b"\0" * 8),
        safetensors({"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}, b"\0" * 8),
        safetensors({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}, b"\0" * 8),
        safetensors({"dtype": "O", "shape": [1], "data_offsets": [0, 8]}, b"\0" * 8),
        safetensors(b"[" * 100_000),
        safetensors(b"\xff"),
    ],
    ids=range(13),
)
def test_a_lying_header_of_weights_is_refused_without_allocating(saved, weights):
    """With checksums that fit."""
    (saved / "weights.safetensors").write_bytes(weights)
    edit(saved / "model.json", weights=sha256(weights).hexdigest(), weights_bytes=len(weights))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"cannot be (read|rebuilt)|an array must be"):
            load(saved)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def set_class(content, arrays, name):
    content["class"] = name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content, arrays: set_class(content, arrays, "os.system"), "holds a os.system of its maker's own"),
        (lambda content, arrays: set_class(content, arrays, "GridSearch"), "holds a GridSearch of its maker's own"),
        (lambda content, arrays: content.update({"is": "pickle"}), "cannot be rebuilt, it is damaged: 'pickle'"),
        (
            lambda content, arrays: arrays.update({min(arrays): np.zeros((2, 2, 2))}),
            "an array must be .* of shape .*; got float64",
        ),
        (lambda content, arrays: arrays.pop(min(arrays)), "cannot be rebuilt, it is damaged: '[0-9a-f]*'"),
        (lambda content, arrays: content["state"].pop("settings"), "cannot be rebuilt"),
        (
            lambda content, arrays: content["state"].update(
                settings={"is": "values", "type": "<U999999999", "shape": [1, 99], "items": ["a"] * 99}
            ),
            "cannot be rebuilt",
        ),
    ],
)
def test_a_forged_model_is_refused_by_its_structure(saved, change, message):
    forge(saved, change)
    with pytest.raises(DataError, match=message):
        load(saved)


def test_saving_again_replaces_the_model_and_other_folders_are_left_alone(saved, mixed, tmp_path):
    before = (saved / "key.json").read_text()
    table = categorical(mixed)
    save(FairMatching(density="counts").fit(table), saved)
    assert (saved / "key.json").read_text() != before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("dear diary")
    with pytest.raises(DataError, match="holds other files and no model"):
        save(load(saved), tmp_path / "letters")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        save(load(saved), tmp_path / "file")


def test_a_folder_with_anything_else_in_it_is_never_replaced(saved, mixed, tmp_path):
    encoder = load(saved)
    (saved / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"holds 'notes\.txt', which fairflows did not write"):
        save(encoder, saved)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.json").write_text('{"layers": 3}')  # another program's
    with pytest.raises(DataError, match="not a model of fairflows"):
        save(encoder, tmp_path / "other")


def test_a_crash_while_saving_leaves_the_old_model(saved, mixed, monkeypatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    model = load(saved)

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fairflows.storage.write_private", crash)
    with pytest.raises(KeyboardInterrupt):
        save(model, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_after_a_kill_between_two_renames_the_old_model_is_found_again(saved):
    model = load(saved)
    save(model, saved)
    load(saved)
    os.rename(saved, saved.parent / ".model.previous")  # as after a kill between the two renames
    assert load(saved).groups_ == model.groups_
    save(model, saved)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
