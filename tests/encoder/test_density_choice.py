"""What FairFlow chooses by held-out rows: densities and smoothing; and the adversary who takes the noise off."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataWarning, FairFlow, Table, audit, certify
from fairflows.bijection import AutoregressiveSpline
from fairflows.density import FlowDensity, MixtureDensity
from fairflows.encoder import flow_densities

pytestmark = pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning")
N = 4000


def heaped(seed: int) -> Table:
    """Whole numbers of one normal law in both groups; but those of group 0 are rounded to fives."""
    rng = np.random.default_rng(seed)
    a = np.arange(N) % 2
    value = rng.normal(50, 12, (N, 2)).clip(1, 99)
    value = np.where(a[:, None] == 0, 5 * np.round(value / 5), np.round(value))
    frame = pd.DataFrame(value.astype(int), columns=["x1", "x2"]).assign(a=a, y=(value[:, 0] > 50).astype(int))
    return Table(frame, sensitive="a", label="y")


def normal(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    a = np.arange(N) % 2
    frame = pd.DataFrame(rng.normal(size=(N, 2)) + a[:, None], columns=["x1", "x2"]).assign(a=a)
    return Table(frame, sensitive="a")


def fitted(table: Table, **settings: object) -> FairFlow:
    return FairFlow(0.9, n_epochs=4, **({"density": MixtureDensity(2)} | settings)).fit(table)


@pytest.fixture(scope="module")
def plain():
    return fitted(heaped(0), smoothing=0)


@pytest.fixture(scope="module")
def smoothed():
    return fitted(heaped(0))


def test_heaps_ask_for_smoothing_and_normal_rows_for_none(plain, smoothed):
    assert smoothed.smoothing_ >= 0.1
    assert smoothed.density_gaps_[0] < plain.density_gaps_[0] - 0.2
    assert fitted(normal(0)).smoothing_ == 0


def test_a_large_gap_is_warned_of():
    with pytest.warns(DataWarning, match=r"Distance of the densities from the truth at least .*: 0: 0\.[3-9]"):
        fitted(heaped(0), smoothing=0)


def test_who_takes_the_noise_off_refutes_what_was_not_smoothed(plain, smoothed):
    """The control: a smooth density over heaps, whose bound is near 0 while the heaps tell the group."""
    learn, judge = heaped(1), heaped(2)
    found = {name: audit(model, learn, judge, quick=True) for name, model in (("no", plain), ("yes", smoothed))}
    by = {name: {a.name: a.lower for a in attacks.attacks} for name, attacks in found.items()}
    assert {"deconvolved columns", "deconvolved rows", "boosted trees, deconvolved"} < set(by["no"])
    refuted = certify(plain, judge, audit=found["no"], n_draws=20_000)
    assert refuted.status == "REFUTED"
    assert by["no"]["deconvolved columns"] > refuted.model_upper
    assert by["no"]["deconvolved rows"] > refuted.model_upper
    for name in ("deconvolved columns", "deconvolved rows"):
        assert by["yes"][name] < by["no"][name] - 0.2


def test_each_group_gets_the_density_that_explains_held_out_rows_better(monkeypatch):
    """Group 0 lies on a narrow ring, which splines follow; group 1 is normal, where a mixture has nothing to learn."""
    monkeypatch.setattr(flow_densities, "_STEPS", (150, 150))
    monkeypatch.setattr(flow_densities, "_FEW", N)
    rng = np.random.default_rng(0)
    a, angle = np.arange(N) % 2, rng.uniform(0, 2 * np.pi, N)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.02, (N, 2))
    rows = np.where(a[:, None] == 0, ring, rng.normal(0, 0.3, (N, 2)))
    table = Table(pd.DataFrame(rows, columns=["x1", "x2"]).assign(a=a), sensitive="a")
    auto, *each = (
        fitted(table, density=density, smoothing=0) for density in ("auto", "autoregressive", MixtureDensity())
    )
    kinds = [type(density) for density in auto.flow_.densities.members]
    likelihood = np.array([encoder.held_out_log_likelihood_ for encoder in each])
    assert kinds == [(FlowDensity, MixtureDensity)[k] for k in likelihood.argmax(axis=0)]
    np.testing.assert_allclose(auto.held_out_log_likelihood_, likelihood.max(axis=0), atol=1e-5)


def twelve_levels() -> Table:
    """A category whose levels are frequent and rare by turns, and a number."""
    rng = np.random.default_rng(0)
    level = rng.choice(12, N, p=np.array([1, 12] * 6) / 78)
    return Table(pd.DataFrame({"x": level.astype(str), "u": rng.normal(size=N), "a": np.arange(N) % 2}), sensitive="a")


def test_splines_have_three_bins_for_every_level(monkeypatch):
    monkeypatch.setattr(flow_densities, "_STEPS", (2, 2))
    table = twelve_levels().take(range(200))
    numbers = Table(table.X[["u"]].assign(v=np.arange(200.0) ** 0.5, a=table.a), sensitive="a")
    for rows, bins in ((table, 36), (numbers, 16)):
        found = FairFlow(density="autoregressive", smoothing=0, n_epochs=1).fit(rows)
        assert found.flow_.densities.members[0].flows.n_bins == bins


@pytest.mark.slow
def test_bins_for_every_level_explain_held_out_rows_better(monkeypatch):
    monkeypatch.setattr(flow_densities, "_STEPS", (400, 400))
    by_level = fitted(twelve_levels(), density="autoregressive", smoothing=0)
    few = fitted(twelve_levels(), density=FlowDensity(AutoregressiveSpline(2, n_bins=16), n_steps=400), smoothing=0)
    assert (by_level.held_out_log_likelihood_ > few.held_out_log_likelihood_ + 0.02).all()
