"""Commands around a model: encode, decode, fit, certify, verify, audit, recourse, report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairflows.cli.base import app, open_model, open_result, print_frame, print_json, row_counter, stages
from fairflows.cli.options import (
    Delta,
    Drop,
    Folder,
    Groups,
    Identifier,
    Json,
    Label,
    MaxAccuracy,
    MergeSmall,
    Missing,
    MostRows,
    Multiclass,
    Quiet,
    Sensitive,
    SensitiveIfNotKnown,
    Target,
    distinct,
    reads_files,
)
from fairflows.exceptions import DataError
from fairflows.table.text_format import TextFormat

if TYPE_CHECKING:
    from fairflows.explain.recourse_search import Recourse
    from fairflows.workflow.results import Run

OutFile = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="CSV (commas, UTF-8), TSV or Parquet file to write.",
        show_default=False,
    ),
]
Keep = Annotated[list[str] | None, typer.Option(help="Column to write as it is; may be repeated.", callback=distinct)]


@app.command()
@reads_files
def encode(
    folder: Folder,
    source: Annotated[
        Path,
        typer.Argument(help="CSV, Excel or Parquet file; with Ray, a folder of Parquet files."),
    ],
    out: OutFile,
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
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Encode a file of any size; memory does not grow with it, and the target appears when it is complete.

    Rows come out in a random order, without identifiers. A model that was fitted with `--with-label` writes the label
    beside the cells. What `--keep` adds is not covered by any certificate.

    Example: `fairflows encode out new.parquet -o shared.parquet`
    """
    from fairflows.stream.files import encode_file

    model, run = open_model(folder)
    settings: dict[str, Any] = {
        **_roles(run, sensitive, identifier),
        "label": run.label if run and "label" in run.released else None,
        "keep": keep or (),
        "keep_order": keep_order,
        "precision": "float64" if exact else "float32",
    }
    if engine == "ray":
        from fairflows.stream.on_ray import encode_folder

        _refuse_format_on_ray(text_format)
        n_rows = encode_folder(model, source, out, **settings)
    else:
        with row_counter(quiet or as_json, "encoding") as count:
            n_rows = encode_file(model, source, out, text_format=text_format, on_progress=count, **settings)
    _say_done(n_rows, out, as_json, quiet)


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
    with row_counter(quiet or as_json, "decoding") as count:
        n_rows = decode_file(
            model,
            source,
            out,
            sensitive_from=sensitive_from,
            text_format=text_format,
            keep=keep or (),
            on_progress=count,
            **_roles(run, sensitive, identifier),
        )
    _say_done(n_rows, out, as_json, quiet)


Fixed = Annotated[
    list[str] | None, typer.Option("--keep", help="Column that must stay as it is; may be repeated.", callback=distinct)
]
Rising = Annotated[list[str] | None, typer.Option("--increase", help="Column that may only rise.", callback=distinct)]
Falling = Annotated[list[str] | None, typer.Option("--decrease", help="Column that may only fall.", callback=distinct)]
HeldOut = Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file of rows that the model has not seen.")]


@app.command()
@reads_files
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Excel or Parquet file.",
            show_default=False,
        ),
    ],
    sensitive: Sensitive,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.", show_default=False)],
    label: Label = None,
    groups: Groups = None,
    merge_small: MergeSmall = 0,
    identifier: Identifier = None,
    drop: Drop = None,
    missing: Missing = "error",
    multiclass: Multiclass = False,
    method: Annotated[
        Literal["tree", "cells", "flow", "matching"] | None,
        typer.Option(
            help="tree: cells for many purposes (the default). cells: the best ones for the label. The others train a "
            "frontier of the paper's encoders and choose from it.",
            show_default=False,
        ),
    ] = None,
    target: Target = None,
    max_adversary_accuracy: MaxAccuracy = None,
    gamma: Annotated[
        float | None, typer.Option(help="Of a frontier, the trade-off itself: 0 for the task, 1 for fairness.")
    ] = None,
    release: Annotated[
        Literal["rows", "cells", "latent"],
        typer.Option(
            help="Whole rows or cells can be certified; the latent keeps everything, and only its model vouches for it."
        ),
    ] = "rows",
    cells: Annotated[bool, typer.Option("--cells", help="Release the numbers of cells: --release cells.")] = False,
    n_cells: Annotated[
        int | None,
        typer.Option(
            "--n-cells",
            min=2,
            help="How many cells; when not given as many as the target allows, at most 64 without a target, 8 for "
            "method cells, and the best of 2 to 64 for a frontier.",
        ),
    ] = None,
    without_attribute: Annotated[
        bool,
        typer.Option("--without-attribute", help="Encode later files without the sensitive attribute (method cells)."),
    ] = False,
    no_cross_fit: Annotated[
        bool,
        typer.Option("--no-cross-fit", help="One model for 70 % of the persons; the certificate is about the others."),
    ] = False,
    with_label: Annotated[
        bool, typer.Option("--with-label", help="Release the true label too, and certify both together.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write even what tells more of the group than the raw rows.")
    ] = False,
    delta: Delta = 0.05,
    most_rows: MostRows = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer models, and fewer adversaries.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model, its key and all else that an earlier `fit` wrote.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of the split and of training; never of the key.")
    ] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Turn a table into one that can be shared, with a certificate and a report.

    Writes `shared.csv` (all rows, in the table's own columns, in random order, without the sensitive attribute and the
    identifier), `certificate.json`, `report-public.html` for the partner, `report.html` and the private model. By
    default every row is drawn from a cell, by a model that never saw the person, so that the certificate covers all of
    them; with `--no-cross-fit`, and for a frontier, it covers the 30 % that were held out, and later persons.

    Exit code 0: certified within the target, or a latent within it by its model; without a target, 0 says that there is
    such a bound, and not that it is small. 1: not so. 2: bad input. 70: a bug in fairflows. 130: interrupted.

    For example:

    `fairflows fit loans.csv --sensitive sex --label repaid --target 0.1 -o out`

    `fairflows fit loans.csv --sensitive sex --sensitive race --label repaid --id person --missing category -o out`
    """
    from fairflows.table.grouping import read_cuts
    from fairflows.workflow.job import fit_table
    from fairflows.workflow.results import (
        Reading,
        refuse_earlier_result,
        refuse_other_folder,
        shared_name,
        summary,
        write_fit,
    )

    reading = Reading(
        sensitive=sensitive, label=label, identifier=identifier, drop=drop or [], missing=missing, multiclass=multiclass
    )
    cuts = read_cuts(groups or [])
    refuse_other_folder(out, table)
    if not replace:
        refuse_earlier_result(out)
    shared = shared_name(table)
    with stages(quiet or as_json) as say:
        say(f"reading {table}")
        rows = reading.table_of(table, text_format=text_format, cuts=cuts, merge_small=merge_small)
        if identifier is None:
            say("no --id: every row counts as another person, and gets fresh randomness whenever it is encoded")
        made = fit_table(
            rows,
            method=method,
            max_adversary_accuracy=max_adversary_accuracy,
            target=target,
            gamma=gamma,
            release="cells" if cells else release,
            cross_fit=not no_cross_fit,
            without_attribute=without_attribute,
            n_cells=n_cells,
            with_label=with_label,
            force=force,
            delta=delta,
            most_rows=most_rows,
            quick=quick,
            random_state=seed,
            say=say,
        )
        write_fit(
            made,
            rows,
            out,
            {**asdict(reading), "rows": len(rows), "seed": seed},
            shared=shared,
        )
    if as_json:
        chosen = None if made.chosen is None else made.chosen.to_dict()
        tells = None if made.tells is None else made.tells.to_dict()
        print_json({"out": str(out), "certificate": made.certificate.to_dict(), "chosen": chosen, "tells": tells})
    else:
        typer.echo(summary(made, out, shared))
    raise typer.Exit(0 if made.is_good else 1)


@app.command()
@reads_files
def certify(
    folder: Folder,
    rows: HeldOut,
    target: Target = None,
    max_adversary_accuracy: MaxAccuracy = None,
    delta: Delta = 0.05,
    most_rows: MostRows = None,
    train: Annotated[
        Path | None, typer.Option(help="Rows for adversaries to learn from; without, nothing is attacked.")
    ] = None,
    n_draws: Annotated[
        int | None,
        typer.Option(
            "--draws",
            min=1,
            help="Draws from each group behind the model-based bound; when not given as many as it needs to be precise "
            "to 1/1000, at most a million, and 8,000,000/K² for K groups.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the certificate.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Certify a model on held-out rows. Each certificate from the same rows spends its share of δ.

    Without a target, that of `fit` is used. Exit code 1 when it is missed, or the model refuted.

    Example: `fairflows certify out held-out.csv --max-adversary-accuracy 0.6`
    """
    from fairflows.attack.auditing import audit as attack
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.certify import certify as make
    from fairflows.table.folders import check_file, new_file

    if out is not None:
        check_file(out, rows, train)  # a certificate that cannot be written would have spent its share all the same
    model, run = open_result(folder)
    table = run.table_of(rows, model, text_format=text_format)
    if max_adversary_accuracy is None and target is None:
        before = Certificate.read(folder / "certificate.json")
        max_adversary_accuracy, target = before.target_accuracy, before.target
    settings: dict[str, Any] = {"released": run.released, "delta": delta, "most_rows": most_rows}
    found = None
    with stages(quiet or as_json) as say:
        if train is not None:
            say("attacking")
            found = attack(model, run.table_of(train, model, text_format=text_format), table, n_jobs=2, **settings)
        say("certifying")
        accuracy = max_adversary_accuracy
        certificate = make(
            model, table, target=target, max_adversary_accuracy=accuracy, audit=found, n_draws=n_draws, **settings
        )
    if out is not None:
        with new_file(out) as side:
            side.write_text(certificate.to_json(), encoding="utf-8")
    typer.echo(certificate.to_json() if as_json else repr(certificate))
    raise typer.Exit(0 if certificate.is_good else 1)


@app.command()
@reads_files
def verify(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="The certified rows, or the file that `fit` was given.")],
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate; that of `fit` when not given.", show_default=False)
    ] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing: the exit code does.")] = False,
    *,
    text_format: TextFormat,
) -> None:
    """Compute a certificate again, and say what differs. Exit code 1 when anything does.

    Example: `fairflows verify out loans.csv`
    """
    from fairflows.certificate.certificate import Certificate
    from fairflows.certificate.verify import verify as check
    from fairflows.workflow.results import certified_part

    model, run = open_result(folder)
    document = Certificate.read(certificate or folder / "certificate.json")
    found = check(
        document, model, certified_part(run.table_of(rows, model, text_format=text_format), run, document, model)
    )
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
        Path | None, typer.Option(help="Rows for adversaries to learn from; half of the held-out ones when not given.")
    ] = None,
    delta: Delta = 0.05,
    quick: Annotated[bool, typer.Option("--quick", help="Few adversaries on few rows.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Attack what a model releases with many adversaries, and report what the best of them proves.

    Example: `fairflows audit out held-out.csv --quick`
    """
    from fairflows.attack.auditing import audit as attack

    model, run = open_result(folder)
    table = run.table_of(rows, model, text_format=text_format)
    if train is None:
        learn, judged = table.split(test=0.5, validation=0)
    else:
        learn, judged = run.table_of(train, model, text_format=text_format), table
    found = attack(
        model,
        learn,
        judged,
        released=run.released,
        delta=delta,
        quick=quick,
        n_jobs=2,
        progress=not (quiet or as_json),
    )
    print_json(found.to_dict()) if as_json else typer.echo(repr(found))


@app.command()
@reads_files
def recourse(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file with rejected rows among others.")],
    keep: Fixed = None,
    increase: Rising = None,
    decrease: Falling = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="CSV file, one line per person.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Say what rejected rows would have to change to be accepted. The result shows single rows.

    Example: `fairflows recourse out rejected.csv --keep college`
    """
    from fairflows.table.folders import check_file, new_file

    if out is not None:
        check_file(out, rows)
    with stages(quiet or as_json) as say:
        say("searching for what rejected rows would have to change")
        found = _recourse(folder, rows, keep, increase, decrease, text_format)
    if out is not None:
        with new_file(out) as side:
            found.to_frame().to_csv(side, index=False)
    print_frame(found.summary().reset_index(), as_json, title="What it would take to be accepted")


def _recourse(
    folder: Path,
    rows: Path,
    keep: list[str] | None,
    increase: list[str] | None,
    decrease: list[str] | None,
    text_format: TextFormat,
) -> Recourse:
    from fairflows.encoder.fair_flow import FairFlow
    from fairflows.explain import recourse as find
    from fairflows.release.released import Released

    model, run = open_result(folder)
    encoder = Released.of(model).innermost
    if not isinstance(encoder, FairFlow):
        raise DataError(
            f"Recourse needs an encoder with an inverse and densities of rows; this model is a "
            f"{type(encoder).__name__}. Fit with --method flow."
        )
    table = replace(run, label=None).table_of(rows, model, text_format=text_format)
    return find(
        encoder,
        table.X.drop(columns=[run.label], errors="ignore"),
        sensitive_features=table.a,
        keep=keep or (),
        increase=increase or (),
        decrease=decrease or (),
    )


@app.command()
@reads_files
def report(
    folder: Annotated[Path, typer.Argument(help="The folder that `fit` wrote.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    public: Annotated[bool, typer.Option("--public", help="Leave out what shows single persons.")] = False,
    rejected: Annotated[
        Path | None, typer.Option("--recourse", help="File of rows to add what recourse the rejected ones have.")
    ] = None,
    keep: Fixed = None,
    increase: Rising = None,
    decrease: Falling = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    text_format: TextFormat,
) -> None:
    """Write the report of a result as one HTML file, for internal use or for the public.

    Recourse shows single rows: `--public` leaves it out.

    Example: `fairflows report out --public -o report.html`
    """
    from fairflows.table.folders import check_file
    from fairflows.workflow.results import read_report

    if rejected is None and (keep or increase or decrease):
        raise ValueError("--keep, --increase and --decrease are about recourse: name the rows (--recourse FILE).")
    check_file(out, rejected)
    page = read_report(folder)
    if rejected is not None and not public:  # a public page does not show it
        from fairflows.workflow.contents import recourse_contents

        page.contents["recourse"] = recourse_contents(
            _recourse(folder, rejected, keep, increase, decrease, text_format)
        )
    page.save(out, public=public)
    if as_json:
        print_json({"out": str(out), "public": public})
    elif not quiet:
        typer.echo(f"wrote {out}")


def _roles(run: Run | None, sensitive: list[str] | None, identifier: str | None) -> dict[str, Any]:
    """Which columns hold the group and name the person: as stated, else as in `fit`."""
    if run is None:
        return {"sensitive": sensitive, "identifier": identifier}
    return {
        "sensitive": sensitive or run.sensitive,
        "identifier": identifier or run.identifier,
        "grouping": run.grouping,
    }


def _refuse_format_on_ray(text_format: TextFormat) -> None:
    """Raise if it is stated how the files are written: Parquet files say so themselves."""
    name = next((name for name, value in asdict(text_format).items() if value is not None), None)
    if name is not None:
        raise DataError(f"engine and {name} exclude each other: Ray reads folders of Parquet files.")


def _say_done(n_rows: int, out: Path, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json({"rows": n_rows, "out": str(out)})
    elif not quiet:
        typer.echo(f"{n_rows:,} rows written to {out}")
