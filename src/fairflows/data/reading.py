"""Reading a user's file, with an error that says what is wrong with it and where."""

from __future__ import annotations

import csv
import lzma
import zlib
from pathlib import Path
from typing import Any

import pandas as pd

from fairflows.exceptions import DataError

CSV_SUFFIXES = {".csv", ".tsv", ".txt", ".data"}
PARQUET_SUFFIXES = {".parquet", ".pq"}
COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}


def read_frame(path: str | Path) -> pd.DataFrame:
    """The table in a CSV (plain or compressed) or Parquet file.

    Raises
    ------
    DataError
        The file is missing, of an unknown kind, empty, cut off, not text, or has two columns of one name.
    """
    path = Path(path)
    suffixes = [s.lower() for s in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s not in COMPRESSION), "")
    if kind not in CSV_SUFFIXES | PARQUET_SUFFIXES:
        known = ", ".join(sorted(CSV_SUFFIXES | PARQUET_SUFFIXES))
        raise DataError(f"{path}: a table must be a CSV or Parquet file ({known}); got {kind or 'no suffix'!r}.")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        return _read_parquet(path) if kind in PARQUET_SUFFIXES else _read_csv(path, "\t" if kind == ".tsv" else ",")
    except DataError:
        raise
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: the file is empty.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}; save the file as UTF-8.") from None
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: the compressed file is damaged or cut off ({error}).") from None
    except (OSError, ValueError, csv.Error) as error:  # pandas' and pyarrow's own reading errors are ValueErrors
        raise DataError(f"{path}: cannot be read: {str(error).strip()}") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    _refuse_repeated(path, file.schema_arrow.names)
    return file.read().to_pandas()


def _read_csv(path: Path, separator: str) -> pd.DataFrame:
    settings: dict[str, Any] = {"sep": separator, "encoding": "utf-8-sig"}
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **settings).iloc[0].tolist()
    _refuse_repeated(path, header)  # pandas would rename the second one silently
    frame = pd.read_csv(path, **settings)
    _refuse_cut_off(path, separator, n_columns=len(header))
    return frame


def _refuse_repeated(path: Path, names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: column names must be unique; {repeated[0]!r} occurs more than once.")


def _refuse_cut_off(path: Path, separator: str, n_columns: int) -> None:
    """A file that stops in the middle of a row: no line end, and fewer fields than the header.

    pandas fills such a row with missing values, so a broken copy would pass for a table.
    """
    if path.suffix.lower() in COMPRESSION:
        return  # a cut-off compressed file does not unpack
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 2**16))
        tail = stream.read()
    if tail.endswith((b"\n", b"\r")):
        return
    last = tail.splitlines()[-1].decode("utf-8", errors="replace")
    n_fields = len(next(csv.reader([last], delimiter=separator), []))
    if n_fields < n_columns and '"' not in last:  # a quoted field may span lines: not judged here
        raise DataError(
            f"{path}: the file is cut off: its last row has {n_fields} of {n_columns} fields and no line end."
        )
