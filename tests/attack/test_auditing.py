"""audit: bounds that hold, adversaries that find what is there, white-box ones that find what z alone hides."""

import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells, column
from scipy.stats import norm
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from fairflows import FairMatching, FairTransport, Table, load_adult, make_shifted_gaussians, make_three_groups
from fairflows.attack.auditing import audit
from fairflows.attack.learners import (
    LEARNERS,
    QUICK_LEARNERS,
    Bins,
    Features,
    Learner,
    Neighbours,
    Ordered,
    frequency_scores,
    judge,
    stratified_sample,
)
from fairflows.attack.target import Target, Trial
from fairflows.attack.white_box import Reference
from fairflows.bounds import attack_lower_bound
from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.certificate.certifying import certify
from fairflows.certificate.document import ContradictionError
from fairflows.density import MixtureDensity
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.group_encoder import Unencoded
from fairflows.exceptions import DataError, DataWarning
from fairflows.release.cell_release import CellRelease
from fairflows.release.released import Released


@pytest.fixture(scope="module")
def adult():
    """Some rows and columns of Adult: few cells, whose laws are fitted in no time."""
    table = load_adult()
    table.X = table.X[["education", "occupation", "relationship", "race"]]
    train, validation, test = table.paper_split()
    return train.take(np.arange(6000)), validation, test.take(np.arange(8000))


@pytest.fixture(scope="module")
def matching(adult):
    train, _, test = adult
    encoder = FairMatching(gamma=1.0, density="counts").fit(train)
    return encoder, audit(encoder, train, test, quick=True)


@pytest.fixture(scope="module")
def cells(adult):
    train = adult[0]
    return CellRelease(FairTransport(density="counts"), n_cells=8).fit(train)


def pair_of(make, **settings):
    table = make(**settings)[0]
    train, test = table.split(test=0.5, validation=0)
    return train, test


class TestJudge:
    """The pair, the threshold and the method come from validation rows; only the bound comes from test rows."""

    @pytest.fixture
    def scores(self):
        rng = np.random.default_rng(0)
        g = [rng.integers(2, size=n) for n in (3000, 5000)]
        s = [np.column_stack([np.zeros(len(x)), rng.normal(size=len(x)) + x]) for x in g]
        return (s[0], s[1]), (g[0], g[1])

    def test_finds_the_threshold_between_two_gaussians(self, scores):
        found = judge("g", "black", *scores, delta=0.05)
        truth = 2 * norm.cdf(0.5) - 1
        assert found.validation == pytest.approx(truth, abs=0.04)
        assert truth - 0.08 < found.lower < truth
        assert found.groups == (0, 1)

    def test_the_test_rows_change_the_bound_and_nothing_else(self, scores):
        (s_val, s_test), groups = scores
        found = judge("g", "black", (s_val, s_test), groups, delta=0.05)
        other = judge("g", "black", (s_val, -s_test), groups, delta=0.05)
        assert other.lower == 0
        assert (found.validation, found.expected, found.method) == (other.validation, other.expected, other.method)

    def test_the_bound_is_that_of_its_decisions(self, scores):
        (s_val, s_test), groups = scores
        found = judge("g", "black", (s_val, s_test), groups, delta=0.05)
        lowers = {
            round(float(attack_lower_bound(k, np.bincount(groups[1]), 0.05, method=found.method)), 12)
            for t in np.unique(s_val[:, 1])
            for k in [np.bincount(groups[1][s_test[:, 1] >= t], minlength=2)]
        }
        assert round(found.lower, 12) in lowers

    def test_of_three_groups_the_pair_furthest_apart(self):
        rng = np.random.default_rng(1)
        g = [rng.integers(3, size=3000) for _ in range(2)]
        x = [rng.normal(size=3000) + np.array([0.0, 0.3, 1.5])[group] for group in g]
        s = [-((values[:, None] - np.array([0.0, 0.3, 1.5])) ** 2) / 2 for values in x]
        found = judge("g", "black", (s[0], s[1]), (g[0], g[1]), delta=0.05)
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
                judge(str(j), "black", tuple(np.column_stack([0 * v, f(v)]) for v in x), (g[0], g[1]), delta=0.2)
                for j, f in enumerate((np.positive, np.negative, np.abs, np.sin))
            ]
            misses += max(found, key=lambda attack: (attack.expected, attack.validation)).lower > truth
        assert misses / runs < 0.2 + 3 * np.sqrt(0.2 * 0.8 / runs)


def scores_of(learner, fit, group, others, seed):
    return learner.scores(Features.of(fit), group, [Features.of(rows) for rows in others], seed)


class TestLearner:
    """A learner that sees few of the rows sees every group, and says which column is whose."""

    def test_a_rare_group_keeps_its_column(self):
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1, 2], [6, 9000, 9000])
        rows = rng.normal(size=(len(group), 1)) + np.array([8.0, 0.0, 3.0])[group][:, None]
        learner = Learner(LEARNERS["logistic regression"].make, 1000)
        for seed in range(3):
            (scores,) = scores_of(learner, rows, group, [rows], seed)
            assert scores.shape == (len(group), 3)
            found = judge("logistic", "black", (scores, scores), (group, group), delta=0.05)
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
        found = scores_of(LEARNERS[name], rows, group, others, 0)
        for scores, part in zip(found, others, strict=True):
            where = cells[: len(part)]
            assert len(np.unique(scores, axis=0)) == len(np.unique(where))
            np.testing.assert_array_equal(scores[where == cells[0]][0], found[0][0])

    def test_rows_that_repeat_are_judged_once_with_the_same_result(self):
        rng = np.random.default_rng(0)
        cells, group = rng.integers(6, size=2000), rng.integers(2, size=2000)
        different = np.eye(6)
        learner, repeated = LEARNERS["boosted trees"], Features(different, cells)
        (once,) = learner.scores(repeated, group, [repeated], 0)
        (each,) = scores_of(learner, different[cells], group, [different[cells]], 0)
        np.testing.assert_array_equal(once, each)

    def test_a_slow_learner_is_judged_on_a_part_of_rows_that_all_differ(self):
        rng = np.random.default_rng(0)
        group = rng.integers(2, size=4000)
        rows = Features.of(rng.normal(size=(4000, 1)) + 3 * group[:, None])
        make = LEARNERS["logistic regression"].make
        slow, other = (
            Trial("g", "black", Learner(make, 500, most), rows, group, (rows, rows), (group, group)).run(0.05, seed=0)
            for most in (400, 4000)
        )
        assert 0.7 < slow.lower < other.lower < 2 * norm.cdf(1.5) - 1 + 0.02
        cells = Features(np.eye(2), group)
        assert len(Learner(make, 500, 400).judged_rows(cells, group, 0)) == 4000

    def test_a_group_that_was_never_seen_is_never_guessed(self):
        rng = np.random.default_rng(0)
        rows, group = rng.normal(size=(400, 1)), np.repeat([0, 2], 200)
        (scores,) = scores_of(LEARNERS["logistic regression"], rows, group, [rows], 0)
        assert scores.shape == (400, 3)
        assert (scores.argmax(axis=1) != 1).all()

    def test_a_group_of_one_row_stops_no_learner(self):
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1, 2], [1, 6000, 6000])
        rows = rng.normal(size=(len(group), 1)) + group[:, None]
        (scores,) = scores_of(QUICK_LEARNERS["boosted trees"], rows, group, [rows[:100]], 0)
        assert scores.shape == (100, 3)

    @pytest.mark.filterwarnings("ignore:The least populated class")
    def test_a_stack_reads_what_no_member_is_made_for_and_repeats_itself(self):
        """One column in steps and one straight: the stack of trees and lines is as good as the better of both."""
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(1600, 2))
        group = (np.sin(3 * rows[:, 0]) + rows[:, 1] > 0).astype(int)
        fit, other = rows[:800], rows[800:]
        stack = LEARNERS["stacked learners"]
        (first,), (second,) = (scores_of(stack, fit, group[:800], [other], seed=3) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert (first.argmax(axis=1) == group[800:]).mean() > 0.85

    def test_a_stack_takes_groups_of_few_rows(self):
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1, 2], [1, 3, 400])
        rows = rng.normal(size=(len(group), 1)) + group[:, None]
        (scores,) = scores_of(LEARNERS["stacked learners"], rows, group, [rows[:100]], 0)
        assert scores.shape == (100, 3)
        assert (scores.argmax(axis=1) != 0).all()

    def test_the_sample_is_in_proportion(self):
        group = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [10, 3000, 9000]))
        chosen = stratified_sample(group, 1200, seed=0)
        assert len(np.unique(chosen)) == 1200
        n = np.bincount(group[chosen])
        assert n[0] == 10
        assert n[2] / n[1] == pytest.approx(3, rel=0.15)


class TestOrdered:
    """Boosted trees see a category's levels in the order of the groups' rates."""

    def test_indicators_that_exclude_each_other_become_one_number(self):
        levels = np.repeat([0, 1, 2, 0, 1, 2], [30, 5, 20, 5, 30, 20])
        group = np.repeat([0, 1], [55, 55])
        age, works = np.arange(110.0), np.arange(110) % 2
        x = np.column_stack([age, np.eye(3)[levels], works])
        ordered = Ordered().fit(x, group)
        expected = np.column_stack([age, np.array([1, 3, 2])[levels], works])
        np.testing.assert_array_equal(ordered.transform(x), expected)
        unseen = np.array([[7.0, 0, 0, 0, 1]])
        np.testing.assert_array_equal(ordered.transform(unseen), [[7, 0, 1]])

    def test_of_many_groups_few_indicators_stay(self):
        x = np.eye(3)[np.arange(12) % 3]
        np.testing.assert_array_equal(Ordered().fit(x, np.arange(12) // 3).transform(x), x)

    def test_levels_of_equal_rates_stay_apart(self):
        """Two levels that the groups have equally often say something together with another column."""
        x = np.column_stack([np.eye(2)[np.arange(8) % 2], np.arange(8) // 2 % 2])
        group = (np.arange(8) + np.arange(8) // 2) % 2
        assert len(np.unique(Ordered().fit(x, group).transform(x)[:, 0])) == 2


class TestNeighbours:
    """The groups' shares among the nearest rows."""

    @pytest.mark.parametrize("n_columns", [3, 30])
    def test_in_few_and_in_many_columns(self, n_columns):
        rng = np.random.default_rng(0)
        rows, asked = rng.normal(size=(500, n_columns)), rng.normal(size=(300, n_columns))
        group = rng.choice([0, 2, 5], 500)
        distances = ((asked[:, None] - rows) ** 2).sum(axis=2)
        nearest = group[np.argsort(distances, axis=1)[:, :7]]
        shares = np.stack([(nearest == g).mean(axis=1) for g in (0, 2, 5)], axis=1)
        np.testing.assert_allclose(Neighbours(7).fit(rows, group).predict_proba(asked), shares)

    def test_all_rows_as_near_as_the_last_count_and_few_rows_are_all(self):
        rows = np.repeat(np.eye(20), [1, 9, *[0] * 18], axis=0)
        group = np.array([0] * 4 + [1] * 6)
        shares = Neighbours(5).fit(rows, group).predict_proba(np.eye(20)[1:2])
        np.testing.assert_allclose(shares, [[3 / 9, 6 / 9]])
        np.testing.assert_allclose(Neighbours(50).fit(rows, group).predict_proba(np.eye(20)[:1]), [[0.4, 0.6]])


class TestBins:
    """Boosted trees see bins of the values that tell as much as the values."""

    def test_few_values_have_a_bin_each_and_new_ones_the_next(self):
        x = np.array([[3.0], [-1.0], [3.0], [7.5]])
        bins = Bins().fit(x, np.array([0, 1, 0, 1]))
        numbers = bins.transform(np.array([[-9.0], [-1.0], [0.0], [3.0], [7.5], [99.0]]))
        assert numbers[:, 0].tolist() == [0, 0, 1, 1, 2, 2]

    def test_many_values_are_parted_where_the_groups_weigh_the_same(self):
        """A rare group far from the others gets half of the bins."""
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1], [20_000, 1000])
        x = rng.normal(size=(len(group), 1)) + 100 * group[:, None]
        bins = Bins().fit(x, group).transform(x)[:, 0]
        assert len(np.unique(bins)) == 255
        assert abs(len(np.unique(bins[group == 1])) - 127) <= 1
        assert (np.diff(bins[np.argsort(x[:, 0])]) >= 0).all()

    def test_the_bins_are_those_that_scikit_learn_makes(self):
        rng = np.random.default_rng(0)
        group = (rng.random(3000) < 0.3).astype(int)
        x = rng.normal(size=(3000, 2)) + 0.4 * group[:, None]
        settings = {"max_iter": 20, "class_weight": "balanced", "early_stopping": False}
        alone = HistGradientBoostingClassifier(**settings).fit(x, group).predict_proba(x)
        binned = make_pipeline(Bins(), HistGradientBoostingClassifier(**settings)).fit(x, group).predict_proba(x)
        assert np.abs(alone - binned).max() < 0.05


def test_frequencies_are_log_shares():
    fit, group = np.array([5, 5, 5, 7]), np.array([0, 0, 1, 1])
    (scores,) = frequency_scores(fit, group, [np.array([5, 7, 9])])
    assert np.allclose(scores, np.log([[2.5 / 2, 1.5 / 2], [0.5 / 2, 1.5 / 2], [1, 1]]))


class TestArrays:
    """Any representation, with nothing known of how it was made."""

    def test_known_distance(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=8000, random_state=0)
        found = audit((train.X, test.X.to_numpy()), train, test, quick=True)
        truth = 2 * norm.cdf(0.5) - 1
        assert truth - 0.09 < found.attack_lower < truth
        assert found.released == ("latent",)
        assert set(found.to_frame()["box"]) == {"black"}

    def test_nothing_there(self):
        train, test = pair_of(make_shifted_gaussians, distance=0.0, n_samples=4000, random_state=0)
        found = audit((train.X, test.X), train, test, quick=True)
        assert found.attack_lower == 0

    def test_three_groups(self):
        train, test = pair_of(make_three_groups, n_samples=6000, random_state=0)
        found = audit((train.X, test.X), train, test, quick=True)
        assert found.attack_lower > 0.9
        assert found.to_frame()["groups"].iloc[0] == "north / south"

    def test_enormous_numbers(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=2000, random_state=1)
        found = audit((1e300 * train.X, 1e300 * test.X), train, test)
        assert set(found.to_frame().index) == set(LEARNERS)
        assert found.attack_lower > 0.15

    def test_every_adversary_gets_a_line(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=2000, random_state=1)
        found = audit((train.X, test.X), train, test, n_jobs=2)
        assert set(found.to_frame().index) == set(LEARNERS)
        assert (found.to_frame()["lower"] > 0.15).all()
        assert found.best in repr(found)

    def test_lengths_must_fit(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=400, random_state=0)
        with pytest.raises(DataError, match="as many rows"):
            audit((test.X.iloc[1:], train.X), train, test)

    def test_one_array_of_all_rows(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=3000, random_state=0)
        pair = audit((train.X.to_numpy(), test.X.to_numpy()), train, test, quick=True)
        assert audit(np.concatenate([train.X, test.X]), train, test, quick=True) == pair
        with pytest.raises(DataError, match="1,500 rows of train and then the 1,500 of test; got 1,500 rows"):
            audit(test.X, train, test)
        with pytest.raises(DataError, match="an encoder, a pipeline or an array; got int"):
            audit(7, train, test)

    def test_a_label_beside_an_array_is_seen(self):
        train, test = pair_of(make_shifted_gaussians, distance=0.0, n_samples=4000, random_state=0)
        train, test = (Table(t.X.assign(a=t.a, y=t.a), sensitive="a", label="y") for t in (train, test))
        assert audit((train.X, test.X), train, test, quick=True).attack_lower == 0
        found = audit((train.X, test.X), train, test, quick=True, released=["label"])
        assert found.released == ("latent", "label")
        assert found.attack_lower > 0.9, "the label is the group"
        with pytest.raises(ValueError, match="released must name .* got 'nonsense'"):
            audit((train.X, test.X), train, test, released=["nonsense"])

    @pytest.mark.parametrize("hole", [np.nan, np.inf])
    def test_holes_are_named(self, hole):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=400, random_state=0)
        with pytest.raises(DataError, match="column 'x0' has NaN or infinity"):
            audit((np.full(train.X.shape, hole), test.X.to_numpy()), train, test)

    def test_says_nothing_about_a_model(self, adult, cells):
        train, _, test = adult
        found = audit((train.X, test.X), train, test, quick=True)
        assert found.model == ""
        with pytest.raises(ValueError, match="it attacked an array"):
            certify(cells.encoder_, test, audit=found)

    def test_a_missing_group_is_named(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=400, random_state=0)
        with pytest.raises(DataError, match=r"the test part, \d+ rows of 2 groups, has none of 0"):
            audit((train.X, test.X[test.a == 1]), train, test.take((test.a == 1).to_numpy()))


class TestCategorical:
    def test_matching_and_its_certificate(self, adult, matching):
        encoder, found = matching
        lines = found.to_frame()
        assert {"likelihood ratio", "boosted trees on inversions", "frequencies of values"} <= set(lines.index)
        assert 0.03 < found.attack_lower < 0.3
        assert set(found.density_gap_lower) == {"0", "1"}
        certificate = certify(encoder, adult[2], audit=found)
        assert certificate.attack_lower == found.attack_lower
        assert certificate.attack_by == found.best
        assert certificate.model == found.model == found.to_dict()["model"]
        weaker = FairMatching(gamma=0.0, density="counts", key=encoder.key_)
        weaker.fit(adult[0])
        with pytest.raises(ValueError, match="it attacked another one"):
            certify(weaker, adult[2], audit=found)

    def test_the_same_key_and_seed_give_the_same_audit(self, adult, cells):
        train, _, test = (part.take(np.arange(2000)) for part in adult)
        assert audit(cells, train, test, quick=True) == audit(cells, train, test, quick=True, n_jobs=2)

    def test_cells_are_attacked_as_they_are_released(self, adult, cells):
        found = audit(cells, adult[0], adult[2], quick=True)
        assert found.released == ("cell",)
        assert set(found.to_frame()["box"]) == {"black"}
        certificate = certify(cells, adult[2], audit=found, target=0.1)
        assert certificate.status == "CERTIFIED"
        assert certificate.rows == found.rows
        assert found.attack_lower <= certificate.cell_upper

    def test_a_released_label_is_seen_by_the_adversary(self, adult, cells):
        found = audit(cells, adult[0], adult[2], quick=True, released=["cell", "label"])
        assert found.attack_lower > 0.1, "the label alone tells .20"
        certificate = certify(cells, adult[2], audit=found, released=["cell", "label"])
        assert certificate.cell_upper > found.attack_lower

    def test_a_latent_beside_its_cells_is_what_is_attacked(self, adult, cells):
        found = audit(cells, adult[0], adult[2], quick=True, released=["cell", "latent"])
        assert "white" in set(found.to_frame()["box"])
        certificate = certify(cells, adult[2], audit=found, released=["cell", "latent"])
        assert certificate.attack_lower == found.attack_lower

    def test_a_wrong_density_is_found(self, adult, matching):
        """Women's density fitted to men's rows, and the other way round."""
        train, _, test = adult
        assert max(matching[1].density_gap_lower.values()) < 0.15
        swapped = FairMatching(gamma=1.0, density="counts")
        swapped.fit(train.X, train.y, sensitive_features=1 - train.a)
        assert min(audit(swapped, train, test, quick=True).density_gap_lower.values()) > 0.3


class TestLaterSteps:
    """Steps between the encoder and the release do not hide the encoder from those who know it."""

    @pytest.fixture(scope="class")
    @classmethod
    def gridded(cls):
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 2000)
        frame = pd.DataFrame(np.round(rng.normal(size=(2000, 3)) + 0.2 * a[:, None], 2), columns=list("uvw"))
        train, test = Table(frame.assign(a=a), sensitive="a").split(test=0.4, validation=0)
        encoder = FairFlow(gamma=0.9, n_epochs=5, dequantise=False, density=MixtureDensity(1), key=bytes(32))
        return encoder.fit(train), train, test

    def audited(self, gridded, step):
        encoder, train, test = gridded
        pipeline = make_pipeline(encoder, step.fit(encoder.transform(train)))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Values outside the training range", DataWarning)
            return audit(pipeline, train, test, quick=True)

    def test_a_step_that_can_be_turned_round(self, gridded):
        found = self.audited(gridded, StandardScaler())
        assert found.best == "grid test"
        assert found.attack_lower > 0.95
        assert found.limits == ()

    def test_a_step_that_loses_something(self, gridded):
        found = self.audited(gridded, PCA(2))
        assert "white" in set(found.to_frame()["box"])
        assert "lose something" in repr(found)

    def test_a_step_that_cannot_be_turned_round(self, gridded):
        found = self.audited(gridded, Normalizer())
        assert set(found.to_frame()["box"]) == {"black"}
        assert "Normalizer cannot be inverted" in repr(found)
        encoder, train, test = gridded
        pipeline = make_pipeline(encoder, Normalizer().fit(encoder.transform(train)))
        certificate = certify(pipeline, test, audit=found, n_draws=2000)
        assert any("Normalizer cannot be inverted" in sentence for sentence in certificate.assumptions)


def test_persons_are_the_units():
    """Copies of a person's row are not more persons, and never on both sides of a split."""
    table = make_shifted_gaussians(1.0, 2000, random_state=0)[0]
    frame = table.X.assign(a=table.a.to_numpy(), who=np.arange(2000))
    many = Table(pd.concat([frame] * 3), sensitive="a", identifier="who")
    train, test = many.split(test=0.5, validation=0)
    found = audit((train.X, test.X), train, test, quick=True)
    assert sum(found.n) == 1000
    assert found.attack_lower < 2 * norm.cdf(0.5) - 1


def several_rows(seed, n=2500, group_in_cell=0.0):
    """Persons with one to four rows, more in one group; two cells, which tell the group now and then."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    who = np.repeat(np.arange(n), rng.integers(1, 3 + a))
    x = np.where(rng.random(len(who)) < group_in_cell, a[who], rng.integers(2, size=len(who)))
    frame = pd.DataFrame({"x": x, "noise": rng.normal(size=len(who)), "a": a[who], "who": who + 1_000_000 * seed})
    return Table(frame, sensitive="a", identifier="who")


@pytest.mark.parametrize("most_rows", [None, 6])
def test_audit_and_certificate_count_the_same_rows(most_rows):
    """At most one row of each person, drawn by the same seed: so a contradiction is noticed."""
    train, test = several_rows(0), several_rows(1)
    release = FixedCells(column("x")).fit(train)
    found = audit(release, train, test, quick=True, most_rows=most_rows, random_state=4)
    certificate = certify(release, test, audit=found, most_rows=most_rows, random_state=4)
    assert tuple(certificate.n.values()) == found.n
    assert sum(found.n) < test.persons.n, "whoever has few rows is taken seldom"
    sample = test.random_rows(4, most_rows or 3)
    assert found.rows == sample.fingerprint(release.key_) != certificate.rows
    lucky = replace(found, attack_lower=certificate.cell_upper + 0.1)
    with pytest.raises(ContradictionError, match="same release on the same rows"):
        certify(release, test, audit=lucky, most_rows=most_rows, random_state=4)
    with pytest.warns(DataWarning, match="on other rows"):
        certify(release, test, audit=lucky, most_rows=most_rows, random_state=5)


def test_rows_of_one_person_are_no_more_evidence():
    """Everybody's rows are alike and tell nothing of the group; counted as persons they would seem to."""
    rng = np.random.default_rng(0)
    tables = []
    for seed in range(2):
        a, x = rng.integers(2, size=150), rng.integers(2, size=150)
        who = np.repeat(np.arange(150), 30) + 1000 * seed
        frame = pd.DataFrame({"x": np.repeat(x, 30), "a": np.repeat(a, 30), "who": who})
        tables.append(Table(frame, sensitive="a", identifier="who"))
    release = FixedCells(column("x")).fit(tables[0])
    found = audit(release, *tables, quick=True)
    assert sum(found.n) == 150
    assert found.attack_lower < 0.05


def test_stating_the_most_rows_is_possible_where_training_knew_nobody():
    train, test = several_rows(0), several_rows(1)
    nobody = Table(train.X.assign(a=train.a).reset_index(drop=True), sensitive="a")
    release = FixedCells(column("x")).fit(nobody)
    with pytest.raises(DataError, match="fitted without persons"):
        audit(release, nobody, test, quick=True)
    assert sum(audit(release, nobody, test, quick=True, most_rows=8).n) < 0.5 * test.persons.n


class LastDigits(Unencoded):
    """Hides the group in digits that a float32 number does not have."""

    def encode(self, rows):
        return pd.DataFrame({"z": np.round(rows.X["noise"], 3) + 1e-12 * rows.group})

    def _names_out(self):
        return ["z"]


class FirstDigits(LastDigits):
    """Hides the group in digits that it has."""

    def encode(self, rows):
        return pd.DataFrame({"z": np.round(rows.X["noise"], 1) + 1e-3 * rows.group})


def test_what_is_written_is_attacked():
    """Numbers in single precision, cells as names without an order."""
    train, test = several_rows(0), several_rows(1)
    assert audit(LastDigits().fit(train), train, test, quick=True).attack_lower < 0.1
    assert audit(FirstDigits().fit(train), train, test, quick=True).attack_lower > 0.9
    target = Target.of(LastDigits().fit(train), train, test, None, None, None, 0, quick=True)
    assert {z["z"].dtype for z in target.Z.values()} == {np.dtype(np.float32)}
    cells = Target.of(FixedCells(column("x")).fit(train), train, test, None, None, None, 0, quick=True)
    assert set(cells.Z["test"]["cell"]) == {"0", "1"}


def test_adversaries_do_not_meet_again_the_noise_that_they_learnt_from():
    """Equal rows of the training and of the test part would have equal noise, and an adversary knew them by heart."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.integers(0, 3, 300), "v": rng.integers(0, 3, 300), "sex": rng.integers(0, 2, 300)})
    table = Table(frame, sensitive="sex")
    released = Released.of(FairFlow(0.5, n_epochs=1, density="mixture", device="cpu").fit(table))
    learnt, tested = (released.encode_again(table, part) for part in ("fit", "test"))
    assert set(learnt.iloc[:, 0]).isdisjoint(tested.iloc[:, 0])
    pd.testing.assert_frame_equal(released.encode_again(table, "test"), tested)


def test_bounds_are_printed_rounded_down():
    train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=1000, random_state=0)
    found = audit((train.X, test.X), train, test, quick=True)
    attacks = tuple(replace(attack, lower=0.12349) for attack in found.attacks)
    text = repr(replace(found, attacks=attacks, attack_lower=0.12349, density_gap_lower={"0": 0.00019}))
    assert "Δ ≥ 0.1234 (balanced accuracy ≥ 56.1 %)" in text
    assert "0.1235" not in text
    assert "0: 0.0001" in text


def test_many_groups_get_fewer_rounds_of_trees():
    two, many = (LEARNERS["boosted trees"].make(0, n_groups)[-1].max_iter for n_groups in (2, 400))
    assert two == 100
    assert many == 10


def test_persons_that_adversaries_learnt_from_prove_nothing():
    train, _ = pair_of(make_shifted_gaussians, distance=1.0, n_samples=1000, random_state=0)
    both = train.take(np.arange(100))
    with pytest.raises(DataError, match="100 test rows are among the training rows"):
        audit((train.X, both.X), train, both)


class TestReference:
    """What an adversary checks of an inverted row."""

    @pytest.fixture
    def reference(self):
        rng = np.random.default_rng(0)
        rows = pd.DataFrame({"wage": rng.integers(10, 99, size=500) * 100, "rate": rng.random(500)})
        return Reference(rows, constraints=[lambda frame: frame["wage"] < 10_000])

    def test_grid_and_range(self, reference):
        values = np.array([[1200.0, 0.5], [1250.0, 0.5], [20_000.0, 0.5]])
        assert reference.off_grid(values, ["wage", "rate"])[:, 0].tolist() == [0, 0.5, 0]
        outside = reference.outside(values, ["wage", "rate"])
        assert outside[0].sum() == 0
        assert outside[2, 0] > 1

    def test_rows(self, reference):
        rows = pd.concat([reference.rows.iloc[:1], reference.rows.iloc[1:2].assign(wage=10_100)])
        assert reference.was_seen(rows).tolist() == [True, False]
        assert reference.broken(rows).tolist() == [0, 1]
        assert reference.to_nearest(rows)[0] == 0 < reference.to_nearest(rows)[1]


def test_progress_bar_does_not_change_the_result(capsys):
    train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=1000, random_state=0)
    assert audit((train.X, test.X), train, test, quick=True, progress=True) == audit(
        (train.X, test.X), train, test, quick=True
    )


def test_gaps_among_numbers_are_seen_by_adversaries():
    """Where the values tell nothing and only their absence does, the audit finds it."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 6000)
    missing = rng.random(6000) < np.where(group == 1, 0.6, 0.1)
    table = Table(
        pd.DataFrame({"x": np.where(missing, np.nan, rng.normal(size=6000)), "a": group}),
        sensitive="a", missing="category",
    )  # fmt: skip
    train, test = table.split(test=0.5, validation=0)
    found = audit(Unencoded().fit(train), train, test, quick=True)
    assert 0.4 < found.attack_lower <= 0.5


class TestShowing:
    def test_plot_has_a_line_for_each_adversary_and_claim(self, matching, adult):
        encoder, found = matching
        certificate = certify(encoder, adult[2], audit=found)
        axes = found.plot(certificate)
        names = [label.get_text() for label in axes.get_yticklabels()][::-1]
        assert names == [f"{a.name} ({a.box} box)" for a in found.attacks] + ["model says at most"]
        colours = {line.get_color() for line in axes.get_lines() if line.get_marker() == ">"}
        assert len(colours) == 2, "the adversary that was chosen stands out"
        assert axes.texts[0].get_text() == f"≤ {rounded_up(certificate.model_upper, 3)}"
        plt.close("all")

    def test_somebody_elses_claim_is_a_number(self, matching):
        _, found = matching
        given = plt.subplots()[1]
        assert found.plot(0.25, ax=given) is given
        assert given.texts[0].get_text() == "≤ 0.250"
        assert len(found.plot().get_yticklabels()) == len(found.attacks)
        plt.close("all")
        with pytest.raises(ValueError, match="claimed must be a Certificate or a distance"):
            found.plot(25)

    def test_html_says_what_the_text_says_and_escapes_it(self, matching):
        _, found = matching
        found = replace(found, groups=("<b>x</b>", "y"), limits=("1 < 2 was not tried",))
        html = found._repr_html_()
        assert "<b>" not in html
        assert "1 &lt; 2 was not tried" in html
        for attack in found.attacks:
            assert f">{attack.name}<" in html
            assert f">{rounded_down(attack.lower)}<" in html
        assert repr(found).splitlines()[0] in html
