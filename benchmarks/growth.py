"""How time and memory grow with rows, columns, groups and cells: one fresh process per point, on one thread.

    python benchmarks/growth.py [--only NAME ...] [--limit SECONDS] [--memory GIB] [--jobs N] [--csv FILE]
                                [--figure FILE] [--table AXIS]

``--only`` keeps the points of these axes (rows, columns, groups, cells), encoders and stages (fit, encode, certify,
audit); names of one sort are alternatives. Points that the CSV file holds already are not measured again, so that a run
may be stopped and continued. A point that is stopped by the limit of time or of memory is written down as such, and
larger values on its axis are left out. With ``--jobs`` several points are measured at a time, each on one thread, large
tables first. ``--figure`` and ``--table`` alone draw and print what the file holds.

Rows are drawn (`drawn_rows`): whole numbers, decimals, categories of six and of two levels in turn, which depend on
four factors, a group that shifts them, and a label. Encoders are fitted to the rows of the point in the stage "fit",
and to 20,000 rows in the others, which then work on the rows of the point. An audit learns from 70 % of the rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the process that starts the others must stay small: its memory counts as theirs
    import pandas as pd

    from fairflows.encoder.base import Encoder
    from fairflows.table.table import Table

STAGES = ("fit", "encode", "certify", "audit")
ENCODERS = ("FairTree", "FairCells", "FairMatching", "FairFlow", "Release", "one model")
FITTED_ROWS = 20_000
AUDIT_LEARNS = 0.7
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Point:
    """What is measured: a stage of an encoder on a table of a size."""

    axis: str
    encoder: str
    stage: str
    rows: int = 100_000
    columns: int = 8
    groups: int = 2
    cells: int = 64

    @property
    def value(self) -> int:
        """Where it lies on its axis."""
        return int(asdict(self)[self.axis])


@dataclass(frozen=True)
class Measured:
    """Seconds of the stage, and the peak memory of its process, before the stage and after it."""

    processor_s: float
    wall_s: float
    before_gib: float
    peak_gib: float
    note: str = ""


AXES: dict[str, tuple[int, ...]] = {
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "columns": (5, 20, 100, 500),
    "groups": (2, 5, 15, 50),
    "cells": (2, 16, 128, 1_024),
}
"""The values of each axis; all else is as `Point` says."""

MOST_COLUMNS = {"FairMatching": 20}
"""A cell is a combination of values, and of more columns there are too many: the codec refuses them."""


def all_points() -> Iterator[Point]:
    """All points, those that take long last."""
    for axis, values in AXES.items():
        for value in values:
            for stage in STAGES:
                for encoder in ENCODERS:
                    if axis == "columns" and value > MOST_COLUMNS.get(encoder, value):
                        continue
                    if axis == "cells" and encoder in ("FairMatching", "FairFlow"):
                        continue  # which have no number of cells to choose
                    yield replace(Point(axis, encoder, stage), **{axis: value})


def drawn_rows(n_rows: int, n_columns: int, n_groups: int, seed: int) -> pd.DataFrame:
    """Rows of `n_columns` features, a group, a label and a person; the same for the same arguments."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n_rows)
    factors = rng.normal(size=(4, n_rows)) + group / (2 * n_groups)
    columns: dict[str, object] = {}
    for j in range(n_columns):
        value = factors[j % 4] + rng.normal(size=n_rows)
        if j % 4 == 0:
            columns[f"x{j}"] = np.clip(np.rint(40 + 10 * value), 0, 99).astype(np.int64)
        elif j % 4 == 1:
            columns[f"x{j}"] = value
        elif j % 4 == 2:
            level = np.clip(np.floor(value + 3), 0, 5).astype(np.int8)
            columns[f"x{j}"] = pd.Categorical.from_codes(level, list("abcdef"))
        else:
            columns[f"x{j}"] = pd.Categorical.from_codes((value > 0).astype(np.int8), ["no", "yes"])
    columns["group"] = group
    columns["label"] = (factors[0] + factors[1] + rng.normal(size=n_rows) > 0.5).astype(np.int64)
    columns["person"] = np.arange(n_rows) + 10**9 * seed  # rows of two seeds are of different persons
    return pd.DataFrame(columns)


def as_table(rows: pd.DataFrame) -> Table:
    """The rows with their roles."""
    from fairflows.table.table import Table

    return Table(rows, sensitive="group", label="label", identifier="person")


def encoder_named(name: str, n_cells: int = 64, *, briefly: bool = False) -> Encoder:
    """An encoder, not fitted, with its usual settings; `briefly` where it is not the fit that is measured."""
    from fairflows import FairCells, FairFlow, FairMatching, FairTree, Release

    made: dict[str, Callable[[], Encoder]] = {
        "FairTree": lambda: FairTree(n_cells),
        # A target in reach of few persons and many cells; how near it is does not change the work.
        "FairCells": lambda: FairCells(target=0.9, n_cells=n_cells, n_certify=10_000_000),
        "FairMatching": FairMatching,
        "FairFlow": lambda: FairFlow(n_epochs=2) if briefly else FairFlow(),
        "Release": lambda: Release(FairTree(), n_cells=n_cells, output="cell"),
        "one model": lambda: Release(FairMatching(density="counts"), n_cells=n_cells, output="cell"),
    }
    return made[name]()


def measure(point: Point) -> Measured:
    """Prepare a stage, and measure it; in a process that did nothing else."""
    warnings.simplefilter("ignore")
    from fairflows.attack.auditing import audit
    from fairflows.certificate.certify import certify

    encoder = encoder_named(point.encoder, point.cells, briefly=point.stage != "fit")
    if point.stage == "fit":
        table = as_table(drawn_rows(point.rows, point.columns, point.groups, seed=1))
        return timed(lambda: encoder.fit(table))
    encoder.fit(as_table(drawn_rows(FITTED_ROWS, point.columns, point.groups, seed=1)))
    table = as_table(drawn_rows(point.rows, point.columns, point.groups, seed=2))
    if point.stage == "encode":
        return timed(lambda: encoder.transform(table))
    if point.stage == "certify":
        return timed(lambda: certify(encoder, table))
    learnt_from, attacked = table.split(test=1 - AUDIT_LEARNS, validation=0)
    return timed(lambda: audit(encoder, learnt_from, attacked))


def timed(run: Callable[[], object]) -> Measured:
    before = peak_gib()
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return Measured(time.process_time() - processor, time.perf_counter() - wall, before, peak_gib())


def peak_gib() -> float:
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measured_apart(point: Point, limit_s: float, memory_gib: float) -> Measured:
    """The point measured by another process, or why it was not."""

    def hold_to_limits() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory_gib * 2**30),) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s),) * 2)

    command = [sys.executable, __file__, "--point", json.dumps(asdict(point))]
    with tempfile.TemporaryDirectory() as ledger:
        environment = os.environ | ONE_THREAD | {"FAIRFLOWS_LEDGER": f"{ledger}/ledger"}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=hold_to_limits)
    if ran.returncode == 0:
        return Measured(**json.loads(ran.stdout.splitlines()[-1]))
    if ran.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Measured(0, 0, 0, 0, f"more than {limit_s:g} processor s")
    last = (ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"])[-1]
    return Measured(0, 0, 0, 0, f"more than {memory_gib:g} GiB" if "emory" in last else last)


def read_points(path: Path) -> dict[Point, Measured]:
    """What was measured before."""
    if not path.exists():
        return {}
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            sizes = {name: int(row[name]) for name in ("rows", "columns", "groups", "cells")}
            numbers = {field.name: float(row[field.name]) for field in fields(Measured) if field.name != "note"}
            point = Point(row["axis"], row["encoder"], row["stage"], **sizes)
            found[point] = Measured(**numbers, note=row["note"])
    return found


def write_point(path: Path, point: Point, measured: Measured) -> None:
    """Append one line, under a header where the file is new."""
    line = asdict(point) | {
        name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(measured).items()
    }
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        if is_new:
            writer.writeheader()
        writer.writerow(line)


def wanted(point: Point, only: Sequence[str]) -> bool:
    """Whether the point is among the axes, the encoders and the stages that were named."""
    for known, own in ((tuple(AXES), point.axis), (ENCODERS, point.encoder), (STAGES, point.stage)):
        named = [name for name in only if name in known]
        if named and own not in named:
            return False
    return True


def draw(known: dict[Point, Measured], path: Path) -> None:
    """Processor seconds and peak memory against every axis, one line per encoder, on logarithmic scales."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator

    found_stages = [stage for stage in STAGES if any(point.stage == stage for point in known)]
    panels = [(what, stage) for what in ("processor_s", "peak_gib") for stage in found_stages]
    drawn = [axis for axis in AXES if any(point.axis == axis for point in known)]
    size = max(3.2 * len(drawn), 6), 2.2 * len(panels) + 0.8
    figure, grid = plt.subplots(len(panels), len(drawn), figsize=size, sharex="col", sharey="row", squeeze=False)
    colours = dict(zip(ENCODERS, plt.get_cmap("tab10").colors, strict=False))
    for (what, stage), row in zip(panels, grid, strict=True):
        for axis, panel in zip(drawn, row, strict=True):
            for encoder in ENCODERS:
                line = sorted(
                    (point.value, getattr(measured, what))
                    for point, measured in known.items()
                    if (point.axis, point.encoder, point.stage) == (axis, encoder, stage) and not measured.note
                )
                if line:
                    panel.plot(*zip(*line, strict=True), "o-", ms=3, lw=1.2, label=encoder, color=colours[encoder])
            panel.set_visible(panel.has_data())
            panel.set(xscale="log", yscale="log")
            panel.grid(visible=True, which="major", lw=0.4, alpha=0.6)
            panel.set_xticks(AXES[axis], [_short(value) for value in AXES[axis]])
            panel.minorticks_off()
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if what == "peak_gib" else (1,), numticks=12))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        row[0].set_ylabel(f"{stage}: {'processor s' if what == 'processor_s' else 'peak GiB'}")
    for axis, column in zip(drawn, grid.T, strict=True):
        lowest = [panel for panel in column if panel.get_visible()][-1]
        lowest.set_xlabel(axis)
        lowest.tick_params(labelbottom=True)
    found = [panel.get_legend_handles_labels() for panel in grid.flat]
    labels = {label: line for lines, names in found for line, label in zip(lines, names, strict=True)}
    figure.legend(labels.values(), labels, loc="upper center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / size[1]))  # below the legend, of two lines
    figure.savefig(path, dpi=110)


def as_markdown(known: dict[Point, Measured], axis: str) -> str:
    """Processor seconds and peak memory against one axis, a line per encoder and stage."""
    lines = ["| encoder | stage | " + " | ".join(f"{value:,}" for value in AXES[axis]) + " |"]
    lines.append("|---|---|" + "---|" * len(AXES[axis]))
    for encoder in ENCODERS:
        for stage in STAGES:
            curve = {point.value: measured for point, measured in known.items()
                     if (point.axis, point.encoder, point.stage) == (axis, encoder, stage)}  # fmt: skip
            if curve:
                cells = [_cell(curve[value]) if value in curve else "–" for value in AXES[axis]]
                lines.append(f"| {encoder} | {stage} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(measured: Measured) -> str:
    """Two digits of each number."""
    if measured.note:
        return measured.note
    seconds, gib = measured.processor_s, measured.peak_gib
    return f"{seconds:.{2 if seconds < 1 else 1 if seconds < 20 else 0}f} s, {gib:.{2 if gib < 1 else 1}f} GiB"


def _short(value: int) -> str:
    """A number on an axis: 10⁶ is too long when written out."""
    return f"{value:,}" if value < 10_000 else f"$10^{len(str(value)) - 1}$"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=(*AXES, *ENCODERS, *STAGES), default=[], metavar="NAME")
    parser.add_argument("--limit", type=float, default=300, help="processor seconds for a point, preparation included")
    parser.add_argument("--memory", type=float, default=6, help="GiB for a point")
    parser.add_argument("--jobs", type=int, default=1, help="points at a time")
    parser.add_argument("--csv", type=Path, default=Path("growth.csv"))
    parser.add_argument("--figure", type=Path, help="draw the curves to this file")
    parser.add_argument("--table", choices=AXES, help="print the points of this axis as a table in Markdown")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        print(json.dumps(asdict(measure(Point(**json.loads(arguments.point))))))
        return
    known = read_points(arguments.csv)
    if arguments.only or not (arguments.figure or arguments.table):
        points = [p for p in all_points() if p not in known and wanted(p, arguments.only)]
        if arguments.jobs > 1:
            points.sort(key=lambda point: (point.axis != "rows", -point.rows * point.columns))

        def measured_unless_beyond(point: Point) -> tuple[Point, Measured | None]:
            beyond = _is_beyond(point, dict(known))
            return point, None if beyond else measured_apart(point, arguments.limit, arguments.memory)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for done in as_completed([pool.submit(measured_unless_beyond, point) for point in points]):
                point, measured = done.result()
                if measured is not None:
                    known[point] = measured
                    write_point(arguments.csv, point, measured)
                    print(f"{point.axis} {point.value:,} {point.encoder} {point.stage}: {_shown(measured)}", flush=True)
    if arguments.figure:
        draw(known, arguments.figure)
    if arguments.table:
        print(as_markdown(known, arguments.table))


def _is_beyond(point: Point, known: dict[Point, Measured]) -> bool:
    """Whether a smaller value on the same axis could not be measured."""
    curve = (point.axis, point.encoder, point.stage)
    return any(
        measured.note and (other.axis, other.encoder, other.stage) == curve and other.value < point.value
        for other, measured in known.items()
    )


def _shown(measured: Measured) -> str:
    if measured.note:
        return measured.note
    return (
        f"{measured.processor_s:.2f} processor s, {measured.wall_s:.2f} s, "
        f"peak {measured.peak_gib:.2f} GiB (before {measured.before_gib:.2f})"
    )


if __name__ == "__main__":
    main()
