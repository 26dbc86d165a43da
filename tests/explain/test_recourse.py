"""Recourse: accepted afterwards, conditions kept, no loop over rows, the groups compared."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fairflows import DataError, FairFlow, FairMatching, Table, recourse
from fairflows.density import MixtureDensity

pytestmark = pytest.mark.usefixtures("few_components")

SMALL = {"n_blocks": 2, "hidden": (16,), "head": (16,)}


@pytest.fixture(scope="module")
def applicants():
    """Numbers on grids and a category; admission depends on score and grade."""
    rng = np.random.default_rng(0)
    n = 900
    a = rng.integers(0, 2, n)
    score = np.clip(np.round(rng.normal(150 - 4 * a, 8)), 120, 180).astype(int)
    grade = np.clip(np.round(rng.normal(3.2, 0.4, n), 1), 2, 4.3)
    college = rng.choice(["hard", "middle", "easy"], n)
    y = (score + 12 * grade + 6 * (college == "easy") + rng.normal(0, 4, n) > 192).astype(int)
    data = pd.DataFrame({"score": score, "grade": grade, "college": college, "race": a, "admit": y})
    return Table(data.rename_axis("person"), sensitive="race", label="admit")


@pytest.fixture(scope="module")
def encoder(applicants):
    settings = {"gamma": 0.3, "density": "mixture", "n_epochs": 15, "kinds": applicants.kinds, "key": bytes(32)}
    return FairFlow(**SMALL, **settings, identifier="person").fit(
        applicants.X, applicants.y, sensitive_features=applicants.a
    )


@pytest.fixture(scope="module")
def few(applicants):
    return applicants.take(range(0, len(applicants), 4))


@pytest.fixture(scope="module")
def advice(encoder, applicants):
    return recourse(encoder, applicants.X, sensitive_features=applicants.a)


def test_only_rejected_rows_get_advice_and_it_is_accepted(encoder, applicants, advice):
    rejected = applicants.X[encoder.predict(applicants.X, sensitive_features=applicants.a) == 0]
    assert advice.before.equals(rejected.loc[advice.before.index])
    assert advice.rejected.sum() == len(rejected)
    group = applicants.a.loc[advice.after.index]
    assert (encoder.predict(advice.after, sensitive_features=group) == 1).all()


def test_without_conditions_most_rows_find_their_nearest_accepted_point(advice):
    assert len(advice.before) > 0.9 * advice.rejected.sum() > 0
    assert (advice.details["candidate"] == 0).mean() > 0.3
    assert advice.details["step"].between(0, 1, inclusive="right").all()


def test_the_first_accepted_row_of_the_line_is_taken(encoder, applicants):
    """By brute force for a few rows, from their own nearest accepted row of the pool."""
    own = recourse(encoder, applicants.X, sensitive_features=applicants.a, pool=applicants, n_candidates=1)
    z = encoder.transform(applicants.X, sensitive_features=applicants.a)
    head = encoder.flow_.head
    accepted = z[(head(torch.tensor(z.to_numpy())[None])[0].argmax(-1) == 1).numpy()].to_numpy()
    for row in own.before.index[:10]:
        group, start = [applicants.a.loc[row]], z.loc[row].to_numpy()
        target = accepted[np.linalg.norm(accepted - start, axis=1).argmin()]
        for t in np.linspace(0, 1, 11):
            point = pd.DataFrame([start + t * (target - start)], columns=z.columns, index=[row]).rename_axis("person")
            candidate = encoder.inverse_transform(point, sensitive_features=group)
            there = head(torch.tensor(point.to_numpy().copy())[None])[0].argmax(-1).item()
            if there == 1 and encoder.predict(candidate, sensitive_features=group)[0] == 1:
                break
        assert own.details.loc[row, "step"] == pytest.approx(t)
        assert own.after.loc[row].equals(candidate.loc[row])


def test_columns_that_stay_do_so_in_every_row(encoder, few):
    kept = recourse(encoder, few.X, sensitive_features=few.a, keep=["college", "grade"])
    assert len(kept.before) > 0.1 * kept.rejected.sum()
    assert kept.before["college"].equals(kept.after["college"])
    assert kept.before["grade"].equals(kept.after["grade"])
    group = few.a.loc[kept.after.index]
    assert (encoder.predict(kept.after, sensitive_features=group) == 1).all()


def test_undoing_a_forbidden_change_is_checked_by_the_classifier(encoder, applicants):
    """Nothing may change at all: no row can be accepted by doing nothing."""
    stuck = recourse(encoder, applicants.X, sensitive_features=applicants.a, keep=list(applicants.X), n_candidates=2)
    assert len(stuck.before) == 0
    assert stuck.summary()["with a way"].eq(0).all()


def test_summary_counts_costs_and_changes(advice, applicants):
    summary = advice.summary()
    assert (summary["with a way"] * summary["rejected"]).sum() == pytest.approx(len(advice.before))
    changes = (advice.after["score"] - advice.before["score"]).groupby(advice.details["group"]).mean()
    assert np.allclose(summary["mean change of score"], changes)
    moved = (advice.after["score"] - advice.before["score"]).abs() / applicants.X["score"].std()
    assert (advice.details["cost"] >= moved - 1e-9).all()
    assert advice.details["plausibility"].between(0, 1).all()
    assert list(advice.to_frame())[:5] == ["group", "step", "candidate", "cost", "plausibility"]


def test_a_classifier_of_ones_own(encoder, few):
    z = encoder.transform(few.X, sensitive_features=few.a)
    h = LogisticRegression().fit(z, few.y)
    advice = recourse(encoder, few.X, sensitive_features=few.a, classifier=h, n_candidates=1)
    assert advice.rejected.sum() == (h.predict(z) == 0).sum()


def test_rows_that_nobody_named_get_the_same_advice_again(few):
    """Their noise is that of their index, in encoding and in plausibility; and a table may be passed as it is."""
    table = Table(few.X.reset_index(drop=True), sensitive=few.a, label=few.y)
    encoder = FairFlow(n_epochs=3, density=MixtureDensity(1), kinds=table.kinds, **SMALL).fit(table)
    first, again = (recourse(encoder, table, n_candidates=2) for _ in range(2))
    assert len(first.before) > 0
    pd.testing.assert_frame_equal(first.to_frame(), again.to_frame())
    parts = recourse(encoder, table.X, sensitive_features=table.a, n_candidates=2)
    pd.testing.assert_frame_equal(first.to_frame(), parts.to_frame())


def test_errors_name_what_is_wrong(encoder, applicants):
    X, a = applicants.X, applicants.a
    with pytest.raises(DataError, match="colege"):
        recourse(encoder, X, sensitive_features=a, keep=["colege"])
    with pytest.raises(DataError, match="pass sensitive_features"):
        recourse(encoder, X)
    with pytest.raises(ValueError, match="favourable must be one of"):
        recourse(encoder, X, sensitive_features=a, favourable="yes")
    with pytest.raises(ValueError, match="n_candidates"):
        recourse(encoder, X, sensitive_features=a, n_candidates=0)


def test_other_encoders_say_why_not(applicants):
    matching = FairMatching(density="counts").fit(applicants.X, applicants.y, sensitive_features=applicants.a)
    with pytest.raises(DataError, match="continuous inverse"):
        recourse(matching, applicants.X, sensitive_features=applicants.a)
