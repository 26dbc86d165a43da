"""Sort-and-match against brute force and linear assignment; the label split; what mixtures and tails add up to."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairflows.bounds import exact_statistical_distance
from fairflows.encoder.fair_matching import label_split, latent_laws, sort_and_match


@st.composite
def laws(draw, n_laws=2, most_cells=6):
    """Laws over the same few cells; small integers make ties and zeros likely."""
    m = draw(st.integers(1, most_cells))
    counts = st.lists(st.integers(0, 6), min_size=m, max_size=m).filter(any)
    return np.array([np.array(c) / sum(c) for c in (draw(counts) for _ in range(n_laws))])


def log(p):
    with np.errstate(divide="ignore"):
        return np.log(p)


def distance_of_map(p, q, f):
    """Δ between p and the law of f(x), x ~ q."""
    pushed = np.zeros_like(q)
    np.add.at(pushed, f, q)
    return 0.5 * np.abs(p - pushed).sum()


@given(laws())
def test_sort_and_match_is_the_best_of_all_permutations(pair):
    p, q = pair
    best = min(distance_of_map(p, q, np.array(f)) for f in permutations(range(len(p))))
    f = sort_and_match(log(p), log(q))
    assert sorted(f) == list(range(len(p)))
    assert distance_of_map(p, q, f) == pytest.approx(best, abs=1e-12)


@given(laws(n_laws=1))
def test_a_law_matched_to_itself_stays_put_even_with_ties(law):
    labels = np.arange(law.shape[1]) % 2
    np.testing.assert_array_equal(sort_and_match(log(law[0]), log(law[0])), np.arange(law.shape[1]))
    np.testing.assert_array_equal(label_split(log(law[0]), log(law[0]), labels), np.arange(law.shape[1]))


@given(laws(), st.data())
def test_label_split_is_the_best_permutation_that_keeps_labels(pair, data):
    p, q = pair
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(p), max_size=len(p))))
    keeping = [np.array(f) for f in permutations(range(len(p))) if np.array_equal(labels[list(f)], labels)]
    best = min(distance_of_map(p, q, f) for f in keeping)
    f = label_split(log(p), log(q), labels)
    np.testing.assert_array_equal(labels[f], labels)
    assert distance_of_map(p, q, f) == pytest.approx(best, abs=1e-12)


@pytest.fixture
def three_groups():
    log_p = np.log(np.random.default_rng(1).dirichlet(np.full(60, 0.5), size=3))
    labels = np.random.default_rng(2).integers(0, 2, 60)
    matched = np.stack([sort_and_match(log_p[0], log_p[a]) for a in range(3)])
    split = np.stack([label_split(log_p[0], log_p[a], labels) for a in range(3)])
    return log_p, matched, split


@pytest.mark.parametrize("gamma", [0.0, 0.02, 0.5, 1.0])
def test_latent_laws_are_the_laws_of_the_released_cell(three_groups, gamma):
    """Against the definition: release f(x) with probability γ, g(x) otherwise, and add up where the mass goes."""
    log_p, matched, split = three_groups
    expected = np.zeros((3, 60))
    for a in range(3):
        np.add.at(expected[a], matched[a], gamma * np.exp(log_p[a]))
        np.add.at(expected[a], split[a], (1 - gamma) * np.exp(log_p[a]))
    np.testing.assert_allclose(latent_laws(log_p, matched, split, gamma), expected, atol=1e-15)


@given(laws(n_laws=3))
def test_pairwise_distances_do_not_depend_on_the_reference(groups):
    def distances(reference):
        maps = np.stack([sort_and_match(reference, log(p)) for p in groups])
        with np.errstate(divide="ignore"):
            latent = latent_laws(log(groups), maps, maps, 1.0)
        return [exact_statistical_distance([latent[a], latent[b]]) for a, b in ((0, 1), (0, 2), (1, 2))]

    expected = distances(log(groups[0]))
    np.testing.assert_allclose(distances(log(groups[1])), expected, atol=1e-12)
    np.testing.assert_allclose(distances(log(np.mean(groups, axis=0))), expected, atol=1e-12)
