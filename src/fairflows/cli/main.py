"""The command ``fairflows``. Subcommands import their modules when they run, so that ``--help`` is fast."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairflows import __version__
from fairflows.cli.options import (
    Delta,
    File,
    FileFormat,
    Folder,
    HeldOut,
    Json,
    MostRows,
    Quick,
    Reading,
    in_options,
    listed,
    with_group,
    with_options,
)
from fairflows.display import say, stages
from fairflows.exceptions import DataError, DataWarning

if TYPE_CHECKING:
    import pandas as pd

    from fairflows.encoder.base import Encoder
    from fairflows.paper.experiments import Outcome
    from fairflows.result import Kind, Run, Shared
    from fairflows.table.table import Table

app = typer.Typer(
    help="Share a table without giving away a sensitive attribute.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

BUG = 70
"""The exit code of an unexpected error (EX_SOFTWARE of BSD's sysexits); 1 means that a target was missed."""

_warned: set[str] = set()  # that were printed


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairflows {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Share a table without giving away a sensitive attribute."""


@app.command()
@with_group(Reading)
def share(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.", show_default=False)],
    target: Annotated[
        float | None,
        typer.Option(help="Largest distance Δ between two groups; 0.1, or more for small tables.", show_default=False),
    ] = None,
    delta: Delta = 0.01,
    require: Annotated[
        Literal["table", "population"],
        typer.Option(help="What the exit code is about: this table, or also persons to come."),
    ] = "table",
    method: Annotated[
        Literal["tree", "cells", "cells-without-attribute"],
        typer.Option(
            help="Cells for many purposes; or the best cells for one label, with or without the attribute in later "
            "files."
        ),
    ] = "tree",
    output: Annotated[
        Literal["row", "cell"],
        typer.Option(help="Whole rows, or cell numbers."),
    ] = "row",
    unit: Annotated[
        Literal["person", "row"] | None,
        typer.Option(
            help="Draw all rows of a person together from one cell, or every row from its own; by default `person` "
            "where --id repeats.",
            show_default=False,
        ),
    ] = None,
    spend: Annotated[
        float, typer.Option(help="How much of the target the tree may spend on a label with two classes.")
    ] = 0.0,
    linked_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", help="File with any number of rows of each person, linked by --id; FILE has one row of each."
        ),
    ] = None,
    find_rules: Annotated[
        bool, typer.Option("--rules/--no-rules", help="Keep inequalities that all rows of the table keep.")
    ] = True,
    derive: Annotated[bool, typer.Option(help="Compute columns that follow from others, or draw all.")] = True,
    score: Annotated[
        bool | None,
        typer.Option("--score/--no-score", help="A column with the expected label; by default with one row each."),
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(help="TOML file with issuer, contact, purpose, recipient, valid_until and [population]."),
    ] = None,
    random_state: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of the split and of training; never of the key.")
    ] = 0,
    quick: Quick = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model, the key and all files of an earlier result.")
    ] = False,
    again: Annotated[
        Path | None,
        typer.Option(help="Folder of an earlier result, from whose cells the rows are drawn.", show_default=False),
    ] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="With --again: cut the cells further by the new columns.")
    ] = False,
    as_json: Json = False,
    *,
    reading: Reading,
) -> None:
    """Turn a table into one that can be shared, with a certificate and a report.

    Writes `shared.csv` (all rows, in the table's own columns, in random order, without the sensitive attribute and the
    identifier; where persons have several rows, these are together under a fresh number), `certificate.json`,
    `report-public.html` for the receiver, `report.html`, `report.json` and the private model.

    With `--with` two linked tables are shared: `shared-persons.csv` has one row of each person, `shared.csv` their rows
    in the other file, and both number the persons alike. One certificate is about both together.

    With `--again` persons of the earlier table keep their cell, and the certificate covers all these releases together.

    Exit code 0: this table is within the target (with `--require population`, persons to come too). 1: it is not. 2:
    bad input. 70: a bug in fairflows. 130: interrupted.

    Example: `fairflows share loans.csv --sensitive sex --label repaid --id person -o out`
    """
    from fairflows.certificate.about import About
    from fairflows.result import check_place, read_run
    from fairflows.sharing import share as make
    from fairflows.table.folders import locked
    from fairflows.table.prospects import find_problems
    from fairflows.table.reading import kind_of

    check_place(out, file, replace=replace)
    stated = None if about is None else About.read(about)
    kind: Kind = "parquet" if kind_of(file) == "parquet" else "csv"
    linked = linked_files[0] if linked_files else None
    if more := (linked_files or [])[1:]:
        raise DataError(
            f"Two linked files are shared together, FILE and one other (--with); got {', '.join(map(str, more))}, too. "
            "Join a further file to one of the two, or leave it out."
        )
    if linked is not None and (reading.sample is not None or again is not None):
        raise DataError("Two linked files are read whole, and not drawn again: leave out --sample and --again.")
    if again is not None and again.resolve() == out.resolve():
        raise DataError("again draws a file into another folder: the earlier certificate stays where it is.")
    if extend and reading.sample is not None:
        raise DataError("extend takes a whole file, whose persons cut the cells further; leave sample=... out.")
    grouping = None if again is None else read_run(again).grouping
    with locked(out, wait=False), stages():
        say(f"reading {file}")
        frame, time_formats = reading.frame(file, is_linked=linked is not None)
        if linked is None:
            table = reading.table(frame, file.name, grouping)
        else:
            say(f"reading {linked}")
            rows, formats = reading.frame(linked, is_linked=True)
            table, time_formats = reading.linked_tables({file.stem: frame, linked.stem: rows}), time_formats | formats
        table.time_formats = time_formats
        if reading.identifier is None:
            say("no --id: every row counts as another person, and gets fresh randomness whenever it is encoded")
        for finding in dict.fromkeys(said for part in table.tables for said in find_problems(part)):
            say(f"! {with_options(finding)}")
        most_rows = reading.most_rows
        if unit == "row" and most_rows is None and table.has_histories:
            most_rows = int(table.persons.rows_each().max())
            say(f"--most-rows {most_rows}, as in the file")
        shared = make(
            table,
            target=target,
            delta=delta,
            method=method,
            output=output,
            unit=unit,
            spend=spend,
            most_rows=most_rows,
            rules=reading.rules or (),
            find_rules=find_rules,
            derive=derive,
            score=score,
            about=stated,
            random_state=random_state,
            quick=quick,
            again=again,
            extend=extend,
        )
        whole = None if reading.sample is None else file
        shared = shared.save(out, kind=kind, replace=replace, whole=whole, text_format=reading.text_format)
    if as_json:
        from fairflows.result import SHARED

        typer.echo(_as_json(shared.to_dict() | {"folder": str(out), "file": str(out / SHARED[kind])}))
    else:
        _print_shared(shared, out, kind)
    meets_target = shared.meets_target and (require == "table" or shared.certificate.covers_population)
    raise typer.Exit(0 if meets_target else 1)


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")] = Path("fairflows-demo")) -> None:
    """Share Adult, end to end and offline.

    Writes `shared.csv`, `certificate.json`, both reports and the private model.
    """
    from fairflows.result import check_place
    from fairflows.sharing import share as make
    from fairflows.table.examples import load_adult
    from fairflows.table.folders import locked

    check_place(out, replace=True)
    table = load_adult()
    with locked(out, wait=False), stages():
        shared = make(table).save(out, replace=True)
    _print_frame(table.X.head(3), title="The table")
    _print_frame(shared.rows.head(3), title="The shared table: rows drawn from cells")
    _print_shared(shared, out, "csv")


def _print_shared(shared: Shared, out: Path, kind: Kind) -> None:
    from fairflows.report.table_words import which_file_goes_where
    from fairflows.result import SHARED

    typer.echo(f"{in_options(repr(shared))}\n\n{which_file_goes_where(shared, out, SHARED[kind])}")


@app.command(name="app")
def page(
    file: Annotated[Path | None, typer.Argument(help="CSV, Excel or Parquet file.", show_default=False)] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; by default a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Share and check tables on a page in the browser. Nothing leaves this machine.

    Needs the extra: pip install "fairflows[app]"

    Example: `fairflows app loans.csv`
    """
    try:
        from fairflows.app.server import serve
    except ImportError as error:
        raise DataError(f"the page needs {error.name}: pip install 'fairflows[app]'.") from None
    if file is not None and not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    serve(file, port=port, browser=browser, say=typer.echo)


@app.command()
@with_group(Reading)
def describe(file: File, delta: Delta = 0.01, as_json: Json = False, *, reading: Reading) -> None:
    """Print what a table holds, all of its problems, and what can be certified with so many persons.

    Exit code 0, also where there are problems; 2: the file cannot be read, or an option does not fit it.

    Example: `fairflows describe loans.csv --sensitive sex --label repaid`
    """
    from fairflows.cli.describing import describe as find_out

    described = find_out(reading, reading.frame(file)[0], file.name, delta)
    typer.echo(_as_json(described.to_dict()) if as_json else str(described))


@app.command()
@with_group(FileFormat)
def encode(
    folder: Folder,
    source: Annotated[str, typer.Argument(help="CSV, Excel or Parquet file; with Ray, a folder of Parquet files.")],
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="CSV (commas, UTF-8) or Parquet file to write; with Ray, a folder."),
    ],
    keep: Annotated[list[str] | None, typer.Option(help="Columns to write unchanged: a,b, or repeated.")] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")] = "local",
    watched: Annotated[bool, typer.Option("--watch", help="Then do as `fairflows watch` with the same file.")] = False,
    missing_group: Annotated[
        Literal["drop", "group"] | None, typer.Option(help="Rows without a group; by default as in `share`.")
    ] = None,
    missing_label: Annotated[
        Literal["drop", "keep"] | None, typer.Option(help="Rows without a label; by default as in `share`.")
    ] = None,
    as_json: Json = False,
    *,
    reading: FileFormat,
) -> None:
    """Encode a file of any size. Memory does not grow with it, and the target appears when it is complete.

    Rows are written in a random order, without identifiers. No certificate covers the columns that `--keep` adds. The
    file is named in `certificate.files.json` beside the certificate, so that `fairflows check` recognises it.

    A file without a row gives a file without a row. `--json` prints how many rows were written and dropped, which
    values are unknown, how many rows are of persons of the shared table, and the digests of the file.

    With `--watch` the file is read whole, its persons are counted, and the exit code is that of `fairflows watch`.

    Example: `fairflows encode out new.parquet -o shared.parquet`
    """
    from fairflows.stream.batches import BatchFindings

    model, run = _open_result(folder)
    run.refuse_linked("`fairflows encode`")
    roles, found = run.roles_with(missing_group, missing_label), BatchFindings()
    told: dict[str, Any] = {"file": out}
    if engine == "ray":
        from fairflows.stream.engines import encode_folder

        if reading != FileFormat():
            raise DataError("engine must be 'local' to read CSV files: Ray reads folders of Parquet files.")
        n_rows = encode_folder(model, source, out, keep=keep, **roles)
    else:
        from fairflows.certificate.file_list import file_sha256, list_files
        from fairflows.stream.files import encode_file
        from fairflows.table.reading import open_table

        if Path(out).resolve().parent == folder.resolve():
            raise DataError(f"{out}: the folder holds the result of `fairflows share`; write to another one.")
        formats: dict[str, Any] = {"text_format": reading.text_format, "time_formats": run.time_formats}
        if keep:
            keep = listed(keep, open_table(Path(source), reading.text_format).columns)
        with stages():
            n_rows = encode_file(model, source, out, keep=keep or (), found=found, **formats, **roles)
        certificate, name = folder / "certificate.json", Path(out).name
        told |= found.to_dict() | {"sha256": file_sha256(Path(out))}
        if certificate.is_file() and not keep:  # such columns are not covered
            told["contents"] = list_files(certificate, [Path(out)]).contents.get(name)
    later = run.later_persons(Path(source), model, reading.text_format) if watched else None
    if as_json and not watched:
        typer.echo(_as_json({"rows": n_rows, **told}))
    else:
        typer.echo(f"{n_rows:,} rows written to {out}", err=as_json)
    if watched:
        _watch(folder, model, later, told={"encoded": {"rows": n_rows, **told}}, as_json=as_json)


@app.command()
@with_group(FileFormat)
def watch(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file of persons who came later.")],
    groups_from: Annotated[
        str | None, typer.Option(help="Column with the groups, where the file calls it otherwise.", show_default=False)
    ] = None,
    day: Annotated[
        str | None, typer.Option("--date", help="The day of these persons; by default today.", show_default=False)
    ] = None,
    as_json: Json = False,
    *,
    reading: FileFormat,
) -> None:
    """Count the persons of a later file, and say whether the certificate still holds for those who come.

    Prints three lines: whether the persons follow the law of the certificate, whether its bound on persons to come
    holds, and the present Δ. Both tests hold at all times: a false alarm ever has probability 0.01 at most, however
    often one looks. The state is `watch.json` in the folder, which holds counts and no person.

    Exit code 0: both hold. 3: MOVED, the population is another one; cut again. 4: REFUTED, the bound does not hold; a
    dated notice is written to `certificate.notices.json`, which `fairflows check` shows. 2: bad input.

    Example: `fairflows watch out tonight.csv`
    """
    model, run = _open_result(folder)
    table = run.later_persons(rows, model, reading.text_format, groups_from)
    _watch(folder, model, table, day, as_json=as_json)


def _watch(
    folder: Path,
    model: Encoder,
    table: Table | None,
    day: str | None = None,
    *,
    told: dict[str, Any] | None = None,
    as_json: bool = False,
) -> None:
    """Update the watch of a result by later persons, if there are any, and end by its lamps."""
    from fairflows.result import watch_persons

    watched = watch_persons(folder, model, table, day)
    typer.echo(_as_json(watched.to_dict() | (told or {})) if as_json else repr(watched))
    raise typer.Exit(4 if watched.refuted else 3 if watched.moved else 0)


@app.command()
@with_group(FileFormat)
def certify(
    folder: Folder,
    rows: HeldOut,
    target: Annotated[
        float | None, typer.Option(help="Largest distance Δ between two groups; by default that of `share`.")
    ] = None,
    delta: Delta = 0.01,
    most_rows: MostRows = None,
    as_json: Json = False,
    *,
    reading: FileFormat,
) -> None:
    """Certify a model on held-out rows, or test a release of trees on new persons. Exit code 1 if it is not met.

    Each new certificate of held-out rows spends its share of δ; a release of trees needs no held-out persons.

    Example: `fairflows certify out held-out.csv --target 0.2`
    """
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.certify import certify as make

    model, run = _open_result(folder)
    table = run.table_of(rows, model, reading.text_format)
    if target is None:
        target = Certificate.read(folder / "certificate.json").target
    certificate = make(model, table, target=target, delta=delta, most_rows=most_rows)
    typer.echo(certificate.to_json() if as_json else repr(certificate))
    raise typer.Exit(0 if certificate.meets_target else 1)


@app.command()
def check(
    certificate: Annotated[Path, typer.Argument(help="The certificate.json, or the folder that has it.")],
    file: Annotated[Path | None, typer.Argument(help="The released file.", show_default=False)] = None,
    max_known_half: Annotated[
        float | None,
        typer.Option(help="Fail above this 95 % point of the table's Δ, half of the groups known.", show_default=False),
    ] = None,
    max_population: Annotated[
        float | None, typer.Option(help="Fail above this bound on persons to come.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a certificate and a released file, without the model and without any secret.

    Computes every bound again from the counts in the certificate, compares the file with what the certificate and the
    producer's list (`certificate.files.json` beside it) say of it, and says what cannot be known.

    Exit code 0: all checks passed. 1: one failed, a limit is exceeded, or the file is in no list. 2: bad input.

    Example: `fairflows check certificate.json shared.csv`
    """
    from fairflows.certificate.check import check as find_out

    checked = find_out(certificate, file, max_known_half=max_known_half, max_population=max_population)
    typer.echo(_as_json(checked.to_dict()) if as_json else repr(checked))
    raise typer.Exit(0 if checked else 1)


@app.command()
@with_group(FileFormat)
def verify(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="The certified rows, or the file that `share` was given.")],
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate; by default that of `share`.", show_default=False)
    ] = None,
    linked: Annotated[
        Path | None, typer.Option("--with", help="The other file, where two linked ones were shared.")
    ] = None,
    *,
    reading: FileFormat,
) -> None:
    """Compute a certificate again, and print the differences. Exit code 1 if there are any.

    Example: `fairflows verify out loans.csv`
    """
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.verify import verify as compare

    model, run = _open_result(folder)
    document = Certificate.read(certificate or folder / "certificate.json")
    if linked is None:
        table = run.table_of(rows, model, reading.text_format, is_own=True)
    else:
        table = run.linked_tables_of((rows, linked), model, reading.text_format)
    found = compare(document, model, table)
    typer.echo(repr(found))
    raise typer.Exit(0 if found else 1)


@app.command()
@with_group(FileFormat)
def audit(
    folder: Annotated[Path | None, typer.Argument(help="Folder that `share` wrote.", show_default=False)] = None,
    rows: Annotated[
        Path | None, typer.Argument(help="File of rows that the model has not seen.", show_default=False)
    ] = None,
    representation: Annotated[
        Path | None,
        typer.Option(
            help="Instead: an .npz file with anybody's representation, as Z_train, a_train, Z_test and a_test, and "
            "with labels, y_train and y_test.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer adversaries.")] = False,
    as_json: Json = False,
    *,
    reading: FileFormat,
) -> None:
    """Attack the release of a model, or a representation, with many adversaries; print what the best of them proves.

    Adversaries learn from half of the persons, and are judged on the others. Those of a representation learn from its
    training rows and are judged on its test rows; given labels, it is also printed how well the rows predict them.

    Example: `fairflows audit out held-out.csv --quick`, `fairflows audit --representation Z.npz`
    """
    from fairflows.attack.auditing import audit as attack
    from fairflows.attack.given_representation import GivenRepresentation

    if (representation is None) == (folder is None) or (folder is None) != (rows is None):
        raise DataError("audit needs a folder that `share` wrote and a file of held-out rows, or --representation.")
    if representation is not None:
        given = GivenRepresentation.read(representation)
        found, accuracy = given.audit(quick=quick, n_jobs=2), given.accuracy()
        if as_json:
            typer.echo(_as_json(found.to_dict() | {"label_accuracy": accuracy}))
            return
        typer.echo(repr(found))
        if accuracy is not None:
            typer.echo(f"  label: boosted trees on Z are right in {100 * accuracy:.1f} % of a group's rows, on average")
        return
    assert folder is not None
    assert rows is not None
    model, run = _open_result(folder)
    learn, judged = run.table_of(rows, model, reading.text_format).split(test=0.5, validation=0)
    found = attack(model, learn, judged, quick=quick, n_jobs=2)
    typer.echo(_as_json(found.to_dict()) if as_json else repr(found))


def _open_result(folder: Path) -> tuple[Encoder, Run]:
    """Load the model in a folder that `share` wrote, and how its table was read."""
    from fairflows.result import read_run
    from fairflows.storage import load

    run = read_run(folder)
    return load(folder / "model"), run


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; without one, all are listed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, epochs and rows: minutes, on two cores.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to train.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="How many to run side by side, as processes.")] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reproduction"),
) -> None:
    """Run experiments of the paper, and print its numbers beside ours.

    Models that several of them share are trained once. The exit status is 1 when one that was named lacks its data, or
    all do, or when one failed.

    Example: `fairflows reproduce figure-4a table-2 --quick`
    """
    from fairflows.paper.experiments import list_experiments, run_many
    from fairflows.steps import chosen_device
    from fairflows.table.folders import check_folder

    known = list_experiments()
    chosen = known["id"].tolist() if every else list(names or [])
    for name in chosen:
        if name not in set(known["id"]):
            raise DataError(f"there is no experiment {name!r}; there are {', '.join(known['id'])}.")
    if not chosen:
        _print_frame(known, title="Experiments")
        return
    chosen_device(device)  # refuse a GPU that is not there before anything runs
    check_folder(out)
    results = []
    with stages():
        for result in run_many(chosen, n_jobs=jobs, quick=quick, seeds=seeds, device=device, out=out):
            results.append(result)
            say(f"{result.id}, {len(results)} of {len(chosen)}: {_outcome(result)}")
            typer.echo(str(result))
    typer.echo(f"Tables, figures and everything as JSON are in {out}.")
    missing = [bool(result.skipped) for result in results]
    failed = any(result.failed for result in results)
    raise typer.Exit(int(failed or (all(missing) if every else any(missing))))


def _outcome(result: Outcome) -> str:
    if result.failed:
        return f"failed: {result.failed.splitlines()[-1]}"
    return f"skipped: {result.skipped}" if result.skipped else "done"


def _print_frame(frame: pd.DataFrame, title: str) -> None:
    typer.echo(f"{title}\n{frame.to_string(index=False, float_format='{:.4g}'.format)}\n")


def _as_json(record: object) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> object:
    """Return a value that JSON has no type for: NumPy's numbers, times and missing values."""
    return value.item() if hasattr(value, "item") else str(value)


def main() -> None:
    """Run the command. Wrong input gives one line on standard error and exit code 2."""
    warnings.showwarning = show_warning
    # Batches and adversaries run side by side already. Libraries read this when they are imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with _signals() as stopped:
        code, message = _exit_code()
    if stopped:
        code, message = 128 + stopped[0], "interrupted"  # which a reader may have taken for a damaged file
    if message:
        typer.echo(f"fairflows: {message}", err=True)
    sys.exit(code)


def _exit_code() -> tuple[int | str | None, str]:
    """Run the command; return its exit code and the message for standard error."""
    try:
        app()
    except SystemExit as end:
        return end.code, ""
    except (ValueError, OSError, OverflowError, MemoryError) as error:  # a DataError is a ValueError
        return 2, with_options(str(error), _own_options()) or type(error).__name__
    except Exception as error:
        if os.environ.get("FAIRFLOWS_DEBUG"):
            traceback.print_exc()
        name, text = type(error).__name__, " ".join(str(error).split())
        return BUG, f"a bug in fairflows, please report it: {name}: {text} (FAIRFLOWS_DEBUG=1 shows where)"
    return 0, ""


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a `DataWarning` on one line, unless it was printed before with other counts; ignore other warnings."""
    if not isinstance(message, DataWarning):
        return
    kind = re.sub(r"\d[\d,]*", "#", str(message))
    if kind not in _warned:
        _warned.add(kind)
        typer.echo(f"fairflows: {with_options(str(message), _own_options())}", err=True)


def _own_options() -> list[str]:
    """Return the options of the command that runs."""
    running = typer.main.get_group(app).commands.get(sys.argv[1] if len(sys.argv) > 1 else "")
    return [] if running is None else [option for parameter in running.params for option in parameter.opts]


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM into SystemExit, so that partial files are removed; a second signal kills the process."""
    stopped: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopped.append(number)
        raise SystemExit(128 + number)

    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
