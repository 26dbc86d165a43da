"""The grid that a column of numbers lies on: integers, fixed decimals, dates.

A value that lies on a grid gives its row away when only the true group's inverse lands on that grid again, so every
grid has to be found before it can be filled with noise. A grid here is (origin + step·k) / 10**decimals with integers
origin, step and k, so that k and the value determine each other bit for bit: the quotient (or product) of an integer
below 2**53 and a power of ten up to 10**22 is the float nearest to the decimal number, which is what reading that
number from text gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_STEPS = 2**40
"""Beyond this many steps a float64 cannot hold the step and its noise: the column counts as continuous."""

MIN_ROWS = 32
"""From this many rows on, a common divisor of all values is a fact about the column (100 is the step of wages in
hundreds); in fewer rows it may be chance, and the unit of the last decimal, or of time, is taken."""

_EXACT = 2**53  # integers up to here are exact in float64
_MAX_DECIMALS = 22  # powers of ten up to here are exact in float64
_TIME_STEPS = (86_400, 3_600, 60, 1)  # day, hour, minute, second


@dataclass(frozen=True)
class Grid:
    """The values ``(origin + step·k) / 10**decimals`` for k = 0 … n_steps − 1."""

    # In units of the last decimal (dates: of the column's own time unit); thousands have −3 decimals.
    origin: int
    step: int
    decimals: int
    n_steps: int  # grid points from the smallest to the largest value, both included

    @property
    def quantum(self) -> float:
        """Distance between neighbouring values, in the column's own unit."""
        return float(_in_units(np.float64(self.step), self.decimals))

    def index(self, values: np.ndarray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the grid index k of each value (below 0 or above n_steps − 1 outside), and which lie on the grid."""
        ticks, exact = _ticks(values, self.decimals)
        offset = _subtract(ticks, self.origin)
        k, rest = np.divmod(offset, self.step)
        return np.where(2 * rest >= self.step, k + 1, k), exact & (rest == 0)

    def value(self, k: npt.NDArray[np.int64], dtype: np.dtype) -> np.ndarray:
        """Return the column's values at grid indices k, in the column's own type."""
        k = self._held(k, dtype)
        origin = np.uint64(self.origin % 2**64)
        # Unsigned arithmetic wraps where signed would overflow; the sum itself is within the type.
        ticks = k.astype(np.uint64) * np.uint64(self.step) + origin
        if dtype.kind in "mM":
            return ticks.view(np.int64).view(dtype)
        if dtype.kind == "u":
            return ticks.astype(dtype)
        signed = ticks.view(np.int64)
        return signed.astype(dtype) if dtype.kind == "i" else _in_units(signed, self.decimals).astype(dtype)

    def _held(self, k: npt.NDArray[np.int64], dtype: np.dtype) -> npt.NDArray[np.int64]:
        """Clip indices to the values that the type holds, because integers beyond them would wrap around."""
        info = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
        low, high = -((self.origin - int(info.min)) // self.step), (int(info.max) - self.origin) // self.step
        return np.clip(k, max(low, -(2**63)), min(high, 2**63 - 1))


def find_grid(values: np.ndarray) -> Grid | None:
    """Return the coarsest grid that all values, finite numbers or times, lie on, or None.

    Examples
    --------
    >>> find_grid(np.array([0.25, 1.5, 3.0]))
    Grid(origin=25, step=1, decimals=2, n_steps=276)
    >>> find_grid(np.array([np.pi, np.e])) is None
    True
    """
    if values.dtype.kind in "iu":
        return _grid_of_ticks(_ticks(values, 0)[0], decimals=0, units=(1,))
    if values.dtype.kind in "mM":
        return _grid_of_ticks(_ticks(values, 0)[0], decimals=0, units=_time_units(values.dtype))
    largest = float(np.abs(values.astype(np.float64)).max())
    sample = values[:: max(1, len(values) // 256)]
    for decimals in range(0 if largest < _EXACT else -_MAX_DECIMALS, _MAX_DECIMALS + 1):
        if _in_units(largest, -decimals) >= _EXACT:
            return None
        if not _ticks(sample, decimals)[1].all():
            continue  # most columns that fail do so here, at the price of a few rows
        ticks, exact = _ticks(values, decimals)
        if exact.all():
            # With enough decimals every float is on some grid: only a grid coarse in its own unit counts.
            is_coarse = decimals == 0 or ticks.max() - ticks.min() <= MAX_STEPS
            return _grid_of_ticks(ticks, decimals, units=(1,)) if is_coarse else None
    return None


def _ticks(values: np.ndarray, decimals: int) -> tuple[np.ndarray, npt.NDArray[np.bool_]]:
    """Return values as whole numbers of the last decimal, and which of them are exactly that."""
    if values.dtype.kind in "mM":
        return values.view(np.int64), np.ones(len(values), dtype=bool)
    if values.dtype.kind in "iu" and decimals == 0:
        wide = np.uint64 if values.dtype.kind == "u" else np.int64
        return values.astype(wide), np.ones(len(values), dtype=bool)
    scaled = np.clip(np.rint(_in_units(values.astype(np.float64), -decimals)), -(2.0**63), 2.0**64 - 2048)
    exact = (np.abs(scaled) < _EXACT) | (decimals == 0)
    ticks = np.where(scaled < 2.0**63, scaled, scaled - 2.0**64).astype(np.int64)  # modulo 2**64, as in `_subtract`
    return ticks, exact & (_in_units(scaled, decimals).astype(values.dtype) == values)


def _in_units(ticks: Any, decimals: int) -> Any:
    """Return ticks / 10**decimals, by a power of ten that float64 holds exactly."""
    return ticks / 10.0**decimals if decimals >= 0 else ticks * 10.0**-decimals


def _subtract(ticks: np.ndarray, origin: int) -> npt.NDArray[np.int64]:
    """Return ticks minus origin, for signed and unsigned ticks alike: modulo 2**64 the difference is the same."""
    return (ticks.astype(np.uint64) - np.uint64(origin % 2**64)).view(np.int64)


def _time_units(dtype: np.dtype) -> tuple[int, ...]:
    """Return day, hour, minute, second and below, coarsest first, in ticks of a datetime64 or timedelta64 type."""
    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[np.datetime_data(dtype)[0]]  # pandas has no other unit
    below = (second // 10**3, second // 10**6, second // 10**9)
    return tuple(unit for unit in (*(second * n for n in _TIME_STEPS), *below) if unit >= 1)


def _grid_of_ticks(ticks: np.ndarray, decimals: int, units: tuple[int, ...]) -> Grid | None:
    origin, top = int(ticks.min()), int(ticks.max())
    if origin == top:
        return Grid(origin, 1, decimals, 1)
    if top - origin >= 2**63:
        return None
    step = int(np.gcd.reduce(_subtract(ticks, origin)))
    if len(ticks) < MIN_ROWS:
        step = next((unit for unit in units if step % unit == 0), 1)
    n_steps = (top - origin) // step + 1
    return Grid(origin, step, decimals, n_steps) if n_steps <= MAX_STEPS else None
