"""The errors and warnings that fairflows raises about what it was given."""

from __future__ import annotations

import inspect
import warnings

_NOT_THE_USER = ("fairflows", "sklearn")  # scikit-learn wraps `transform`


class DataError(ValueError):
    """A table, a file or a value that cannot be used; the message names the column, the rule and what came."""


class DataWarning(UserWarning):
    """Something about the data that the user should know, though the work goes on."""


def warn_user(message: str) -> None:
    """A `DataWarning` that points at the user's own line, however deep in the package it was noticed."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _NOT_THE_USER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level + 1)
