"""Solving a monotone condition from the safe side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fairflows.bounds.arguments import FloatArray


def smallest_true(
    condition: Callable[[FloatArray], NDArray[np.bool_]], low: FloatArray, high: FloatArray, *, halvings: int
) -> FloatArray:
    """The smallest argument for which a monotone condition holds, to within (high - low) / 2**halvings, from above.

    The condition must hold at `high`, and once true stay true to the right. What comes back is the bracket's upper
    end: a point where the condition was seen to hold (or `high` itself). It errs to the right only.
    """
    low, high = np.broadcast_arrays(low, high)
    for _ in range(halvings):
        middle = (low + high) / 2
        holds = condition(middle)
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    return high
