"""Time the encoders of cells on Adult's 329,280 cells: densities, maps, couplings, and a million rows encoded.

python benchmarks/categorical.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from fairflows.bounds import exact_statistical_distance
from fairflows.encoder import fair_matching
from fairflows.encoder.fair_matching import FairMatching
from fairflows.table.examples import load_adult

N_ROWS = 1_000_000
GAMMAS = [0.0, 0.02, 0.1, 0.2, 0.9]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    train, _, test = load_adult().paper_split()
    many = np.random.default_rng(0).integers(0, len(test), N_ROWS)
    X = test.X.iloc[many].set_axis(pd.RangeIndex(N_ROWS, name="person"))
    a = test.a.iloc[many].to_numpy()
    torch.zeros(1)
    seconds: dict[str, float] = {}

    with (
        timed(seconds, "matching: fit, five gammas"),
        fitting_apart(seconds, "matching: of which densities"),
    ):
        fitted = FairMatching().fit_path(train.X, train.y, sensitive_features=train.a, strengths=GAMMAS, seeds=[0])
    maps = seconds["matching: fit, five gammas"] - seconds["matching: of which densities"]
    seconds["matching: of which maps, laws and checks"] = maps
    with timed(seconds, "matching: encode a million rows"):
        fitted[2].transform(X, sensitive_features=a)

    distances = [exact_statistical_distance(encoder.latent_laws_) for encoder in fitted]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads")
    for name, value in seconds.items():
        print(f"{name:<45}{value:8.2f} s")
    print("Δ of the model at γ = " + ", ".join(f"{g:g}: {d:.4f}" for g, d in zip(GAMMAS, distances, strict=True)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"seconds": seconds, "distance": distances}, file, indent=2)


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


@contextmanager
def fitting_apart(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Time the fitting of combinations, densities and classifier, within what is timed around it."""
    original = fair_matching._fit_combination_model

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with timed(seconds, name):
            return original(*args, **kwargs)

    with patch.object(fair_matching, "_fit_combination_model", wrapped):
        yield


if __name__ == "__main__":
    main()
