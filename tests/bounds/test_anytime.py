"""Tests that hold at all times: closed forms against steps, means of e-values by enumeration, coverage and controls."""

from itertools import product
from math import comb, factorial, prod

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from fairflows.bounds import log_e_law
from fairflows.bounds.anytime import Coarsenings, GapSums, batches_of, share_of_start

LEVELS = np.array([[0, 0, 1, 1], [0, 1, 2, 3]])
CELLS = Coarsenings.of(LEVELS)


def step_by_step(blocks: np.ndarray, persons: list[tuple[int, int]]) -> float:
    """The e-value as a product over persons: each predicted by the urn of the alternative over that of the blocks."""
    log_e = np.zeros((2, len(blocks), 5))
    for number, level in enumerate(LEVELS):
        for a, mine in enumerate(blocks):
            b = np.bincount(level, mine)
            for place, w in enumerate((2, 8, 32, 128, 512)):
                urns = w * b / b.sum(), b.astype(float)
                for group, cell in persons:
                    if group == a:
                        log_e[number, a, place] += np.log(urns[0][level[cell]] / urns[0].sum())
                        log_e[number, a, place] -= np.log(urns[1][level[cell]] / urns[1].sum())
                        for urn in urns:
                            urn[level[cell]] += 1
    of_group = logsumexp(log_e, axis=(0, 2)) - np.log(10)
    return float(logsumexp([logsumexp(of_group) - np.log(len(blocks)), of_group.sum()]) - np.log(2))


def test_the_closed_form_is_the_product_over_persons_in_any_order():
    rng, blocks = np.random.default_rng(0), np.array([[5, 9, 3, 4], [7, 2, 6, 8]])
    persons = [
        (int(a), int(c)) for a, c in zip(rng.integers(0, 2, 60), rng.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1]), strict=True)
    ]
    counts = np.zeros((2, 4), dtype=int)
    np.add.at(counts, tuple(np.array(persons).T), 1)
    found = log_e_law(blocks, counts, LEVELS)
    assert found == pytest.approx(step_by_step(blocks, persons), abs=1e-9)
    assert found == pytest.approx(step_by_step(blocks, persons[::-1]), abs=1e-9)
    assert abs(found) > 0.1


def test_under_the_law_of_blocks_the_mean_of_the_e_value_is_one():
    """All counts of three persons of each group, with their Dirichlet-multinomial probabilities."""
    blocks, n = np.array([[2, 3, 1, 4], [3, 1, 2, 2]]), 3
    every = [c for c in product(range(n + 1), repeat=4) if sum(c) == n]

    def probability(b: np.ndarray, c: tuple[int, ...]) -> float:
        ways = factorial(n) / prod(map(factorial, c))
        of_urn = gammaln(b.sum()) - gammaln(b.sum() + n) + sum(gammaln(b + np.array(c)) - gammaln(b))
        return float(ways * np.exp(of_urn))

    law = [[probability(b, c) for c in every] for b in blocks]
    assert [sum(p) for p in law] == pytest.approx([1, 1])
    mean = sum(
        p * q * np.exp(log_e_law(blocks, [c, d], LEVELS))
        for p, c in zip(law[0], every, strict=True)
        for q, d in zip(law[1], every, strict=True)
    )
    assert mean == pytest.approx(1)
    assert log_e_law(blocks, [(0, 0, 3, 0), (0, 3, 0, 0)], LEVELS) > 0.1, "rare cells are evidence"


def gap(batches: list[np.ndarray]) -> GapSums:
    sums, N = GapSums.zero(2, CELLS), np.zeros((2, 4), dtype=int)
    for batch in batches:
        sums, N = sums.plus(batch, N, CELLS), N + batch
    return sums


def test_under_delta_t_the_mean_of_the_e_value_of_the_gap_is_at_most_one():
    """Two batches of three persons a group, all counts: the truth is Δ = .3 exactly."""
    laws, n = np.array([[0.4, 0.3, 0.2, 0.1], [0.25, 0.15, 0.3, 0.3]]), 3
    t = float(np.abs(laws[0] - laws[1]).sum() / 2)
    every = [c for c in product(range(n + 1), repeat=4) if sum(c) == n]

    def probability(p: np.ndarray, c: tuple[int, ...]) -> float:
        return factorial(n) / prod(map(factorial, c)) * float(np.prod(p ** np.array(c)))

    likely = [(c, d, probability(laws[0], c) * probability(laws[1], d)) for c in every for d in every]
    rng, mean = np.random.default_rng(0), 0.0
    for place in rng.choice(len(likely), 12, p=[p for *_, p in likely]):  # whatever the first batch was
        first = np.array(likely[place][:2])
        mean = sum(p * np.exp(gap([first, np.array([c, d])]).log_e(t)) for c, d, p in likely)
        assert mean <= 1 + 1e-12
    assert mean > 0.5, "the bound is not empty"


def null_batches(rng: np.random.Generator, laws: np.ndarray, n_batches: int, n: int) -> list[np.ndarray]:
    return [np.array([rng.multinomial(n, p) for p in laws]) for _ in range(n_batches)]


@pytest.fixture(scope="module")
def streams():
    """Streams whose Δ is exactly .1, of 60 batches each, with the largest e-values and the sequences around Δ."""
    half, rng = np.repeat([1.0, -1.0], 8), np.random.default_rng(4)
    laws, cells = np.stack([1 + 0.1 * half, 1 - 0.1 * half]) / 16, Coarsenings.of([half < 0, np.arange(16)])
    found = []
    for _ in range(100):
        sums, N, seen = GapSums.zero(2, cells), np.zeros((2, 16), dtype=int), []
        own = GapSums.zero(2, cells)
        for batch in null_batches(rng, laws, 60, 60):
            sums, own = (
                sums.plus(batch, N, cells),
                own.plus(batch, batch, cells),
            )  # whose best cells have seen the batch
            N = N + batch
            best = N[:, :8].sum(axis=1) / N.sum(axis=1)  # by the truth's best rule
            z = (best[0] - best[1] - 0.1) / np.sqrt((best * (1 - best) / N.sum(axis=1)).sum())
            seen.append([sums.log_e(0.1), own.log_e(0.1), z, sums.upper(0.05)])
        assert (sums.lower(0.05) > 0.1) == (sums.log_e(0.1) >= np.log(20))
        found.append(np.array(seen))
    return np.array(found)


def test_false_alarms_of_the_gap_stay_below_alpha_at_all_times_together(streams):
    alarmed = (streams[..., 0] >= np.log(20)).any(axis=1).mean()
    assert alarmed <= 0.05
    assert (streams[..., 3] < 0.1).any(axis=1).mean() <= 0.05


def test_controls_alarm_too_often(streams):
    """Best cells that saw their own batch, and a test of one fixed size that is looked at after every batch."""
    assert (streams[..., 1] >= np.log(20)).any(axis=1).mean() > 0.2
    assert (streams[..., 2] > 1.645).any(axis=1).mean() > 0.2


def test_the_sequences_close_around_the_truth():
    rng, laws = np.random.default_rng(5), np.array([[0.45, 0.15, 0.2, 0.2], [0.15, 0.45, 0.2, 0.2]])
    sums = gap(null_batches(rng, laws, 60, 60))
    assert 0.15 < sums.lower(0.05) < 0.3 < sums.upper(0.05) < 0.45


def test_shares_of_alpha_add_up_to_one():
    assert sum(share_of_start(j) for j in range(1, 10_000)) == pytest.approx(1, abs=1e-3)


def test_batches_hold_every_person_once_and_close_by_number():
    places = np.random.default_rng(0).integers(0, 8, 1_234)
    dealt = list(batches_of(places, (2, 4)))
    assert len(dealt) == 6
    np.testing.assert_array_equal(sum(dealt).ravel(), np.bincount(places, minlength=8))
    assert {int(batch.sum()) for batch in dealt} == {205, 206}
    assert len(list(batches_of(np.zeros(10**6, dtype=int), (1, 1)))) == 1_000


def test_coarsenings_add_up_parts():
    np.testing.assert_array_equal(CELLS.sums([[1, 2, 3, 4]]), [[3, 7, 1, 2, 3, 4]])
    assert comb(4, 2) == len(CELLS.sums([[1, 2, 3, 4]])[0])
