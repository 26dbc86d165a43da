"""Promises about the package as a whole."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fairflows

SOURCE = Path(fairflows.__file__).parent

# Imports go one way: a module may import from its own part and from earlier ones.
ORDER = [
    "exceptions", "threads", "arrays", "bounds", "display", "report", "table", "codec", "bijection", "steps", "density",
    "training", "encoder", "release", "storage", "certificate", "attack", "worth", "tradeoff", "explain", "stream",
    "watching", "report.page", "exports", "result", "sharing", "app", "paper", "cli",
]  # fmt: skip
MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = ("fairflows", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


NAMES = {name_of(path) for path in MODULES}


def part_of(module: str) -> str:
    """The part that a module belongs to: the folder or file at the root of the package.

    The words stand alone: certificates print themselves with them, and the page is made of certificates.
    """
    two = ".".join(module.split(".")[1:3])
    return two if two in ORDER else module.split(".")[1]


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        is_for_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if not is_for_types:
            yield from running_nodes(node)


def imported_modules(tree: ast.AST) -> list[str]:
    """All modules of the package that a module names: in import statements anywhere, and in any string.

    A string that reads like a module of ours, in ``import_module("fairflows.storage")`` or in a table of names, is an
    import by another name.
    """
    found = []
    for node in running_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError("relative imports hide where a name is from")
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in below if name in NAMES]
            found += modules if len(modules) == len(below) else [*modules, node.module or ""]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if re.fullmatch(r"fairflows(\.\w+)+", node.value) else []
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            found += re.findall(r"^fairflows(?:\.\w+)+", str(node.values[0].value))
    return [name for name in found if name.startswith("fairflows.") and part_of(name) in ORDER]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if parts[0] in ("__init__", "__main__"):
        return  # the list of public names, which are loaded when asked for; the command
    own = part_of(name_of(path))
    for name in imported_modules(ast.parse(path.read_text())):
        assert ORDER.index(part_of(name)) <= ORDER.index(own), f"{path.name} imports {name}"


def test_the_order_test_sees_every_kind_of_import():
    code = (
        "from fairflows import storage\nfrom fairflows.cli.main import app\n"
        "def f():\n    import fairflows.stream\n"
        "    import_module('fairflows.sharing')\n    import_module(f'fairflows.paper.experiments.{x}')\n"
    )
    assert [part_of(name) for name in imported_modules(ast.parse(code))] == [
        "storage", "cli", "stream", "sharing", "paper",
    ]  # fmt: skip


def test_no_modules_import_each_other():
    """Also not by way of others, and inside one package."""
    imported = {
        name_of(path): set(imported_modules(ast.parse(path.read_text()))) & NAMES
        for path in MODULES
        if path.stem not in ("__init__", "__main__")
    }
    tuple(TopologicalSorter(imported).static_order())
    with pytest.raises(CycleError):
        tuple(TopologicalSorter(imported | {"fairflows.bounds.cells": {"fairflows.cli.main"}}).static_order())


def test_file_names_say_which_idea_they_hold():
    """No name of a file occurs twice, but for those that every package may have."""
    names = Counter(path.name for path in MODULES)
    assert [name for name, count in names.items() if count > 1] == ["__init__.py", "base.py"]


def test_the_root_holds_only_what_stands_alone():
    assert sorted(path.name for path in SOURCE.iterdir() if path.is_file()) == [
        "__init__.py", "__init__.pyi", "__main__.py", "arrays.py", "card.html.jinja",
        "display.py", "exceptions.py", "explain.py", "exports.py", "py.typed", "result.py", "sharing.py",
        "steps.py", "storage.py", "threads.py", "tradeoff.py",
    ]  # fmt: skip


def test_importing_the_package_does_not_import_torch_or_pandas():
    code = "import sys, fairflows; print([m for m in ('torch', 'pandas', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_is_there():
    for name in fairflows.__all__:
        assert getattr(fairflows, name) is not None
    with pytest.raises(AttributeError, match="No fairflows attribute nothing"):
        fairflows.nothing  # noqa: B018


def test_the_public_names_stand_in_one_list_of_at_most_40():
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    imports = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in imports), "names that are exported"
    assert sorted(alias.name for alias in imports) == sorted(fairflows.__all__)
    assert len(imports) <= 40


def test_public_names_and_submodules_load_on_first_use():
    """And none of those in this list needs torch, `share` among them; a certificate's words no scikit-learn."""
    code = (
        "import sys, fairflows as ff\n"
        "print([name for name in sys.modules if name.startswith('fairflows.')])\n"
        "import fairflows.report.statement_words\n"
        "print([name for name in ('torch', 'sklearn') if name in sys.modules])\n"
        "import fairflows.table.examples\n"
        "import fairflows.sharing, fairflows.stream.files, fairflows.certificate.check, fairflows.watching.watch\n"
        "print(ff.bounds.hoeffding_radius(9, 0.05) > 0, ff.paper.datasets is not None, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "True True False"]
    assert fairflows.paper.__getattr__("baselines").LAFTR.__name__ == "LAFTR"  # what an unloaded part is asked for by
    assert fairflows.paper.__getattr__("experiments").run.__name__ == "run"


def test_no_submodule_has_the_name_of_a_public_function():
    """Python sets a package's attribute when a submodule is imported: ``ff.audit`` would turn into a module."""
    submodules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert submodules & set(fairflows.__all__) == {"bijection", "bounds", "density", "paper"}


ENCODERS = {"Encoder", "FairCells", "FairFlow", "FairMatching", "FairTree", "Release"}
JUDGES = ("attack", "certificate", "exports", "report", "result", "storage", "stream", "worth")


def classes_asked_for(tree: ast.AST) -> set[str]:
    """The names in the second arguments of all calls of ``isinstance``."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2]
    asked = [call.args[1] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "isinstance"]
    return {name.id for classes in asked for name in ast.walk(classes) if isinstance(name, ast.Name)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_judges_ask_traits_and_never_a_class(path):
    """A user's own encoder is judged like ours. No fact travels in a frame's ``attrs``, which copies may lose."""
    tree = ast.parse(path.read_text())
    if name_of(path).split(".")[1:2] and name_of(path).split(".")[1] in JUDGES:
        assert not classes_asked_for(tree) & ENCODERS
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "attrs"]


def test_the_test_of_classes_sees_them():
    code = "isinstance(model, Release | FairTree) or isinstance(x, (int, FairFlow))"
    assert classes_asked_for(ast.parse(code)) == {
        "Release", "FairTree", "int", "FairFlow",
    }  # fmt: skip


def test_no_two_classes_have_one_name():
    classes = Counter(
        node.name
        for path in MODULES
        if not {"app", "paper"} & {*path.parts}  # which the core does not import
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []
