"""Write the JSON Schema of certificates, from the dataclass, into the package: run it after changing a field."""

import json
import re
from inspect import cleandoc
from pathlib import Path

import msgspec

from fairflows.certificate import about, certificate, digest, statements

TARGET = Path(certificate.__file__).with_name("certificate.schema.json")
DOCUMENTED = [
    certificate.Certificate, certificate.Assumption, statements.Statement, statements.CellCounts, statements.CutLeaves,
    about.About, about.Population, digest.Contents,
]  # fmt: skip


def certificate_schema() -> dict:
    _, parts = msgspec.json.schema_components([certificate.Certificate], ref_template="#/$defs/{name}")
    for cls in DOCUMENTED:
        docstring = cleandoc(cls.__doc__)  # Python before 3.13 leaves its indentation
        part, described = parts[cls.__name__], descriptions(docstring)
        fields = {name: field for name, field in part["properties"].items() if name not in certificate.HIDDEN}
        part["description"] = docstring.split("\n\n")[0]
        part["properties"] = {name: {"description": described[name], **field} for name, field in fields.items()}
        part["additionalProperties"] = False
    whole = parts.pop("Certificate")
    version = {"const": certificate.FORMAT, "description": "The version of this schema."}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "title": "A certificate of fairflows",
        "properties": {"format": version, **whole["properties"]},
        "required": ["format", *whole["required"]],
        "$defs": parts,
    }
    return json.loads(json.dumps(schema))  # tuples are lists


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
