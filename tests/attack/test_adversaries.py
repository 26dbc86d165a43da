"""Learners of the group, and how an adversary's threshold and bound are found."""

import numpy as np
import pytest
from scipy.stats import norm

from fairflows.attack.adversaries import LEARNERS, Learner, judge


class TestJudge:
    """The pair, the threshold and the method come from validation rows; only the bound comes from test rows."""

    @pytest.fixture
    def scores(self):
        rng = np.random.default_rng(0)
        g = [rng.integers(2, size=n) for n in (3000, 5000)]
        s = [np.column_stack([np.zeros(len(x)), rng.normal(size=len(x)) + x]) for x in g]
        return (s[0], s[1]), (g[0], g[1])

    def test_the_test_rows_change_the_bound_and_nothing_else(self, scores):
        (s_val, s_test), groups = scores
        found = judge("g", "closed", (s_val, s_test), groups, delta=0.05)
        other = judge("g", "closed", (s_val, -s_test), groups, delta=0.05)
        assert other.lower == 0
        assert (found.validation, found.expected, found.method) == (other.validation, other.expected, other.method)

    def test_the_method_is_the_better_one_at_the_rates_of_validation_rows(self, scores):
        assert judge("g", "closed", *scores, delta=0.05).method == "hoeffding"
        _, g = scores
        certain = tuple(np.column_stack([np.zeros(len(group)), group]) for group in g)
        assert judge("g", "closed", certain, g, delta=0.05).method == "clopper-pearson"

    def test_of_three_groups_the_pair_furthest_apart(self):
        rng = np.random.default_rng(1)
        g = [rng.integers(3, size=3000) for _ in range(2)]
        x = [rng.normal(size=3000) + np.array([0.0, 0.3, 1.5])[group] for group in g]
        s = [-((values[:, None] - np.array([0.0, 0.3, 1.5])) ** 2) / 2 for values in x]
        found = judge("g", "closed", (s[0], s[1]), (g[0], g[1]), delta=0.05)
        assert found.groups == (0, 2)
        assert 0.4 < found.lower < 2 * norm.cdf(0.75) - 1

    def test_coverage(self):
        """The bound of a tuned and chosen adversary exceeds the truth no more often than δ."""
        rng = np.random.default_rng(2)
        truth, misses, runs = 2 * norm.cdf(0.1) - 1, 0, 300
        for _ in range(runs):
            g = [rng.integers(2, size=400) for _ in range(2)]
            x = [rng.normal(size=400) + 0.2 * group for group in g]
            found = [
                judge(str(j), "closed", tuple(np.column_stack([0 * v, f(v)]) for v in x), (g[0], g[1]), delta=0.2)
                for j, f in enumerate((np.positive, np.negative, np.abs, np.sin))
            ]
            misses += max(found, key=lambda attack: (attack.expected, attack.validation)).lower > truth
        assert misses / runs < 0.2 + 3 * np.sqrt(0.2 * 0.8 / runs)


class TestLearner:
    """A learner that sees few of the rows sees every group, and says which column is whose."""

    def test_a_rare_group_keeps_its_column(self):
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1, 2], [6, 9000, 9000])
        rows = rng.normal(size=(len(group), 1)) + np.array([8.0, 0.0, 3.0])[group][:, None]
        learner = Learner(LEARNERS["logistic regression"].make, 1000)
        for seed in range(3):
            (scores,) = learner.scores(rows, group, [rows], seed)
            assert scores.shape == (len(group), 3)
            found = judge("logistic", "closed", (scores, scores), (group, group), delta=0.05)
            assert found.groups == (1, 2)
            assert found.lower == pytest.approx(2 * norm.cdf(1.5) - 1, abs=0.03)

    @pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
    @pytest.mark.parametrize("name", ["logistic regression", "network 50, 50"])
    def test_equal_rows_get_equal_scores_wherever_they_lie(self, name):
        """A threshold that is the score of a cell must have every row of the cell on one side."""
        rng = np.random.default_rng(0)
        cells, group = rng.integers(6, size=2000), rng.integers(2, size=2000)
        rows = np.eye(6)[cells] * np.sqrt(2) / 3
        others = [rows[:1], rows[:301], rows]
        found = LEARNERS[name].scores(rows, group, others, 0)
        for scores, part in zip(found, others, strict=True):
            where = cells[: len(part)]
            assert len(np.unique(scores, axis=0)) == len(np.unique(where))
            np.testing.assert_array_equal(scores[where == cells[0]][0], found[0][0])

    @pytest.mark.parametrize("name", ["boosted trees", "stacked learners"])
    @pytest.mark.parametrize("sizes", [[1, 3, 400], [1, 6000, 6000]])
    def test_a_group_of_one_row_stops_no_learner(self, name, sizes):
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1, 2], sizes)
        rows = rng.normal(size=(len(group), 1)) + group[:, None]
        (scores,) = LEARNERS[name].scores(rows, group, [rows[:100]], 0)
        assert scores.shape == (100, 3)
        assert (scores.argmax(axis=1) != 0).all()

    @pytest.mark.filterwarnings("ignore:The least populated class")
    def test_a_stack_reads_what_no_member_is_made_for_and_repeats_itself(self):
        """One column in steps and one straight: the stack of trees and lines is as good as the better of both."""
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(1600, 2))
        group = (np.sin(3 * rows[:, 0]) + rows[:, 1] > 0).astype(int)
        fit, other = rows[:800], rows[800:]
        stack = LEARNERS["stacked learners"]
        (first,), (second,) = (stack.scores(fit, group[:800], [other], seed=3) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert (first.argmax(axis=1) == group[800:]).mean() > 0.85
