"""Commands for whoever receives or hands over a certificate: check, sign. They need no model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from fairflows.cli.base import Json, Quiet, app, print_json
from fairflows.cli.files_read import piped
from fairflows.exceptions import DataError


@app.command()
def check(
    certificate: Annotated[Path, typer.Argument(help="The certificate.json that came with the file.")],
    file: Annotated[
        Path | None, typer.Argument(help="The released file, or - for standard input.", show_default=False)
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="The producer's public key.", show_default=False)
    ] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing: the exit code does.")] = False,
) -> None:
    """Check a certificate and a released file, without the model and without any secret.

    Computes every bound again from the counts in the certificate, compares the file with what the certificate and the
    producer's list (`certificate.files.json` beside it) say of it, and says what cannot be known.

    Exit code 0: all checks passed. 1: one failed, or the file is in no list. 2: bad input.

    Example: `fairflows check certificate.json shared.csv --public-key producer.public.pem`
    """
    from fairflows.certificate.checking import check as find_out

    with piped({"file": file}) as readable:
        checked = find_out(certificate, cast(Path | None, readable["file"]), public_key=public_key)
    if as_json:
        print_json(checked.to_dict())
    elif not quiet:
        typer.echo(repr(checked))
    raise typer.Exit(0 if checked else 1)


@app.command()
def sign(
    certificate: Annotated[
        Path | None, typer.Argument(help="The certificate.json to sign.", show_default=False)
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files that were encoded after it was made.", show_default=False)
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Your private key; without, files are listed only.")] = None,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make a key pair first, at the path of --key.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List files as released under a certificate, and sign list and certificate with your key.

    Writes `certificate.files.json` beside the certificate, for `fairflows check`. Signing takes fairflows[sign].

    For example:

    `fairflows sign --new-key --key producer.pem`

    `fairflows sign out/certificate.json new.csv --key producer.pem`
    """
    from fairflows.certificate.file_list import list_beside
    from fairflows.workflow.signed_list import new_key as make_key
    from fairflows.workflow.signed_list import sign as sign_list

    written: dict[str, str] = {}
    if new_key:
        if key is None:
            raise DataError("--new-key needs a path for the private key: give --key FILE.")
        written = {"private key": str(key), "public key": str(make_key(key))}
    elif certificate is None:
        raise DataError("Name the certificate to sign, or make a key pair with --new-key --key FILE.")
    if certificate is not None:
        sign_list(certificate, files or (), key=key)
        written["list"] = str(list_beside(certificate))
    if as_json:
        print_json(written)
    elif not quiet:
        for name, path in written.items():
            never = ", which never leaves the house" if name == "private key" else ""
            typer.echo(f"wrote {path} ({name}{never})")
