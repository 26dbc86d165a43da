"""Commands that send files through a model: encode, decode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairflows.cli.base import (
    Folder,
    Identifier,
    Json,
    Quiet,
    SensitiveIfNotKnown,
    app,
    distinct,
    open_model,
    print_json,
    row_counter,
)

Target = Annotated[Path, typer.Option("--out", "-o", help="CSV, TSV or Parquet file to write.", show_default=False)]
Keep = Annotated[list[str] | None, typer.Option(help="Column to write as it is; may be repeated.", callback=distinct)]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Batches at once; as many as processors when not given.")
]


@app.command()
def encode(
    folder: Folder,
    source: Annotated[Path, typer.Argument(help="CSV or Parquet file; with Ray, a folder of Parquet files.")],
    out: Target,
    sensitive: SensitiveIfNotKnown = None,
    identifier: Identifier = None,
    keep: Keep = None,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Keep the order of the rows, which may give persons away.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Write encoded numbers in 64 bits, so that they decode exactly.")
    ] = False,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")] = "local",
    n_workers: Workers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Encode a file of any size; memory does not grow with it, and the target appears when it is complete.

    Rows come out in a random order, without identifiers. What `--keep` adds is not covered by any certificate.

    Example: `fairflows encode out new.parquet -o shared.parquet`
    """
    from fairflows.stream.files import encode_file

    model, run = open_model(folder)
    settings: dict[str, Any] = {
        "sensitive": sensitive or (run and run["sensitive"]),
        "identifier": identifier or (run and run["identifier"]),
        "keep": keep or (),
        "keep_order": keep_order,
        "precision": "float64" if exact else "float32",
    }
    if engine == "ray":
        from fairflows.stream.ray_folder import encode_folder

        n_rows = encode_folder(model, source, out, **settings)
    else:
        with row_counter(quiet or as_json, "encoding") as count:
            n_rows = encode_file(model, source, out, n_workers=n_workers, on_progress=count, **settings)
    _say_done(n_rows, out, as_json, quiet)


@app.command()
def decode(
    folder: Folder,
    source: Annotated[Path, typer.Argument(help="CSV or Parquet file of encoded rows.")],
    out: Target,
    sensitive: SensitiveIfNotKnown = None,
    sensitive_from: Annotated[
        Path | None, typer.Option(help="File with the sensitive attribute of each row, in the same order.")
    ] = None,
    identifier: Identifier = None,
    keep: Keep = None,
    n_workers: Workers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Decode a file of encoded rows (written with `--exact`, `--keep-order`, and the columns that are needed).

    Example: `fairflows decode out encoded.parquet --sensitive-from people.csv -o rows.parquet`
    """
    from fairflows.stream.files import decode_file

    model, run = open_model(folder)
    with row_counter(quiet or as_json, "decoding") as count:
        n_rows = decode_file(
            model,
            source,
            out,
            sensitive=sensitive or (run and run["sensitive"]),
            sensitive_from=sensitive_from,
            identifier=identifier or (run and run["identifier"]),
            keep=keep or (),
            n_workers=n_workers,
            on_progress=count,
        )
    _say_done(n_rows, out, as_json, quiet)


def _say_done(n_rows: int, out: Path, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json({"rows": n_rows, "out": str(out)})
    elif not quiet:
        typer.echo(f"{n_rows:,} rows written to {out}")
