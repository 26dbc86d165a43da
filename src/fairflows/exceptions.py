"""The error and the warning that fairflows raises about its input, and the checks of parameters that raise them.

Messages name parameters as Python does (``missing_label='drop'``); the command adds its own options from one table.
"""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from numbers import Integral, Real

_NOT_THE_USER = ("fairflows", "sklearn", "joblib", "contextlib")  # scikit-learn wraps `transform`, joblib runs it


class DataError(ValueError):
    """Wrong input: a table, a file or a parameter that cannot be used.

    The message names the column or the parameter, the rule, the value that came, and the remedy.

    Examples
    --------
    >>> from fairflows import FairFlow, load_adult
    >>> FairFlow(gamma=1.5).fit(load_adult())
    Traceback (most recent call last):
    fairflows.exceptions.DataError: gamma must be in [0, 1]; got 1.5.
    """


class DataWarning(UserWarning):
    """A property of the data that the user should know about; the work goes on."""


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise if the value of a parameter is not one of those allowed."""
    if not (isinstance(value, str) and value in allowed):
        raise DataError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def check_count(name: str, value: object, least: int) -> None:
    """Raise if the value of a parameter is not a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise DataError(f"{name} must be a whole number of at least {least}; got {value!r}.")


def check_share(name: str, value: object) -> None:
    """Raise if the value of a parameter is not a number in [0, 1]."""
    if not (isinstance(value, Real) and 0 <= float(value) <= 1):
        raise DataError(f"{name} must be in [0, 1]; got {value!r}.")


def warn_user(message: str) -> None:
    """Issue a `DataWarning` that points at the user's own line."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _NOT_THE_USER:
        frame, level = frame.f_back, level + 1
    warnings.warn(DataWarning(message), stacklevel=level + 1)


@cache
def warn_user_once(message: str) -> None:
    """Issue a `DataWarning` at the first call only, however often it applies in this process."""
    warn_user(message)
