"""Rows of persons who come later, read as one row of summaries for each person."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairflows.encoder.base import Encoder
from fairflows.encoder.rows import RowsLike, find_attribute, find_features, find_persons, whole_frame
from fairflows.exceptions import DataError
from fairflows.table.panels import PanelForm, check_one_group_each
from fairflows.table.persons import Persons
from fairflows.table.roles import Role


def persons_with_summaries(
    form: PanelForm, encoder: Encoder, X: RowsLike, sensitive_features: Role | None, persons: Persons | None
) -> tuple[pd.DataFrame, pd.Series | None, Persons]:
    """Return one row of summaries for each person, their groups, and the persons."""
    form.check_linked(is_linked=False)
    frame = whole_frame(X)
    attribute, taken = find_attribute(encoder, X, frame, sensitive_features, needed=encoder.traits.needs_attribute)
    persons = find_persons(encoder, X, frame, needed=True) if persons is None else persons
    if not persons.named:
        raise DataError("The rows of a person are released together, and these rows name no persons (identifier=...).")
    some_row = np.unique(persons.codes, return_index=True)[1]
    if attribute is not None:
        attribute = attribute.reset_index(drop=True)
        check_one_group_each(attribute, persons)
        attribute = attribute.iloc[some_row].reset_index(drop=True)
    features = form.schema.apply(find_features(encoder, frame, taken))
    summaries = form.summaries(features, persons.codes, persons.n)
    return summaries, attribute, Persons(persons.names, np.arange(persons.n))
