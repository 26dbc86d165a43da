"""Run the code of the paper's authors: the column "authors' code, run by us" of docs/reproduction.md.

    git clone https://github.com/eth-sri/fnf
    OMP_NUM_THREADS=1 python benchmarks/authors.py figure-3 figure-4a figure-9 table-4 --reference fnf

Their scripts run as they are, with their published settings and seeds from 100 on. Two modules that only draw pictures
and bars stand in for seaborn and tqdm, and names that NumPy and pandas have dropped are put back. FAIRFLOWS_DATA names
the folder with the data. `benchmarks/tested_reasons.py transfer --authors fnf` runs the rest of their code.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans

from fairflows.paper.datasets import CRIME, Source

Row = dict[str, object]

DATA = {
    "crime/communities.data": CRIME,
    "adult/adult.data": Source("adult.data", "adult"),
    "adult/adult.test": Source("adult.test", "adult"),
}
FIRST_SEED = 100  # of their scripts
CRIME_GAMMAS = (0.0, 0.02, 0.1, 0.2, 0.9)
N_CLUSTERS = 4  # of their notebook
ALPHA = 0.05


def figure_3(seeds: Iterable[int]) -> Iterator[Row]:
    """The four blobs: how well a network of two layers recovers the group from z."""
    for seed in seeds:
        _, printed = _run("toy_fnf.py", device="cpu", seed=seed)
        yield {"seed": seed, "a recovered": _number(r"adv final valid\] acc=([\d.]+)", printed)}


def figure_4a(seeds: Iterable[int]) -> Iterator[Row]:
    """Crime, as in table 2: Δ, accuracy and adversary on test rows."""
    for seed in seeds:
        for gamma in CRIME_GAMMAS:
            _, printed = _run_crime(gamma, seed, adv_epochs=60, with_test=True, p_val=0.01)
            yield {
                "gamma": gamma,
                "seed": seed,
                "Δ": _number(r"stat distance:\s*\[([\d.e-]+)", printed),
                "accuracy": _number(r"clf final test\].* bal_acc=([\d.]+)", printed),
                "adversary": _number(r"adv final test\] acc=([\d.]+)", printed),
            }


def figure_9(seeds: Iterable[int]) -> Iterator[Row]:
    """Crime: mean log-likelihoods of the rows of a = 1 and of their matches, by clusters as in their notebook.

    Clusters are those of the real and matched rows of a = 1, four of them. The row with "all" is the mean of everybody.
    """
    for gamma in (0.0, 1.0):
        for seed in seeds:
            found, _ = _run_crime(gamma, seed, adv_epochs=1)
            with torch.no_grad():
                (real, matched), log_p = _matches(found)
                sides = torch.cat([real[0], matched[1]]), torch.cat([log_p[0][0], log_p[1][1]])
                others = torch.cat([log_p[0][1], log_p[1][0]])
            rows = found["CrimeDataset"]("train", p_test=0.2, p_val=0.2).features[:, found["feats"]]
            width = rows.max(0).values - rows.min(0).values  # of the standardised columns, in which they cluster
            cluster = KMeans(N_CLUSTERS, random_state=0).fit_predict((sides[0].sigmoid() * width).numpy())
            for name in ("all", *range(N_CLUSTERS)):
                mine = slice(None) if name == "all" else cluster == name
                yield {
                    "gamma": gamma,
                    "seed": seed,
                    "cluster": name,
                    "log p(a = 1)": float(sides[1].numpy()[mine].mean()),
                    "log p(a = 0)": float(others.numpy()[mine].mean()),
                }


def table_4(seeds: Iterable[int]) -> Iterator[Row]:
    """Adult with the columns that their loader reads: balanced accuracy of their network on test rows."""
    for seed in seeds:
        found, printed = _run(
            "train_clf_baseline.py", "--load", "--with-test", "--classifier-dims", "20", dataset="adult", seed=seed,
            batch_size_=128, weight_decay_=1e-3, num_epochs_=100, p_val=0.01,
        )  # fmt: skip
        accuracy = _number(r"\[test\]: balanced_acc=([\d.]+)", printed)
        yield {"seed": seed, "features": found["train_dataset"].features.shape[1], "accuracy": accuracy}


def _run_crime(gamma: float, seed: int, adv_epochs: int, **more: object) -> tuple[dict[str, Any], str]:
    """Run their script of Crime with the settings of their `scripts/run_crime_gammas.py`."""
    settings = {
        "prior": "gmm", "batch_size": 128, "n_epochs": 60, "kl_start": 0, "kl_end": 50, "log_epochs": 60, "lr": 1e-2,
        "gmm_comps1": 4, "gmm_comps2": 2, "weight_decay": 1e-4, "n_blocks": 4, "p_test": 0.2, "p_val": 0.2,
    }  # fmt: skip
    given = settings | {"gamma": gamma, "seed": seed, "adv_epochs": adv_epochs, "device": "cpu"} | more
    return _run("crime_flow_multi.py", **given)


def _matches(found: dict[str, Any]) -> tuple[tuple[list[torch.Tensor], ...], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return real and matched rows of both groups, and the log-likelihoods of each real row and of its match."""
    flows, priors = [flow[0] for flow in found["flows"]], (found["prior1"][0], found["prior2"][0])
    real, matched, log_p = [], [], []
    for k, rows in enumerate((found["train1"], found["train2"])):
        x = rows.clamp(ALPHA / 2, 1 - ALPHA).logit()
        match, _ = flows[1 - k].forward(flows[k].inverse(x)[0])
        real.append(x)
        matched.append(match)
        log_p.append((priors[k].log_prob(x), priors[1 - k].log_prob(match)))
    return (real, matched), log_p


def _run(script: str, *flags: str, **settings: object) -> tuple[dict[str, Any], str]:
    """Run one of their scripts; return its global names and what it printed."""
    arguments = [script, *flags]
    for name, value in settings.items():
        option = f"--{name[:-1].replace('_', '-') if name.endswith('_') else name}"
        arguments += [option] if value is True else [option, str(value)]
    before, sys.argv = sys.argv, arguments
    printed, found = io.StringIO(), {}
    try:
        with redirect_stdout(printed):
            found = runpy.run_path(str(Path(sys.path[0], script)), run_name="__main__")
    except SystemExit:  # their script of the blobs ends so
        pass
    finally:
        sys.argv = before
    return found, printed.getvalue()


def _number(pattern: str, text: str) -> float:
    return float(re.findall(pattern, text)[-1])


@contextmanager
def reference(checkout: Path) -> Iterator[None]:
    """Make the modules of their checkout importable, beside a folder with their names for the data."""
    if not (checkout / "train_fnf.py").is_file():
        raise SystemExit(f"{checkout} must be a checkout of github.com/eth-sri/fnf; it has no train_fnf.py.")
    for name, content in {"seaborn": ("set_theme", lambda: None), "tqdm": ("tqdm", _Bar)}.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)  # torch looks at it
        setattr(sys.modules[name], *content)
    for name, kind in {"bool": bool, "object": object}.items():
        setattr(np, name, kind)
    pd.DataFrame.applymap = pd.DataFrame.map  # type: ignore[attr-defined]
    pd.options.future.infer_string = False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "code").symlink_to(checkout.resolve())
        for name, source in DATA.items():
            Path(folder, "data", name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, "data", name).write_bytes(source.read())
        sys.path.insert(0, str(Path(folder, "code")))
        import train_fnf

        train_fnf.device = "cpu"
        yield


class _Bar:
    """A progress bar that shows nothing."""

    def __init__(self, items: Iterable[object]):
        self._items = items

    def __iter__(self) -> Iterator[object]:
        return iter(self._items)

    def set_description(self, text: str) -> None:
        """Show nothing."""


PARTS: dict[str, Callable[[Iterable[int]], Iterator[Row]]] = {
    "figure-3": figure_3,
    "figure-4a": figure_4a,
    "figure-9": figure_9,
    "table-4": table_4,
}


def main() -> None:
    """Run parts and print a table of each; `--out` also saves them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS, nargs="+")
    parser.add_argument("--reference", type=Path, required=True, help="checkout of github.com/eth-sri/fnf")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for authors-PART.csv")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("MPLBACKEND", "agg")
    with reference(asked.reference):
        for name in asked.part:
            start, rows = time.perf_counter(), []
            for row in PARTS[name](range(FIRST_SEED, FIRST_SEED + asked.seeds)):
                rows.append(row)
                print(name, row, flush=True)
            table = pd.DataFrame(rows)
            print(f"{name}, {time.perf_counter() - start:.0f} s\n{table.round(4).to_string(index=False)}\n", flush=True)
            if asked.out is not None:
                table.round(4).to_csv(asked.out / f"authors-{name}.csv", index=False)


if __name__ == "__main__":
    main()
