"""Test supposed reasons why numbers of ours differ from the paper's: see "Line by line" in docs/reproduction.md.

    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py area       # figure 7: the ends of the curve
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py turn --seeds 100       # figure 3: the label turn
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py attacks    # table 1: how the baselines are attacked
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py adult      # table 4, Adult with all features
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py recourse   # Law School: what the authors' notebook computes
    OMP_NUM_THREADS=1 python benchmarks/tested_reasons.py transfer --authors ../fnf   # Health: the authors' own code

Each part prints what comes out with the supposed reason and without it, on the seeds of the experiment.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fairflows import FairFlow, Table, load_adult
from fairflows.arrays import NDArray
from fairflows.bijection import RealNVP, StackedMLP
from fairflows.density import Density, GroupDensities
from fairflows.density.base import FreshNoise
from fairflows.paper.datasets import load_health
from fairflows.paper.experiments import problems
from fairflows.paper.experiments.applications import PAPER_RECOURSE, TRANSFER_EPOCHS
from fairflows.paper.experiments.attacks import BASELINES, PAPER_BASELINES
from fairflows.paper.experiments.dataset_tables import AUTHORS, network_accuracies
from fairflows.paper.experiments.drawn_data import RECOVERY_ATTACKS, TRAINED, contestants
from fairflows.paper.experiments.outcome import FIRST_SEED, Setting
from fairflows.paper.experiments.problems import (
    AUTHORS_STEPS,
    changed,
    fit_crime,
    health_density,
    labels_of,
    train_and_test,
)
from fairflows.paper.experiments.trade_offs import PAPER_AREAS, PAPER_BIJECTIONS, SCALARISATION_GAMMAS
from fairflows.paper.experiments.trade_offs import area as area_under
from fairflows.paper.experiments.trained_heads import (
    adversary_accuracies,
    balanced_accuracy,
    latents,
    plain_accuracy,
    standardised,
)
from fairflows.paper.gaussians import make_gaussians
from fairflows.table.persons import Persons
from fairflows.training.loop import GroupRows, TrainingSettings, train

Array = NDArray[np.float64]

ALPHA = 0.05  # of the logit, in the paper and in our codec
N_DRAWS = 40_000


def area(setting: Setting) -> pd.DataFrame:
    """The area under Crime's curve, up to several γ, and under the four points of the paper's table 2.

    The paper does not say where its curve ends.
    """
    frame = fit_crime(setting, setting.seed_list(), SCALARISATION_GAMMAS).frame()
    rows = []
    for largest in SCALARISATION_GAMMAS[2:]:
        part = frame[frame["gamma"] <= largest]
        areas = [area_under(curve["distance"], curve["balanced_accuracy"]) for _, curve in part.groupby("seed")]
        least = part.groupby("gamma")["distance"].mean().min()
        rows.append({"largest γ": largest, "least Δ": least, "area": np.mean(areas), "paper": PAPER_AREAS["convex"]})
    of_table_2 = pd.DataFrame(PAPER_BIJECTIONS["realnvp"])
    rows.append({
        "largest γ": "the paper's table 2", "least Δ": of_table_2["Δ"].min(),
        "area": area_under(of_table_2["Δ"], of_table_2["accuracy"]), "paper": PAPER_AREAS["convex"],
    })  # fmt: skip
    return pd.DataFrame(rows)


def turn(setting: Setting) -> pd.DataFrame:
    """Figure 3 with the label turn, one start: how well the group is recovered, and the accuracy, for every seed."""
    train, known = make_gaussians(2048, random_state=FIRST_SEED)
    test, _ = make_gaussians(2048, random_state=FIRST_SEED + 1)
    untrained, gamma = contestants(train, known, setting)["FNF, label turn"]
    encoders = untrained.fit_path(train, strengths=[gamma], seeds=setting.seed_list())
    recovered = RECOVERY_ATTACKS[TRAINED](encoders, train, test, device=setting.device)
    accuracy = [plain_accuracy(encoder, test) for encoder in encoders]
    return pd.DataFrame({"seed": setting.seed_list(), "a recovered": recovered, "accuracy": accuracy})


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
        encoders = baseline.fit_path(train, strengths=[attacked.strength], seeds=seeds)
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
                "the source's, plain": np.mean(guess == a_test), "paper": PAPER_BASELINES[name][1 + standardise],
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

    The notebook passes rows that are in model space already through a clamp and the logit once more, takes whites only
    until the non-whites are used up, and decodes every rejected point by both groups' flows instead of its own group's.
    """
    problem = problems.law().at(setting)
    train, _ = problem.tables()
    rows = []
    for seed, model in zip(setting.seed_list(), _law_encoders(problem.encoder, train, setting), strict=True):
        read = model.read(train)
        x, _ = model.codec_.encode(read.X, Persons.of(np.arange(len(train))))
        some_whites = np.random.default_rng(seed).choice(
            np.flatnonzero(read.group == 0), (read.group == 1).sum(), False
        )
        as_many = np.sort(np.concatenate([some_whites, np.flatnonzero(read.group == 1)]))
        for twice, equal in product((False, True), (False, True)):
            kept = as_many if equal else np.arange(len(train))
            group, z = read.group[kept], np.empty_like(x[kept])
            for a in range(2):
                mine = x[kept][group == a]
                z[group == a] = _encoded(model, a, logit(np.clip(mine, ALPHA / 2, 1 - ALPHA)) if twice else mine)
            h = LogisticRegression().fit(z, labels_of(train)[kept])
            accepted = h.predict(z) == 1
            start, end = z[~accepted], _first_accepted(h, z[~accepted], z[accepted])
            for both, (a, (name, paper, _)) in product((False, True), PAPER_RECOURSE.items()):
                asked = np.full(len(start), True) if both else group[~accepted] == a
                before, after = (_decoded(model, a, points[asked]) for points in (start, end))
                stays = before["college"] == after["college"]
                change = (after[["LSAT", "GPA"]].astype(float) - before[["LSAT", "GPA"]].astype(float))[stays].mean()
                rows.append({
                    "logit": "twice" if twice else "once", "whites": "as many as others" if equal else "all",
                    "decoded by": "both flows" if both else "its own flow", "group": name, "seed": seed, **change,
                    "college stays": stays.mean(), "paper: LSAT": paper,
                })  # fmt: skip
    keys = ["logit", "whites", "decoded by", "group"]
    return pd.DataFrame(rows).drop(columns="seed").groupby(keys, sort=False).mean().reset_index()


@dataclass(frozen=True)
class TransferRows:
    """Rows of transfer's columns, group after group, scaled as in the authors' code; `step` is that of each grid."""

    rows: dict[str, list[Tensor]]
    labels: dict[str, list[Tensor]]
    step: Tensor

    @classmethod
    def load(cls) -> Self:
        """From the published aggregate."""
        table = load_health("transfer")
        x, a = torch.as_tensor(table.X.to_numpy(np.float32)), table.a.to_numpy()
        y = torch.as_tensor(table.y.to_numpy(np.int64))
        train = x[table.parts == "train"]
        low, high = train.min(0).values, train.max(0).values + _steps(train)

        def scaled(rows: Tensor) -> Tensor:
            return (1 - ALPHA) * ((rows.clamp(low, high) - low) / (high - low) - 0.5) + 0.5

        mine = {part: [(table.parts == part) & (a == k) for k in range(2)] for part in ("train", "validation")}
        return cls(
            {part: [scaled(x[group]) for group in groups] for part, groups in mine.items()},
            {part: [y[group] for group in groups] for part, groups in mine.items()},
            _steps(scaled(train)),
        )

    def noisy(self, part: str) -> list[Tensor]:
        """The rows with noise, in model space."""
        return [(x + self.step * torch.rand(x.shape)).clamp(ALPHA / 2, 1 - ALPHA / 2).logit() for x in self.rows[part]]

    def batches(self, part: str) -> list[DataLoader[tuple[Tensor, ...]]]:
        """What the authors' training reads."""
        groups = (TensorDataset(*group) for group in zip(self.rows[part], self.labels[part], strict=True))
        return [DataLoader(group, 256, shuffle=True, drop_last=part == "train") for group in groups]


class AuthorsDensity(Density):
    """A density that the authors' code has trained."""

    def __init__(self, flow: nn.Module, n_features: int):
        super().__init__()
        self.flow, self.n_features = flow, n_features

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """It is fitted already."""
        return self

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (...) of points (..., D)."""
        return self.flow.log_prob(x.reshape(-1, self.n_features)).view(x.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (n, D), from torch's own generator."""
        return self.flow.sample((n,))


AUTHORS_TRANSFER = argparse.Namespace(
    prior_epochs=TRANSFER_EPOCHS, n_epochs=TRANSFER_EPOCHS, adv_epochs=0, log_epochs=TRANSFER_EPOCHS,
    kl_start=0, kl_end=5, gamma=0.2, lr=1e-3, weight_decay=0.0, n_blocks=6, batch_size=256, alpha=ALPHA,
    n_flows=1, fair_criterion="stat_parity", scalarization="convex", no_early_stop=True, out_file=None,
    load_prior=False, load_enc=False, save_enc=False,
)  # fmt: skip
FLOW, HEAD = (100, 100, 50), (100, 50, 20)

Encode = Callable[[Tensor], Tensor]
"""Points (K, n, D) of all groups, each by its own group's flow."""

Decode = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Latents (n, D) by every group's flow: points (K, n, D) and the logarithms of the determinants (K, n)."""


def transfer(setting: Setting, authors: Path) -> pd.DataFrame:
    """Health's transfer: densities and encoders by the authors' code and by ours, and our encoders on their densities.

    `authors` is a checkout of github.com/eth-sri/fnf, which trains in the settings of its own script: half an hour of
    one core per seed. Beside the likelihood of validation rows stands Δ of draws from the densities: as they are, and
    encoded; from 40,000 draws and, as the authors estimate it, from 2,000: the least and the greatest of twenty such
    estimates.
    """
    sys.path.insert(0, str(authors))
    data, found = TransferRows.load(), []
    for seed in setting.seed_list():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (their masks are drawn from it)
        held = data.noisy("validation")
        n_steps = AUTHORS_STEPS * TRANSFER_EPOCHS // 80
        ours = [health_density(n_steps).fit(x, random_state=seed) for x in data.noisy("train")]
        theirs, flows = trained_by_authors(data)
        for name, densities in (("ours", ours), ("the authors'", theirs)):
            ways = {"none": _nothing(), "ours": _our_encoders(data, densities, seed)}
            if name != "ours":
                ways["the authors'"] = authors_encoders(flows)
            for encoders, (encode, decode) in ways.items():
                found.append({
                    "seed": seed, "densities": name,
                    **{f"held-out, a = {k}": densities[k].score(held[k]) for k in range(2)},
                    "encoders": encoders, **distances(densities, encode, decode, seed),
                })  # fmt: skip
    return pd.DataFrame(found)


def trained_by_authors(data: TransferRows) -> tuple[list[AuthorsDensity], Sequence[Sequence[Any]]]:
    """Densities and flows of both groups, trained by the authors' code, which must be importable."""
    import train_fnf
    from generative.flow import train_flow_prior

    train_fnf.device = "cpu"
    priors = train_flow_prior(
        AUTHORS_TRANSFER, data.step[None], (*data.rows["train"], *data.labels["train"]), data.batches("train"),
        (*data.rows["validation"], None, None), "cpu",
    )  # fmt: skip
    flows = train_fnf.train_flow(
        AUTHORS_TRANSFER, len(data.step), data.step[None], *priors, list(FLOW), list(HEAD), data.batches("train"),
        data.batches("validation"), None,
    )  # fmt: skip
    return [AuthorsDensity(prior[0], len(data.step)) for prior in priors], flows


@torch.no_grad()
def distances(densities: Sequence[Density], encode: Encode, decode: Decode, seed: int) -> dict[str, float]:
    """Δ of encoded draws from the densities under the densities."""
    generator = torch.Generator().manual_seed(seed)
    z = encode(torch.stack([density.sample(N_DRAWS, generator) for density in densities]))
    says_1 = []
    for x, log_det in map(decode, z):
        log_p = [density.log_prob(x[k]) + log_det[k] for k, density in enumerate(densities)]
        says_1.append((log_p[1] > log_p[0]).double())
    few = [answers.reshape(-1, 2_000)[:20].mean(1) for answers in says_1]
    return {
        "Δ": float(says_1[1].mean() - says_1[0].mean()),
        "of 2,000 draws, least": float((few[1] - few[0]).min()),
        "greatest": float((few[1] - few[0]).max()),
    }


def _nothing() -> tuple[Encode, Decode]:
    """No encoders: the rows as they are."""
    return lambda x: x, lambda x: (x.expand(2, -1, -1), x.new_zeros(2, len(x)))


def _our_encoders(data: TransferRows, densities: Sequence[Density], seed: int) -> tuple[Encode, Decode]:
    """Our encoders, trained as in the experiment but on these densities."""
    n_features = len(data.step)
    f = RealNVP(n_features, n_blocks=6, hidden=FLOW, seeds=[seed])
    train(
        f,
        StackedMLP(n_features, HEAD, 2, seeds=[seed]),
        GroupDensities(densities),
        GroupRows(data.rows["train"], data.labels["train"], noise=FreshNoise(data.step)),
        gamma=[0.2],
        seeds=[seed],
        settings=TrainingSettings(
            epochs=TRANSFER_EPOCHS, batch_size=256, learning_rate=1e-3, weight_decay=0.0, ramp_epochs=5
        ),
    )

    def decode(z: Tensor) -> tuple[Tensor, Tensor]:
        x, log_det = f.inverse(z)
        return x[0], log_det[0]

    return lambda x: f.forward(x)[0][0], decode


def authors_encoders(flows: Sequence[Sequence[Any]]) -> tuple[Encode, Decode]:
    """Their encoders, whose code calls the way from z to x forward."""

    def decode(z: Tensor) -> tuple[Tensor, Tensor]:
        x, log_det = zip(*(flow[0].forward(z) for flow in flows), strict=True)
        return torch.stack(x), torch.stack(log_det)

    return lambda x: torch.stack([flow[0].inverse(x_a)[0] for flow, x_a in zip(flows, x, strict=True)]), decode


def _steps(rows: Tensor) -> Tensor:
    """The smallest distance between two values of each column."""
    return torch.tensor([np.diff(np.unique(column)).min() for column in rows.T.numpy()])


def _law_encoders(encoder: FairFlow, train: Table, setting: Setting) -> list[FairFlow]:
    return encoder.fit_path(train, strengths=[1.0], seeds=setting.seed_list())


def _encoded(model: FairFlow, a: int, x: Array) -> Array:
    with torch.no_grad():
        return model.flow_.bijection.select_group(a).forward(torch.as_tensor(x))[0].reshape(x.shape).numpy()


def _decoded(model: FairFlow, a: int, z: Array) -> pd.DataFrame:
    with torch.no_grad():
        x = model.flow_.bijection.select_group(a).inverse(torch.as_tensor(z))[0].reshape(z.shape).numpy()
    return model.codec_.decode(x)


def _first_accepted(h: LogisticRegression, start: Array, accepted: Array) -> Array:
    """On the way from each point to the nearest accepted one, in tenths, the first that is accepted."""
    nearest = accepted[NearestNeighbors(n_neighbors=1).fit(accepted).kneighbors(start, return_distance=False)[:, 0]]
    found, open_ = nearest.copy(), np.full(len(start), True)
    for share in np.linspace(0, 1, 11):
        point = start + share * (nearest - start)
        reached = open_ & (h.predict(point) == 1)
        found[reached], open_ = point[reached], open_ & ~reached
    return found


PARTS = {
    "area": area,
    "turn": turn,
    "attacks": attacks,
    "adult": adult,
    "recourse": recourse,
    "transfer": transfer,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS, nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--authors", type=Path, default=Path("../fnf"), help="checkout of github.com/eth-sri/fnf")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in asked.part:
        start = time.perf_counter()
        part = partial(transfer, authors=asked.authors) if name == "transfer" else PARTS[name]
        found = part(Setting(seeds=asked.seeds, device=asked.device))
        print(f"{name}\n{found.to_string(index=False, float_format='{:.3f}'.format)}")
        print(f"{time.perf_counter() - start:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
