"""Encode one Arrow batch at a time: rows in, encoded rows out, no state between batches.

`encode_file` and `encode --engine ray` run on this, and so can any engine that moves Arrow batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from fairflows.encoder.base import MORE_ROWS, Encoder
from fairflows.exceptions import DataError, check_choice, warn_user
from fairflows.release.released import Model, Released, check_apart
from fairflows.table import columns as kinds
from fairflows.table.columns import check_known
from fairflows.table.frames import Values, as_arrow, check_names, columns_of, from_arrow
from fairflows.table.grouping import Grouping, MissingGroup, MissingLabel, rows_kept
from fairflows.table.persons import Persons, check_most_rows, keyed_hashes

Precision = Literal["float32", "float64"]
Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)

_TYPES = {
    kinds.TEXT: pa.string(),
    kinds.BOOLEANS: pa.bool_(),
    kinds.WHOLE: pa.int64(),
    kinds.NUMBERS: pa.float64(),
    kinds.TIMES: pa.timestamp("us"),
    kinds.MOMENTS: pa.timestamp("us", "UTC"),
    kinds.DURATIONS: pa.duration("us"),
}


def encode_batch(
    model: Model,
    batch: Batch,
    *,
    sensitive: str | Sequence[str] | None = None,
    grouping: Grouping | None = None,
    identifier: str | None = None,
    label: str | None = None,
    missing_group: MissingGroup = "error",
    missing_label: MissingLabel = "error",
    keep: Sequence[str] = (),
    precision: Precision = "float32",
    key: bytes | Sequence[bytes] | None = None,
) -> Batch:
    """Encode an Arrow record batch or table. The result depends on the batch alone.

    Each row becomes the same as in `encode_file`, in the order of the batch. Rows without a group or a label are
    dropped if that is asked for, with a warning that counts them. An empty batch gives an empty result, and so tells
    the schema of all results.

    **Without an identifier** every row gets fresh coins and noise at each call, and a warning says so. An engine may
    compute a batch twice, when a worker is lost or when a result that is not stored is used twice, and two encodings of
    one person with different coins tell more than the certificate says. So either name the persons, or encode once and
    use only the stored result. A cross-fitted release looks for its own training rows within each batch alone, and
    seldom recognises few rows: name the persons there. Rows that are drawn (``output="row"``) are fresh at each call,
    with an identifier too, but always from the person's own cell, so that the certificate covers all of them.

    The order of rows may identify persons. Shuffle before you release, as `encode_file` does.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted model.
    batch : RecordBatch or Table
        Rows with the columns that the model was fitted on.
    sensitive : str or list of str, optional
        Columns that hold the sensitive attribute; by default those that the encoder was told.
    grouping : Grouping, optional
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, optional
        Column that names the person of a row. Nobody may have more rows in a batch than somebody in training had.
    label : str, optional
        Column of the label, where the model was fitted to a table with one. A batch need not have it.
    missing_group, missing_label : str, default="error"
        What is done with rows that miss their group or their label, as in the `Table` that the model was fitted to. A
        certificate is about rows that were treated so.
    keep : sequence of str, default=()
        Columns of the batch that are written unchanged, after the others.
    precision : {"float32", "float64"}, default="float32"
        Type of encoded numbers. They are computed in float64. Whole rows in the table's own columns keep their types.
    key : bytes or sequence of bytes, optional
        Secret key of the model, ``bytes(model.key_)``. Engines send a model to their workers as a pickle, which leaves
        the key out, and a model without its key encodes nothing. So you decide whether the workers get the key, and
        how. A pipeline with several of our encoders has one key for each.

    Returns
    -------
    RecordBatch or Table
        The encoded rows, then the columns to keep.

    Examples
    --------
    >>> from fairflows import FairTree, load_adult
    >>> adult = load_adult().take(range(2000))
    >>> model = FairTree(n_cells=4).fit(adult)
    >>> rows = adult.X.assign(sex=adult.a, person=range(len(adult)))
    >>> batch = pa.RecordBatch.from_pandas(rows, preserve_index=False)
    >>> encode_batch(model, batch, sensitive="sex", identifier="person", keep=["person"]).schema.names
    ['cell', 'person']
    """
    rows = FileRows(sensitive, grouping, identifier, label, missing_group, missing_label)
    encode = BatchEncoder(model, rows, keep, precision)
    if key is not None:
        encode.restore_keys([key] if isinstance(key, bytes) else key)
    is_table = isinstance(batch, pa.Table)
    encoded = encode(batch if is_table else pa.Table.from_batches([batch]))
    encode.check_number_of_rows(encoded.found)
    encoded.found.warn(label)
    if is_table:
        return encoded.table
    parts = encoded.table.combine_chunks().to_batches()
    return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=encoded.table.schema)


@dataclass(frozen=True)
class FileRows:
    """Which columns of a file make rows of them, and what is done where one is missing; as in `encode_batch`."""

    sensitive: str | Sequence[str] | None = None
    grouping: Grouping | None = None
    identifier: str | None = None
    label: str | None = None
    missing_group: MissingGroup = "error"
    missing_label: MissingLabel = "error"


@dataclass
class Found:
    """What is known of rows after they were encoded; of several batches together."""

    unknown: Counter[Hashable] = field(
        default_factory=Counter
    )  # rows with values that cannot be brought back, by group
    beyond: Counter[str] = field(default_factory=Counter)  # numbers beyond the training range, by column
    dropped: int = 0  # rows without a group or a label
    no_label: bool = False  # whether labels could not be looked at
    rows_each: pd.Series = field(default_factory=lambda: pd.Series(dtype=np.int64))  # by the hash of a person's name

    def add(self, other: Found) -> None:
        """Add what was found in another batch."""
        self.unknown.update(other.unknown)
        self.beyond.update(other.beyond)
        self.dropped += other.dropped
        self.no_label |= other.no_label
        self.rows_each = self.rows_each.add(other.rows_each, fill_value=0).astype(np.int64)

    def warn(self, label: str | None) -> None:
        """Warn of all that a reader of the result must know."""
        if self.dropped:
            warn_user(f"{self.dropped:,} rows without a group or a label were dropped, as before fitting.")
        if self.no_label:
            warn_user(
                f"The model was fitted to rows with a known {label!r}, a column that these rows lack: the certificate "
                "does not cover persons who would never have one."
            )
        if total := self.unknown.total():
            counts = ", ".join(f"{group}: {count:,}" for group, count in self.unknown.items())
            warn_user(
                f"{total:,} rows hold categories that the training rows did not have, or miss a value where none was "
                f"missing ({counts}). They take one map, the same for every group."
            )
        if self.beyond:
            columns = ", ".join(f"{name!r} ({count:,})" for name, count in self.beyond.items())
            warn_user(f"Numbers beyond the training range, as in another unit: column {columns}.")


@dataclass(frozen=True)
class Encoded:
    """An encoded batch, and what was found in it."""

    table: pa.Table
    found: Found


class BatchEncoder:
    """Encode Arrow tables that hold a file's columns; the parameters are those of `encode_batch`.

    Attributes
    ----------
    identifier : str or None
        The column that names a row's person.
    schema : Schema
        The kinds of the features, of the sensitive attribute and of the label when the model was fitted.
    """

    def __init__(
        self, model: Model, rows: FileRows, keep: Sequence[str] = (), precision: Precision = "float32"
    ) -> None:
        check_choice("precision", precision, get_args(Precision))
        check_choice("missing_group", rows.missing_group, get_args(MissingGroup))
        check_choice("missing_label", rows.missing_label, get_args(MissingLabel))
        self._released, self._rows = Released.of(model), rows
        encoder = encoder_of(self._released)
        self._features = list(map(str, encoder.schema_.kinds))
        if not self._features:
            raise DataError("The model was fitted on rows without column names, so a file's columns cannot be matched.")
        self._sensitive = sensitive_columns(encoder, rows.sensitive) if encoder.traits.needs_attribute else []
        self.identifier = rows.identifier if rows.identifier is not None else encoder.identifier
        self._label = rows.label if rows.missing_label != "keep" else None
        self._keep = list(dict.fromkeys(keep))
        self.schema = self._released.table_schema(self._sensitive, self._label, rows.grouping)
        # Rows in the table's own columns keep their types.
        self._single = precision == "float32" and not self._released.draws_rows
        last = self._released.last
        # Only its rows tell which columns a step that is not ours gives.
        self._types = None if last is None else _types(last, self._single)

    def needed(self, source: Collection[str]) -> list[str]:
        """Return the columns of a source that are needed. Raise if it lacks one; it may lack the label."""
        label = [name for name in (self._label,) if name in source]
        person = [] if self.identifier is None else [self.identifier]
        columns = list(dict.fromkeys([*self._features, *self._sensitive, *person, *self._keep, *label]))
        for name in columns:
            if name not in source:
                check_known(name, pd.Index(source), "needed")
        return columns

    @property
    def needs_identifier(self) -> bool:
        """Whether rows get coins or noise, and no column names their persons."""
        return self.identifier is None and any(encoder.traits.randomised for encoder in self._released.encoders)

    @property
    def keys(self) -> list[bytes]:
        """The secret keys of the model's encoders, which a pickle leaves out."""
        return [bytes(encoder.key_) for encoder in self._released.encoders]

    def restore_keys(self, keys: Sequence[bytes]) -> None:
        """Give the secret keys back to a model that came out of a pickle."""
        encoders = self._released.encoders
        if len(keys) != len(encoders):
            raise DataError(
                f"The model has {len(encoders)} encoders, each with a key of its own; got {len(keys)} keys."
            )
        for encoder, key in zip(encoders, keys, strict=True):
            encoder.key_.restore(key)

    def output_schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of encoded batches of a source, as far as the encoded columns are known."""
        self.needed(known := set(source.names))
        if len(known) < len(source.names):
            check_names(source.names)
        types = pa.schema([]) if self._types is None else self._types
        check_apart(types.names, self._keep)
        return pa.schema([*types, *(pa.field(name, plain_type(source.field(name).type)) for name in self._keep)])

    def __call__(self, batch: pa.Table) -> Encoded:
        """Encode the rows of a table, and append the columns to keep."""
        schema = self.output_schema(batch.schema)
        columns = self.needed(batch.schema.names)
        frame = from_arrow(batch.select(columns).replace_schema_metadata())
        self.schema.part(name for name in columns if name not in self._features).check(frame)
        found = Found(no_label=self._rows.missing_label == "drop" and self._label not in columns)
        label = frame[self._label] if self._label in columns else None
        kept = rows_kept(frame[self._sensitive], label, self._rows.missing_group, self._rows.missing_label)
        if not kept.all():
            frame, batch, found.dropped = frame[kept], batch.filter(pa.array(kept)), int((~kept).sum())
        if not len(frame):
            return Encoded(schema.empty_table(), found)
        attribute = attribute_of(frame, self._sensitive, self._rows.grouping) if self._sensitive else None
        persons = None if self.identifier is None else Persons.of(frame[self.identifier])
        features = frame[self._features]  # which are checked as they are read
        encoded, rows = self._released.encode_rows(features, attribute, persons)
        found.unknown.update(rows.count_unknown(encoder_of(self._released).groups_))
        found.beyond.update({name: n["beyond"] for name, n in rows.outside.by_column().items() if "beyond" in n})
        if persons is not None and persons.names is not None:
            found.rows_each = pd.Series(persons.rows_each(), keyed_hashes(persons.names, b"", "rows of a person"))
        table = to_arrow(columns_of(encoded), self._types, self._single)
        check_apart(table.schema.names, self._keep)
        for name in self._keep:
            kept_column = batch.column(name)
            table = table.append_column(name, kept_column.cast(plain_type(kept_column.type)))
        return Encoded(table, found)

    def check_number_of_rows(self, found: Found) -> None:
        """Raise if a person has more rows than those that the model was fitted to."""
        check_most_rows(found.rows_each.to_numpy(), encoder_of(self._released).most_rows_ or 1, MORE_ROWS)


def encoder_of(released: Released) -> Encoder:
    """Return the encoder that rows reach first; raise for a model that is not ours."""
    if released.encoder is None:
        raise DataError(f"Files are encoded by fairflows' own encoders; got {type(released.model).__name__}.")
    return released.encoder


def sensitive_columns(encoder: Encoder, given: str | Sequence[str] | None) -> list[str]:
    """Return the columns of the sensitive attribute, as given or as the encoder was told."""
    names = given if given is not None else encoder.sensitive
    if names is None:
        raise DataError("The model does not say which column holds the sensitive attribute: name it (sensitive=...).")
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def attribute_of(rows: pd.DataFrame, names: list[str], grouping: Grouping | None) -> pd.Series | pd.DataFrame:
    """Return the sensitive attribute of rows, in the groups that the model knows."""
    if grouping is not None:
        return grouping.apply(rows[names])
    return rows[names[0]] if len(names) == 1 else rows[names]


def to_arrow(columns: Mapping[str, Values], schema: pa.Schema | None, single: bool) -> pa.Table:
    """Convert columns to an Arrow table of a schema, or of their own types; with `single`, round floats to 32 bits."""
    if schema is not None:  # whose types say so already
        return as_arrow(columns, schema)
    if single:
        columns = {name: v.astype(np.float32) if v.dtype == np.float64 else v for name, v in columns.items()}
    table = as_arrow(columns, None)
    return table.cast(pa.schema([field.with_type(plain_type(field.type)) for field in table.schema]))


def plain_type(given: pa.DataType) -> pa.DataType:
    """Return a type that all batches of a column share: dictionaries differ between batches, and null has no type."""
    if pa.types.is_dictionary(given):
        return plain_type(given.value_type)
    return pa.string() if pa.types.is_null(given) or pa.types.is_large_string(given) else given


def _types(encoder: Encoder, single: bool) -> pa.Schema:
    """Return the Arrow types of encoded columns; of columns of objects, by the values that they held at the fit."""
    held = {str(name): kind for name, kind in encoder.output_.schema.kinds.items()}
    fields = []
    for name, dtype in encoder.output_.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object):
            found = _TYPES.get(held.get(name, kinds.TEXT), pa.string())
        else:
            found = plain_type(pa.Array.from_pandas(pd.Series(dtype=dtype)).type)
        fields.append(pa.field(name, pa.float32() if single and found == pa.float64() else found))
    return pa.schema(fields)
