"""Promises about the package as a whole."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fairflows

SOURCE = Path(fairflows.__file__).parent

# Imports go one way: a module may import from its own part and from earlier ones.
ORDER = [
    "exceptions", "data", "optimisation", "bijection", "density", "training", "encoder", "certificate", "release",
    "metrics", "auditing", "frontiers", "explain", "baselines", "storage", "reporting", "scale", "workflow",
    "experiments", "cli",
]  # fmt: skip


def part_of(module: str) -> str:
    """The part a module belongs to: the folder, or the file's name up to the first underscore."""
    return module.split(".")[1].split("_")[0] if "." in module else "fairflows"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    own = part_of("fairflows." + ".".join(path.relative_to(SOURCE).with_suffix("").parts))
    if own == "":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name and name.startswith("fairflows."):
                assert ORDER.index(part_of(name)) <= ORDER.index(own), f"{path.name} imports {name}"


def test_importing_the_package_does_not_import_torch_or_pandas():
    code = "import sys, fairflows; print([m for m in ('torch', 'pandas', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_is_there():
    for name in fairflows.__all__:
        assert getattr(fairflows, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fairflows.nothing  # noqa: B018
