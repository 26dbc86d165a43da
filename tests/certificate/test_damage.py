"""Damaged certificates, tables and models are refused, or still say what is true; no traceback, no long work."""

import json
import random
import shutil
import time

import pytest
from damages import cut_off, flipped, swapped
from test_check import people

import fairflows as ff
from fairflows import DataError, share

pytestmark = pytest.mark.usefixtures("few_trees")

LONGEST = 20  # seconds of the processor: a certificate that claims huge numbers must not keep its receiver busy
ODD = ["NaN", "Infinity", "-Infinity", "-1", "0", "1", "2", "1e308", "1e-308", "0.5", "1.0", '"1"', '"a"', "null"]
ODD += ["true", "[]", "[[[]]]", "{}", "9007199254740993", "1" + "0" * 30, "9" * 5000]
TABLES = {"rows": people(0, 700), "cells": people(1, 2500), "several": people(2, 900, groups=3, most=3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What `share` wrote: by trees, by the cells of a label, and with several groups and rows of a person."""
    place, found = tmp_path_factory.mktemp("whole"), {}
    for name, table in TABLES.items():
        method, output = "cells" if name == "cells" else "tree", "row" if name == "rows" else "cell"
        shared = share(table, quick=True, target=0.4, method=method, output=output)
        found[name] = place / name, shared.save(place / name, kind="parquet" if name == "rows" else "csv")
    return found


def places(value, path=()):
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from ([path] if path else [])
    for name, item in inside:
        yield from places(item, (*path, name))


def edited(data, rng):
    """Another value somewhere, a value that is gone, or a name that stands twice."""
    part = value = json.loads(data)
    *way, last = rng.choice(list(places(value)))
    for name in way:
        part = part[name]
    how = rng.choice(["odd", "odd", "odd", "gone", "twice", "near"])
    if how == "gone":
        del part[last]
    elif how == "near" and isinstance(part[last], int | float):
        part[last] = rng.choice([part[last] + 1, part[last] - 1, part[last] * 0.9, part[last] * 1000])
    elif how == "twice" and isinstance(part, dict):
        said = f"{json.dumps(last)}: {json.dumps(part[last])}"
        return json.dumps(value).replace(said, f"{json.dumps(last)}: 0.0011, {said}", 1).encode()
    else:
        part[last] = "the odd value"
    return json.dumps(value).replace('"the odd value"', rng.choice(ODD)).encode()


def accepted_as_true(folder, shared):
    """Check a folder; what is accepted states no less than was found."""
    checked = ff.check(folder / "certificate.json", next(folder.glob("shared.*")))
    in_another_form = any(r.what == "file" and "another form" in r.text for r in checked.results)
    said, true = checked.certificate, shared.certificate
    if checked:
        assert said.released_files == true.released_files or in_another_form, "of the same contents"
        assert said.known_half is None or abs(said.known_half - true.known_half) <= 1e-9, "as sums are compared"
        assert said.table_distance in (None, true.table_distance)
        assert said.cell_upper is None or said.cell_upper >= 0.99 * true.cell_upper, "quantiles are found by draws"
        assert said.cell_odds_upper.items() <= true.cell_odds_upper.items()
    return bool(checked)


def verified_as_true(folder, shared, table):
    """Load a model, and verify the certificate by it; a model that is accepted certifies the same."""
    model = ff.load(folder / "model")
    found = ff.verify(shared.certificate, model, table)
    assert not found or ff.certify(model, table, target=0.4).statements == shared.certificate.statements
    return bool(found)


@pytest.mark.parametrize("n", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_files(n, made, tmp_path):
    rng, refused = random.Random(n), 0
    for number in range(n):
        name = rng.choice(list(made))
        whole, shared = made[name]
        folder = shutil.copytree(whole, tmp_path / str(number))
        files = ["certificate.json"] * 6 + [path.name for path in whole.glob("shared.*")]
        files += ["model/model.json", "model/weights.safetensors", "model/key.json", "model/ledger.json"]
        path = folder / rng.choice(files)
        how = rng.choice([flipped, cut_off, swapped] + [edited] * 3 * (path.suffix == ".json"))
        path.write_bytes(how(path.read_bytes(), rng))
        begin, is_model = time.process_time(), path.parent != folder
        try:
            found = verified_as_true(folder, shared, TABLES[name]) if is_model else accepted_as_true(folder, shared)
        except DataError:
            found = False
        except Exception as error:
            raise AssertionError(f"number {number}: {path}, {how.__name__}: {error!r}") from error
        assert time.process_time() - begin < LONGEST, f"number {number}: {path}, {how.__name__}"
        refused += not found
        shutil.rmtree(folder)
    assert refused > n / 2
