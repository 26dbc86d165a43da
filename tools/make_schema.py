"""Write the JSON Schema of certificates, from the dataclass, into the package: run it after changing a field."""

import json
import re
from dataclasses import Field, is_dataclass
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin

from fairflows.certificate import certificate
from fairflows.table.json_text import is_required, stated_fields

TARGET = Path(certificate.__file__).with_name("certificate.schema.json")
NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def certificate_schema() -> dict:
    schema = schema_of(certificate.Certificate)
    names = {"format": {"const": certificate.FORMAT, "description": "The version of this schema."}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A certificate of fairflows",
        **schema,
        "properties": {**names, **schema["properties"]},
        "required": ["format", *schema["required"]],
    }


def schema_of(kind: object) -> dict:
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return {"enum": list(parts)}
    if isinstance(kind, UnionType):
        return {"anyOf": [schema_of(part) for part in parts]}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": schema_of(parts[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    return of_dataclass(kind) if is_dataclass(kind) and isinstance(kind, type) else {"type": NAMES[kind]}


def of_dataclass(cls: type) -> dict:
    docstring = cleandoc(cls.__doc__)  # Python before 3.13 leaves its indentation
    described, fields = descriptions(docstring), stated_fields(cls)
    return {
        "description": docstring.split("\n\n")[0],
        "type": "object",
        "properties": {
            name: {"description": described[name], **ranged(field, schema_of(kind))}
            for name, (field, kind) in fields.items()
        },
        "required": [name for name, (field, _) in fields.items() if is_required(field)],
        "additionalProperties": False,
    }


def ranged(field: Field, schema: dict) -> dict:
    """The schema of a field; probabilities, distances and accuracies are between 0 and 1."""
    if not field.metadata.get("probability"):
        return schema
    return json.loads(json.dumps(schema).replace('"type": "number"', '"type": "number", "minimum": 0, "maximum": 1'))


def descriptions(docstring: str) -> dict[str, str]:
    """What the section on attributes says of each name."""
    section = re.split(r"Attributes\n-+\n", docstring)[1]
    found = {}
    for names, text in re.findall(r"^(\w[\w, ]*) : [^\n]*\n((?:    [^\n]*\n?)+)", section, flags=re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found


if __name__ == "__main__":
    TARGET.write_text(json.dumps(certificate_schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
