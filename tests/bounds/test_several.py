"""Bounds for each of several attributes, against the truth of trees that were cut for their intersections."""

import numpy as np
import pytest

from fairflows.bounds import blocks_upper_bound
from fairflows.bounds.blocks import even_blocks
from fairflows.bounds.several import mixed_upper_bounds, rounded_parts
from fairflows.exceptions import DataError

N, K_CELLS = [300, 200, 120, 80], 6  # persons of the groups f1, f2, m1, m2
BLOCKS = np.stack([even_blocks(n, K_CELLS) for n in N])
SEX = np.array([[300, 200, 0, 0], [0, 0, 120, 80]])
RACE = np.array([[300, 0, 120, 0], [0, 200, 0, 80]])


def true_masses(rng: np.random.Generator) -> np.ndarray:
    """Cut every group at order statistics of uniform scores: the true masses of its leaves."""
    found = []
    for n, blocks in zip(N, BLOCKS, strict=True):
        scores = np.sort(rng.random(n))
        found.append(np.diff([0, *scores[np.cumsum(blocks)[:-1] - 1], 1]))
    return np.array(found)


def distance(masses: np.ndarray, parts: np.ndarray) -> float:
    mixed = parts / parts.sum(axis=1, keepdims=True) @ masses
    return float(np.abs(mixed[0] - mixed[1]).sum() / 2)


def test_each_attribute_is_covered_by_its_own_number():
    """At δ = .2. The control claims the number of an attribute for the intersections."""
    rng, n_runs = np.random.default_rng(1), 400
    bounds = mixed_upper_bounds(BLOCKS, [SEX, RACE], 0.2)
    drawn = [true_masses(rng) for _ in range(n_runs)]
    for parts, bound in zip((SEX, RACE), bounds, strict=True):
        missed = np.mean([distance(masses, parts) > bound for masses in drawn])
        assert 0.14 <= missed <= 0.26
        assert bound < blocks_upper_bound(BLOCKS, 0.2)
    worst = [max(np.abs(a - b).sum() / 2 for a in masses for b in masses) for masses in drawn]
    assert np.mean(np.array(worst) > max(bounds)) > 0.8


@pytest.mark.parametrize("follows", [False, True])
def test_a_merged_group_counts_as_revealed(follows):
    """The last group has persons of both sexes, whom its cells may tell apart."""
    parts = np.array([[300, 200, 0, 40], [0, 0, 120, 40]])
    bound = mixed_upper_bounds(BLOCKS, [parts], 0.2)[0]
    as_one = mixed_upper_bounds(BLOCKS[:3], [parts[:, :3]], 0.2)[0]
    rng, missed, control = np.random.default_rng(2), 0, 0
    for _ in range(300):
        masses = true_masses(rng)
        inside = np.stack([masses[3], masses[3]])
        if follows:  # women are in the first half of its cells, men in the other
            inside[0, K_CELLS // 2 :] = inside[1, : K_CELLS // 2] = 0
            inside /= inside.sum(axis=1, keepdims=True)
        n = parts / parts.sum(axis=1, keepdims=True)
        mixed = n[:, :3] @ masses[:3] + n[:, 3:] * inside
        true = np.abs(mixed[0] - mixed[1]).sum() / 2
        missed += true > bound
        control += true > as_one
    assert missed <= 0.27 * 300
    if follows:
        assert control > 0.9 * 300, "without the part that is revealed it must fail"


def test_what_is_printed_of_merged_groups():
    assert rounded_parts(np.array([[300, 3], [20, 0]]), [1]).tolist() == [[300, 10], [20, 0]]
    with pytest.raises(DataError, match="two values or more"):
        mixed_upper_bounds(BLOCKS, [SEX[:1]], 0.2)
