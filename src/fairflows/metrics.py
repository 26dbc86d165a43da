"""Group metrics of predictions: accuracy, demographic parity, equalized odds, equal opportunity.

Everything is read off one table of counts, n(a, y, ŷ), so that the predictions of many models are judged in one pass;
the values agree with `fairlearn.metrics`, which reports per group what is summarised here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

Array = npt.NDArray[np.float64]


def count_labels(
    classes: Sequence[Hashable] | np.ndarray,
    y_true: npt.ArrayLike,
    y_pred: npt.ArrayLike,
    groups: npt.ArrayLike,
    n_groups: int,
) -> Array:
    """Count n(a, y, ŷ) of labels and predictions as they are, the C classes in their order; groups are numbers.

    Labels that are none of the classes, since no training row has them, are further classes, which are never predicted.
    They are the first ones, so that the last one stays the positive class.
    """
    truth, predicted = np.asarray(y_true, dtype=object), np.asarray(y_pred, dtype=object)
    known = pd.Index(list(classes), dtype=object)
    unseen = pd.unique(truth[known.get_indexer(truth) < 0])
    numbered = pd.Index([*unseen, *known], dtype=object)
    return count_predictions(
        numbered.get_indexer(truth), numbered.get_indexer(predicted), groups, len(numbered), n_groups
    )


def count_predictions(
    y_true: npt.ArrayLike, y_pred: npt.ArrayLike, groups: npt.ArrayLike, n_classes: int, n_groups: int
) -> Array:
    """Count n(a, y, ŷ), shape (..., K, C, C), of predictions of shape (..., n_rows).

    All three arrays hold whole numbers: classes 0 … C − 1 and groups 0 … K − 1.
    """
    y_pred = np.asarray(y_pred)
    cell = (np.asarray(groups) * n_classes + np.asarray(y_true)) * n_classes + y_pred
    size = n_groups * n_classes**2
    models = cell.reshape(-1, cell.shape[-1])
    offset = np.arange(len(models))[:, None] * size
    counts = np.bincount((models + offset).ravel(), minlength=len(models) * size)
    return counts.reshape(*y_pred.shape[:-1], n_groups, n_classes, n_classes).astype(np.float64)


def group_metrics(counts: Array) -> dict[str, Array]:
    """Return the metrics of each model from its counts n(a, y, ŷ), shape (..., K, C, C).

    Returns
    -------
    dict of arrays of the leading shape
        ``accuracy``; ``balanced_accuracy``, the mean over groups; ``parity``, the largest difference between groups
        in how often a class is predicted; ``odds``, the same among rows of one true class, largest over classes;
        ``opportunity``, the same among rows of the last true class (the positive one) for predicting it. A difference
        that needs a group without such rows is NaN.
    """
    n = counts.sum(axis=(-1, -2))
    with np.errstate(invalid="ignore"):
        right = np.trace(counts, axis1=-2, axis2=-1)
        rates = counts.sum(axis=-2) / n[..., None]  # P(ŷ | a)
        conditional = counts / counts.sum(axis=-1, keepdims=True)  # P(ŷ | a, y)
        gap = np.ptp(conditional, axis=-3)
        return {
            "accuracy": right.sum(-1) / n.sum(-1),
            "balanced_accuracy": (right / n).mean(-1),
            "parity": np.ptp(rates, axis=-2).max(-1),
            "odds": gap.max(axis=(-1, -2)),
            "opportunity": gap[..., -1, -1],
        }
