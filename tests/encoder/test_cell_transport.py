"""Transport of cells: marginals, the least change of labels, the frontier in closed form, drawing and drawing back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairflows.bounds import exact_statistical_distance
from fairflows.encoder.cell_coupling import class_distance, transport_cells


def problem(seed, n=500, n_labels=2):
    """Two laws with masses over many orders of magnitude, labels and confidences."""
    generator = np.random.default_rng(seed)
    p, labels = generator.dirichlet(np.full(n, 0.05)), generator.integers(0, n_labels, n)
    confidence, q = generator.random(n), generator.dirichlet(np.full(n, 0.05))
    return p, q, labels, confidence


cases = pytest.mark.parametrize(
    "case",
    [problem(0), problem(1, n_labels=5), problem(2, n=300, n_labels=3), problem(3, n=1), problem(4, n=3)],
    ids=["two labels", "five labels", "three labels", "one cell", "three cells"],
)


@cases
def test_at_full_strength_nothing_tells_the_groups_apart(case):
    p, q, labels, _ = case
    coupling = transport_cells(*case)
    assert exact_statistical_distance([coupling.target_law(), q]) < 1e-10
    assert exact_statistical_distance([coupling.reversed().target_law(), p]) < 1e-10
    assert coupling.masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert coupling.masses.min() >= 0.0
    assert len(coupling.masses) <= len(p) + len(q) + len(np.unique(labels))


@cases
def test_label_agreement_is_one_minus_the_distance_of_labels(case):
    p, q, labels, _ = case
    change = transport_cells(*case).label_change(labels)
    tv_class = 0.5 * sum(abs(p[labels == g].sum() - q[labels == g].sum()) for g in np.unique(labels))
    assert class_distance(p, q, labels) == pytest.approx(tv_class, abs=1e-12)
    assert 1.0 - change == pytest.approx(1.0 - tv_class, abs=1e-9)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_the_frontier_is_the_closed_form_at_eleven_points(n_labels):
    case = problem(11, n_labels=n_labels)
    p, q, labels, _ = case
    tv_class = class_distance(p, q, labels)
    assert tv_class > 0.02
    for distance in np.linspace(0.0, min(1.0, 1.25 * tv_class), 11):
        coupling = transport_cells(*case, distance)
        assert exact_statistical_distance([coupling.target_law(), q]) == pytest.approx(
            min(distance, tv_class), abs=1e-9
        )
        assert exact_statistical_distance([coupling.reversed().target_law(), p]) < 1e-10
        assert coupling.label_change(labels) == pytest.approx(max(0.0, tv_class - distance), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_no_coupling_changes_fewer_labels(seed):
    """Against a linear programme over all couplings of few cells; its solver meets the marginals to 1e-7."""
    p, q, labels, _ = case = problem(seed, n=6, n_labels=3)
    cost = (labels[:, None] != labels).astype(float).ravel()
    marginals = np.vstack([np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))])
    optimum = linprog(cost, A_eq=marginals, b_eq=np.concatenate([p, q]))
    assert transport_cells(*case).label_change(labels) == pytest.approx(optimum.fun, abs=1e-6)


def test_two_labels_are_transported_in_order_of_the_score():
    """Group and target disagree on how many are positive: still nobody overtakes anybody in score."""
    generator = np.random.default_rng(0)
    score = generator.random(40) ** 2
    p, q = generator.dirichlet(np.ones(40)) * score, generator.dirichlet(np.ones(40))
    coupling = transport_cells(p / p.sum(), q, score > 0.5, np.abs(score - 0.5))
    order = np.lexsort((score[coupling.targets], score[coupling.sources]))
    heavy = order[coupling.masses[order] > 1e-12]
    staying = (score > 0.5)[coupling.sources] == (score > 0.5)[coupling.targets]
    leaving = heavy[~staying[heavy]]
    assert len(leaving) > 3
    assert np.all(np.diff(score[coupling.targets[leaving]]) >= 0.0)
    least_sure_that_stays = score[coupling.sources[heavy[staying[heavy]]]]
    positive = score[coupling.sources[leaving]] > 0.5
    assert positive.all() or not positive.any()
    boundary = score[coupling.sources[leaving]]
    same_side = least_sure_that_stays[(least_sure_that_stays > 0.5) == positive[0]]
    assert np.abs(boundary - 0.5).max() <= np.abs(same_side - 0.5).min() + 1e-12


@settings(max_examples=80)
@given(st.data())
def test_ties_zeros_and_labels_that_one_side_lacks(data):
    n = data.draw(st.integers(1, 7))

    def drawn(values):
        return st.lists(values, min_size=n, max_size=n)

    p, q = (np.array(data.draw(drawn(st.integers(0, 4)).filter(any))) for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    labels = np.array(data.draw(drawn(st.integers(0, 3))))
    confidence = np.array(data.draw(drawn(st.sampled_from([0.5, 0.7, 0.9]))))
    distance = data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    coupling = transport_cells(p, q, labels, confidence, distance)
    np.testing.assert_allclose(coupling.reversed().target_law(), p, atol=1e-12)
    assert exact_statistical_distance([coupling.target_law(), q]) <= distance + 1e-12
    if distance == 0.0:
        tv_class = class_distance(p, q, labels)
        assert coupling.label_change(labels) == pytest.approx(tv_class, abs=1e-12)
    assert set(coupling.sources) == set(range(len(p)))
    assert set(coupling.targets) == set(range(len(q)))


def test_cells_too_small_for_a_cumulative_sum_still_have_a_row():
    p = np.array([0.5, 1e-40, 1e-300, 0.5])
    q = np.array([0.25, 0.75, 1e-30, 0.0])
    coupling = transport_cells(p, q, [0, 0, 1, 1], [0.9, 0.8, 0.7, 0.6])
    np.testing.assert_allclose(coupling.reversed().target_law(), p, rtol=1e-12)
    u = np.linspace(0.0, 1.0, 101, endpoint=False)
    for channel, law in ((coupling, p), (coupling.reversed(), q)):
        for cell in range(4):
            assert np.isin(channel.draw(np.full(101, cell), u), channel.targets[channel.sources == cell]).all(), law


def test_draws_follow_the_conditional_law_given_the_cell():
    coupling = transport_cells(*problem(6, n=40))
    n = 20_000
    u = (np.arange(n) + 0.5) / n  # an even grid in place of random numbers: frequencies are then right to 1/n
    table = np.zeros((40, 40))
    np.add.at(table, (coupling.sources, coupling.targets), coupling.masses)
    for channel, joint in ((coupling, table), (coupling.reversed(), table.T)):
        for cell in np.argsort(joint.sum(axis=1))[-5:]:
            frequency = np.bincount(channel.draw(np.full(n, cell), u), minlength=40) / n
            np.testing.assert_allclose(frequency, joint[cell] / joint[cell].sum(), atol=1.1 / n)


def test_encoding_then_decoding_gives_back_the_law_of_the_group():
    p, *_ = case = problem(7, n=30)
    coupling = transport_cells(*case)
    generator = np.random.default_rng(0)
    x = generator.choice(30, 200_000, p=p)
    z = coupling.draw(x, generator.random(len(x)))
    back = coupling.reversed().draw(z, generator.random(len(x)))
    np.testing.assert_allclose(np.bincount(back, minlength=30) / len(x), p, atol=5 * np.sqrt(0.25 / len(x)))


def test_a_draw_at_the_edge_of_a_row_stays_in_it():
    coupling = transport_cells(*problem(8, n=1000))
    for u in (0.0, np.nextafter(1.0, 0.0)):
        cells = np.arange(1000)
        drawn = coupling.draw(cells, np.full(1000, u))
        pairs = set(zip(coupling.sources.tolist(), coupling.targets.tolist(), strict=True))
        assert set(zip(cells.tolist(), drawn.tolist(), strict=True)) <= pairs


@pytest.mark.parametrize("distance", [-0.1, 1.1, float("nan")])
def test_a_distance_outside_the_unit_interval_is_refused(distance):
    with pytest.raises(ValueError, match=r"distance must be in \[0, 1\]; got"):
        transport_cells(*problem(0), distance)


@pytest.mark.parametrize("p", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]], ids=str)
def test_what_is_not_a_law_is_refused(p):
    with pytest.raises(ValueError, match="p must be a vector of probabilities that sum to 1"):
        transport_cells(p, [0.5, 0.5], [0, 1], [1, 1])
