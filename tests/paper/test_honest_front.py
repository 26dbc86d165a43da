"""The honest front: its counts and its distance from the paper's front, on models of known numbers."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fairflows.paper.experiments.honest_front import DEFAULTS, MIXTURE, PAPER, outcome


def model(way: str, upper: float, attack: float, accuracy: float, gaps: float = 0.0) -> dict[str, object]:
    return {
        "data": "blobs", "way": way, "gamma": 0.5, "seed": 200, "Δ ≤": upper, "gaps": gaps, "Δ + gaps": upper + gaps,
        "attack ≥": attack, "by": "likelihood ratio", "deconvolved ≥": attack, "black box ≥": attack,
        "refuted": attack > upper, "accuracy": accuracy, "smoothing": 0.0, "fit s": 1.0, "audit s": 1.0,
    }  # fmt: skip


@pytest.fixture
def found():
    models = [
        model(PAPER, 0.2, 0.3, 0.70),
        model(PAPER, 0.6, 0.3, 0.80),
        model(MIXTURE, 0.2, 0.5, 0.74, gaps=0.4),
        model(DEFAULTS, 0.4, 0.3, 0.72),  # the front has .75 there
        model(DEFAULTS, 0.9, 0.3, 0.50),  # where the front has nothing
    ]
    yield outcome(pd.DataFrame(models), "drawn", [])
    plt.close("all")


def test_refuted_models_are_counted_by_way(found):
    counts = found.table.groupby("way")[["refuted", "of"]].sum()
    assert counts.T.to_dict("list") == {DEFAULTS: [0, 2], MIXTURE: [1, 1], PAPER: [1, 2]}
    notes = " ".join(found.notes)
    assert f"{DEFAULTS}: 0 of 2, {MIXTURE}: 1 of 1, {PAPER}: 1 of 2." in notes
    assert "Δ + gaps exceeds the strongest attack in 4 of 5 models" in notes


def test_accuracy_is_compared_at_the_same_distance_only(found):
    models = found.details["models"].set_index(["way", "Δ ≤"])["below the paper's front"]
    assert models[DEFAULTS, 0.4] == pytest.approx(0.03)
    assert np.isnan(models[DEFAULTS, 0.9])
    assert models[MIXTURE, 0.2] == pytest.approx(-0.04)
    assert "at most 3.0 points" in " ".join(found.notes)
