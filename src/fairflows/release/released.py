"""One interface to every release: an encoder, a pipeline that starts with one, or any transformer."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from fairflows.encoder.base import Cells, Encoder, IntArray, handed_over, label_values
from fairflows.encoder.rows import Rows
from fairflows.exceptions import DataError
from fairflows.release.release import Release
from fairflows.table.columns import Schema
from fairflows.table.frames import TableLike, to_pandas
from fairflows.table.grouping import Grouping
from fairflows.table.persons import Ledger, Persons
from fairflows.table.table import Role, Table


@runtime_checkable
class Transformer(Protocol):
    """Anything that turns rows into other rows."""

    def transform(self, X: TableLike, **given: Role | None) -> TableLike:
        """Return the other rows."""


Model: TypeAlias = Encoder | Pipeline | Transformer
"""Whatever may be released."""


@dataclass(frozen=True)
class Released:
    """A fitted model and its output."""

    model: Model  # the model as it was given
    encoder: Encoder | None  # what the rows reach first; None for somebody else's transformer
    steps: tuple[Transformer, ...]  # the steps after the encoder; for somebody else's transformer, itself

    @classmethod
    def of(cls, model: Model) -> Released:
        """Return the view of a model."""
        if isinstance(model, Encoder):
            return cls(model, model, ())
        steps = [model]
        if isinstance(model, Pipeline):
            steps = [step for _, step in model.steps if step is not None and step != "passthrough"]
        first, *others = steps
        return cls(model, first, tuple(others)) if isinstance(first, Encoder) else cls(model, None, tuple(steps))

    @property
    def last(self) -> Encoder | None:
        """The encoder whose output is released, if an encoder's is."""
        if not self.steps:
            return self.encoder
        return self.steps[-1] if isinstance(self.steps[-1], Encoder) else None

    @property
    def encoders(self) -> list[Encoder]:
        """All encoders of ours that it is made of, in their order."""
        return [step for step in (self.encoder, *self.steps) if isinstance(step, Encoder)]

    @property
    def n_cells(self) -> int | None:
        """The number of cells that are released; None where no cells are."""
        return None if self.last is None or not self.last.traits.cells else sum(self.last.traits.cells)

    @property
    def draws_rows(self) -> bool:
        """Whether whole rows, drawn from cells, are released."""
        return self.last is not None and self.last.traits.draws_rows

    @property
    def latent(self) -> Released | None:
        """The model that stops before the cells; None where there is nothing before them."""
        if not self.steps and self.encoder is not None and self.encoder.traits.inside is not None:
            return Released.of(self.encoder.traits.inside)
        return None if not self.steps else Released(self.model, self.encoder, self.steps[:-1])

    @property
    def innermost(self) -> Encoder | None:
        """The encoder that turns features into z, inside any release."""
        return self.encoder if self.encoder is None else self.encoder.traits.inside or self.encoder

    @property
    def secret(self) -> bytes:
        """The encoder's key; empty for a model without one, whose certificates carry no seal."""
        return b"" if self.encoder is None else bytes(self.encoder.key_)

    @property
    def ledger(self) -> Ledger | None:
        """Which rows the model was fitted to, where it keeps account of that."""
        return None if self.encoder is None else self.encoder.ledger_

    def already_used(self, table: Table) -> int:
        """How many persons of a table (or rows, at least) the model was fitted to or chosen by, where it knows."""
        if self.encoder is not None and not self.steps:
            return self.encoder.already_used(table)
        # Steps after an encoder were fitted to all of its rows; an encoder that is last reads what others give.
        known = self.encoder or self.last
        if known is None:
            return 0
        X = table.X if known is self.encoder else self._read_last(known, table, repeatable_persons(table)).X
        return known.ledger_.already_used(known.ledger_.read(X, table.persons))

    def kept_counts(self, table: Table) -> IntArray | None:
        """Return the counts by label, group and cell that were kept from the fit, if `table` is the training table."""
        return self.encoder.kept_counts(table) if isinstance(self.encoder, Release) and not self.steps else None

    @property
    def cells_of_models(self) -> list[int]:
        """How many cells each of the models has that share out the persons evenly."""
        return [0] if self.last is None else list(self.last.traits.cells) or [0]

    def groups(self, table: Table) -> list[Hashable]:
        """Return the groups that the model knows; those of the table, for one that knows none."""
        return list(self.encoder.groups_) if self.encoder is not None and self.encoder.groups_ else table.groups

    def table_schema(
        self, sensitive: Sequence[str], labels: Sequence[str] = (), grouping: Grouping | None = None
    ) -> Schema:
        """Return the content that the columns of a file must have to be read as rows of the model.

        With a grouping, the sensitive columns hold what it makes groups of.
        """
        encoder = self.encoder
        if encoder is None:
            return Schema({})
        schema = encoder.schema_.with_values(role_values(encoder, sensitive, labels))
        return schema if grouping is None or not sensitive else Schema(schema.kinds | grouping.schema(sensitive).kinds)

    def most_rows(self, table: Table, given: int | None = None) -> int:
        """M, the largest number of rows of a person: declared, or as in training; 1 without names."""
        if not table.persons.named:
            if given is None or given == 1:
                return 1
            raise DataError(f"most_rows must be 1 where no identifier says whose rows these are; got {given!r}.")
        if given is not None:
            self._check_most_rows_of_trees(given)
            return given
        if self.encoder is not None and self.encoder.most_rows_ is not None:
            return self.encoder.most_rows_
        if int(table.persons.rows_each().max()) == 1:
            return 1
        raise DataError(
            "The rows name their persons, some of whom have several, but the model was fitted without persons: fit "
            "it to a Table with an identifier, or state the most rows that a person may have (most_rows=...)."
        )

    def _check_most_rows_of_trees(self, given: int) -> None:
        """Raise if trees were cut at rows of another law: by it persons with more rows count more often."""
        encoder = self.encoder
        if isinstance(encoder, Release) and encoder.traits.cut_apart and given != (encoder.most_rows_ or 1):
            raise DataError(
                f"most_rows must be {encoder.most_rows_ or 1}, for which the thresholds of the trees were set; got "
                f"{given!r}. Fit the release anew to state another number."
            )

    def encode(self, table: Table) -> pd.DataFrame:
        """Release the rows of a table as files hold them, with encoded numbers in single precision."""
        return self._written(self._named(self._before(len(self.steps), table, None)))

    def encode_again(self, table: Table, part: str = "") -> pd.DataFrame:
        """Release rows without names with repeatable coins, for attacks and reports.

        Whole rows are drawn anew all the same. Rows of another `part` have other coins.
        """
        return self._written(self._named(self._before(len(self.steps), table, repeatable_persons(table, part))))

    def encode_rows(
        self, X: pd.DataFrame, attribute: Role | None, persons: Persons | None
    ) -> tuple[pd.DataFrame, Rows, Cells | None]:
        """Release features that come without a `Table`, in double precision.

        Return also the rows as the encoder has read them, which know values outside of the fitted domain, and the cells
        of a `Release`.
        """
        if self.encoder is None:
            raise DataError(f"{type(self.model).__name__} is not an encoder of fairflows.")
        rows = self.encoder.read(X, attribute, persons)
        if isinstance(self.encoder, Release) and not self.steps:
            cells = self.encoder.cells(rows)
            return self._named(self.encoder.draw(cells)), rows, cells
        return self._named(_through(self.steps, self.encoder.encode(rows), attribute, rows.persons)), rows, None

    def cells(self, table: Table) -> Cells:
        """Return the cell of each row, with coins that can be repeated."""
        last, persons = self.last, repeatable_persons(table)
        if last is None or not last.traits.cells:
            raise DataError("The model releases no cells: put its encoder into a Release.")
        return _checked_cells(last.cells(self._read_last(last, table, persons)), last)

    def predict(self, table: Table) -> np.ndarray:
        """Predict the label from the released rows, with coins that can be repeated."""
        last, persons = self.last, repeatable_persons(table)
        if last is None:
            raise DataError(f"{type(self.model).__name__} suggests no label.")
        return last.predict_rows(self._read_last(last, table, persons))

    def _written(self, released: pd.DataFrame) -> pd.DataFrame:
        """Rows in the table's own columns keep their types."""
        return released if self.draws_rows else as_written(released)

    def _named(self, released: TableLike) -> pd.DataFrame:
        """Return the released rows as a frame; columns of an array get the names of the last encoder."""
        return to_pandas(released, None if self.last is None else self.last.get_feature_names_out().tolist())

    def _read_last(self, last: Encoder, table: Table, persons: Persons) -> Rows:
        """Return the rows as the last encoder sees them."""
        if not self.steps:
            return last.read(table, None, persons)
        return last.read(self._before(len(self.steps) - 1, table, persons), table.a, persons)

    def _before(self, step: int, table: Table, persons: Persons | None) -> TableLike:
        """Return the rows of a table as they reach a step; by default the encoder says who is who."""
        if self.encoder is None:
            return _through(self.steps[:step], table.X, table.a, table.persons if persons is None else persons)
        rows = self.encoder.read(table, None, persons)
        return _through(self.steps[:step], handed_over(table, self.encoder.encode(rows)), table.a, rows.persons)


def role_values(
    encoder: Encoder, sensitive: Sequence[str], labels: Sequence[str] = ()
) -> dict[str, Sequence[Hashable] | np.ndarray]:
    """Return the values of the sensitive column, where it is a single one, and of the first label."""
    values: dict[str, Sequence[Hashable] | np.ndarray] = {}
    if len(sensitive) == 1 and encoder.groups_:
        values[sensitive[0]] = encoder.groups_
    return values if not labels or encoder.classes_ is None else {**values, labels[0]: label_values(encoder)}


def repeatable_persons(table: Table, part: str = "") -> Persons:
    """Return the persons of a table; unnamed rows are identified by their values, so that coins repeat.

    Rows of another `part` have other coins: what is fitted to one part must not know the coins of another.
    """
    return table.persons if table.persons.named else Persons.by_contents(table.contents(), part)


def as_written(frame: pd.DataFrame) -> pd.DataFrame:
    """Round encoded numbers to single precision, as files hold them."""
    doubles = [name for name, dtype in zip(frame, frame.dtypes, strict=True) if dtype == np.float64]
    return frame.astype(dict.fromkeys(doubles, np.float32)) if doubles else frame


def check_apart(encoded: Iterable[Hashable], others: Iterable[Hashable]) -> None:
    """Refuse a name that encoded columns and others have in common."""
    written = set(encoded)
    both = [name for name in others if name in written]
    if both:
        raise DataError(
            f"Column {both[0]!r} is written by the model and cannot be kept as well: rename the column of the table."
        )


def _through(steps: Sequence[Transformer], rows: TableLike, attribute: Role | None, persons: Persons) -> TableLike:
    """Pass rows through transformers; the attribute goes only to those that ask for it, the persons to encoders."""
    for step in steps:
        if isinstance(step, Encoder):
            rows = handed_over(rows, step.encode(step.read(rows, attribute, persons)))
        elif "sensitive_features" in inspect.signature(step.transform).parameters:
            rows = step.transform(rows, sensitive_features=attribute)
        else:
            rows = step.transform(rows)
    return rows


def _checked_cells(cells: Cells, release: Encoder) -> Cells:
    """Refuse a cell that is none of the k: counting it would put it among the others."""
    cells = np.asarray(cells)
    wrong = (cells < 0) | (cells >= int(release.n_cells_ or 0))
    if wrong.any():
        raise DataError(
            f"{type(release).__name__} must give cells in 0 … {int(release.n_cells_ or 0) - 1} (n_cells_ = "
            f"{release.n_cells_}); {int(wrong.sum()):,} rows have another, the first {cells[wrong.argmax()]}."
        )
    return cells
