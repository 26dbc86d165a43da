"""The type of an array of some kind of numbers, which may stand inside a shape: ``Float[NDArray[np.float64], "K k"]``.

From NumPy 2.5 on, NumPy's own `NDArray` is computed late, and jaxtyping cannot read it.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np

Scalar = TypeVar("Scalar", bound=np.generic)

NDArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Scalar]]
