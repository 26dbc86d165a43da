"""Commands that need no model: datasets, describe, check, sign, demo, reproduce."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairflows.cli.base import app, print_frame, print_json, stages, with_options
from fairflows.cli.options import (
    Delta,
    Drop,
    Groups,
    Identifier,
    Json,
    Label,
    MergeSmall,
    Missing,
    Multiclass,
    Quiet,
    Sensitive,
    reads_files,
)
from fairflows.table.text_format import TextFormat

if TYPE_CHECKING:
    import pandas as pd

    from fairflows.paper.experiments import Outcome


_MODELS = 2  # that `fit` shares out the persons among; each certifies on those that it has not seen, with its part of δ


@app.command()
def datasets(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the datasets that come with fairflows: rows, groups, rates, licence, and where each would come from.

    Adult is inside the package. The others are looked for in the folder that the environment variable
    `FAIRFLOWS_DATA` names, else downloaded from their publisher where there still is one.
    """
    from fairflows.paper.datasets import describe_datasets

    found = describe_datasets()
    if as_json:
        print_frame(found, as_json, title="Datasets")
        return
    print_frame(found.drop(columns=["at_hand", "source"]), as_json, title="Datasets")
    if quiet:
        return
    for name, source in zip(found["name"], found["source"], strict=True):
        typer.echo(f"{name}: {source}")  # a path must stay in one piece, to be copied


@app.command()
@reads_files
def describe(
    file: Annotated[Path, typer.Argument(help="A CSV, Excel or Parquet file.")],
    sensitive: Sensitive,
    label: Label = None,
    groups: Groups = None,
    merge_small: MergeSmall = 0,
    identifier: Identifier = None,
    drop: Drop = None,
    missing: Missing = "error",
    multiclass: Multiclass = False,
    delta: Delta = 0.05,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Say what a table holds, what will go wrong with it, and what can be certified with so many persons.

    Example: `fairflows describe loans.csv --sensitive sex --label repaid`
    """
    from fairflows.table.grouping import read_cuts
    from fairflows.table.prospects import best_bounds, find_names, find_needed, find_problems
    from fairflows.table.reading import read_frame
    from fairflows.table.table import Table

    frame = read_frame(file, identifier=identifier, text_format=text_format)
    named = find_names(frame, [*sensitive, *filter(None, [label, identifier]), *(drop or [])])
    table = Table(
        frame,
        name=file.name,
        sensitive=sensitive,
        label=label,
        groups=read_cuts(groups or []),
        merge_small=merge_small,
        identifier=identifier,
        drop=[*(drop or []), *(str(finding.column) for finding in named)],
        missing="category" if missing == "error" else missing,
        multiclass=True,
    )
    needed = find_needed(table, missing=missing, multiclass=multiclass)
    plan = {"certifying": 1 / _MODELS, "delta": delta / _MODELS}
    found = [with_options(str(each)) for each in [*named, *needed, *find_problems(table, **plan)]]
    bounds = best_bounds(table, **plan)
    if as_json:
        summary, columns = (json.loads(part.to_json(orient="index")) for part in (table.summary(), table.columns()))
        record = {
            "name": table.name,
            "rows": len(table),
            "groups": summary,
            "columns": columns,
            "notes": table.notes,
            "findings": found,
            "certified_at_best": bounds.to_dict(orient="records"),
        }
        print_json(record)
        return
    if not quiet:
        typer.echo(repr(table))
    print_frame(table.columns().reset_index(), as_json=False, title="Columns")
    for finding in found:
        typer.echo(f"! {finding}")
    typer.echo(_at_best(bounds))


@app.command()
def check(
    certificate: Annotated[Path, typer.Argument(help="The certificate.json that came with the file.")],
    file: Annotated[Path | None, typer.Argument(help="The released file.", show_default=False)] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing: the exit code does.")] = False,
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
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")] = Path("fairflows-demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Adult, end to end and offline: whole rows to share instead of the persons' own, attacked and certified.

    Writes `shared.csv`, `certificate.json`, both reports and the private model.
    """
    from fairflows.table.examples import load_adult
    from fairflows.workflow.job import fit_table
    from fairflows.workflow.results import Reading, refuse_other_folder, summary, write_fit

    refuse_other_folder(out)
    table = load_adult()
    if not (quiet or as_json):
        typer.echo(repr(table))
    with stages(quiet or as_json) as say:
        made = fit_table(table, target=0.1, quick=True, say=say)
        reading = Reading(sensitive=["sex"], label="income", drop=[])
        write_fit(made, table, out, {**asdict(reading), "rows": len(table), "seed": 0}, shared="shared.csv")
    if as_json:
        print_json({"out": str(out), "certificate": made.certificate.to_dict()})
        return
    if not quiet:
        print_frame(table.X.head(3), False, title="The table")
        print_frame(made.shared.sample(3), False, title="What is shared: whole rows, drawn from cells")
        typer.echo(f"\n{summary(made, out, 'shared.csv')}")
        typer.echo(f"\nOpen {out / 'report.html'} in a browser.")


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
