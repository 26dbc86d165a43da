"""Commands around a model: encode, decode, certify, verify, audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairflows.cli.base import app, open_model, open_result, print_json, row_counter, stages
from fairflows.cli.options import (
    Delta,
    Folder,
    HeldOut,
    Identifier,
    Json,
    MostRows,
    Quick,
    Quiet,
    SensitiveIfNotKnown,
    Silent,
    distinct,
    reads_files,
)
from fairflows.exceptions import DataError
from fairflows.table.text_format import TextFormat

if TYPE_CHECKING:
    from fairflows.workflow.shared import Run

OutFile = Annotated[
    Path,
    typer.Option(
        "--out", "-o", help="CSV (commas, UTF-8), TSV or Parquet file to write; with Ray, a folder.", show_default=False
    ),
]
Keep = Annotated[list[str] | None, typer.Option(help="Column to write unchanged; may be repeated.", callback=distinct)]


@app.command()
@reads_files
def encode(
    folder: Folder,
    source: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file; with Ray, a folder of Parquet files.")],
    out: OutFile,
    sensitive: SensitiveIfNotKnown = None,
    identifier: Identifier = None,
    keep: Keep = None,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Keep the order of the rows, which may identify persons.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Write encoded numbers in 64 bits, so that they decode exactly.")
    ] = False,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")] = "local",
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Encode a file of any size. Memory does not grow with it, and the target appears when it is complete.

    Rows are written in a random order, without identifiers. No certificate covers the columns that `--keep` adds. The
    file is named in `certificate.files.json` beside the certificate, so that `fairflows check` recognises it.

    Example: `fairflows encode out new.parquet -o shared.parquet`
    """
    model, run = open_model(folder)
    settings: dict[str, Any] = {
        **_roles(run, sensitive, identifier),
        "keep": keep or (),
        "keep_order": keep_order,
        "precision": "float64" if exact else "float32",
    }
    if engine == "ray":
        from fairflows.stream.on_ray import encode_folder

        if text_format != TextFormat():
            raise DataError("engine must be 'local' to read CSV files: Ray reads folders of Parquet files.")
        n_rows = encode_folder(model, source, out, **settings)
    else:
        from fairflows.stream.files import encode_file

        with row_counter(quiet or as_json, "encoding") as count:
            n_rows = encode_file(model, source, out, text_format=text_format, on_progress=count, **settings)
        if not (keep or keep_order):  # such files are not covered
            _list_file(folder, out)
    _print_done(n_rows, out, as_json, quiet)


def _list_file(folder: Path, out: Path) -> None:
    """Name a later file in the list beside the certificate, where the folder has one."""
    from fairflows.certificate.check import list_files

    if (folder / "certificate.json").is_file():
        list_files(folder / "certificate.json", [out])


@app.command()
@reads_files
def decode(
    folder: Folder,
    source: Annotated[Path, typer.Argument(help="CSV or Parquet file of encoded rows.")],
    out: OutFile,
    sensitive: SensitiveIfNotKnown = None,
    sensitive_from: Annotated[
        Path | None, typer.Option(help="File with the sensitive attribute of each row, in the same order.")
    ] = None,
    identifier: Identifier = None,
    keep: Keep = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Decode a file of encoded rows (written with `--exact`, `--keep-order`, and the columns that are needed).

    Example: `fairflows decode out encoded.parquet --sensitive-from people.csv -o rows.parquet`
    """
    from fairflows.stream.files import decode_file

    model, run = open_model(folder)
    settings = {**_roles(run, sensitive, identifier), "sensitive_from": sensitive_from, "keep": keep or ()}
    with row_counter(quiet or as_json, "decoding") as count:
        n_rows = decode_file(model, source, out, text_format=text_format, on_progress=count, **settings)
    _print_done(n_rows, out, as_json, quiet)


@app.command()
@reads_files
def certify(
    folder: Folder,
    rows: HeldOut,
    target: Annotated[
        float | None, typer.Option(help="Largest distance Δ between two groups; by default that of `share`.")
    ] = None,
    delta: Delta = 0.05,
    most_rows: MostRows = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the certificate.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Certify a model on held-out rows. Exit code 1 if the target is missed, or the model refuted.

    Each new certificate from the same rows spends its share of δ.

    Example: `fairflows certify out held-out.csv --target 0.2`
    """
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.certify import certify as make
    from fairflows.table.folders import check_file, new_file

    if out is not None:
        check_file(out, rows)  # a certificate that cannot be written would have spent its share all the same
    model, run = open_result(folder)
    table = run.table_of(rows, model, text_format)
    if target is None:
        target = Certificate.read(folder / "certificate.json").target
    with stages(quiet or as_json) as say:
        say("certifying")
        certificate = make(model, table, target=target, released=run.released, delta=delta, most_rows=most_rows)
    if out is not None:
        with new_file(out) as side:
            side.write_text(certificate.to_json(), encoding="utf-8")
    typer.echo(certificate.to_json() if as_json else repr(certificate))
    raise typer.Exit(0 if certificate.is_good else 1)


@app.command()
@reads_files
def verify(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="The certified rows, or the file that `share` was given.")],
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate; by default that of `share`.", show_default=False)
    ] = None,
    as_json: Json = False,
    quiet: Silent = False,
    *,
    text_format: TextFormat,
) -> None:
    """Compute a certificate again, and print the differences. Exit code 1 if there are any.

    Example: `fairflows verify out loans.csv`
    """
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.verify import verify as compare
    from fairflows.workflow.shared import certified_part

    model, run = open_result(folder)
    document = Certificate.read(certificate or folder / "certificate.json")
    found = compare(document, model, certified_part(run.table_of(rows, model, text_format), run, document, model))
    if as_json:
        print_json({"holds": bool(found), "differences": [d.text for d in found.differences]})
    elif not quiet:
        typer.echo(repr(found))
    raise typer.Exit(0 if found else 1)


@app.command()
@reads_files
def audit(
    folder: Folder,
    rows: HeldOut,
    train: Annotated[
        Path | None, typer.Option(help="Rows for adversaries to learn from; by default half of the others.")
    ] = None,
    delta: Delta = 0.05,
    quick: Quick = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Attack the release of a model with many adversaries, and print what the best of them proves.

    Example: `fairflows audit out held-out.csv --quick`
    """
    from fairflows.attack.auditing import audit as attack

    model, run = open_result(folder)
    table = run.table_of(rows, model, text_format)
    if train is None:
        learn, judged = table.split(test=0.5, validation=0)
    else:
        learn, judged = run.table_of(train, model, text_format), table
    settings: dict[str, Any] = {"released": run.released, "delta": delta, "quick": quick, "n_jobs": 2}
    found = attack(model, learn, judged, progress=not (quiet or as_json), **settings)
    print_json(found.to_dict()) if as_json else typer.echo(repr(found))


def _roles(run: Run | None, sensitive: list[str] | None, identifier: str | None) -> dict[str, Any]:
    """Return which columns hold the group and name the person: as stated, else as in `share`."""
    if run is None:
        return {"sensitive": sensitive, "identifier": identifier}
    return {
        "sensitive": sensitive or run.sensitive,
        "identifier": identifier or run.identifier,
        "grouping": run.grouping,
    }


def _print_done(n_rows: int, out: Path, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json({"rows": n_rows, "out": str(out)})
    elif not quiet:
        typer.echo(f"{n_rows:,} rows written to {out}")
