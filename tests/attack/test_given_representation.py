"""Anybody's representation in an .npz file: read, attacked, judged by its label; errors name the array."""

import json

import numpy as np
import pytest
from scipy.stats import norm

from fairflows import DataError
from fairflows.attack.given_representation import GivenRepresentation


@pytest.fixture
def arrays():
    """Two unit Gaussians that are 1 apart, so that TV = 2Φ(1/2) − 1 = .383, and a label that their sign tells."""
    rng, made = np.random.default_rng(0), {}
    for part, n in (("train", 6000), ("test", 4000)):
        a = rng.choice(["f", "m"], n)
        z = rng.normal(size=n) + (a == "m")
        noise = rng.normal(size=n)
        made |= {f"Z_{part}": np.column_stack([z, noise]), f"a_{part}": a, f"y_{part}": (noise > 0).astype(int)}
    return made


@pytest.fixture
def write(tmp_path):
    def write(arrays):
        np.savez(tmp_path / "Z.npz", **arrays)
        return tmp_path / "Z.npz"

    return write


def test_the_attack_reaches_what_is_there_and_the_label_is_predicted(arrays, write):
    given = GivenRepresentation.read(write(arrays))
    found, truth = given.audit(quick=True), 2 * norm.cdf(0.5) - 1
    assert truth - 0.12 < found.attack_lower < truth
    assert found.released == "representation"
    assert given.accuracy() > 0.97
    hidden = {name: rows[:, 1:] if name.startswith("Z") else rows for name, rows in arrays.items()}
    assert GivenRepresentation.read(write(hidden)).audit(quick=True).attack_lower < 0.05


def test_without_labels_nothing_is_predicted(arrays, write):
    given = GivenRepresentation.read(write({n: rows for n, rows in arrays.items() if not n.startswith("y")}))
    assert given.accuracy() is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a_test": None}, "needs the arrays Z_train, Z_test, a_train, a_test; a_test is not there"),
        ({"y_test": None}, "labels are needed for both parts or for none; there is y_train only"),
        (
            {"a_train": np.zeros(5)},
            r"a_train must have one value for each of the 6,000 rows of Z_train; got shape \(5,",
        ),
        ({"Z_test": np.full((4000, 2), np.nan)}, "Z_test must be a table of finite numbers"),
        ({"Z_test": np.zeros(4000)}, r"Z_test must be a table of finite numbers; got float64, shape \(4000,\)"),
        ({"a_test": np.array([{}] * 4000)}, "not an .npz file of numbers and texts"),
    ],
)
def test_errors_name_the_array(change, message, arrays, write):
    with pytest.raises(DataError, match=message):
        GivenRepresentation.read(write({n: v for n, v in (arrays | change).items() if v is not None}))


def test_another_file_is_refused(tmp_path):
    (tmp_path / "Z.npz").write_text("z0,z1")
    with pytest.raises(DataError, match=r"Z\.npz: not an \.npz file"):
        GivenRepresentation.read(tmp_path / "Z.npz")


def test_the_command(arrays, write, run):
    path = write(arrays)
    code, said, _ = run("audit", "--representation", path, "--quick", "--json")
    found = json.loads(said)
    assert code == 0
    assert found["label_accuracy"] > 0.97
    assert found["attack_lower"] > 0.25
    code, said, _ = run("audit", "--representation", path, "--quick")
    assert "label: boosted trees on Z are right in 9" in said
    code, _, complained = run("audit", path.parent, "--representation", path)
    assert code == 2
    assert "audit needs a folder that `share` wrote and a file of held-out rows, or --representation." in complained
