"""How the claimed Δ depends on the density: held-out likelihood, Δ and an attack, side by side.

    python benchmarks/density_length.py [--quick] [--seeds 2] [--device cpu] [--jobs 1] [--csv FILE]

The paper's encoders are trained with densities of several lengths and sizes, every grid dequantised. Δ may err either
way: a density that is too simple can make the groups look alike, and one that learnt its rows by heart can make them
look different. So held-out likelihood decides which density to take, and never Δ. A flow's length is its number of
training steps. The mixtures of Law School and Crime are fitted until they no longer change, so that their number of
components takes the place of the length; flows of several lengths stand beside them.

Log-likelihoods are of held-out persons of the training rows, in table units, and compare within a dataset (the case
with 1 % held out has other persons). The attack is by the suite's quick adversaries, first seed, at 95 %.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from fairflows.density import FlowDensity, MixtureDensity
from fairflows.paper.experiments.attacks import N_DRAWS, model_upper
from fairflows.paper.experiments.outcome import Setting
from fairflows.paper.experiments.problems import AUTHORS_STEPS, PROBLEMS, Trained, at_hand, audited, fit, health_density
from fairflows.training.loop import DivergedError

LENGTH_GAMMAS = {"health": (0.1, 0.5, 0.95), "law": (0.02, 0.1, 0.9), "crime": (0.02, 0.1, 0.9)}
LIKELIHOOD = ("log-likelihood, a = 0", "log-likelihood, a = 1")
AUTHORS = f"flow, {AUTHORS_STEPS:,} steps (the authors')"

Cases = dict[str, dict[str, object]]
"""By name, the settings of the encoder that a case changes."""


def run(setting: Setting) -> pd.DataFrame:
    """Train encoders with every density, measure each on held-out and test rows, and attack the first seed."""
    models, notes = at_hand({name: partial(all_cases, name, setting) for name in LENGTH_GAMMAS})
    found = [(case, model) for cases in models.values() for case, model in cases.items() if model is not None]
    attacks = audited([model for _, model in found], replace(setting, quick=True))
    parts = []
    for case, model in found:
        part = measured(model).assign(density=case)
        frame = model.frame()
        for i in model.first_seed():
            of_gamma = part["gamma"] == frame["gamma"].iloc[i]
            lower = attacks[model, i].attack_lower
            part.loc[of_gamma, "attack: Δ ≥"] = lower
            part.loc[of_gamma, "refuted"] = lower > model_upper(model.frontier.encoders[i], N_DRAWS)
        parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    table = table.rename(columns={"distance": "Δ", "balanced_accuracy": "balanced accuracy"})
    notes += [
        f"No model stayed finite: {n}, {c}" for n, of in models.items() for c, model in of.items() if model is None
    ]
    print(*notes, sep="\n")
    shown = ["data", "density", "gamma", *LIKELIHOOD, "Δ", "attack: Δ ≥", "refuted", "parity", "accuracy"]
    return table[[*shown, "balanced accuracy"]]


def all_cases(name: str, setting: Setting) -> dict[str, Trained | None]:
    """The frontier of each case of a dataset; None where no model stayed finite."""
    problem = PROBLEMS[name]().at(setting)
    gammas = LENGTH_GAMMAS[name][-1:] if setting.quick else LENGTH_GAMMAS[name]
    seeds = setting.seed_list(full=2, quick=1)
    found: dict[str, Trained | None] = {}
    for case, changes in {"health": health_cases, "law": law_cases, "crime": crime_cases}[name](setting.quick).items():
        try:
            found[case] = fit(problem, seeds, gammas, **({"validation": 0.2, "dequantise": True} | changes))
        except DivergedError:
            found[case] = None
    return found


def health_cases(quick: bool) -> Cases:
    """The authors' flow of several lengths and a larger one; and what else differs from earlier runs of ours."""
    if quick:
        return {f"flow, {n} steps": {"density": health_density(n)} for n in (100, 800)}
    lengths: Cases = {f"flow, {n:,} steps": {"density": health_density(n)} for n in (1_000, 4_000, 8_000)}
    larger = FlowDensity("realnvp", hidden=(20, 20), n_steps=20_000, batch_size=512)
    return lengths | {
        AUTHORS: {},
        f"{AUTHORS}, 1 % held out": {"validation": 0.01},
        "flow of two layers, 20,000 steps of 512 rows": {"density": larger},
    }


def law_cases(quick: bool) -> Cases:
    """Mixtures, the paper's among them, and flows."""
    return _cases((1, 8) if quick else (1, 8, 32), () if quick else (500, 4_000, 16_000))


def crime_cases(quick: bool) -> Cases:
    """Mixtures, the paper's among them, and flows; those of many steps learn 1,276 rows by heart."""
    return _cases((1,) if quick else (1, 8), (500,) if quick else (100, 500, 2_000)) | {
        "mixtures of 2 and 4 (the authors')": {}
    }


def _cases(components: tuple[int, ...], lengths: tuple[int, ...]) -> Cases:
    mixtures: Cases = {f"mixtures of {n}": {"density": MixtureDensity(n)} for n in components}
    return mixtures | {f"flow, {n:,} steps": {"density": FlowDensity("realnvp", n_steps=n)} for n in lengths}


def measured(model: Trained) -> pd.DataFrame:
    """One row per γ: the densities' held-out likelihood, and means over seeds of what the encoders reach."""
    summary = model.summary()[["data", "gamma", "distance", "parity", "accuracy", "balanced_accuracy"]]
    likelihood = dict(zip(LIKELIHOOD, model.held_out_log_likelihood, strict=True))
    return summary.assign(**likelihood, **{"attack: Δ ≥": np.nan, "refuted": False})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows, epochs, densities and strengths")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--csv", type=Path, help="write the table here")
    asked = parser.parse_args()
    table = run(Setting(asked.quick, asked.seeds, asked.device, asked.jobs))
    print(table.to_string(float_format=lambda value: f"{value:.3f}", index=False))
    if asked.csv:
        table.to_csv(asked.csv, index=False)


if __name__ == "__main__":
    main()
