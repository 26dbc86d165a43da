"""A certificate is about all that is released together: cells certify nothing beside a latent or a true label."""

import json

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.exceptions import DataError

pytestmark = pytest.mark.filterwarnings("ignore:Another model was certified on some of these persons")


def people(n: int = 1200, seed: int = 0) -> pd.DataFrame:
    """Persons whose two numbers differ between the groups, with a label and a wage that only one of them has."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    x, z = rng.normal(size=(2, n)) + 0.8 * a
    frame = pd.DataFrame(
        {"x": x.round(3), "z": z.round(3), "a": np.where(a, "f", "m"), "who": [f"p{i}" for i in range(n)]}
    )
    return frame.assign(
        y=(x + rng.normal(size=n) > 0).astype(int), wage=(2000 + 500 * x + rng.normal(0, 99, n)).round(2)
    )


def table(label: str) -> ff.Table:
    others = [name for name in ("y", "wage") if name != label]
    return ff.Table(people(), sensitive="a", label=label, identifier="who", drop=others)


@pytest.fixture(scope="module", params=["tree", "flow"])
def release(request):
    """Cells that certify by themselves; the flow has a latent, which tells the group nearly as the rows do."""
    encoder = ff.FairTree() if request.param == "tree" else ff.FairFlow(n_epochs=1)
    return ff.Release(encoder, n_cells=2, output="cell").fit(table("y"))


@pytest.mark.parametrize("released", [["latent"], ["cell", "latent"]])
def test_cells_certify_nothing_beside_a_latent(release, released):
    assert ff.certify(release, table("y"), target=0.9).status == "CERTIFIED"
    with pytest.raises(DataError, match="released must name cell or label, .* got 'latent'"):
        ff.certify(release, table("y"), target=0.9, released=released)


@pytest.mark.parametrize("part", ["latent", "label"])
def test_a_receiver_accepts_no_counts_of_cells_beside_something_else(release, part, tmp_path):
    certificate = ff.certify(release, table("y"), target=0.9)
    stated = json.loads(certificate.to_json()) | {"released": ["latent"] if part == "latent" else ["cell", "label"]}
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(stated), encoding="utf-8")
    checked = ff.check(path)
    is_pair = part == "label" and certificate.find("population").by == "held-out"  # whose cells may be pairs
    assert bool(checked) == is_pair
    assert is_pair or part in next(result.text for result in checked.results if result.verdict == "FAILED")


def test_no_statement_prints_the_label_of_one_person():
    """A wage is one person's own: a statement given each would print it, and the person's group."""
    shared = ff.share(table("wage"), method="cells", target=0.6, quick=True, output="cell")
    assert shared.certificate.cell_upper is not None
    assert shared.certificate.cell_odds_upper == {}
    given_classes = ff.share(table("y"), method="cells", target=0.6, quick=True, output="cell").certificate
    assert sorted(given_classes.cell_odds_upper) == ["0", "1"]
