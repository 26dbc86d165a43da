"""Settings and fixtures for all tests: a test that passed once passes again."""

import atexit
import functools
import gc
import hashlib
import inspect
import io
import itertools
import os
import sys
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

import shapes
from fairflows import exceptions

# Two test processes share two cores; more threads than that only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")  # joblib's

# Arrays have the shapes that the package's annotations name. Before any module with such annotations is imported.
shapes.install()
exceptions._NOT_THE_USER += ("jaxtyping", "shapes")  # whose wrappers lie between a test and the package

# A slow machine is no counter-example, and which examples are tried must not depend on the day.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.register_profile("many", hypothesis.settings.get_profile("repeatable"), max_examples=200)


def pytest_configure(config):
    """`make test-all` tries more examples."""
    hypothesis.settings.load_profile("repeatable" if config.option.markexpr == "not slow" else "many")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while modules and tests are loaded, and leave them, which stay to the end, out later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # libraries complain about what is not collected when the process ends
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


# The fixtures that are set up at this moment, but for those of a single test.
_being_set_up: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Remember which shared fixture is set up: its keys must not depend on the test that happens to ask first."""
    if fixturedef.scope == "function":
        return (yield)
    _being_set_up.append(f"{fixturedef.baseid}::{fixturedef.argname}[{request.param_index}]")
    try:
        return (yield)
    finally:
        _being_set_up.pop()


@pytest.fixture(scope="session", autouse=True)
def repeatable_keys():
    """Secret keys that follow from the name of the fixture or test; other ones with FAIRFLOWS_TEST_KEYS=2 and so on."""
    from fairflows.table import keys  # after the number of threads is set

    salt = os.environ.get("FAIRFLOWS_TEST_KEYS", "1")
    drawn: Counter[str] = Counter()

    def token_bytes(n: int) -> bytes:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
        whose = _being_set_up[-1] if _being_set_up else test
        drawn[whose] += 1
        return hashlib.shake_256(f"{salt} {whose} {drawn[whose]}".encode()).digest(n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "secrets", SimpleNamespace(token_bytes=token_bytes))
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced_files():
    """Nobody pulls the plug: no test waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def ledgers(tmp_path_factory):
    """Names of new folders for books of looks: no test writes into, or counts, the looks of whoever runs it."""
    root = tmp_path_factory.mktemp("ledgers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRFLOWS_LEDGER", str(root / "session"))
        yield (str(root / f"{number}") for number in itertools.count())


@pytest.fixture(scope="module", autouse=True)
def ledger_of_module(ledgers):
    """What a module's fixtures certify is counted apart from other modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRFLOWS_LEDGER", next(ledgers))
        yield


@pytest.fixture(autouse=True)
def ledger_of_test(ledgers, monkeypatch):
    """Every test has a book of looks of its own, which processes that it starts share; this is its folder."""
    folder = Path(next(ledgers))
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(folder))
    return folder


@pytest.fixture(autouse=True)
def warned_of_nothing():
    """What is warned of once a process is warned of once a test."""
    from fairflows.exceptions import warn_user_once

    warn_user_once.cache_clear()


@pytest.fixture(autouse=True)
def repeatable_numpy():
    """Some of scikit-learn's checks draw from the global generator."""
    import numpy as np

    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the five datasets, named by FAIRFLOWS_DATA; tests that need it skip when it is absent."""
    folder = os.environ.get("FAIRFLOWS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FAIRFLOWS_DATA does not name a folder with the datasets")
    return Path(folder)


@pytest.fixture(scope="module")
def few_trees():
    """Boosted trees are few and small, where how well they predict is not the question."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    from fairflows.attack import adversaries
    from fairflows.encoder import tree_scores

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tree_scores._BOOSTING, "max_iter", 10)
        for boosting in (HistGradientBoostingClassifier, HistGradientBoostingRegressor):
            patch.setitem(boosting.__init__.__kwdefaults__, "max_iter", 10)
            patch.setitem(boosting.__init__.__kwdefaults__, "max_leaf_nodes", 8)
        patch.setattr(adversaries, "_MOST_TREES", 20)
        yield


@pytest.fixture(scope="module")
def few_measured():
    """What released rows still tell is measured on few of them, by few trees, where how much it is does not matter."""
    from fairflows.worth import label_worth, leakage, likeness

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage, "_WORK", 0)
        patch.setattr(leakage, "_FEWEST_ROWS", 300)
        patch.setattr(leakage, "_TREES", 2)
        patch.setattr(likeness, "_COMPARED", 300)
        patch.setattr(likeness, "_SETS", 5)
        patch.setitem(label_worth.BOOSTING, "max_iter", 5)
        yield


@pytest.fixture(scope="module")
def few_components():
    """Mixtures have one or two components and splines few steps, where how well they fit is not the question."""
    from fairflows.density import MixtureDensity
    from fairflows.encoder import flow_densities

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(inspect.unwrap(MixtureDensity.__init__).__kwdefaults__, "max_components", 2)
        patch.setattr(flow_densities, "_STEPS", (10, 10))
        yield


@pytest.fixture(scope="module")
def few_draws():
    """Bounds by draws from a model have few of them, where how tight they are is not the question."""
    from fairflows.certificate import certify

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify, "_DRAWS", 2_000)
        yield


@pytest.fixture(scope="module")
def short_made():
    """Networks over cells train for few epochs, where what they reach is not the question."""
    from fairflows.density.estimated import CategoricalMADE

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(inspect.unwrap(CategoricalMADE.__init__).__kwdefaults__, "n_epochs", 5)
        yield


@pytest.fixture(scope="session")
def run():
    """Run the command in this process: exit code, standard output, standard error.

    Warnings are left out, or said as a user sees them.
    """

    import typer

    from fairflows.cli.main import main

    # Typer reads the signatures of all commands again for each call.
    command = functools.cache(typer.main.get_command)

    def call(*words, notices="ignore", ends=None):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(out),
            redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            patch.setattr(sys, "argv", ["fairflows", *map(str, words)])
            patch.setattr(sys.modules["__main__"], "__package__", None)  # a script, also where it is `python -m pytest`
            patch.setattr(typer.main, "get_command", command)
            warnings.simplefilter(notices)
            with pytest.raises(SystemExit) as end:
                main()
        code, (said, warned) = end.value.code or 0, map(_text_written_to, (out, err))
        assert ends in (None, code), warned
        return code, said, warned

    return call


def _text_written_to(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
