"""Matches: the same z, and the likelihoods of both sides."""

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, FairFlow, FairTree, Table, matches
from fairflows.paper import make_gaussians, make_three_groups

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def fitted():
    table, densities = make_gaussians(400, random_state=0)
    encoders = FairFlow(density=densities, n_epochs=40, n_blocks=2, hidden=(24,)).fit_path(
        table.X, table.y, sensitive_features=table.a, strengths=[0, 1], seeds=[0]
    )
    return table, encoders


@pytest.mark.filterwarnings("ignore:Values outside the training range")  # a match may lie there
def test_a_row_and_its_match_share_a_representation(fitted):
    table, (_, encoder) = fitted
    pairs = matches(encoder, table.X, sensitive_features=table.a)
    z = encoder.transform(table.X, sensitive_features=table.a)
    for group, side in pairs.sides.items():
        assert np.allclose(encoder.transform(side, sensitive_features=np.full(len(side), group)), z, atol=1e-6)
    own = pairs.sides[0][table.a == 0]
    assert np.allclose(own, table.X[table.a == 0])


def test_fairness_matches_rows_of_like_likelihood(fitted):
    """The paper's figure 9: without fairness a row is matched with an unlikely one, with fairness with a likely one."""
    table, encoders = fitted
    gaps = []
    for encoder in encoders:
        pairs = matches(encoder, table.X, sensitive_features=table.a)
        likelihood = pairs.to_frame()[["log p(x)", "log p(match)"]].groupby(table.X["x1"] > 0).mean()
        gaps.append((likelihood["log p(x)"] - likelihood["log p(match)"]).mean())
    assert gaps[1] < 0.5
    assert gaps[0] > gaps[1] + 1


def test_three_groups_have_a_side_each():
    table, densities = make_three_groups(90, random_state=0)
    encoder = FairFlow(1, density=densities, n_epochs=2).fit(table.X, table.y, sensitive_features=table.a)
    pairs = matches(encoder, table.X, sensitive_features=table.a)
    assert list(pairs.sides) == ["centre", "north", "south"]
    assert np.allclose(pairs.to_frame(to="south")[["match x1", "match x2"]], pairs.sides["south"])
    with pytest.raises(ValueError, match="to must say which of the groups"):
        pairs.to_frame()
    with pytest.raises(ValueError, match="got 'west'"):
        pairs.to_frame(to="west")


def test_matches_of_rows_on_a_grid_are_repeatable():
    """Nothing is released, so that the noise of rows that nobody named may be the same every time."""
    table, _ = make_gaussians(200, random_state=0)
    table = Table(table.X.round(), sensitive=table.a, label=table.y)
    encoder = FairFlow(n_epochs=1).fit(table)
    assert encoder.traits.randomised
    first, again = (matches(encoder, table).to_frame() for _ in range(2))
    assert_frame_equal(first, again)
    assert_frame_equal(first, matches(encoder, table.X, sensitive_features=table.a).to_frame())
    assert first["group"].tolist() == table.a.tolist()
    assert (first[["x1", "x2"]].to_numpy() == table.X.to_numpy()).all()


def test_an_encoder_without_inverse_is_refused(fitted):
    from sklearn.preprocessing import StandardScaler

    table, _ = fitted
    with pytest.raises(DataError, match="must be an encoder or a Release of fairflows; got StandardScaler"):
        matches(StandardScaler().fit(table.X), table.X, sensitive_features=table.a)
    with pytest.raises(DataError, match="inverse for every group; FairTree has none"):
        matches(FairTree(2).fit(table), table)
