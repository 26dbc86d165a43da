"""What is released of a row or of a person, and how many rows a person may have."""

from __future__ import annotations

from fairflows.certificate.certificate import Released
from fairflows.encoder.base import Model, Traits
from fairflows.exceptions import DataError
from fairflows.table.table import Table


def most_rows_of(model: Model, table: Table, given: int | None = None) -> int:
    """Return M, the largest number of rows of a person: as given, or as in training; 1 without names."""
    if not table.persons.named:
        if given is None or given == 1:
            return 1
        raise DataError(f"most_rows must be 1 where no identifier says whose rows these are; got {given!r}.")
    if given is not None:
        # By another law of rows, persons with more rows count more often.
        if model.traits.cut_twice and given != (model.most_rows_ or 1):
            raise DataError(
                f"most_rows must be {model.most_rows_ or 1}, for which the thresholds of the trees were set; got "
                f"{given!r}. Fit the release anew to state another number."
            )
        return given
    if model.most_rows_ is not None:
        return model.most_rows_
    if int(table.persons.rows_each().max()) == 1:
        return 1
    raise DataError(
        "The rows name their persons, some of whom have several, but the model was fitted without persons: fit "
        "it to a Table with an identifier, or state the most rows that a person may have (most_rows=...)."
    )


def released_by(traits: Traits) -> Released:
    """Return what is released of a row, or of a person."""
    if traits.draws_rows and traits.unit == "person":
        return "panel"
    return "row" if traits.draws_rows else "latent" if traits.n_cells is None else "cell"


def released_labels(rows: Table) -> tuple[str, ...]:
    """Return the labels of a table, to be released beside the output of a model. Raise where they are no classes."""
    names = tuple(map(str, rows.label_columns()))
    if not names:
        raise DataError("with_labels needs a label, and the rows have none: give the table its label.")
    if not rows.label_codes()[1]:
        raise DataError(
            f"with_labels needs labels with classes; {', '.join(names)} holds numbers, which would tell the persons."
        )
    return names
