"""Where the time of `fairflows share` goes: the whole command, then the same work stage by stage.

    python benchmarks/share_command.py [adult] [adult-14] [nist] [acs] [--rows N] [--demo] [--profile STAGE]

Tables are CSV files: `adult` has nine columns beside sex and income, and N rows; `adult-14` has all of its columns;
`nist` is NIST's national2019 with eleven classes of income; `acs` has a label of numbers and 295,243 rows. The last two
are read from FAIRFLOWS_DATA. Processor seconds are those of all threads, and hardly depend on what else the machine
does; wall-clock seconds do.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the command does

COLUMNS = [
    "age", "workclass", "education", "marital_status", "occupation", "relationship", "race", "hours_per_week",
    "native_country",
]  # fmt: skip


ROLES = {
    "adult": ("sex", "income"), "adult-14": ("sex", "income"), "nist": ("SEX", "PINCP_DECILE"),
    "acs": ("Gender", "Income"),
}  # fmt: skip
"""The sensitive column and the label of each table."""


def written(name: str, folder: Path, n_rows: int) -> Path:
    """Write a table as a CSV file; Adult's nine columns with so many rows, with replacement beyond its own 45,222."""
    import pandas as pd

    from fairflows.table.examples import load_adult

    data = Path(os.environ.get("FAIRFLOWS_DATA", "data"))
    if name == "nist":
        rows = pd.read_csv(data / "nist" / "national2019.csv.xz", dtype=str, keep_default_na=False)
    elif name == "acs":
        rows = pd.read_parquet(data / "acs" / "acs-income-2018-holdout.parquet")
    else:
        adult = load_adult("all")
        rows = adult.X.assign(sex=adult.a.to_numpy(), income=adult.y.to_numpy())
    if name == "adult":
        rows = rows[[*COLUMNS, "sex", "income"]].sample(n_rows, replace=n_rows > len(rows), random_state=0)
    rows.to_csv(folder / f"{name}.csv", index=False)
    return folder / f"{name}.csv"


def command(*words: str) -> tuple[float, float]:
    """Processor and wall-clock seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


class Stages:
    """Notes when each stage begins; profiles the one that is asked for."""

    def __init__(self, profiled: str | None):
        self.lines: list[tuple[str, float, float]] = []
        self.profiled, self.profile = profiled, cProfile.Profile()

    def say(self, text: str) -> None:
        """A stage begins."""
        self.lines.append((text, time.process_time(), time.perf_counter()))
        self.profile.disable()
        if self.profiled and self.profiled in text:
            self.profile.enable()

    def show(self) -> None:
        """Print what each stage took, and the profile."""
        self.say("")
        for (text, cpu, wall), (_, next_cpu, next_wall) in zip(self.lines, self.lines[1:], strict=False):
            print(f"  {text:58}{next_cpu - cpu:10.2f}{next_wall - wall:10.2f}")
        if self.profiled:
            pstats.Stats(self.profile).sort_stats("cumulative").print_stats(45)


def by_stage(file: Path, roles: tuple[str, str], out: Path, profiled: str | None) -> None:
    """The work of the command, without its output."""
    stages = Stages(profiled)
    stages.say("imports")
    from fairflows import sharing
    from fairflows.table.table import Table

    stages.say("reading the file")
    table = Table.read(file, sensitive=roles[0], label=roles[1])
    sharing.say = stages.say  # in place of the stages that the command prints
    shared = sharing.share(table)
    stages.say("writing the folder")
    shared.save(out)
    stages.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(ROLES)}; by default adult")
    parser.add_argument("--rows", type=int, default=30_000, help="of adult")
    parser.add_argument("--demo", action="store_true", help="time `fairflows demo` too")
    parser.add_argument("--profile", metavar="STAGE", help="profile the stage whose name contains this")
    arguments = parser.parse_args()
    for name in arguments.tables or ["adult"]:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FAIRFLOWS_LEDGER"] = f"{folder}/ledger"
            file, (sensitive, label) = written(name, Path(folder), arguments.rows), ROLES[name]
            words = ["share", str(file), "--sensitive", sensitive, "--label", label, "-o", f"{folder}/a"]
            commands = {"fairflows share": words}
            if arguments.demo:
                commands["fairflows demo"] = ["demo", "-o", f"{folder}/demo"]
            print(f"{name:60}{'processor s':>10}{'wall s':>10}")
            if not arguments.profile:
                for command_name, words in commands.items():
                    print(
                        "  {:58}{:10.2f}{:10.2f}".format(command_name, *command("-m", "fairflows", *words)), flush=True
                    )
            by_stage(file, ROLES[name], Path(folder) / "b", arguments.profile)


if __name__ == "__main__":
    main()
