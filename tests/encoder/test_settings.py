"""Settings are checked when an encoder is fitted; a fit that fails changes nothing; secrets stay secret."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fairflows import DataWarning, FairFlow, FairMatching, FairTree, Release, Table
from fairflows.density import MixtureDensity
from fairflows.paper.baselines import FARE, RawFeatures
from fairflows.table.keys import Key

pytestmark = pytest.mark.usefixtures("few_trees")

KEY = Key(range(32))
SETTINGS = {"density": "counts", "key": KEY, "identifier": "person"}

WRONG = [
    ({"kinds": {"zz": "categorical"}}, "declared column 'zz' is not in the table"),
    ({"kinds": {"town": "foo"}}, r"kinds\['town'\] must be one of .*; got 'foo'"),
    ({"kinds": ["town"]}, "kinds must be a mapping .*; got list"),
    ({"n_bins": "four"}, "n_bins must be a whole number of at least 2; got 'four'"),
    ({"key": "abc"}, "key must be bytes, at least 16, .*; got str"),
    ({"key": b"fifteen bytes.."}, "key must be bytes, at least 16, .*; got 15 bytes"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_wrong_settings(categorical, settings, message):
    with pytest.raises(ValueError, match=message):
        FairMatching(**{**SETTINGS, **settings}).fit(categorical)


TAKE_GAPS = {
    "flow": lambda **s: FairFlow(n_epochs=1, hidden=(8,), density=MixtureDensity(1), **s),
    "matching": lambda **s: FairMatching(density="counts", **s),
    "tree": lambda **s: FairTree(4, **s),
    "tree cut twice": lambda **s: Release(FairTree(**s), n_cells=4, output="cell"),
}


@pytest.mark.filterwarnings("ignore:.* of these rows are of persons of the table that was released")
@pytest.mark.parametrize("name", TAKE_GAPS)
def test_missing_values_are_a_category_of_their_own(categorical, name):
    gaps = categorical.X.assign(
        town=categorical.X["town"].mask(np.arange(3000) % 7 == 0),
        group=categorical.a,
        label=categorical.y,
        person=categorical.identifier,
    )
    roles = {"sensitive": "group", "label": "label", "identifier": "person"}
    table = Table(gaps, **roles)
    encoder = TAKE_GAPS[name](identifier="person").fit(table)
    encoded = encoder.transform(table)
    again = encoder.transform(gaps.drop(columns=["group", "label"]), sensitive_features=table.a)
    pd.testing.assert_frame_equal(encoded.reset_index(drop=True), again.reset_index(drop=True))  # a plain frame, too
    complete = TAKE_GAPS[name](identifier="person").fit(Table(gaps.dropna(), **roles))
    with pytest.warns(DataWarning, match=r"missing where none was in training.*'town'"):
        complete.transform(gaps.drop(columns=["group", "label"]), sensitive_features=table.a)


@pytest.mark.parametrize("kind", [FairMatching, FairFlow, FARE, RawFeatures])
def test_the_key_does_not_show(kind):
    encoder = kind(key=b"very secret key")
    later = kind().set_params(key=b"very secret key")
    for one in (encoder, later, clone(encoder)):
        assert "very secret" not in repr(one)
        assert "very secret" not in f"{one.get_params()} {one.key}"
        assert "very secret" not in one._repr_html_()
        assert "very secret" not in repr(Release(one, output="cell")) + Release(one, output="cell")._repr_html_()
        assert one.key == b"very secret key"


@pytest.mark.filterwarnings("ignore:No identifier says")
@pytest.mark.parametrize("name", ["flow", "matching", "tree"])
def test_the_kinds_that_a_table_declares_are_obeyed(name):
    """Codes that are numbers are categories, so that one in between is none."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"occ10": rng.choice([10, 20, 430], 400), "x": rng.integers(0, 3, 400), "a": [0, 1] * 200})
    frame["y"] = (frame["occ10"] > 10).astype(int)
    table = Table(frame, sensitive="a", label="y", kinds={"occ10": "categorical"})
    encoder = TAKE_GAPS[name]().fit(table)
    with pytest.warns(DataWarning, match=r"Categories that the training rows did not have.*'occ10' \(400\)"):
        encoder.transform(frame[["occ10", "x"]].assign(occ10=15), sensitive_features=frame["a"])
