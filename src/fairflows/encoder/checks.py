"""Checks of settings when an encoder is fitted: an error names the setting, the rule and what came."""

from __future__ import annotations

from numbers import Integral
from typing import Protocol

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from fairflows.exceptions import ParameterError
from fairflows.table.persons import FEWEST_KEY_BYTES, Key


class Classifier(Protocol):
    """A scikit-learn classifier that gives probabilities; it is cloned before it is fitted."""

    classes_: np.ndarray

    def predict_proba(self, X: object) -> np.ndarray:
        """Class probabilities, (n_rows, n_classes)."""


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    if not is_count(value, least):
        raise ParameterError(name, f"must be a whole number of at least {least}", value)


def is_count(value: object, least: int) -> bool:
    """Whether a value is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_key(key: object) -> None:
    """Refuse a key that is no bytes or too few, without showing it, and one that a pickle left without its secret."""
    if key is None:
        return
    came = f"{len(bytes(key))} bytes" if isinstance(key, Key) else type(key).__name__
    if not isinstance(key, Key) or len(bytes(key)) < FEWEST_KEY_BYTES:
        raise ValueError(f"key must be bytes, at least {FEWEST_KEY_BYTES}, or None for a new one; got {came}.")


def takes_weights(classifier: object) -> bool:
    """Whether a classifier can be fitted to weighted rows."""
    return has_fit_parameter(classifier, "sample_weight")


def check_classifier(classifier: object, *, weighted: bool) -> None:
    """Refuse a classifier that gives no probabilities, or cannot be fitted to weighted rows where there are any."""
    if classifier is None:
        return
    name = type(classifier).__name__
    if not hasattr(classifier, "predict_proba"):
        raise ValueError(f"classifier must give probabilities (predict_proba); {name} gives none.")
    if weighted and not takes_weights(classifier):
        raise ValueError(f"classifier must take sample_weight where rows have weights; {name} does not.")
