"""The published JSON Schema is that of the certificates that are written."""

import importlib.util
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from fairflows import Certificate, certify
from fairflows.certificate.about import About, Population
from fairflows.certificate.digest import Contents
from fairflows.certificate.statements import blocks_statement

jsonschema = pytest.importorskip("jsonschema")

TOOL = Path(__file__).parents[2] / "tools" / "make_schema.py"


@pytest.fixture(scope="module")
def schema():
    return json.loads((files("fairflows.certificate") / "certificate.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(model, adult):
    """A certificate that states everything that there is to state."""
    about = About(issuer="Office", population=Population(place="Ulm"), valid_until="2030-01-31")
    certificate = certify(model, adult[2], target=0.2, with_labels=True, about=about)
    contents = Contents(9, {"cell": "whole numbers"}, "ab" * 32)
    named = replace(certificate, previous=("cd" * 32,)).with_file("a.csv", "ab" * 32, contents)
    blocks = {"0": (10, 11), "1": (12, 13)}
    of_trees = (*named.statements, replace(blocks_statement(blocks, 0.01), given="trees"))
    return json.loads(replace(named, statements=of_trees).to_json())


def test_the_file_is_made_from_the_dataclass(schema):
    spec = importlib.util.spec_from_file_location("make_schema", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert schema == tool.certificate_schema(), "run tools/make_schema.py"


def test_certificates_validate(schema, written):
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(written, schema)
    assert written["statements"][0]["counts"]["counts"]
    assert written["statements"][-1]["blocks"]
    assert all(description(part) for part in (schema, *schema["$defs"].values()))


def description(part):
    """Whether a part of the schema, and each of its fields, is described, and no other field is allowed."""
    described = [part["description"], *(field["description"] for field in part["properties"].values())]
    return all(described) and part["additionalProperties"] is False


@pytest.mark.parametrize(
    "change",
    [
        {"target": 1.5},
        {"status": "BLESSED"},
        {"n": {"a": "many"}},
        {"better": 1},
        {"format": 1},
        {"assumptions": ["One row per person."]},
        {"sensitive": []},
        {"sensitive": "sex"},
        {"released": "latents"},
        {"labels": "income"},
        {"unit": "household"},
        {"issued": "today"},
        {"about": {"planet": "Mars"}},
        {"about": {"population": "Ulm"}},
        {"about": {"purpose": None}},
        {"previous": ["the last one"]},
        {"most_rows": 0},
        {"unchecked": False},
        {"statements": [{"about": "population"}]},
        {"statements": [{"about": "population", "by": "held-out", "distance": 1.5}]},
        {"statements": [{"about": "gossip", "by": "held-out", "distance": 0.5}]},
        {"statements": [{"about": "population", "by": "held-out", "distance": 0.5, "counts": {"n": {}}}]},
        {"statements": [{"about": "population", "by": "blocks", "distance": 0.5, "blocks": {"a": [0.5]}}]},
    ],
)
def test_what_the_schema_refuses_is_refused_when_read(schema, written, change):
    changed = {**written, **change}
    assert not jsonschema.Draft202012Validator(schema).is_valid(changed)
    with pytest.raises(ValueError, match="certificate"):
        Certificate.from_json(json.dumps(changed))
