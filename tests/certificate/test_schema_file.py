"""The published JSON Schema is that of the certificates that are written."""

import importlib.util
import json
from importlib.resources import files
from pathlib import Path

import pytest

from fairflows import Certificate, certify

jsonschema = pytest.importorskip("jsonschema")

TOOL = Path(__file__).parents[2] / "tools" / "make_schema.py"


@pytest.fixture(scope="module")
def schema():
    return json.loads((files("fairflows.certificate") / "certificate.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(model, adult):
    return json.loads(certify(model, adult[2], target=0.2, released=["cell"]).with_file("a.csv", "ab" * 32).to_json())


def test_the_file_is_made_from_the_dataclass(schema):
    spec = importlib.util.spec_from_file_location("make_schema", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert schema == tool.certificate_schema(), "run tools/make_schema.py"


def test_certificates_validate(schema, written):
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(written, schema)
    assert written["statements"][0]["counts"][0]["counts"]


@pytest.mark.parametrize(
    "change",
    [
        {"target": 1.5},
        {"status": "BLESSED"},
        {"n": {"a": "many"}},
        {"better": 1},
        {"format": 1},
        {"assumptions": ["One row per person."]},
        {"statements": [{"about": "population"}]},
        {"statements": [{"about": "population", "by": "held-out", "distance": 1.5}]},
        {"statements": [{"about": "gossip", "by": "held-out", "distance": 0.5}]},
        {"statements": [{"about": "population", "by": "held-out", "distance": 0.5, "counts": [{"share": 1}]}]},
    ],
)
def test_what_the_schema_refuses_is_refused_when_read(schema, written, change):
    changed = {**written, **change}
    assert not jsonschema.Draft202012Validator(schema).is_valid(changed)
    with pytest.raises(ValueError, match="certificate"):
        Certificate.from_json(json.dumps(changed))
