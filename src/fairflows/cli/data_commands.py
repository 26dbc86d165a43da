"""Commands that need no model: share, describe, check, demo, reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairflows.cli.base import app, print_frame, print_json, stages, with_options
from fairflows.cli.options import (
    Delta,
    File,
    Identifier,
    Json,
    Label,
    MostRows,
    Quick,
    Quiet,
    Reading,
    Sensitive,
    Silent,
    Target,
    reads_tables,
)

if TYPE_CHECKING:
    import pandas as pd

    from fairflows.paper.experiments import Outcome
    from fairflows.table.table import Table
    from fairflows.workflow.shared import Kind, Shared

_MODELS = 2  # of `share`; each is certified by the persons that it was not fitted to, with its part of δ


@app.command()
@reads_tables
def share(
    file: File,
    sensitive: Sensitive,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.", show_default=False)],
    label: Label = None,
    identifier: Identifier = None,
    target: Target = 0.1,
    delta: Delta = 0.05,
    method: Annotated[
        Literal["tree", "cells", "flow", "matching"],
        typer.Option(help="Cells for many purposes; the best cells for the label; or the paper's encoders."),
    ] = "tree",
    output: Annotated[
        Literal["row", "cell", "latent"],
        typer.Option(help="Whole rows; cell numbers; or the latent of flow or matching, which only its model bounds."),
    ] = "row",
    without_attribute: Annotated[
        bool, typer.Option("--without-attribute", help="Encode later files without the attribute (method cells).")
    ] = False,
    most_rows: MostRows = None,
    random_state: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of the split and of training; never of the key.")
    ] = 0,
    quick: Quick = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model, the key and all files of an earlier result.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Turn a table into one that can be shared, with a certificate and a report.

    Writes `shared.csv` (all rows, in the table's own columns, in random order, without the sensitive attribute and the
    identifier), `certificate.json`, `report-public.html` for the receiver, `report.html` and the private model.

    Exit code 0: the target is certified, or kept by the model of a latent. 1: it is missed. 2: bad input. 70: a bug in
    fairflows. 130: interrupted.

    Example: `fairflows share loans.csv --sensitive sex --label repaid --id person -o out`
    """
    from fairflows.workflow.shared import check_place, kind_to_share
    from fairflows.workflow.sharing import share as make

    check_place(out, file, replace=replace)
    kind = kind_to_share(file)
    with stages(quiet or as_json) as say:
        say(f"reading {file}")
        table = reading.table(reading.frame(file, identifier), file.name, sensitive, label, identifier)
        if identifier is None:
            say("no --id: every row counts as another person, and gets fresh randomness whenever it is encoded")
        shared = make(
            table,
            target=target,
            delta=delta,
            method=method,
            output=output,
            without_attribute=without_attribute,
            most_rows=most_rows,
            random_state=random_state,
            quick=quick,
            say=say,
        )
        shared.save(out, kind=kind, replace=replace)
    _print_shared(shared, out, kind, as_json)
    raise typer.Exit(0 if shared.is_good else 1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")] = Path("fairflows-demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Share Adult, end to end and offline.

    Writes `shared.csv`, `certificate.json`, both reports and the private model.
    """
    from fairflows.table.examples import load_adult
    from fairflows.workflow.shared import check_place
    from fairflows.workflow.sharing import share as make

    check_place(out, replace=True)
    table = load_adult()
    with stages(quiet or as_json) as say:
        shared = make(table, quick=True, say=say)
        shared.save(out, replace=True)
    if not (quiet or as_json):
        print_frame(table.X.head(3), False, title="The table")
        print_frame(shared.table.head(3), False, title="The shared table: rows drawn from cells")
    _print_shared(shared, out, "csv", as_json)


def _print_shared(shared: Shared, out: Path, kind: Kind, as_json: bool) -> None:
    from fairflows.report.words import which_file_goes_where
    from fairflows.workflow.shared import SHARED

    if as_json:
        usefulness = None if shared.usefulness is None else shared.usefulness.to_dict()
        print_json({"out": str(out), "certificate": shared.certificate.to_dict(), "usefulness": usefulness})
    else:
        typer.echo(f"{shared!r}\n\n{which_file_goes_where(shared, out, SHARED[kind])}")


@app.command()
@reads_tables
def describe(
    file: File,
    sensitive: Sensitive,
    label: Label = None,
    identifier: Identifier = None,
    delta: Delta = 0.05,
    as_json: Json = False,
    *,
    reading: Reading,
) -> None:
    """Print what a table holds, its problems, and what can be certified with so many persons.

    Example: `fairflows describe loans.csv --sensitive sex --label repaid`
    """
    from dataclasses import replace

    from fairflows.table.prospects import best_bounds, find_names, find_problems

    frame = reading.frame(file, identifier)
    named = find_names(frame, [*sensitive, *filter(None, [label, identifier]), *(reading.drop or [])])
    reading = replace(reading, drop=[*(reading.drop or []), *(str(finding.column) for finding in named)])
    table = reading.table(frame, file.name, sensitive, label, identifier)
    plan = {"certifying": 1 / _MODELS, "delta": delta / _MODELS}
    found = [with_options(str(each)) for each in [*named, *find_problems(table, **plan)]]
    bounds = best_bounds(table, **plan)
    if as_json:
        print_json(_record(table, found, bounds))
        return
    typer.echo(repr(table))
    print_frame(table.columns().reset_index(), as_json=False, title="Columns")
    for finding in found:
        typer.echo(f"! {finding}")
    typer.echo(_at_best(bounds))


def _record(table: Table, found: list[str], bounds: pd.DataFrame) -> dict[str, object]:
    summary, columns = (json.loads(part.to_json(orient="index")) for part in (table.summary(), table.columns()))
    return {
        "name": table.name,
        "rows": len(table),
        "groups": summary,
        "columns": columns,
        "notes": table.notes,
        "findings": found,
        "certified_at_best": bounds.to_dict(orient="records"),
    }


def _at_best(bounds: pd.DataFrame) -> str:
    """What can be certified with so many persons, in words."""
    reached = bounds[bounds["distance"] < 1]
    if reached.empty:
        return "Nothing can be certified about these groups with so many persons: they are too small, or too many."
    listed = ", ".join(f"Δ ≤ {bound.distance:.2f} with {bound.cells} cells" for bound in reached.itertuples())
    return (
        f"What can be certified at best with so many persons: {listed}. A guess between two groups is then right at "
        "most (1 + Δ)/2 of the time."
    )


@app.command()
def check(
    certificate: Annotated[Path, typer.Argument(help="The certificate.json that came with the file.")],
    file: Annotated[Path | None, typer.Argument(help="The released file.", show_default=False)] = None,
    as_json: Json = False,
    quiet: Silent = False,
) -> None:
    """Check a certificate and a released file, without the model and without any secret.

    Computes every bound again from the counts in the certificate, compares the file with what the certificate and the
    producer's list (`certificate.files.json` beside it) say of it, and says what cannot be known.

    Exit code 0: all checks passed. 1: one failed, or the file is in no list. 2: bad input.

    Example: `fairflows check certificate.json shared.csv`
    """
    from fairflows.certificate.check import check as find_out

    checked = find_out(certificate, file)
    if as_json:
        print_json(checked.to_dict())
    elif not quiet:
        typer.echo(repr(checked))
    raise typer.Exit(0 if checked else 1)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; without one, all are listed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List them, and run none.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, epochs and rows: minutes, on two cores.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to train.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="How many to run side by side, as processes.")] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reproduction"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run experiments of the paper, and print its numbers beside ours.

    Models that several of them share are trained once. The exit status is 1 when one that was named lacks its data, or
    all do, or when one failed.

    Example: `fairflows reproduce figure-4a table-2 --quick`
    """
    import pandas as pd

    from fairflows.paper.experiments import list_experiments, run_many
    from fairflows.resources import chosen_device
    from fairflows.table.folders import check_folder

    known = list_experiments()
    if every and names:
        raise ValueError(f"--all runs every experiment: leave out {', '.join(names)}, or --all.")
    chosen = known["id"].tolist() if every else list(names or [])
    for name in chosen:
        if name not in set(known["id"]):
            raise ValueError(f"there is no experiment {name!r}; there are {', '.join(known['id'])}.")
    if listed or not chosen:
        print_frame(known, as_json, title="Experiments")
        return
    chosen_device(device)  # refuse a GPU that is not there before anything runs
    check_folder(out)
    results = []
    with stages(quiet or as_json) as say:
        for result in run_many(chosen, n_jobs=jobs, quick=quick, seeds=seeds, device=device, out=out):
            results.append(result)
            say(f"{result.id}, {len(results)} of {len(chosen)}")
            if not as_json:
                typer.echo(str(result))
    if as_json:
        print_json([result.to_dict() for result in results])
    elif len(results) > 1:
        lines = [(r.id, round(r.seconds), _outcome(r)) for r in results]
        print_frame(pd.DataFrame(lines, columns=["experiment", "seconds", ""]), False, title="Experiments")
    if not as_json:
        typer.echo(f"Tables, figures and everything as JSON are in {out}.")
    missing = [bool(result.skipped) for result in results]
    failed = any(result.failed for result in results)
    raise typer.Exit(int(failed or (all(missing) if every else any(missing))))


def _outcome(result: Outcome) -> str:
    if result.failed:
        return f"failed: {result.failed.splitlines()[-1]}"
    return f"skipped: {result.skipped}" if result.skipped else "done"
