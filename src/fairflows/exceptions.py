"""The errors and warnings that fairflows raises about what it was given, and checks of parameters that raise them.

A message is made of text and of the parameters that it names. Printed as it is, it names them as Python does; the
command, which has options instead, prints the same message with `Message.render`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

_NOT_THE_USER = ("fairflows", "sklearn", "joblib", "contextlib")  # scikit-learn wraps `transform`, joblib runs it


@dataclass(frozen=True)
class Parameter:
    """A parameter that a message names, alone or with the value to give it.

    Examples
    --------
    >>> print(Parameter("gamma"), Parameter("missing", "drop"), Parameter("identifier", ...))
    gamma missing='drop' identifier=...
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f"{self.name}={'...' if self.value is ... else repr(self.value)}"


class Message:
    """What errors and warnings have in common: their arguments are text and parameters, to be joined."""

    args: tuple[Any, ...]

    @property
    def parts(self) -> tuple[Any, ...]:
        """Text and parameters, in order."""
        return self.args

    def render(self, name: Callable[[Parameter], str] = str) -> str:
        """The whole message, with `name` saying each parameter."""
        return "".join(name(part) if isinstance(part, Parameter) else str(part) for part in self.parts)

    def __str__(self) -> str:
        return self.render()


class DataError(Message, ValueError):
    """A table, a file or a value that cannot be used; the message names the column, the rule and what came.

    Examples
    --------
    >>> print(DataError("Column 'age' has gaps: drop their rows (", Parameter("missing", "drop"), ")."))
    Column 'age' has gaps: drop their rows (missing='drop').
    """


class ParameterError(Message, ValueError):
    """A parameter that breaks its rule, or several that do so together.

    Parameters
    ----------
    parameter : str or tuple of str
        Its name, or their names.
    rule : str
        What it must be.
    got : object, optional
        What came instead.

    Examples
    --------
    >>> print(ParameterError("gamma", "must be in [0, 1]", 1.5))
    gamma must be in [0, 1]; got 1.5.
    >>> print(ParameterError(("target", "gamma"), "exclude each other"))
    target and gamma exclude each other.
    """

    def __init__(self, parameter: str | tuple[str, ...], rule: str, got: object = ...) -> None:
        super().__init__(parameter, rule, got)
        self.parameter, self.rule, self.got = parameter, rule, got

    @property
    def parts(self) -> tuple[Any, ...]:
        """The names, the rule and what came."""
        names = (self.parameter,) if isinstance(self.parameter, str) else self.parameter
        between = [", "] * (len(names) - 2) + [" and "] * (len(names) > 1) + [" "]
        listed = (part for name, after in zip(names, between, strict=True) for part in (Parameter(name), after))
        return (*listed, self.rule, "." if self.got is ... else f"; got {self.got!r}.")


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a parameter whose value is not one of those allowed."""
    if not (isinstance(value, str) and value in allowed):
        raise ParameterError(name, f"must be one of {', '.join(map(repr, allowed))}", value)


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    if not is_count(value, least):
        raise ParameterError(name, f"must be a whole number of at least {least}", value)


def is_count(value: object, least: int) -> bool:
    """Whether a value is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


class DataWarning(Message, UserWarning):
    """Something about the data that the user should know, though the work goes on."""


def warn_user(*parts: str | Parameter) -> None:
    """A `DataWarning` that points at the user's own line, however deep in the package it was noticed."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _NOT_THE_USER:
        frame, level = frame.f_back, level + 1
    warnings.warn(DataWarning(*parts), stacklevel=level + 1)
