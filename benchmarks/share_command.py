"""Where the time of `fairflows share` goes: the whole command, then the same work stage by stage.

    python benchmarks/share_command.py [--rows N] [--demo] [--profile STAGE]

The table is Adult with nine columns beside sex and income, as a CSV file. Processor seconds are those of all threads,
and hardly depend on what else the machine does; wall-clock seconds do.
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


def adult_file(folder: Path, n_rows: int) -> Path:
    """Adult's rows, drawn with replacement beyond its own 45,222."""
    from fairflows.table.examples import load_adult

    adult = load_adult("all")
    rows = adult.X[COLUMNS].assign(sex=adult.a.to_numpy(), income=adult.y.to_numpy())
    file = folder / "adult.csv"
    rows.sample(n_rows, replace=n_rows > len(rows), random_state=0).to_csv(file, index=False)
    return file


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


def by_stage(file: Path, out: Path, profiled: str | None) -> None:
    """The work of the command, without its output."""
    stages = Stages(profiled)
    stages.say("imports")
    from fairflows import sharing
    from fairflows.table.table import Table

    stages.say("reading the file")
    table = Table.read(file, sensitive="sex", label="income")
    sharing.say = stages.say  # in place of the stages that the command prints
    shared = sharing.share(table)
    stages.say("writing the folder")
    shared.save(out)
    stages.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--demo", action="store_true", help="time `fairflows demo` too")
    parser.add_argument("--profile", metavar="STAGE", help="profile the stage whose name contains this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAIRFLOWS_LEDGER"] = f"{folder}/ledger"
        file = adult_file(Path(folder), arguments.rows)
        words = ["share", str(file), "--sensitive", "sex", "--label", "income", "-o", f"{folder}/a"]
        commands = {"fairflows share": words}
        if arguments.demo:
            commands["fairflows demo"] = ["demo", "-o", f"{folder}/demo"]
        print(f"{arguments.rows:,} rows{'processor s':>63}{'wall s':>10}")
        if not arguments.profile:
            for name, words in commands.items():
                print("  {:58}{:10.2f}{:10.2f}".format(name, *command("-m", "fairflows", *words)), flush=True)
        by_stage(file, Path(folder) / "b", arguments.profile)


if __name__ == "__main__":
    main()
