"""Change one place of the core at a time, and see whether the tests that run it notice: `make test-mutants`.

    python tools/mutants.py [--number 200] [--seed 0] [--seconds 40] [--only PART]

A mutant is a changed comparison, sign, operator, constant or truth value, or an error that is not raised. Mutants are
drawn at random, by the seed, from all places of the parts below. First the fast tests of a part run once, so that it is
known which of them run which line; this takes some minutes, and is kept in `.mutants` until a file changes. Then each
mutant is read in place of its file, and these tests run with it, the fastest first, until one fails or they took so
many seconds in the first run. A run that takes five times as long counts as failed. Of a mutant that survives, tests of
other parts that run the line are asked in the same way.

A mutant that survives with a reason, in `tools/survivors.toml`, changes nothing that anybody could see. The exit code
is 1 where fewer than 95 % of the others are killed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib.machinery
import json
import os
import random
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fairflows"
PARTS = {
    "bounds": ["tests/bounds"],
    "certificate": ["tests/certificate"],
    "encoder/matched_tree.py": ["tests/encoder/test_fair_tree.py", "tests/encoder/test_tree_growth.py"],
    "release": ["tests/release"],
    "training/algorithm1.py": ["tests/training/test_training.py", "tests/encoder/test_flow.py"],
}
"""The parts that are changed, and the tests of each."""

ELSEWHERE = ("tests/release", "tests/sharing", "tests/encoder", "tests/stream", "tests/watching", "tests/cli")
"""Tests that use several parts, for mutants that those of their part do not notice."""

SURVIVORS = ROOT / "tools" / "survivors.toml"
KEPT = ROOT / ".mutants"
AIM = 0.95
_NOT_READ = 99  # the exit code of tests that did not import the mutant
_HERE = f"{SOURCE}{os.sep}"

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One place of a file that is changed."""

    file: str  # from the root of the package
    place: int  # of the node in the order of `ast.walk`
    lines: tuple[int, int]  # the first and the last line of its statement, without the statements in that
    runs_at_import: bool
    before: str
    after: str
    text: str  # of its first line

    @property
    def name(self) -> str:
        """The mutant as the list of survivors names it, whatever the number of its line is."""
        return f"{self.file}: {self.before} -> {self.after} in {self.text}"

    @property
    def module(self) -> str:
        """The name of the module."""
        return ".".join(["fairflows", *Path(self.file).with_suffix("").parts]).removesuffix(".__init__")

    def changed_source(self) -> bytes:
        """Return the text of the file with this place changed, and all lines where they were."""
        source = (SOURCE / self.file).read_bytes()
        node: Any = [*ast.walk(ast.parse(source))][self.place]
        changed = changed_node(node)
        assert changed is not None
        starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        text = ast.unparse(changed).encode() + b"\n" * (node.end_lineno - node.lineno)
        return source[:start] + (b"(%b)" % text if isinstance(node, ast.expr) else text) + source[end:]


def changed_node(node: ast.AST) -> ast.AST | None:
    """Return a node changed at one place; None where there is nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
            new.ops = [_SWAPPED[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in _SWAPPED:
            new.op = _SWAPPED[type(op)]()
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            return operand
        case ast.Constant(value=bool() as value):
            new.value = not value
        case ast.Constant(value=int() as value):
            new.value = value + 1
        case ast.Constant(value=float() as value):
            new.value = 2 * value or 1.0
        case ast.Raise():
            return ast.copy_location(ast.Pass(), node)
        case _:
            return None
    return new


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of a file, but for those of messages, types and what runs for type checkers alone."""
    rows = path.read_text(encoding="utf-8").splitlines()
    tree = ast.parse("\n".join(rows))
    lines, in_function = _statements(tree)
    left_out = {id(inner) for node in ast.walk(tree) for part in _not_tested(node) for inner in ast.walk(part)}
    for place, node in enumerate(ast.walk(tree)):
        changed = None if id(node) in left_out else changed_node(node)
        if changed is not None:
            before, after = (" ".join(ast.unparse(each).split()) for each in (node, changed))
            file = path.relative_to(SOURCE).as_posix()
            text = rows[getattr(node, "lineno", lines[id(node)][0]) - 1].strip()
            yield Mutant(file, place, lines[id(node)], id(node) not in in_function, before, after, text)


def _statements(tree: ast.Module) -> tuple[dict[int, tuple[int, int]], set[int]]:
    """Return the lines of the innermost statement around each node, and which nodes are in the body of a function."""
    lines: dict[int, tuple[int, int]] = {}
    in_function: set[int] = set()
    for node in ast.walk(tree):  # outer statements come first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", [])
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            lines |= dict.fromkeys(map(id, ast.walk(node)), (node.lineno, max(last, node.lineno)))
        if isinstance(node, ast.FunctionDef):
            in_function |= {id(inner) for part in node.body for inner in ast.walk(part)}
    return lines, in_function


def _not_tested(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node whose values no test is about."""
    match node:
        case ast.Raise(exc=exc, cause=cause):
            yield from filter(None, (exc, cause))
        case ast.JoinedStr():
            yield node
        case ast.Call(func=ast.Name(id="warn_user" | "say" | "dataclass" | "Meta")):
            yield node
        case ast.AnnAssign(annotation=part) | ast.arg(annotation=ast.expr() as part):
            yield part
        case ast.FunctionDef(returns=ast.expr() as part):
            yield part
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            yield node


class Lines:
    """A plugin of pytest that notes which lines of the package each test runs, and how long it takes."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._seen: dict[CodeType, set[int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the lines of one test, those of its fixtures included."""
        self._seen.clear()
        start = time.perf_counter()
        sys.settrace(self._of_call)
        threading.settrace(self._of_call)
        result = yield
        sys.settrace(None)
        files: dict[str, set[int]] = {}
        for code, lines in list(self._seen.items()):
            files.setdefault(Path(code.co_filename).relative_to(SOURCE).as_posix(), set()).update(lines)
        found = {file: sorted(lines) for file, lines in files.items()}
        self.tests[item.nodeid] = {"seconds": time.perf_counter() - start, "lines": found}
        return result

    def _of_call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """Trace the calls of functions of the package, until all their lines have run."""
        code = frame.f_code
        if not code.co_filename.startswith(_HERE) or code.co_name == "<module>":
            return None
        seen = self._seen.setdefault(code, set())
        return self._of_line if len(seen) < _n_lines(code) else None

    def _of_line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self._seen.setdefault(frame.f_code, set()).add(frame.f_lineno)
        return self._of_line


@cache
def _n_lines(code: CodeType) -> int:
    return len({line for _, _, line in code.co_lines() if line})


@cache
def lines_of_tests(*tests: str) -> dict[str, dict[str, Any]]:
    """Return which lines each of some tests runs, as kept from the last time or found by running them."""
    files = sorted([*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
    state = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    path = KEPT / f"{state}-{hashlib.sha256(str(list(tests)).encode()).hexdigest()[:8]}.json"
    if not path.is_file():
        print(f"running {' '.join(tests)} once, to know which lines each test runs", flush=True)
        plugin = Lines()
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[plugin])
            KEPT.mkdir(exist_ok=True)
            path.write_text(json.dumps(plugin.tests))
            os._exit(0)
        os.waitpid(child, 0)
    return json.loads(path.read_text())


def read_instead(mutant: Mutant) -> list[str]:
    """Let a mutant be read in place of its file, by whatever loader; return a list that its name enters once it is.

    The tests import the package by a loader of their own, which checks the shapes of arrays.
    """
    was_read: list[str] = []
    loader, path, source = importlib.machinery.SourceFileLoader, str(SOURCE / mutant.file), mutant.changed_source()
    read, stats = loader.get_data, loader.path_stats

    def get_data(self: importlib.machinery.SourceFileLoader, name: str) -> bytes:
        if name != path:
            return read(self, name)
        was_read.append(mutant.name)
        return source

    def path_stats(self: importlib.machinery.SourceFileLoader, name: str) -> Mapping[str, Any]:
        if name == path:
            raise OSError("no compiled file is read or written in place of a mutant")
        return stats(self, name)

    loader.get_data, loader.path_stats = get_data, path_stats
    return was_read


def goes_unnoticed(mutant: Mutant, own: list[str], most_s: float) -> bool:
    """Return whether a mutant survives the tests of its part, and then those elsewhere."""
    asked: list[str] = []
    for places in (own, ELSEWHERE):
        ran = {name: test for name, test in lines_of_tests(*places).items() if name not in asked}
        tests, seconds = tests_of(mutant, ran, most_s)
        if tests and not survives(mutant, tests, 60 + 5 * seconds):
            return False
        asked += tests
    return True


def tests_of(mutant: Mutant, ran: dict[str, dict[str, Any]], most_s: float) -> tuple[list[str], float]:
    """Return the fastest tests that run the statement of a mutant, and how long they take.

    Of what runs at the import of a file, these are the tests that run any line of it.
    """
    first, last = mutant.lines

    def covers(test: dict[str, Any]) -> bool:
        lines = test["lines"].get(mutant.file, [])
        return bool(lines) if mutant.runs_at_import else any(first <= line <= last for line in lines)

    found, seconds = [], 0.0
    for name in sorted((name for name, test in ran.items() if covers(test)), key=lambda name: ran[name]["seconds"]):
        seconds += ran[name]["seconds"]
        if found and seconds > most_s:
            return found, seconds - ran[name]["seconds"]
        found.append(name)
    return found, seconds


def survives(mutant: Mutant, tests: list[str], limit_s: float) -> bool:
    """Whether no test fails, or takes longer than the limit, with a mutant. Tests run in a process of their own."""
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        was_read = read_instead(mutant)
        os.setpgid(0, 0)
        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests]))
        os._exit(code if was_read else _NOT_READ)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done and os.waitstatus_to_exitcode(status) == _NOT_READ:
            raise RuntimeError(f"{mutant.file} was not read by the tests {tests}: the mutant says nothing.")
        if done:
            return status == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    """Draw mutants, run their tests, and print those that survive without a reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=200, help="of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=40, help="of the tests of one mutant")
    parser.add_argument("--only", default="", help="parts whose names begin so, such as release")
    asked = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    part_of = {
        path: part for part in PARTS for path in (SOURCE.glob(part) if "." in part else (SOURCE / part).glob("*.py"))
    }
    files = {path: part for path, part in sorted(part_of.items()) if part.startswith(asked.only)}
    every = [mutant for path in files for mutant in mutants_of(path)]
    drawn = random.Random(asked.seed).sample(every, min(asked.number, len(every)))
    with SURVIVORS.open("rb") as file:
        reasons = tomllib.load(file)
    # Other libraries are imported once, before the processes part.
    import numpy, pandas, pyarrow.parquet, scipy.stats, sklearn.ensemble, torch  # noqa: E401, F401, I001

    killed, with_reason, alive = 0, 0, []
    for number, mutant in enumerate(drawn, start=1):
        lives = goes_unnoticed(mutant, PARTS[files[SOURCE / mutant.file]], asked.seconds)
        has_reason = mutant.name in reasons
        killed, with_reason = killed + (not lives), with_reason + (lives and has_reason)
        alive += [mutant] if lives and not has_reason else []
        outcome = "killed" if not lives else "survives, with a reason" if has_reason else "SURVIVES"
        print(
            f"{number:4} {outcome:9} {mutant.file}:{mutant.lines[0]}  {mutant.before[:60]} -> {mutant.after[:60]}",
            flush=True,
        )
    share = killed / max(len(drawn) - with_reason, 1)
    print(f"{killed} of {len(drawn) - with_reason} killed ({share:.1%}), without {with_reason} that change nothing")
    for mutant in alive:
        print(f"'{mutant.name}' = \"\"")
    raise SystemExit(share < AIM)


if __name__ == "__main__":
    main()
