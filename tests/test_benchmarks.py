"""Benchmarks stay runnable: docs quote their commands, and nothing else would notice that one has fallen behind."""

import ast
import importlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_a_benchmark_finds_all_that_it_imports(name, monkeypatch):
    if name == "training_step_jax":
        pytest.importorskip("jax", reason="it runs in an environment of its own")
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # some of them set the number of threads
    benchmark = importlib.import_module(name)
    assert callable(benchmark.main)
    assert lacking(ast.parse((FOLDER / f"{name}.py").read_text()), vars(benchmark)) == []
    # Rows of others are made with older sources, too.
    for statement in imports_of_functions(FOLDER / f"{name}.py") if name != "rows_of_others" else ():
        exec(statement, {})


def lacking(tree: ast.AST, names: dict[str, object]) -> list[str]:
    """The attributes that a file asks of modules of ours that it has imported, and that they do not have."""
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    modules = [(names.get(node.value.id), node.attr) for node in asked]
    ours = [(module, name) for module, name in modules if getattr(module, "__package__", "").startswith("fairflows")]
    return [f"{module.__name__}.{name}" for module, name in ours if not hasattr(module, name)]


def imports_of_functions(file: Path) -> list[str]:
    """The statements by which functions of a file import from this package."""
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    imports = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)]
    return [ast.unparse(node) for node in imports if node.module.startswith("fairflows")]


def test_an_attribute_that_a_module_lacks_is_found():
    tree = ast.parse("keys.content_hashes = wrapped(keys.gone)")
    assert lacking(tree, {"keys": importlib.import_module("fairflows.table.keys")}) == ["fairflows.table.keys.gone"]


def test_an_import_that_a_function_cannot_make_is_found(tmp_path):
    (tmp_path / "old.py").write_text("def main():\n    from fairflows.table.columns import Levels\n")
    (statement,) = imports_of_functions(tmp_path / "old.py")
    with pytest.raises(ImportError, match="Levels"):
        exec(statement, {})


def test_the_first_leaves_of_a_tree_are_the_smaller_tree(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    board = importlib.import_module("board_fare")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1500, 4)).round(1), columns=list("abcd"))
    a, y = (X["a"] + rng.normal(size=1500) > 0).astype(int), (X.sum(axis=1) + rng.normal(size=1500) > 0).astype(int)
    large = board.FARE(0.3, max_leaves=12, min_rows=20).fit(X, y, sensitive_features=a)
    for k in (2, 5, 11):
        small = board.FARE(0.3, max_leaves=k, min_rows=20).fit(X, y, sensitive_features=a)
        np.testing.assert_array_equal(board.first_leaves(large, k).cells(large.read(X)), small.cells(small.read(X)))


def test_the_certificate_of_more_persons_is_foreseen_from_few(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    board = importlib.import_module("board_fare")
    rng = np.random.default_rng(0)
    laws = {"none": np.full((2, 8), 1 / 8), "far": np.array([[1, 1, 1, 1, 1, 1, 1, 3], [3, 1, 1, 1, 1, 1, 1, 1]]) / 10}
    for law in laws.values():
        few, many = ([[rng.multinomial(n, p) for p in law] for _ in range(50)] for n in (1000, 4000))
        foreseen = np.mean([board.foreseen_bound(np.array(counts, float), np.full(2, 4000.0)) for counts in few])
        certified = np.mean([board.cell_upper_bound(counts, board.DELTA) for counts in many])
        assert certified < foreseen < certified + 0.02


def test_a_gap_of_rates_is_bounded_from_counts_and_from_blocks(monkeypatch):
    """Of 400 draws from three known rates the bound misses in at most δ, and what is observed in more."""
    monkeypatch.syspath_prepend(FOLDER)
    board = importlib.import_module("board_groups")
    rng, n, delta = np.random.default_rng(0), np.array([3000, 1500, 400]), 0.1
    rates = np.array([0.42, 0.36, 0.3])
    truth = np.abs(rates / (n @ rates / n.sum()) - 1).max()
    misses = {"bound": 0, "observed": 0}
    for _ in range(400):
        chosen = rng.binomial(n, rates)
        counts = np.stack([n - chosen, chosen], axis=1)
        bound = board.gap_bound(board.clopper_pearson(counts, delta / 2), counts, delta / 2)
        observed = np.abs(chosen / n / (chosen.sum() / n.sum()) - 1).max()
        misses = {"bound": misses["bound"] + (bound < truth), "observed": misses["observed"] + (observed < truth)}
    assert misses["bound"] <= delta * 400
    assert misses["observed"] > delta * 400, "the control"
