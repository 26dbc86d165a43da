"""What every encoder must do, and every release around one. A new one is one line in the list."""

import copy
import pickle
import warnings
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pandas as pd
import polars
import pytest
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fairflows import DataError, DataWarning, Encoder, FairCells, FairFlow, FairMatching, FairTree, Release, Table
from fairflows.density import MixtureDensity
from fairflows.encoder.base import CELL, Model, Traits, is_fitted
from fairflows.encoder.rows import Rows, TrainingRows
from fairflows.paper import baselines
from fairflows.table.keys import NEW_AT_EACH_FIT, Key, KeySetting
from fairflows.table.ledger import RowsSeen

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    # A release says so of the training rows that are encoded once more here.
    pytest.mark.filterwarnings("ignore:.*They keep the cell that they have there"),
]

KEY = Key(range(32))
FLOW = {"n_epochs": 1, "hidden": (8,), "head": (8,), "density": MixtureDensity(1), "key": KEY}
CELLS = {"density": "counts", "key": KEY}
BEST = {"chance": 0.1, "n_certify": 10**6, "n_bins": 16, "key": KEY}


@dataclass(eq=False, repr=False)
class Rounded(Encoder):
    """An encoder of somebody's own: numbers shifted to the mean of all groups, then cut at zero; one cell per sign."""

    shift: float = 1.0
    _: KW_ONLY
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    @property
    def traits(self) -> Traits:
        return Traits(strength="shift", n_cells=2)

    def learn(self, rows: TrainingRows) -> None:
        grade = self._grade(rows)
        self.means_ = np.array([grade[rows.group == a].mean() for a in range(len(rows.groups))])
        self.n_cells_, self.output_ = 2, CELL

    def _grade(self, rows: Rows) -> np.ndarray:
        return rows.codes["grade" if "grade" in rows.codes else next(iter(rows.codes))]

    def cells(self, rows: Rows) -> np.ndarray:
        return (self._grade(rows) > self.shift * self.means_[rows.encoding_group]).astype(np.intp)

    def encode(self, rows: Rows) -> pd.DataFrame:
        return pd.DataFrame({"cell": self.cells(rows)})


ENCODERS = {
    "flow": lambda: FairFlow(0.5, smoothing=0, **FLOW),
    "smoothed flow": lambda: FairFlow(0.5, smoothing=0.3, **FLOW),
    "matching": lambda: FairMatching(1.0, **CELLS),
    "matching with coins": lambda: FairMatching(0.5, **CELLS),
    "best cells": lambda: FairCells(4, target=0.22, **BEST),
    "best cells without the attribute": lambda: FairCells(4, target=0.22, attribute="training", **BEST),
    "matched tree": lambda: FairTree(3, key=KEY),
    "an encoder of one's own": lambda: Rounded(key=KEY),
    "rows as they are": lambda: baselines.RawFeatures(key=KEY),
    "FARE": lambda: baselines.FARE(0.2, max_leaves=6, min_rows=10, key=KEY),
    "LAFTR": lambda: baselines.LAFTR(n_epochs=1),
    "FCRL": lambda: baselines.FCRL(n_epochs=1, key=KEY),
    "MaxEnt-ARL": lambda: baselines.MaxEntARL(n_epochs=1),
    "forgetting": lambda: baselines.AdversarialForgetting(n_epochs=1),
    "plain adversary": lambda: baselines.AdversarialEncoder(n_epochs=1),
    # Releases of trees: see tests/release/test_two_cuts.py.
    "cells of rows": lambda: Release(baselines.RawFeatures(key=KEY), n_cells=4, output="cell"),
    "cells of matched rows": lambda: Release(FairMatching(1.0, **CELLS), n_cells=4, output="cell"),
    "held-out best cells": lambda: Release(FairCells(**BEST), n_cells=4, target=0.3, output="cell"),
}
NEED_NO_ATTRIBUTE = {
    "best cells without the attribute", "rows as they are", "FARE", "FCRL", "forgetting",
    "plain adversary", "cells of rows",
}  # fmt: skip
INVERTIBLE = {"flow", "smoothed flow", "matching", "matching with coins"}
GIVE_CELLS = {
    "an encoder of one's own",
    "best cells", "best cells without the attribute", "matched tree", "FARE", "cells of rows", "cells of matched rows",
    "held-out best cells",
}  # fmt: skip
HAVE_A_LAW = INVERTIBLE | {"cells of matched rows"}
TOSS_COINS = {
    "best cells", "best cells without the attribute", "matched tree", "flow", "smoothed flow", "FCRL",
    "matching with coins", "held-out best cells",
}  # fmt: skip
PLAIN_ROWS = {"rows as they are", "cells of rows"}
RELEASES = {"cells of rows", "cells of matched rows", "held-out best cells"}
FITTED: dict[str, Model] = {}
FITTED_TO_A_TABLE: dict[str, Model] = {}


def made(seed: int, most_rows: int) -> Table:
    """Text, numbers on a grid and a boolean; two groups; named persons with a row or more."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(300) + 10_000 * seed, rng.integers(1, most_rows + 1, 300))
    n = len(person)
    sex = rng.choice(["f", "m"], n)
    grade = rng.integers(0, 5, n) + 2 * (sex == "m")
    frame = pd.DataFrame(
        {
            "town": rng.choice(["Bonn", "Köln", "Ulm"], n, p=[0.5, 0.3, 0.2]),
            "grade": grade,
            "owner": rng.random(n) < np.where(sex == "m", 0.6, 0.3),
            "sex": sex,
            "repaid": np.where(grade + rng.normal(size=n) > 3, "yes", "no"),
            "person": person,
        }
    )
    return Table(frame, sensitive="sex", label="repaid", identifier="person")


TABLES = {most_rows: made(0, most_rows) for most_rows in (1, 2)}


@pytest.fixture(params=ENCODERS)
def name(request) -> str:
    return request.param


@pytest.fixture
def table(name) -> Table:
    """Persons with one or two rows; with one row each for releases, in which a person keeps one cell."""
    return TABLES[1 if name in RELEASES else 2]


@pytest.fixture
def encoder(name, table) -> Model:
    """Fitted to the table; later frames name their persons by the index."""
    if name not in FITTED:
        FITTED[name] = configured(ENCODERS[name](), identifier="person").fit(table)
    return FITTED[name]


@pytest.fixture
def nameless(name, table) -> Model:
    """Fitted to the table, which names its persons; later frames do not."""
    if name not in FITTED_TO_A_TABLE:
        FITTED_TO_A_TABLE[name] = ENCODERS[name]().fit(table)
    return FITTED_TO_A_TABLE[name]


def configured(encoder: Encoder | Release, **settings: object) -> Encoder | Release:
    innermost(encoder).set_params(**settings)
    return encoder


def innermost(encoder: Encoder | Release) -> Encoder:
    return encoder.encoder if isinstance(encoder, Release) else encoder


def assert_same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """The same columns and values; training sums float32 numbers in an order that depends on the machine."""
    assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True), rtol=1e-4, atol=1e-5)


def differ(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return not np.array_equal(one.to_numpy(), other.to_numpy())


def test_an_encoder_must_say_all_that_is_asked_of_it():
    with pytest.raises(TypeError, match="abstract"):
        Encoder()
    assert Encoder.__abstractmethods__ == {"learn", "encode"}
    assert len([name for name, value in vars(Encoder).items() if callable(value) or isinstance(value, property)]) <= 20


def test_every_encoder_of_the_package_is_in_the_list():
    def kinds(base):
        return {base}.union(*map(kinds, base.__subclasses__()))

    concrete = {kind for kind in kinds(Encoder) if not kind.__abstractmethods__ and "fairflows" in kind.__module__}
    assert {type(innermost(make())) for make in ENCODERS.values()} == concrete | {Rounded}


def test_a_table_or_its_parts(name, encoder, nameless, table):
    """fit(table) is fit(X, y, sensitive_features=a), and so is what is encoded and predicted."""
    parts = configured(ENCODERS[name](), identifier="person").fit(table.X, table.y, sensitive_features=table.a)
    expected = encoder.transform(table)
    assert expected.index.equals(table.X.index)
    assert_same(encoder.transform(table.X, sensitive_features=table.a), expected)
    assert_same(parts.transform(table), expected)
    assert_same(nameless.transform(table), expected)
    assert parts.groups_ == encoder.groups_ == ["f", "m"]
    assert parts.classes_.tolist() == encoder.classes_.tolist() == ["no", "yes"]
    rows = encoder.read(table)
    assert_same(encoder.encode(rows), expected)


def test_the_attribute_as_an_argument_or_as_a_column(name, encoder, table):
    frame = table.X.assign(sex=table.a, who=table.identifier).reset_index(drop=True)
    by_name = configured(ENCODERS[name](), sensitive="sex", identifier="who").fit(frame, table.y)
    assert (by_name.sensitive, by_name.identifier) == ("sex", "who")
    assert list(by_name.schema_.kinds) == list(encoder.schema_.kinds) == ["town", "grade", "owner"], (
        "it is never a feature"
    )
    assert_same(by_name.transform(frame), encoder.transform(table))
    without_roles = frame.drop(columns="sex")
    assert_same(by_name.transform(without_roles, sensitive_features=table.a.to_numpy()), encoder.transform(table))


def test_whether_encoding_needs_the_attribute(name, encoder, table):
    assert encoder.traits.needs_attribute == (name not in NEED_NO_ATTRIBUTE)
    new = made(1, 1)
    swapped = new.a.map({"f": "m", "m": "f"})
    Z = encoder.transform(new)
    if encoder.traits.needs_attribute:
        with pytest.raises(DataError, match="needs the sensitive attribute"):
            encoder.transform(new.X)
        assert differ(encoder.transform(new.X, sensitive_features=swapped), Z)
    else:
        assert_same(encoder.transform(new.X), Z)
        assert not differ(encoder.transform(new.X, sensitive_features=swapped), Z)
        by_name = configured(ENCODERS[name](), sensitive="sex", identifier="person")
        by_name.fit(table.X.assign(sex=table.a), table.y)
        assert_same(by_name.transform(new.X), Z)  # its column may be missing


def test_pickles_hold_neither_the_key_nor_the_ledger(encoder, table):
    secret, persons = bytes(encoder.key_), encoder.ledger_.used[0].persons.tobytes()
    packed = pickle.dumps(encoder)
    for hidden in (secret, persons):
        assert hidden not in packed
    again = pickle.loads(packed)
    for use in (again.transform, again.predict, again.read):
        with pytest.raises(DataError, match=r"leaves out the secret key.*model\.key_\.restore\(key\)"):
            use(table)
    with pytest.raises(DataError, match="key of another model"):
        again.key_.restore(b"guessed")
    expected = encoder.transform(table)
    again.key_.restore(secret)
    assert_frame_equal(again.transform(table), expected)
    assert innermost(again).key == innermost(encoder).key, "one key for all parts"
    with pytest.raises(DataError, match="leaves out the list of the rows"):
        again.already_used(table.take(range(50)))


def test_copies_within_a_process_keep_the_key_and_the_ledger(encoder, table):
    copied = copy.deepcopy(encoder)
    assert_frame_equal(copied.transform(table), encoder.transform(table))
    assert copied.already_used(table) == encoder.already_used(table)
    copied.ledger_.use(table.X.iloc[:5], table.persons.take(range(5)))
    assert len(copied.ledger_.used) == len(encoder.ledger_.used) + 1, "its ledger is its own"
    assert innermost(clone(encoder)).key == innermost(encoder).key


def test_an_encoder_that_is_not_fitted_is_pickled_without_its_key(name, table):
    encoder = configured(ENCODERS[name](), identifier="person")
    again = pickle.loads(pickle.dumps(encoder))
    if innermost(encoder).key is None:
        assert innermost(again).key is None
        return
    with pytest.raises(DataError, match="leaves out the secret key"):
        again.fit(table)
    innermost(again).key.restore(bytes(KEY))
    assert innermost(again).key == KEY


def test_fitting_needs_the_attribute(name, table):
    """But for rows as they are, which learn nothing; groups are then unknown."""
    encoder = configured(ENCODERS[name](), identifier="person")
    if name in PLAIN_ROWS:
        assert encoder.fit(table.X, table.y).groups_ == []
        assert len(encoder.transform(table.X)) == len(table)
        return
    with pytest.raises(DataError, match="needs the sensitive attribute"):
        encoder.fit(table.X, table.y)
    assert not is_fitted(encoder)


def test_an_unknown_group_is_refused(encoder, table):
    with pytest.raises(
        DataError, match=rf"one of the groups .*\('f', 'm'\); {len(table)} rows are not, the first is 'q'"
    ):
        encoder.transform(table.X, sensitive_features=np.full(len(table), "q"))


def test_what_is_invertible_comes_back(name, encoder, table):
    assert encoder.traits.invertible == (name in INVERTIBLE)
    Z = encoder.transform(table)
    if encoder.traits.invertible:
        back = encoder.inverse_transform(Z, sensitive_features=table.a)
        assert_frame_equal(back, table.X, check_dtype=False)
    else:
        assert not hasattr(encoder, "inverse_transform")


def test_coins_and_noise_belong_to_persons(name, encoder, nameless, table):
    """Whoever is named is encoded alike every time; whoever is not, alike only where there are no coins."""
    assert encoder.traits.randomised == (name in TOSS_COINS)
    Z = encoder.transform(table)
    order = np.random.default_rng(1).permutation(len(table))
    assert_same(encoder.transform(table.take(order)), Z.iloc[order])
    if name in RELEASES:
        with pytest.raises(DataError, match=f"The model was fitted to {len(table)} of these rows at least"):
            nameless.transform(table.X, sensitive_features=table.a)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first, second = (nameless.transform(table.X, sensitive_features=table.a) for _ in range(2))
    assert differ(first, second) == nameless.traits.randomised
    assert {warning.category for warning in said} == ({DataWarning} if nameless.traits.randomised else set())


def test_cells_are_counted_from_zero(name, encoder, table):
    assert (encoder.traits.n_cells is not None) == (encoder.n_cells_ is not None) == (name in GIVE_CELLS)
    rows = encoder.read(table)
    if encoder.n_cells_ is None:
        with pytest.raises(DataError, match="does not give cells"):
            encoder.cells(rows)
        return
    cells = encoder.cells(rows)
    assert cells.dtype.kind == "i"
    assert np.unique(cells).tolist() == list(range(encoder.n_cells_)), "every cell has training rows"
    if list(encoder.get_feature_names_out()) == ["cell"]:
        assert encoder.transform(table)["cell"].between(0, encoder.n_cells_ - 1).all()


def test_laws_are_laws(name, encoder):
    law = encoder.latent_law()
    assert (law is not None) == (name in HAVE_A_LAW)
    if law is None:
        return
    for label in (None, *law.labels):
        exact = law.exact() if label is None else None
        if exact is not None:
            assert exact.min() >= 0
            np.testing.assert_allclose(exact.sum(axis=1), [1, 1], atol=1e-9)
        table = law.log_density_table(50, 0, label)
        assert table.shape == (50, 2, 2)
        assert np.isfinite(table[:, [0, 1], [0, 1]]).all(), "a draw is possible where it was drawn"
    assert set(law.labels) <= set(encoder.classes_)
    if law.labels:
        with pytest.raises(ValueError, match="label 'perhaps'"):
            law.log_density_table(50, 0, "perhaps")


def test_columns_have_the_names_that_are_announced(encoder, table):
    encoded = encoder.transform(table)
    assert encoder.get_feature_names_out().tolist() == list(encoded)
    assert {name: dtype.kind for name, dtype in encoder.output_.dtypes.items()} == {
        name: dtype.kind for name, dtype in encoded.dtypes.items()
    }


def test_predictions_are_labels(name, encoder, table):
    if name in ("rows as they are", "an encoder of one's own"):
        with pytest.raises(DataError, match="does not predict a label"):
            encoder.predict(table)
        return
    predicted = encoder.predict(table)
    assert predicted.shape == (len(table),)
    assert set(predicted) <= {"no", "yes"}
    np.testing.assert_array_equal(predicted, encoder.predict(table.X, sensitive_features=table.a))


def test_the_kind_of_table_that_came_is_given_back(name, encoder, table):
    frame = polars.from_pandas(table.X.assign(person=table.identifier).reset_index(drop=True))
    Z = configured(ENCODERS[name](), identifier="person").fit(frame, table.y, sensitive_features=table.a)
    encoded = Z.transform(frame, sensitive_features=table.a)
    assert isinstance(encoded, polars.DataFrame)
    assert_same(encoded.to_pandas(), encoder.transform(table))


@pytest.fixture
def strange(table) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """Rows of new persons with their groups; the first 40 have a town, or a gap, that training did not have."""
    frame = table.X.iloc[:60].assign(town=lambda rows: [*["Rome"] * 20, *[None] * 20, *rows["town"][40:]])
    who = pd.Index(np.arange(60) + 10_000, name="person")
    return frame.set_axis(who), table.a.iloc[:60].set_axis(who), np.arange(60) < 40


def test_what_training_did_not_have_is_known_when_rows_are_read(name, encoder, table, strange):
    """No encoder has to remember an order of calls: one of a user's own gives no group away by such rows either."""
    frame, a, unknown = strange
    rows = encoder.read(frame, a)
    assert rows.outside.counts() == {("town", "unseen"): 20, ("town", "missing"): 20}
    np.testing.assert_array_equal(rows.outside.unknown, unknown)
    if name not in PLAIN_ROWS or encoder.groups_:
        np.testing.assert_array_equal(rows.encoding_group, np.where(unknown, 0, a == "m"))
    some = rows.take(np.array([50, 3, 25]))
    assert some.encoding_group.tolist() == rows.encoding_group[[50, 3, 25]].tolist()


def test_rows_that_training_did_not_have_are_encoded_alike_in_every_group(name, encoder, strange):
    frame, _, unknown = strange
    with pytest.warns(DataWarning, match="treated alike in every group: column 'town'") as said:
        one, other = (encoder.transform(frame, sensitive_features=np.full(60, group)) for group in ("f", "m"))
    assert len(said) == 2
    assert_same(one[unknown], other[unknown])
    if encoder.traits.needs_attribute and not encoder.traits.n_cells:
        assert differ(one[~unknown], other[~unknown]), "as rows that training knows are not"


@pytest.mark.filterwarnings("ignore:No identifier says", "ignore:.*only observed cells")
def test_arrays(name, table):
    rng = np.random.default_rng(2)
    array = np.column_stack([table.X["grade"], rng.normal(size=(len(table), 2))])
    encoder = ENCODERS[name]()
    Z = encoder.fit_transform(array, table.y.to_numpy(), sensitive_features=table.a.to_numpy())
    assert isinstance(Z, np.ndarray)
    assert Z.shape == (len(table), len(encoder.get_feature_names_out()))
    assert encoder.schema_.kinds == {}
    if name in RELEASES:
        with pytest.raises(DataError, match=f"fitted to {len(table)} of these rows"):
            encoder.transform(array, sensitive_features=table.a.to_numpy())
    else:
        assert encoder.transform(array, sensitive_features=table.a.to_numpy()).shape == Z.shape
    with pytest.raises(ValueError, match="2 features"):
        encoder.transform(array[:, :2], sensitive_features=table.a.to_numpy())


def test_an_unfitted_encoder_says_so(name, encoder, table):
    copy = clone(encoder)
    assert is_fitted(encoder)
    assert not is_fitted(copy)
    assert copy.get_params(deep=False).keys() == encoder.get_params(deep=False).keys()
    asked = [copy.transform, copy.predict, copy.read, lambda rows: copy.get_feature_names_out()]
    for ask in asked:
        with pytest.raises(NotFittedError):
            ask(table)


def test_fit_transform_is_fit_then_transform_and_changes_no_setting(name, nameless, table):
    encoder = ENCODERS[name]()
    before = encoder.get_params()
    assert_same(encoder.fit_transform(table), nameless.transform(table))
    after = encoder.get_params()
    assert before.keys() == after.keys()
    assert all(after[setting] is before[setting] for setting in before)


def test_the_ledger_knows_the_training_persons(encoder, table):
    seen = RowsSeen.of(table.X, table.persons, encoder.ledger_.key)
    assert encoder.ledger_.already_used(seen) == table.persons.n
    assert encoder.most_rows_ == table.persons.rows_each().max()


def test_one_run_fits_every_strength_and_seed(name, table):
    template = ENCODERS[name]()
    if isinstance(template, Release):
        pytest.skip("a frontier is made of encoders")
    strengths = [2, 3] if template.traits.strength == "n_cells" else [0.25, 0.75]
    many = template.fit_path(table, strengths=strengths, seeds=[0, 3])
    assert not is_fitted(template)
    assert all(is_fitted(encoder) for encoder in many)
    assert len({encoder.key_ for encoder in many}) == 1, "a person has the same coins in all of them"
    if name not in PLAIN_ROWS:  # which have no strength
        assert [encoder.get_params()[encoder.traits.strength] for encoder in many] == sorted(2 * strengths)
    assert [encoder.random_state for encoder in many] == [0, 3, 0, 3]
    for encoder in many:
        assert len(encoder.transform(table)) == len(table)


def test_a_fit_that_fails_leaves_nothing_behind(name, table):
    encoder = ENCODERS[name]()
    with pytest.raises(DataError, match="at least two classes"):
        encoder.fit(table.X, np.zeros(len(table)), sensitive_features=table.a)
    assert not is_fitted(encoder)
    with pytest.raises(DataError, match="at least two groups"):
        encoder.fit(table.X, table.y, sensitive_features=np.full(len(table), "f"))
    assert not is_fitted(encoder)
