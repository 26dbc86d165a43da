"""Running a pipeline whose first step is an encoder, with the sensitive attribute that this step alone needs.

scikit-learn passes an argument on to a step only after ``set_config(enable_metadata_routing=True)`` and a request by
that step. Both work with the encoders here; these functions need neither.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from fairflows.table.frames import to_pandas
from fairflows.table.ledger import ROW_NUMBERS
from fairflows.table.roles import role_column
from fairflows.table.table import Table


def pipeline_steps(model: Any) -> list[Any]:
    """The steps of a pipeline that do anything; of any other model, the model itself."""
    if not isinstance(model, Pipeline):
        return [model]
    return [step for _, step in model.steps if step is not None and step != "passthrough"]


def fit_pipeline(pipeline: Any, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Any:
    """Fit an encoder, or a pipeline that starts with one, and return it.

    Later steps see the encoded rows; one whose ``fit`` takes ``sensitive_features`` (to choose the number of cells) or
    ``rows`` (to name a typical one) gets these too.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from fairflows import FairTransport, load_adult
    >>> from fairflows.release.cell_release import CellRelease
    >>> train, _, test = load_adult().split(random_state=0)
    >>> pipeline = make_pipeline(FairTransport(density="counts", identifier="row"), CellRelease(n_cells=4))
    >>> _ = fit_pipeline(pipeline, train.X, train.y, sensitive_features=train.a)
    >>> transform_pipeline(pipeline, test.X, sensitive_features=test.a)["cell"].nunique()
    4
    """
    encoder, *others = pipeline_steps(pipeline)
    encoder.fit(X, y, sensitive_features=sensitive_features)
    Z = encoder.transform(_rows_as_persons(encoder, X), sensitive_features=sensitive_features) if others else None
    for place, step in enumerate(others):
        offered = {"sensitive_features": _attribute(encoder, X, sensitive_features), "rows": _features(encoder, X)}
        step.fit(Z, y, **{name: value for name, value in offered.items() if has_fit_parameter(step, name)})
        if place < len(others) - 1:
            Z = step.transform(Z)
    return pipeline


def transform_pipeline(pipeline: Any, X: Any, *, sensitive_features: Any = None) -> Any:
    """What a fitted encoder, or a pipeline that starts with one, makes of rows."""
    encoder, *others = pipeline_steps(pipeline)
    Z = encoder.transform(X, sensitive_features=sensitive_features)
    for step in others:
        Z = step.transform(Z)
    return Z


def transform_table(pipeline: Any, table: Table) -> Any:
    """What a fitted encoder or pipeline makes of a table's rows."""
    return transform_pipeline(pipeline, as_fitted(pipeline, table), sensitive_features=table.a)


def as_fitted(pipeline: Any, table: Table) -> pd.DataFrame:
    """The table's features with the columns that the encoder was fitted on.

    An encoder that was told ``sensitive="sex"`` or ``identifier="name"`` may have seen these columns in X; a table
    keeps them apart. Without an identifier, each row of a table counts as a person.
    """
    encoder = pipeline_steps(pipeline)[0]
    wanted = list(getattr(encoder, "feature_names_in_", table.X.columns))
    apart = {getattr(encoder, "sensitive", None): table.a, getattr(encoder, "identifier", None): table.identifier}
    absent = {name: values for name, values in apart.items() if isinstance(name, str) and name in wanted}
    extra = {name: values.to_numpy() for name, values in absent.items() if name not in table.X and values is not None}
    return _rows_as_persons(encoder, table.X.assign(**extra)[wanted] if extra else table.X)


def _rows_as_persons(encoder: Any, X: Any) -> Any:
    """X with every row a person by its index: where that is meant, and no encoder has to warn of it."""
    counted = isinstance(X, pd.DataFrame) and X.index.nlevels == 1 and X.index.name in ROW_NUMBERS
    return X.rename_axis(index="person") if counted and getattr(encoder, "identifier", None) is None else X


def _named_columns(encoder: Any, X: Any) -> list[str]:
    """The columns of X that the encoder was told are the sensitive attribute or the identifier."""
    sensitive = getattr(encoder, "sensitive", None)
    names = [*([sensitive] if isinstance(sensitive, str) else sensitive or []), getattr(encoder, "identifier", None)]
    return [name for name in names if name is not None and name in getattr(X, "columns", ())]


def _features(encoder: Any, X: Any) -> Any:
    """X without them: a typical row must not show a group or a person."""
    frame = to_pandas(X)
    return frame.drop(columns=_named_columns(encoder, frame))


def _attribute(encoder: Any, X: Any, sensitive_features: Any) -> Any:
    """The sensitive attribute, from wherever the encoder takes it."""
    given = sensitive_features if sensitive_features is not None else getattr(encoder, "sensitive", None)
    return None if given is None else role_column(to_pandas(X), given, "sensitive")[0]
