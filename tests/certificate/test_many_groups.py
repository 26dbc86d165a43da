"""Many groups: what takes n·K² numbers is done in pieces, or refused before the work with what fits."""

import numpy as np
import pytest
import torch
from known_encoders import KnownGaussians

from fairflows import DataError, FairFlow, FairMatching, Release, Table, certify, frontier
from fairflows.bounds import arguments
from fairflows.certificate.looks import open_looks
from fairflows.density import MixtureDensity
from fairflows.table.ledger import RowsSeen
from fairflows.training import loop

pytestmark = pytest.mark.usefixtures("few_trees")


def people(n_groups, n, seed=0):
    rng = np.random.default_rng(seed)
    a = np.arange(n) % n_groups
    columns = {"u": rng.normal(size=n).round(4), "v": rng.normal(size=n).round(4), "a": a}
    return Table({**columns, "y": rng.integers(2, size=n)}, sensitive="a", label="y", kinds={"u": "continuous"})


def test_a_hundred_groups_need_no_table_of_all_pairs(monkeypatch):
    """Matching knows its laws exactly: however small a table may be, nothing is refused."""
    monkeypatch.setattr(arguments, "MOST_LOG_DENSITIES", 10_000)
    train, test = people(100, 6000), people(100, 6000, seed=1)
    release = Release(FairMatching(0.9, density="counts"), n_cells=4, output="cell").fit(train)
    certificate = certify(release, test)
    assert len(certificate.n) == 100
    assert certificate.model_upper is not None
    front = frontier(FairMatching(0.9, density="counts"), train, strengths=[0.0, 1.0])
    assert front.measured["distance"].notna().all()


def test_draws_for_a_certificate(monkeypatch):
    """By default as many as fit; more are refused before a look at the persons is spent."""
    monkeypatch.setattr(arguments, "MOST_LOG_DENSITIES", 90_000)
    means = np.linspace(0, 1, 30).tolist()
    encoder, rows = KnownGaussians(means).fit(people(30, 300)), people(30, 3000, seed=1)
    with pytest.raises(DataError, match=r"n_draws must be at most 100 for 30 groups.*; got 101\."):
        certify(encoder, rows, n_draws=101)
    with open_looks() as looks:
        assert looks.at(RowsSeen.of(rows.X, rows.persons, looks.key)) == []
    certificate = certify(encoder, rows)
    assert certificate.n_draws == 100
    assert certificate.model_upper > 2 * 0.1915, "Δ = 2Φ(½) − 1 of the outermost pair"
    assert certify(encoder, rows, n_draws=50).model_upper >= certificate.model_upper


def test_many_groups_take_fewer_draws_by_default(monkeypatch):
    """The log-densities of all draws under all groups are bounded, so that time does not grow with K²."""
    monkeypatch.setattr(arguments, "SOON_COMPUTED", 90_000)
    encoder, rows = KnownGaussians(np.linspace(0, 1, 30).tolist()).fit(people(30, 300)), people(30, 3000, seed=1)
    assert certify(encoder, rows).n_draws == 100
    assert certify(encoder, rows, n_draws=200).n_draws == 200, "more on request"


@pytest.fixture(scope="module")
def flow():
    """Seven groups, trained for a moment."""
    table = people(7, 700)
    return FairFlow(0.5, density=MixtureDensity(1), n_epochs=1, hidden=(8,), n_blocks=2, device="cpu").fit(table)


def test_the_table_of_a_flow_is_filled_in_pieces(flow, monkeypatch):
    sizes = []
    whole = loop._log_densities

    def counted(bijection, densities, n, generator):
        sizes.append(n)
        return whole(bijection, densities, n, generator)

    monkeypatch.setattr(loop, "_log_densities", counted)
    monkeypatch.setattr(loop, "_DECODED_AT_A_TIME", 7 * 7 * 40)
    table = flow.latent_law().log_density_table(100)
    assert sizes == [40, 40, 20], "40 draws of 7 groups are decoded by 7 groups at a time"
    assert table.shape == (100, 7, 7)
    assert np.isfinite(table).all()
    monkeypatch.setattr(arguments, "MOST_LOG_DENSITIES", 4_900)
    with pytest.raises(DataError, match="n_draws must be at most 100 for 7 groups"):
        flow.latent_law().log_density_table(101)
    assert sizes == [40, 40, 20], "refused before any draw"


def test_a_row_of_the_table_holds_one_draw_of_every_group(flow, monkeypatch):
    """In pieces as at once: every draw's log-density under every group is that of the point that the group decodes."""
    monkeypatch.setattr(loop, "_DECODED_AT_A_TIME", 7 * 7 * 16)
    densities, bijection = flow.flow_.densities, flow.flow_.bijection
    table = loop.log_density_table(bijection, densities, 64, torch.Generator().manual_seed(3))[0]
    generator = torch.Generator().manual_seed(3)
    for start in range(0, 64, 16):
        z = bijection.forward(densities.sample(16, generator))[0][0]
        for b in range(7):
            decoded, log_det = bijection.select_group(b).inverse(z.flatten(0, 1))
            expected = densities.members[b].log_prob(decoded[0, 0]) + log_det[0, 0]
            torch.testing.assert_close(table[start : start + 16, :, b].T.flatten(), expected)
