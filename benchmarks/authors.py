"""Run the code of the paper's authors: the column "authors' code, run by us" of docs/reproduction.md.

    git clone https://github.com/eth-sri/fnf
    OMP_NUM_THREADS=1 python benchmarks/authors.py figure-3 figure-4a figure-7 figure-9 --reference fnf
    OMP_NUM_THREADS=1 python benchmarks/authors.py table-1 table-4 recourse transfer --reference fnf [--jobs 16]

Their scripts run as they are, on the processor, with their published settings and seeds from 100 on. Two modules that
only draw pictures and bars stand in for seaborn and tqdm, and names that NumPy and pandas have dropped are put back.
FAIRFLOWS_DATA names the folder with the data. Transfer runs their training on our rows, since their loader reads other
files, and needs the network. The baselines of table 1 are other people's code.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.machinery import ModuleSpec
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # their data would lie on a GPU, their networks not

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans

from fairflows.paper.datasets import CRIME, LAW_FULL, LAW_SUBSET, Source
from fairflows.paper.experiments.applications import PAPER_RECOURSE, PAPER_TRANSFER_DELTA
from fairflows.paper.experiments.attacks import PAPER_BASELINES
from fairflows.paper.experiments.dataset_tables import PAPER_ACCURACIES
from fairflows.paper.experiments.trade_offs import BIJECTION_GAMMAS, PAPER_AREAS, PAPER_BIJECTIONS, area

Row = dict[str, object]

DATA = {
    "crime/communities.data": CRIME,
    "adult/adult.data": Source("adult.data", "adult"),
    "adult/adult.test": Source("adult.test", "adult"),
    "lawschool/lawschs1_1.dta": LAW_FULL if LAW_FULL.find() else LAW_SUBSET,
}
FIRST_SEED = 100  # of their scripts
CRIME_GAMMAS = (0.0, 0.02, 0.1, 0.2, 0.9)
N_CLUSTERS = 4  # of their notebook
ALPHA = 0.05
AUTHORS_GAMMA = 0.2  # of transfer


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


def figure_7(seeds: Iterable[int]) -> Iterator[Row]:
    """Crime: the area under accuracy as a function of Δ, with both schemes, at the five γ of their script."""
    for seed in seeds:
        for scheme in ("convex", "chebyshev"):
            printed = [
                _run_crime(gamma, seed, adv_epochs=1, with_test=True, p_val=0.01, scalarization=scheme)[1]
                for gamma in CRIME_GAMMAS
            ]
            distance = pd.Series([_number(r"stat distance:\s*\[([\d.e-]+)", text) for text in printed])
            accuracy = pd.Series([_number(r"clf final test\].* bal_acc=([\d.]+)", text) for text in printed])
            ends = {"least Δ": float(distance.min()), "largest Δ": float(distance.max())}
            yield {"scalarisation": scheme, "seed": seed, "area": area(distance, accuracy), **ends}


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


def table_1(seeds: Iterable[int]) -> Iterator[Row]:
    """Adult: FNF at γ = 0. The adversary is that of their script, the bound (1 + Δ) / 2.

    Their script of the densities takes no seed, so all seeds have the same densities.
    """
    for seed in seeds:
        Path("adult").mkdir(exist_ok=True)  # for their densities
        _run("train_gen_categorical.py", dataset="adult", batch_size=256, n_epochs=100, device="cpu")
        _, printed = _run(
            "train_enc_categorical.py", "--encode", dataset="adult", seed=seed, batch_size=128, weight_decay=1e-4,
            n_epochs=100, adv_epochs=100, gamma=0.0, p_val=0.01, p_test=0.2, with_test=True, device="cpu",
        )  # fmt: skip
        distance = _number(r"Statistical distance:\s*(?:np\.float64\()?([\d.e-]+)", printed)
        yield {
            "seed": seed,
            "accuracy": _number(r"Final test accuracy:\s*([\d.]+)", printed),
            "adversary": _number(r"Adversary:\n.*\n[\d.]+\n([\d.]+)", printed),
            "bound": (1 + distance) / 2,
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


LOGIT_AGAIN = re.compile(r"^ +x[12] = torch\.clamp\(x[12], alpha / 2, 1 - alpha\)\.logit\(\)\n", re.MULTILINE)
PICTURES_AND_FILES = (5, 17, 18, 23)  # cells of their notebook that draw, or read what the script has written
MAPPING = 19  # the cell that maps the rows


def recourse(seeds: Iterable[int]) -> Iterator[Row]:
    """Law School, γ = 1: their notebook as it is, and with the logit, which it applies twice, applied once.

    Of the published file 13 of 25 schools may be at hand; the notebook reads the first 24 of its schools.
    """
    notebook = json.loads(Path(sys.path[0], "interpretability_lawschool.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"]]
    for seed in seeds:
        found, _ = _run(
            "law_flow_multi.py", "--train_dec", prior="gmm", batch_size=128, n_epochs=100, adv_epochs=1, gamma=1.0,
            seed=seed, kl_start=0, kl_end=50, log_epochs=10, gmm_comps1=8, gmm_comps2=8, lr=1e-2, weight_decay=1e-4,
            n_blocks=4, p_val=0.2, p_test=0.2,
        )  # fmt: skip
        for logit in ("twice", "once"):
            names: dict[str, Any] = {"__name__": "notebook", "plots_dir": Path("plots")}
            names["plots_dir"].mkdir(exist_ok=True)
            names |= {f"flow{k + 1}": flow[0] for k, flow in enumerate(found["flows"])}
            with torch.no_grad(), redirect_stdout(io.StringIO()):
                for i, cell in enumerate(cells):
                    if i not in PICTURES_AND_FILES:
                        exec(LOGIT_AGAIN.sub("", cell) if (i, logit) == (MAPPING, "once") else cell, names)
                    names["seed"] = seed
            for group, k in {"white": 2, "non-white": 1}.items():
                same = names[f"x{k}_diff_without_college"]
                lsat, gpa, _ = same.mean(0).tolist()
                share = len(same) / len(names[f"x{k}_diff"])
                yield {"logit": logit, "group": group, "seed": seed, "LSAT": lsat, "GPA": gpa, "college stays": share}


def transfer(seeds: Iterable[int]) -> Iterator[Row]:
    """Health, γ = .2: Δ of draws from their densities, encoded; from 40,000 draws, and twenty times from 2,000."""
    from tested_reasons import TransferRows, authors_encoders, distances, trained_by_authors

    data = TransferRows.load()
    for seed in seeds:
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (their masks are drawn from it)
        densities, flows = trained_by_authors(data)
        yield {"seed": seed, **distances(densities, *authors_encoders(flows), seed)}


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
    printed, found = io.StringIO(), {"__name__": "__main__"}
    source = Path(sys.path[0], script).read_text().replace("device = 'cuda'", "device = 'cpu'")
    try:
        with redirect_stdout(printed):
            exec(compile(source, script, "exec"), found)
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
    torch.load = partial(torch.load, weights_only=False)  # they save whole networks
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "code").symlink_to(checkout.resolve())
        for name, source in DATA.items():
            Path(folder, "data", name).parent.mkdir(parents=True, exist_ok=True)
            content = _as_stata(source.read()) if source is LAW_SUBSET else source.read()
            Path(folder, "data", name).write_bytes(content)
        sys.path.insert(0, str(Path(folder, "code")))
        import train_fnf

        train_fnf.device = "cpu"
        before = Path.cwd()
        os.chdir(folder)  # where they write
        try:
            yield
        finally:
            os.chdir(before)


def _as_stata(law_subset: bytes) -> bytes:
    """Write the 13 schools as the published file of all of them is."""
    rows = pd.read_csv(io.BytesIO(law_subset), encoding="utf-8-sig").rename(columns=str.lower)
    written = io.BytesIO()
    rows.assign(race=rows["race"].str.strip()).to_stata(written, write_index=False)
    return written.getvalue()


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
    "figure-7": figure_7,
    "figure-9": figure_9,
    "recourse": recourse,
    "table-1": table_1,
    "table-4": table_4,
    "transfer": transfer,
}


TABLE_2 = zip(BIJECTION_GAMMAS, *PAPER_BIJECTIONS["realnvp"].values(), strict=True)
PAPER: dict[str, list[Row]] = {
    "figure-4a": [{"gamma": gamma, "Δ": delta, "accuracy": accuracy} for gamma, delta, accuracy in TABLE_2],
    "figure-7": [{"scalarisation": scheme, "area": of_scheme} for scheme, of_scheme in PAPER_AREAS.items()],
    "recourse": [{"group": group, "LSAT": lsat, "GPA": gpa} for group, lsat, gpa in PAPER_RECOURSE.values()],
    "table-1": [
        dict(zip(("accuracy", "adversary", "bound"), np.array(PAPER_BASELINES["FNF"])[[0, 2, 3]], strict=True))
    ],
    "table-4": [{"accuracy": PAPER_ACCURACIES["Adult"][0] / 100}],
    "transfer": [{"Δ": PAPER_TRANSFER_DELTA[AUTHORS_GAMMA]}],
}
"""The paper's numbers, by the columns of the parts."""
KEYS = ("gamma", "scalarisation", "logit", "group")


def beside_paper(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the spread of the seeds of every number that the paper has, and whether the paper's lies inside of it."""
    keys, rows = [key for key in KEYS if key in table], []
    for value, part in table.groupby(keys, sort=False) if keys else [((), table)]:
        place = dict(zip(keys, value, strict=True))
        for paper in PAPER.get(name, []):
            told = {column: of_paper for column, of_paper in paper.items() if column not in KEYS}
            if any(paper.get(key, of_part) != of_part for key, of_part in place.items()):
                continue
            for column, of_paper in told.items():
                least, greatest = part[column].min(), part[column].max()
                ours = {"least": least, "mean": part[column].mean(), "greatest": greatest}
                inside = least <= of_paper <= greatest
                rows.append({**place, "of": column, "paper": of_paper, **ours, "paper's inside": inside})
    return pd.DataFrame(rows)


def rows_of(task: tuple[str, int], checkout: Path) -> list[Row]:
    """Run a part with one seed."""
    warnings.simplefilter("ignore")
    name, seed = task
    with reference(checkout):
        return list(PARTS[name]([seed]))


def main() -> None:
    """Run parts and print a table of each; `--out` also saves them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS, nargs="+")
    parser.add_argument("--reference", type=Path, required=True, help="checkout of github.com/eth-sri/fnf")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="seeds and parts at once")
    parser.add_argument("--out", type=Path, help="folder for authors-PART.csv")
    asked = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "agg")
    tasks = [(name, seed) for name in asked.part for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)]
    start, rows = time.perf_counter(), dict[str, list[Row]]()
    # Their modules seed the generators when they are imported: each task is the first of a process.
    with get_context("spawn").Pool(asked.jobs, maxtasksperchild=1) as pool:
        work = partial(rows_of, checkout=asked.reference)
        for (name, _), found in zip(tasks, pool.imap(work, tasks, chunksize=1), strict=True):
            rows.setdefault(name, []).extend(found)
            print(name, *found, f"{time.perf_counter() - start:.0f} s", sep="\n", flush=True)
            if asked.out is not None:
                table = pd.DataFrame(rows[name]).round(4)
                table.to_csv(asked.out / f"authors-{name}.csv", index=False)
    for name, found in rows.items():
        table = pd.DataFrame(found)
        print(f"{name}\n{table.round(4).to_string(index=False)}\n")
        if name in PAPER:
            print(f"{beside_paper(name, table).round(3).to_string(index=False)}\n")


if __name__ == "__main__":
    main()
