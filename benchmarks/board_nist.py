"""NIST's board: SDNist's scores of shared tables of `national2019`, beside those of NIST's sample reports.

    benchmarks/board_environments.sh environments
    python benchmarks/board_nist.py --environments environments

Each release is the default of `ff.share` (whole rows, no label, no rules; ``quick`` leaves measurements out and changes
nothing in the table). A release lacks its sensitive column, so it is scored on 23 of the 24 columns, and again on the
columns of NIST's CART and AIM reports without that column. Half of the real rows, on the same columns, is the upper
reference: half of the target's own persons are in it. The scores are computed by SDNist 2.5.0 in its own environment
(``board_nist_scores.py``). The lines "NIST: …" are read from the sample reports in SDNist's repository.

Columns of the result: ``k_marginal`` is of 1,000; ``unique_matches`` counts persons with a unique row in the real table
whose row is in the scored table; ``propensity`` is the mean square error of a tree that tells the two tables apart
(0: not at all); ``inconsistent_age``, ``_work`` and ``_housing`` count rows that break SDNist's rules.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import fairflows as ff

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data")) / "nist" / "national2019.csv.xz"
TABLES = {
    "SEX": {"sensitive": "SEX"},
    "RAC1P in four groups": {"sensitive": "RAC1P", "merge_small": 1000},
    "RAC1P in six groups": {"sensitive": "RAC1P", "merge_small": 200},
}
REPORTS = {"CART": "r_cart_cf21_na2019", "AIM": "r_aim_e_1_demographic"}
"""The sample reports whose columns ours are scored on, too."""

Line = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="made by board_environments.sh")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "results" / "board-nist.csv")
    arguments = parser.parse_args()
    repository = arguments.environments / "SDNist"
    paths = (repository / "sample-reports" / "acs_excerpt_reports").glob("*/ui.json")
    reports = {path.parent.name: json.loads(path.read_text()) for path in sorted(paths)}
    chosen = {name: columns_of(reports[report]) for name, report in REPORTS.items()}
    with tempfile.TemporaryDirectory() as folder:
        lines = list(written(Path(folder), arguments.seeds, chosen))
        python = arguments.environments / "sdnist" / "bin" / "python"
        for line, scores in zip(lines, scored(Path(folder), python, repository), strict=True):
            line |= scores
    lines += map(of_report, reports.values())
    results = pd.DataFrame(lines)
    results.round(4).to_csv(arguments.out, index=False)
    print(results.to_string(index=False))


def written(folder: Path, n_seeds: int, chosen: dict[str, list[str]]) -> Iterator[Line]:
    """Write every table that is to be scored as a numbered CSV file, and say which one it is."""
    n_written = 0
    for seed in range(n_seeds):
        for line, frame in tables(seed):
            for columns, names in ({"all": list(frame)} | chosen).items():
                n_written += 1
                frame[[name for name in names if name in frame]].to_csv(folder / f"{n_written:03d}.csv", index=False)
                yield line | {"columns": columns, "seed": seed}


def tables(seed: int) -> Iterator[tuple[Line, pd.DataFrame]]:
    """Return halves of the real rows, then the releases with what their certificates state."""
    half = pd.read_csv(DATA, dtype=str, keep_default_na=False).sample(frac=0.5, random_state=seed)
    yield {"table": "half of the real rows"}, half
    for name in ("SEX", "RAC1P"):
        yield {"table": f"half of the real rows, without {name}"}, half.drop(columns=name)
    numbers = pd.read_csv(DATA, na_values="N")
    for name, roles in TABLES.items():
        shared = ff.share(ff.Table(numbers, **roles), quick=True, random_state=seed)
        stated = shared.certificate
        line: Line = {"table": f"fairflows, {name}", "status": stated.status, "target": stated.target}
        line |= {"this_table": stated.table_distance, "to_come": stated.cell_upper}
        yield line, in_nist_format(shared.table)


def in_nist_format(frame: pd.DataFrame) -> pd.DataFrame:
    """Write whole numbers without a decimal point, and missing values as "N"."""
    texts = frame.astype(object)
    for name in frame.select_dtypes("number"):
        if (frame[name].dropna() % 1 == 0).all():
            texts[name] = frame[name].astype("Int64").astype(object)
    return texts.where(frame.notna(), "N")


def scored(folder: Path, python: Path, repository: Path) -> list[Line]:
    """Let SDNist score the CSV files of a folder."""
    with tempfile.TemporaryDirectory() as root:
        excerpts = Path(root) / "ACSDataExcerpts"
        shutil.copytree(repository / "BenchmarkData" / "ACSDataExcerpts", excerpts)
        target = excerpts / "national" / "national2019.csv"  # the repository has a pointer in its place
        pd.read_csv(DATA, dtype=str, keep_default_na=False).to_csv(target, index=False)
        script = Path(__file__).with_name("board_nist_scores.py")
        subprocess.run([python, script, root, folder], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def of_report(report: dict) -> Line:
    """Read the scores that a sample report of SDNist states."""
    description = report["data_description"]["synthetic"][0]
    made = {label["Label Name"]: label["Label Value"] for label in description["labels"]}
    metrics = {metric["metric_name"]: json.dumps(metric) for metric in report["utility"] + report["privacy"]}
    epsilon = f", ε = {made['Epsilon']}" if "Epsilon" in made else ""
    matches = re.findall(r"-Highlight-(\d+) \(([\d.]+)%\)", metrics["Unique Exact Matches"])[-1]
    groups = re.findall(r'"(\w+)", "Number of Records Inconsistent": (\d+)', metrics["Inconsistencies"])
    return {
        "table": f"NIST: {made['Algorithm Name']} ({made['Library Name']}){epsilon}",
        "columns": made["Feature Set Name"],
        "features": len(columns_of(report)),
        "rows": next(entry["Value"] for entry in description["data"] if entry["Property"] == "Records"),
        "k_marginal": int(number_after("K-Marginal Score: ", metrics["K-Marginal Synopsys"])),
        "unique_matches": int(matches[0]),
        "unique_matches_percent": float(matches[1]),
        "propensity": number_after("Highlight-Score: ", metrics["Propensity Mean Square Error"]),
        **{f"inconsistent_{group.lower()}": int(count) for group, count in groups},
    }


def columns_of(report: dict) -> list[str]:
    return [feature["Feature Name"] for feature in report["data_description"]["Evaluated Data Features"]]


def number_after(words: str, text: str) -> float:
    found = re.search(re.escape(words) + r"([\d.]+)", text)
    if found is None:
        raise ValueError(f"the report lacks {words!r}")
    return float(found[1])


if __name__ == "__main__":
    main()
