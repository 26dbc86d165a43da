"""Tables that stream: CSV and Parquet files read and written a batch at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairflows.data.columns import check_known
from fairflows.data.reading import COMPRESSION, CSV_SUFFIXES, PARQUET_SUFFIXES
from fairflows.data.reading import _refuse_cut_off as refuse_cut_off
from fairflows.exceptions import DataError

_ROW_GROUP = 2**17
_TEXT = {"string", "mixed", "mixed-integer", "mixed-integer-float"}


def kind_of(path: Path) -> str:
    """What the file's name says it is: "csv" or "parquet"."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix not in COMPRESSION), "")
    if kind in PARQUET_SUFFIXES:
        return "parquet"
    if kind in CSV_SUFFIXES:
        return "csv"
    known = ", ".join(sorted(CSV_SUFFIXES | PARQUET_SUFFIXES))
    raise DataError(f"{path}: a table must be a CSV or Parquet file ({known}); got {kind or 'no suffix'!r}.")


class TableReader:
    """The rows of a file in batches, each a frame whose index counts the rows of the whole file.

    Parameters
    ----------
    path : Path
        A CSV (plain or compressed) or Parquet file.
    batch_rows : int
        Rows of a batch; the last may be shorter.
    """

    def __init__(self, path: Path, batch_rows: int) -> None:
        self.path = path
        self.batch_rows = batch_rows
        if not path.is_file():
            raise DataError(f"{path}: there is no such file.")
        self._is_parquet = kind_of(path) == "parquet"
        self.columns = self._read_columns()
        if not self._is_parquet:
            refuse_cut_off(path, self._csv_settings["sep"], len(self.columns))
        repeated = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if repeated:
            raise DataError(f"{path}: column names must be unique; {repeated[0]!r} occurs more than once.")

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where the file says so."""
        return pq.ParquetFile(self.path).metadata.num_rows if self._is_parquet else None

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """These columns, batch by batch."""
        for name in columns:
            check_known(name, pd.Index(self.columns), "needed")
        start = 0
        parts = self._parquet(list(columns)) if self._is_parquet else self._csv(list(columns))
        while (frame := self._next(parts)) is not None:
            yield frame.set_axis(pd.RangeIndex(start, start + len(frame), name="row"))
            start += len(frame)
        if not start:
            raise DataError(f"{self.path}: the table has no rows.")

    def _read_columns(self) -> list[str]:
        if self._is_parquet:
            return list(self._guarded(lambda: pq.ParquetFile(self.path).schema_arrow.names))
        header = self._guarded(lambda: pd.read_csv(self.path, header=None, nrows=1, dtype=str, **self._csv_settings))
        return [str(name) for name in header.iloc[0].tolist()]

    def _parquet(self, columns: list[str]) -> Iterator[pd.DataFrame]:
        file = pq.ParquetFile(self.path)
        for batch in file.iter_batches(self.batch_rows, columns=columns, use_threads=False):
            yield batch.to_pandas()

    @property
    def _csv_settings(self) -> dict[str, Any]:
        separator = "\t" if ".tsv" in [suffix.lower() for suffix in self.path.suffixes] else ","
        return {"sep": separator, "encoding": "utf-8-sig"}

    def _csv(self, columns: list[str]) -> Iterator[pd.DataFrame]:
        settings = {**self._csv_settings, "usecols": columns, "chunksize": self.batch_rows}
        texts = self._text_columns(settings)
        with pd.read_csv(self.path, dtype=dict.fromkeys(texts, "str"), **settings) as chunks:
            for chunk in chunks:
                yield chunk[columns]

    def _text_columns(self, settings: dict[str, Any]) -> set[str]:
        """Columns that are text anywhere in the file: a batch of digits alone would be read as numbers."""
        texts: set[str] = set()
        with pd.read_csv(self.path, **settings) as chunks:
            for chunk in chunks:
                texts |= {name for name in chunk if pd.api.types.infer_dtype(chunk[name], skipna=True) in _TEXT}
        return texts

    def _next(self, parts: Iterator[pd.DataFrame]) -> pd.DataFrame | None:
        return self._guarded(lambda: next(parts, None))

    def _guarded(self, read: Any) -> Any:
        try:
            return read()
        except DataError:
            raise
        except pd.errors.EmptyDataError:
            raise DataError(f"{self.path}: the file is empty.") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path}: not UTF-8 text at byte {error.start}; save the file as UTF-8.") from None
        except (OSError, EOFError, ValueError, csv.Error, pa.ArrowException) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DataError(f"{self.path}: cannot be read: {reason}") from None


class TableWriter:
    """A CSV or Parquet file, written batch by batch; the first batch fixes the columns' types."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind
        self._parquet: pq.ParquetWriter | None = None
        self._csv: Any = None
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
        finally:
            for stream in (self._parquet, self._csv):
                if stream is not None:
                    stream.close()

    def write(self, table: pa.Table) -> None:
        """Append rows; they are written in groups of a size that readers of Parquet like."""
        self._waiting.append(table)
        if sum(part.num_rows for part in self._waiting) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting = []
        if self._kind == "csv":
            if self._csv is None:
                self._csv = self._path.open("w", encoding="utf-8", newline="")
                table.to_pandas().to_csv(self._csv, index=False)
            else:
                table.to_pandas().to_csv(self._csv, index=False, header=False)
            return
        if self._parquet is None:
            # Encoded numbers hardly repeat: dictionaries would only cost time.
            texts = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
            self._parquet = pq.ParquetWriter(self._path, table.schema, use_dictionary=texts)
        self._parquet.write_table(table)


def to_arrow(frame: pd.DataFrame, schema: pa.Schema | None, single: bool) -> pa.Table:
    """A batch as an Arrow table of a schema, or of its own; with `single`, floats are rounded to 32 bits."""
    if single:
        doubles = [name for name in frame if frame[name].dtype == np.float64]
        frame = frame.astype(dict.fromkeys(doubles, np.float32))
    if schema is not None:
        return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))
