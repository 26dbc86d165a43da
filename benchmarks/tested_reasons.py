"""Test supposed reasons why numbers of ours differ from the paper's: see "Line by line" in docs/reproduction.md.

    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py area       # figure 7: the ends of the curve
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py matches    # figure 9: matches without fairness
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py attacks    # table 1: how the baselines are attacked
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py adult      # table 4, Adult with all features
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py recourse   # Law School: what the authors' notebook computes

Each part prints what comes out with the supposed reason and without it, on the seeds of the experiment.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier

from fairflows import FairFlow, Table, load_adult
from fairflows.explain import matched_pairs
from fairflows.paper.experiments import problems
from fairflows.paper.experiments.adversaries import (
    adversary_accuracies,
    balanced_accuracy,
    latents,
    standardised,
)
from fairflows.paper.experiments.applications import N_CLUSTERS, PAPER_MATCHES
from fairflows.paper.experiments.baseline_comparison import BASELINES, PAPER
from fairflows.paper.experiments.dataset_tables import AUTHORS, network_accuracies
from fairflows.paper.experiments.problems import changed, fit_crime, train_and_test
from fairflows.paper.experiments.result import Setting
from fairflows.paper.experiments.trade_offs import PAPER_AREAS, SCALARISATION_GAMMAS
from fairflows.paper.experiments.trade_offs import area as area_under
from fairflows.table.persons import Persons

Array = npt.NDArray[np.float64]

ALPHA = 0.05  # of the logit, in the paper and in our codec


def area(setting: Setting) -> pd.DataFrame:
    """The area under Crime's curve, up to several γ: the paper does not say where its curve ends."""
    frame = fit_crime(setting, setting.seed_list(), SCALARISATION_GAMMAS).frontier.to_frame()
    rows = []
    for largest in SCALARISATION_GAMMAS[2:]:
        part = frame[frame["gamma"] <= largest]
        areas = [area_under(curve["delta"], curve["balanced_accuracy"]) for _, curve in part.groupby("seed")]
        least = part.groupby("gamma")["delta"].mean().min()
        rows.append({"largest γ": largest, "least Δ": least, "area": np.mean(areas), "paper": PAPER_AREAS["convex"]})
    return pd.DataFrame(rows)


def matches(setting: Setting) -> pd.DataFrame:
    """Mean log-likelihoods of Crime's rows and of their matches without fairness, for every seed."""
    fitted = fit_crime(setting, setting.seed_list(), [0.0])
    rows = []
    for seed, encoder in zip(setting.seed_list(), fitted.frontier.encoders, strict=True):
        pairs = matched_pairs(encoder, fitted.train.X, sensitive_features=fitted.train.a)
        everybody = pairs.summary(np.zeros(len(fitted.train), dtype=int)).iloc[0]
        clusters = pairs.summary(pairs.clusters(n_clusters=N_CLUSTERS))["log p(match)"]
        rows.append({
            "seed": seed, "rows": everybody["log p(x)"], "matches": everybody["log p(match)"],
            "matches, clusters from": clusters.min(), "to": clusters.max(), "paper, one cluster": PAPER_MATCHES[0.0][1],
        })  # fmt: skip
    return pd.DataFrame(rows)


def attacks(setting: Setting) -> pd.DataFrame:
    """Table 1's baselines, attacked as we do, and as in the source that the paper names for them.

    That source fits scikit-learn's network, of one hidden layer, to the groups as they are, and reports plain accuracy.
    """
    train, test = train_and_test(load_adult("all"))
    a, a_test = train.a.to_numpy(), test.a.to_numpy()
    rows = []
    for name in ("Adversarial Forgetting", "MaxEnt-ARL"):
        attacked, seeds = BASELINES[name], setting.seed_list()
        baseline = changed(attacked.baseline, device=setting.device)
        encoders = baseline.fit_many(train, strengths=[attacked.strength], seeds=seeds)
        for standardise in (False, True):
            z, z_test = (latents(encoders, part) for part in (train, test))
            if standardise:
                z, z_test = standardised(z, z_test)
            networks = [MLPClassifier((50,), max_iter=1000, n_iter_no_change=10, random_state=seed) for seed in seeds]
            guess = np.array([network.fit(z[m], a).predict(z_test[m]) for m, network in enumerate(networks)])
            ours = adversary_accuracies(
                encoders, train, test, epochs=30, hidden=attacked.inside, standardise=standardise, device=setting.device
            )
            rows.append({
                "method": name, "z": "standardised" if standardise else "as it is", "ours, balanced": ours.mean(),
                "the source's, balanced": balanced_accuracy(guess, a_test, a_test).mean(),
                "the source's, plain": np.mean(guess == a_test), "paper": PAPER[name][1 + standardise],
            })  # fmt: skip
    return pd.DataFrame(rows)


def adult(setting: Setting) -> pd.DataFrame:
    """Balanced accuracy of the authors' network on all of Adult's features, numbers prepared in several ways."""
    train, test = train_and_test(load_adult("all"))
    numbers = list(train.X.select_dtypes("number"))
    quarters = {name: np.quantile(train.X[name], (0.25, 0.5, 0.75)) for name in numbers}

    def cut(part: Table) -> Table:
        places = {name: np.digitize(part.X[name], edges).astype(str) for name, edges in quarters.items()}
        return Table(
            part.X.assign(**places), sensitive=part.a, label=part.y, kinds=dict.fromkeys(numbers, "categorical")
        )

    ways = {
        "standardised": (train, test, list(train.X)),
        "cut at their quartiles, as the authors' loader can": (cut(train), cut(test), list(train.X)),
        "left out": (train, test, [name for name in train.X if name not in numbers]),
    }
    rows = []
    for way, (fit, held, columns) in ways.items():
        accuracies = 100 * network_accuracies(fit, held, columns, AUTHORS["Adult"], setting)
        rows.append({"numbers": way, "balanced accuracy": accuracies.mean(), "sd": accuracies.std(), "paper": 85.0})
    return pd.DataFrame(rows)


def recourse(setting: Setting) -> pd.DataFrame:
    """The notebook's mean changes of LSAT and GPA where the college stays.

    The notebook passes rows that are in model space already through a clamp and the logit once more, and decodes every
    rejected point by both groups' flows instead of its own group's.
    """
    problem = problems.law().at(setting)
    train, _ = problem.tables()
    rows = []
    for seed, model in zip(setting.seed_list(), _law_encoders(problem.encoder, train, setting), strict=True):
        read = model.read(train)
        x, _ = model.codec_.encode(read.X, Persons.of(np.arange(len(train))))
        for twice in (False, True):
            z = np.empty_like(x)
            for a in range(2):
                mine = read.group == a
                z[mine] = _encoded(model, a, logit(np.clip(x[mine], ALPHA / 2, 1 - ALPHA)) if twice else x[mine])
            h = LogisticRegression().fit(z, train.y)
            accepted = h.predict(z) == 1
            start, end = z[~accepted], _first_accepted(h, z[~accepted], z[accepted])
            for both in (False, True):
                for a, (name, paper) in enumerate((("white", 7.7), ("non-white", 4.2))):
                    asked = np.full(len(start), True) if both else read.group[~accepted] == a
                    before, after = (_decoded(model, a, points[asked]) for points in (start, end))
                    stays = before["college"] == after["college"]
                    change = (after[["LSAT", "GPA"]].astype(float) - before[["LSAT", "GPA"]].astype(float))[
                        stays
                    ].mean()
                    rows.append({
                        "logit": "twice" if twice else "once", "decoded by": "both flows" if both else "its own flow",
                        "group": name, "seed": seed, **change, "college stays": stays.mean(), "paper: LSAT": paper,
                    })  # fmt: skip
    keys = ["logit", "decoded by", "group"]
    return pd.DataFrame(rows).drop(columns="seed").groupby(keys, sort=False).mean().reset_index()


def _law_encoders(encoder: FairFlow, train: Table, setting: Setting) -> list[FairFlow]:
    return encoder.fit_many(train, strengths=[1.0], seeds=setting.seed_list())


def _encoded(model: FairFlow, a: int, x: Array) -> Array:
    with torch.no_grad():
        return model.flow_.bijection.select_group(a).forward(torch.as_tensor(x))[0].reshape(x.shape).numpy()


def _decoded(model: FairFlow, a: int, z: Array) -> pd.DataFrame:
    with torch.no_grad():
        x = model.flow_.bijection.select_group(a).inverse(torch.as_tensor(z))[0].reshape(z.shape).numpy()
    return model.codec_.decode(x)[0]


def _first_accepted(h: LogisticRegression, start: Array, accepted: Array) -> Array:
    """On the way from each point to the nearest accepted one, in tenths, the first that is accepted."""
    nearest = accepted[NearestNeighbors(n_neighbors=1).fit(accepted).kneighbors(start, return_distance=False)[:, 0]]
    found, open_ = nearest.copy(), np.full(len(start), True)
    for share in np.linspace(0, 1, 11):
        point = start + share * (nearest - start)
        reached = open_ & (h.predict(point) == 1)
        found[reached], open_ = point[reached], open_ & ~reached
    return found


PARTS = {"area": area, "matches": matches, "attacks": attacks, "adult": adult, "recourse": recourse}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS, nargs="*", default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in asked.part:
        start = time.perf_counter()
        found = PARTS[name](Setting(seeds=asked.seeds, device=asked.device))
        print(f"{name}\n{found.to_string(index=False, float_format='{:.3f}'.format)}")
        print(f"{time.perf_counter() - start:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
