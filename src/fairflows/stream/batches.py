"""Encode batches of rows: rows in, encoded rows out, with no state between batches.

Any engine that moves Arrow batches can run it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fairflows.certificate.releases import MOST_ROWS, ReleasedRows, one_cell_each
from fairflows.encoder.base import MORE_ROWS, Model, fitted_model
from fairflows.exceptions import DataError, check_choice, warn_user
from fairflows.release.released_table import KeptRows, warn_of_kept
from fairflows.table import columns as kinds
from fairflows.table.columns import Schema, check_known
from fairflows.table.domain import Reason, warn_of_outside
from fairflows.table.frames import (
    ArrowStream,
    as_arrow,
    check_names,
    from_arrow,
    is_arrow,
    is_categories_of_objects,
    is_polars,
    materialised,
)
from fairflows.table.grouping import Grouping, MissingGroup, MissingLabel, rows_kept
from fairflows.table.keys import Hashes, Secret, keyed_hashes
from fairflows.table.persons import Persons, check_most_rows

Precision = Literal["float32", "float64"]

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
    model: Model, batch: pa.RecordBatch | pa.Table | ArrowStream, *, key: bytes | None = None, **settings: Any
) -> Any:
    """Encode an Arrow record batch or table, or a frame that hands over Arrow. The result depends on the batch alone.

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
    model : encoder
        Fitted encoder, such as a `Release`.
    batch : RecordBatch, Table, polars.DataFrame, DataFrame or another object that hands over its rows as Arrow
        Rows with the columns that the model was fitted on.
    key : bytes, default=None
        Secret key of the model, ``bytes(model.key_)``. Engines send a model to their workers as a pickle, which leaves
        the key out, and a model without its key encodes nothing. So you decide whether the workers get the key, and
        how.
    **settings
        Columns, their roles and the precision: the parameters of `BatchEncoder`.

    Returns
    -------
    RecordBatch or Table
        The encoded rows, then the columns to keep. Frames of polars and pandas come back as such.

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
    encode = BatchEncoder(model, **settings)
    encode.refuse_panels()
    if key is not None:
        model.key_.restore(key)
    encoded, found = encode(_arrow_table(batch))
    encode.check_number_of_rows(found)
    found.warn()
    if isinstance(batch, pa.RecordBatch):
        parts = encoded.combine_chunks().to_batches()
        return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=encoded.schema)
    if isinstance(batch, pd.DataFrame):
        return from_arrow(encoded)
    if is_polars(batch):
        import polars

        return polars.DataFrame(encoded)
    return encoded


def _arrow_table(batch: object) -> pa.Table:
    """Return the rows of a batch as an Arrow table."""
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, pd.DataFrame):
        return as_arrow(batch)
    if is_polars(batch):
        return batch.to_arrow()
    if is_arrow(batch):
        return materialised(batch)
    raise DataError(
        "A batch must be a table of Arrow, pandas or polars, or another object that hands over its rows as Arrow; got "
        f"{type(batch).__name__}."
    )


@dataclass
class BatchFindings:
    """Findings about encoded rows, added up over batches."""

    outside: Counter[tuple[str, Reason]] = field(default_factory=Counter)  # values that training did not have
    dropped: int = 0  # rows without a group or a label
    n_known: int = 0  # rows of persons of the table that was released, who keep their cell
    counts: npt.NDArray[np.int64] | None = None  # (K, k): rows by group and cell, of a release
    no_label: list[str] = field(default_factory=list)  # labels that the rows lack
    persons: list[Hashes] = field(default_factory=list)  # hashes of the rows' persons, batch by batch
    released: list[ReleasedRows] = field(default_factory=list)  # for the record of releases, batch by batch
    kept: list[KeptRows] = field(default_factory=list)  # of a release's own file, batch by batch

    def add(self, other: BatchFindings) -> None:
        """Add the findings of another batch."""
        self.outside.update(other.outside)
        self.dropped += other.dropped
        self.n_known += other.n_known
        if other.counts is not None:
            self.counts = other.counts if self.counts is None else self.counts + other.counts
        self.no_label = other.no_label
        self.persons += other.persons
        self.released += other.released
        if sum(len(part.contents) for part in self.released) > 2 * MOST_ROWS:
            self.released = [ReleasedRows.joined(self.released)]
        self.kept += other.kept

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers that a job over many files looks at, as JSON holds them."""
        unknown = [{"column": name, "reason": why, "rows": n} for (name, why), n in self.outside.items()]
        return {"dropped": self.dropped, "unknown_values": unknown, "rows_of_persons_of_the_table": self.n_known}

    def warn(self) -> None:
        """Warn of all that a reader of the result must know."""
        if self.dropped:
            warn_user(f"{self.dropped:,} rows without a group or a label were dropped.")
        warn_of_kept(self.n_known)
        if self.no_label:
            warn_user(
                f"The model was fitted to rows with a known {' and '.join(map(repr, self.no_label))}, a column that "
                "these rows lack: the certificate does not cover persons who would never have one."
            )
        warn_of_outside(self.outside)


class BatchEncoder:
    """Encode Arrow tables that hold a file's columns.

    Parameters
    ----------
    model : encoder
        Fitted encoder, such as a `Release`.
    sensitive : str or list of str, default=None
        Columns that hold the sensitive attribute; by default those that the encoder was told.
    grouping : Grouping, default=None
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, default=None
        Column that names the person of a row. No person may have more rows in a batch than the most in training.
    label : str or list of str, default=None
        Columns of the labels, where the model was fitted to a table with some. A batch need not have them.
    missing_group, missing_label : str, default="error"
        What is done with rows that miss their group or their label, as in the `Table` that the model was fitted to. A
        certificate is about rows that were treated so.
    keep : sequence of str, default=()
        Columns of the batch that are written unchanged, after the others.
    precision : {"float32", "float64"}, default="float32"
        Type of encoded numbers. They are computed in float64. Whole rows in the table's own columns keep their types.
    is_own : bool, default=False
        Whether this is the file of the release itself, whose persons keep their cell: the findings name them.

    Attributes
    ----------
    identifier : str or None
        The column that names a row's person.
    schema : Schema
        The kinds of the features, of the sensitive attribute and of the label when the model was fitted.
    """

    def __init__(
        self,
        model: Model,
        *,
        sensitive: str | Sequence[str] | None = None,
        grouping: Grouping | None = None,
        identifier: str | None = None,
        label: str | Sequence[str] | None = None,
        missing_group: MissingGroup = "error",
        missing_label: MissingLabel = "error",
        keep: Sequence[str] = (),
        precision: Precision = "float32",
        is_own: bool = False,
    ) -> None:
        check_choice("precision", precision, get_args(Precision))
        check_choice("missing_group", missing_group, get_args(MissingGroup))
        check_choice("missing_label", missing_label, get_args(MissingLabel))
        encoder = self._encoder = fitted_model(model)
        self._grouping = grouping
        self._missing_group, self._missing_label = missing_group, missing_label
        self._features = list(map(str, encoder.schema_.kinds))
        if not self._features:
            raise DataError("The model was fitted on rows without column names, so a file's columns cannot be matched.")
        self._sensitive = sensitive_columns(encoder, sensitive) if encoder.traits.needs_attribute else []
        self.identifier = identifier if identifier is not None else encoder.identifier
        named = [label] if isinstance(label, str) else list(label or [])
        self._labels = named if missing_label != "keep" else []
        self._is_own = is_own
        self._keep = list(dict.fromkeys(keep))
        if self._keep and encoder.traits.unit == "person":
            raise DataError("No column can be kept beside panels, which have other rows than the file (keep=...).")
        self.schema = table_schema(encoder, self._sensitive, self._labels, grouping)
        # Rows in the table's own columns keep their types.
        self._types = _types(encoder, single=precision == "float32" and not encoder.traits.draws_rows)

    def refuse_panels(self) -> None:
        """Raise for a release of persons, whose rows may lie in several batches."""
        if self._encoder.traits.unit == "person":
            raise DataError(
                "The rows of a person have one cell, and may lie in several batches: encode the whole file "
                "(encode_file, `fairflows encode`), or fit a release of rows (unit='row')."
            )

    def needed(self, source: Collection[str]) -> list[str]:
        """Return the columns of a source that are needed. Raise if it lacks one; it may lack labels."""
        label = [name for name in self._labels if name in source]
        person = [] if self.identifier is None else [self.identifier]
        columns = list(dict.fromkeys([*self._features, *self._sensitive, *person, *self._keep, *label]))
        for name in columns:
            check_known(name, source, "needed")
        return columns

    def output_schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of encoded batches of a source."""
        self.needed(known := set(source.names))
        if len(known) < len(source.names):
            check_names(source.names)
        for name in self._keep:
            if name in self._types.names:
                raise DataError(
                    f"Column {name!r} is written by the model and cannot be kept as well: rename the column of the "
                    "table."
                )
            if is_categories_of_objects(kind := source.field(name).type):
                raise DataError(f"Column {name!r} cannot be kept as it is, {kind.value_type}: convert it to text.")
        return pa.schema([*self._types, *(pa.field(name, plain_type(source.field(name).type)) for name in self._keep)])

    def __call__(
        self, batch: pa.Table, record_key: Secret | None = None, n_in_all: int | None = None
    ) -> tuple[pa.Table, BatchFindings]:
        """Encode the rows of a table, and append the columns to keep. Return also the findings about the rows.

        With the key of the user's records the rows, of `n_in_all` about, are hashed for the record of releases.
        """
        schema = self.output_schema(batch.schema)
        columns = self.needed(batch.schema.names)
        frame = from_arrow(batch.select(columns).replace_schema_metadata())
        self.schema.part(name for name in columns if name not in self._features).check(frame)
        found, labels = BatchFindings(), frame[[name for name in self._labels if name in columns]]
        if self._missing_label == "drop":
            found.no_label = [name for name in self._labels if name not in columns]
        kept = rows_kept(frame[self._sensitive], labels, self._missing_group, self._missing_label)
        if not kept.all():
            frame, batch, found.dropped = frame[kept], batch.filter(pa.array(kept)), int((~kept).sum())
        if not len(frame):
            return schema.empty_table(), found
        attribute = attribute_of(frame, self._sensitive, self._grouping) if self._sensitive else None
        persons = None if self.identifier is None else Persons.of(frame[self.identifier])
        features = frame[self._features]  # which are checked as they are read
        encoder = self._encoder
        # Of its own file a release knows who is who: equal rows of others are no persons of the sample.
        rows = (encoder.inner_encoder if self._is_own else encoder).read(features, attribute, persons)
        of_panels, cells = encoder.traits.unit == "person", None
        if encoder.released_table is None:
            encoded = encoder.encode(rows)
        else:
            (cells, found.n_known), shape = encoder.cells_and_kept(rows), (len(encoder.groups_), encoder.n_cells_)
            found.counts = np.bincount(rows.group * shape[1] + cells, minlength=shape[0] * shape[1]).reshape(shape)
            if self._is_own and rows.persons.named:
                found.kept = [KeptRows.of(rows.persons, rows.group, cells, encoder.key_)]
            encoded = encoder.draw(np.random.default_rng().permutation(cells) if of_panels else cells)
        found.outside = rows.outside.counts()
        if record_key is not None:
            X, who = (encoder.schema_.apply(features), persons) if of_panels and persons else (rows.X, rows.persons)
            placed = None if cells is None else one_cell_each(encoder, cells)
            placed = placed[who.codes] if of_panels and placed is not None else placed
            found.released = [ReleasedRows.of(X, who, record_key, n_in_all, placed)]
        if persons is not None and persons.names is not None and not of_panels:
            found.persons = [keyed_hashes(persons.names, b"", "rows of a person")[persons.codes]]
        table = as_arrow(encoded, self._types)
        for name in self._keep:
            kept_column = batch.column(name)
            table = table.append_column(name, kept_column.cast(plain_type(kept_column.type)))
        return table, found

    def check_number_of_rows(self, found: BatchFindings) -> None:
        """Raise if a person has more rows than those that the model was fitted to."""
        most, hashes = self._encoder.most_rows_ or 1, np.concatenate([*found.persons, np.empty(0, np.uint64)])
        hashes.sort()
        if (hashes[most:] == hashes[:-most]).any():  # a file of any size: they are counted only if somebody has more
            check_most_rows(np.unique(hashes, return_counts=True)[1], most, MORE_ROWS)


def table_schema(
    encoder: Model, sensitive: Sequence[str], labels: Sequence[str] = (), grouping: Grouping | None = None
) -> Schema:
    """Return the content that the columns of a file must have to be read as rows of the encoder.

    With a grouping, the sensitive columns hold what it makes groups of.
    """
    schema = encoder.schema_.with_values(role_values(encoder, sensitive, labels))
    return schema if grouping is None or not sensitive else Schema(schema.kinds | grouping.schema(sensitive).kinds)


def role_values(
    encoder: Model, sensitive: Sequence[str], labels: Sequence[str] = ()
) -> dict[str, Sequence[Hashable] | np.ndarray]:
    """Return the values of the sensitive column, where it is a single one, and of the first label."""
    values: dict[str, Sequence[Hashable] | np.ndarray] = {}
    if len(sensitive) == 1 and encoder.groups_:
        values[sensitive[0]] = encoder.groups_
    return values if not labels or encoder.classes_ is None else {**values, labels[0]: encoder.classes_}


def sensitive_columns(encoder: Model, given: str | Sequence[str] | None) -> list[str]:
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


def to_arrow(frame: pd.DataFrame) -> pa.Table:
    """Convert a frame to an Arrow table of types that all batches share."""
    table = as_arrow(frame)
    types = [plain_type(t) for t in table.schema.types]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))


def plain_type(given: pa.DataType) -> pa.DataType:
    """Return a type that all batches of a column share: dictionaries differ between batches, and null has no type."""
    if pa.types.is_dictionary(given):
        return plain_type(given.value_type)
    return pa.string() if pa.types.is_null(given) or pa.types.is_large_string(given) else given


def _types(encoder: Model, single: bool) -> pa.Schema:
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
