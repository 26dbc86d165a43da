"""Choose what the paper leaves open without a look at test rows or at the seeds that are reported (200 and up).

    OMP_NUM_THREADS=1 python benchmarks/choose_settings.py made      # weight decay of MADE on Adult and Compas
    OMP_NUM_THREADS=1 python benchmarks/choose_settings.py crime     # figure 8: length and decay of two densities
    OMP_NUM_THREADS=1 python benchmarks/choose_settings.py blobs     # figure 3: spline encoders; long, best on a GPU

Densities are chosen by the likelihood of held-out training rows. The blobs are drawn anew, with other seeds than those
of figure 3, and encoders are chosen by the lowest recovery of a network on a second draw, at an accuracy of at least
.95. Each part prints all candidates, best first.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows import FairFlow, load_adult
from fairflows.bijection import RealNVP
from fairflows.density import FlowDensity
from fairflows.density.combinations import CombinationCounts
from fairflows.density.estimated import CategoricalMADE
from fairflows.paper import load_compas, load_crime, make_gaussians
from fairflows.paper.experiments.problems import labels_of, train_and_test
from fairflows.paper.experiments.trade_offs import Autoregressive
from fairflows.paper.experiments.trained_heads import adversary_accuracies

SEEDS = range(3)  # of densities
BLOB_SEEDS = range(10)


def made_decay() -> pd.DataFrame:
    """Mean log-likelihood of the paper's validation rows, for densities fitted to its training rows."""
    rows = []
    for name, load, hidden in (("Adult", load_adult, (50, 50)), ("Compas", load_compas, (20, 20))):
        train, validation, _ = load().paper_split()
        levels = [len(train.X[column].cat.categories) for column in train.X]
        of_group = [[_cells(part.X[part.a == g], levels) for part in (train, validation)] for g in train.groups]
        for decay in (0.0, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3):
            likelihoods = []
            for seed in SEEDS:
                models = [CategoricalMADE(levels, hidden, weight_decay=decay, random_state=seed) for _ in of_group]
                for model, (fitted, _) in zip(models, of_group, strict=True):
                    order = np.random.default_rng(seed).permutation(len(fitted))
                    parts = np.split(fitted[order], [len(order) // 5])
                    model.fit(CombinationCounts.of(parts[1]), CombinationCounts.of(parts[0]))
                scores = [model.log_prob(held).mean() for model, (_, held) in zip(models, of_group, strict=True)]
                likelihoods.append(np.array(scores))
            rows.append({"data": name, "weight decay": decay, **_by_group(likelihoods)})
    return pd.DataFrame(rows).sort_values(["data", "mean"], ascending=[True, False])


def _cells(X: pd.DataFrame, levels: list[int]) -> np.ndarray:
    """Return the codes of rows of categories."""
    return np.ravel_multi_index([X[column].cat.codes for column in X], levels)


def crime_densities() -> pd.DataFrame:
    """Mean log-likelihood of a fifth of Crime's training rows, for densities fitted to the others."""
    train, _ = train_and_test(load_crime())
    kinds = {"autoregressive": Autoregressive(2), "RealNVP": RealNVP(2, hidden=(20, 20))}
    rows = []
    for (name, kind), n_steps, decay in product(kinds.items(), (300, 600, 1200), (1e-4, 1e-3, 1e-2)):
        density = FlowDensity(kind, n_steps=n_steps, weight_decay=decay)
        encoder = FairFlow(density=density, n_epochs=1, dequantise=False, validation=0.2, device="cpu")
        fitted = [encoder.set_params(random_state=seed).fit(train).held_out_log_likelihood_ for seed in SEEDS]
        rows.append({"density": name, "steps": n_steps, "weight decay": decay, **_by_group(fitted)})
    return pd.DataFrame(rows).sort_values(["density", "mean"], ascending=[True, False])


def blobs() -> pd.DataFrame:
    """What a network recovers of a second draw, and the accuracy, for spline encoders with known densities."""
    (train, known), (test, _) = (make_gaussians(2048, random_state=seed) for seed in (0, 1))
    rows = []
    for epochs, n_restarts in product((30, 60, 100), (1, 3)):
        flow = FairFlow(
            bijection="spline", density=known, n_restarts=n_restarts, n_epochs=epochs, ramp_epochs=epochs,
            batch_size=128, weight_decay=0,
        )  # fmt: skip
        encoders = flow.fit_path(train, strengths=[0.5], seeds=list(BLOB_SEEDS))
        recovery = adversary_accuracies(encoders, train, test, epochs=100, device="auto")
        accuracy = [(encoder.predict(test) == labels_of(test)).mean() for encoder in encoders]
        line = {"epochs": epochs, "starts": n_restarts, "recovery, median": np.median(recovery)}
        rows.append(line | {"recovery, highest": recovery.max(), "accuracy, lowest": np.min(accuracy)})
    found = pd.DataFrame(rows)
    return found.assign(useful=found["accuracy, lowest"] >= 0.95).sort_values(
        ["useful", "recovery, highest"], ascending=[False, True]
    )


def _by_group(likelihoods: list[npt.NDArray[np.float64]]) -> dict[str, float]:
    """Means over seeds for each group and over both, from one pair per seed."""
    means, spread = np.mean(likelihoods, axis=0), np.std(likelihoods, axis=0).mean()
    return {"a = 0": means[0], "a = 1": means[1], "mean": means.mean(), "sd over seeds": spread}


PARTS = {"made": made_decay, "crime": crime_densities, "blobs": blobs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS, nargs="*", default=list(PARTS))
    warnings.simplefilter("ignore")
    for name in parser.parse_args().part:
        start = time.perf_counter()
        print(f"{name}\n{PARTS[name]().to_string(index=False, float_format='{:.4g}'.format)}")
        print(f"{time.perf_counter() - start:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
