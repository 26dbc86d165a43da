"""A certificate is about all that is released together: cells certify nothing beside a latent or a true label."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.exceptions import DataError

pytestmark = [
    pytest.mark.usefixtures("few_draws", "few_trees"),
    pytest.mark.filterwarnings("ignore:Another model was certified on some of these persons"),
]


def people(n: int = 1200, seed: int = 0) -> pd.DataFrame:
    """Persons whose two numbers differ between the groups, with a label and a wage that only one of them has."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    x, z = rng.normal(size=(2, n)) + 0.8 * a
    frame = pd.DataFrame(
        {"x": x.round(3), "z": z.round(3), "a": np.where(a, "f", "m"), "who": [f"{seed}-{i}" for i in range(n)]}
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


@pytest.mark.parametrize("part", ["latent", "label"])
def test_a_receiver_accepts_no_counts_of_cells_beside_something_else(release, part, tmp_path):
    certificate = ff.certify(release, table("y"), target=0.9)
    stated = json.loads(certificate.to_json()) | ({"released": "latent"} if part == "latent" else {"labels": ["y"]})
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(stated), encoding="utf-8")
    checked = ff.check(path)
    is_pair = part == "label" and certificate.find("population").by == "held-out"  # whose cells may be pairs
    assert bool(checked) == is_pair
    assert is_pair or part in next(result.text for result in checked.results if result.verdict == "FAILED")


def two_labels(n: int, seed: int) -> ff.Table:
    """Persons with a label, and a second one that is the group itself."""
    frame = people(n, seed).drop(columns="wage")
    told = frame["a"].map({"f": "yes", "m": "no"})
    return ff.Table(frame.assign(told=told), sensitive="a", label=["y", "told"], identifier="who")


def test_all_labels_that_are_released_are_counted():
    """Certified at .053, and 1 in truth: beside the cell the first label alone was counted."""
    model, held_out = ff.FairTree(n_cells=4).fit(table("y")), two_labels(6000, 1)
    alone, both = (ff.certify(model, held_out, with_labels=labels, target=0.6) for labels in (False, True))
    assert (alone.status, alone.labels) == ("CERTIFIED", ())
    assert (both.status, both.labels, both.cell_upper) == ("NOT_MET", ("y", "told"), 1.0)
    assert both.n_cells == 4 * alone.n_cells, "a cell is counted with each combination of the labels"
    assert "y and told" in repr(both)


def test_all_labels_beside_the_cells_of_a_table_are_counted(tmp_path):
    rows = two_labels(2000, 2)
    release = ff.Release(n_cells=4, output="cell").fit(rows)
    alone, both = (ff.certify(release, rows, with_labels=labels, target=0.6) for labels in (False, True))
    assert (alone.status, both.status, both.table_distance) == ("CERTIFIED", "NOT_MET", 1.0)
    assert both.cell_upper is None, "which label a person to come has does not follow from the cell"
    assert both.columns == ("cell", "y", "told")
    (tmp_path / "certificate.json").write_text(both.to_json(), encoding="utf-8")
    assert ff.check(tmp_path)
    assert ff.verify(both, release, rows)
    assert {d.what for d in ff.verify(replace(both, labels=("y",)).sealed(release.key_), release, rows).differences}


def test_labels_that_cannot_be_counted_are_refused():
    wages, release = table("wage"), ff.Release(n_cells=2, output="cell").fit(table("wage"))
    with pytest.raises(DataError, match="with_labels needs labels with classes; wage holds numbers"):
        ff.certify(release, wages, with_labels=True)
    bare = ff.Table(people()[["x", "z", "a", "who"]], sensitive="a", identifier="who")
    with pytest.raises(DataError, match="with_labels needs a label, and the rows have none"):
        ff.certify(ff.Release(n_cells=2, output="cell").fit(bare), bare, with_labels=True)


def test_no_statement_prints_the_label_of_one_person():
    """A wage is one person's own: a statement given each would print it, and the person's group."""
    shared = ff.share(table("wage"), method="cells", target=0.6, quick=True, output="cell")
    assert shared.certificate.cell_upper is not None
    assert shared.certificate.cell_odds_upper == {}
    given_classes = ff.share(table("y"), method="cells", target=0.6, quick=True, output="cell").certificate
    assert sorted(given_classes.cell_odds_upper) == ["0", "1"]
