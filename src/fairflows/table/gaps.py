"""Rows in which a value is missing, and how they differ from the others: to drop them may drop one group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.table.columns import has_order, is_time, shown

_FEWEST = 10  # rows of either kind that are compared
_MOST_VALUES = 50  # of a column whose shares are compared
_MANY_NUMBERS = 12  # different numbers, from which on means are compared
_APART = 0.1  # difference of shares, or of means in double standard deviations, that is said


def unlike(frame: pd.DataFrame, is_missing: npt.NDArray[np.bool_], most: int = 3) -> list[str]:
    """Say in which values some rows differ most from the others.

    Examples
    --------
    >>> frame = pd.DataFrame({"origin": ["north"] * 30 + ["south"] * 10, "even": [0, 1] * 20})
    >>> unlike(frame, np.arange(40) > 24)
    ['origin = south in 67% and not 0%']
    """
    found: list[tuple[float, str]] = []
    for name, column in frame.items():
        here, there = column[is_missing].dropna(), column[~is_missing].dropna()
        if min(len(here), len(there)) < _FEWEST:
            continue
        if has_order(column.dtype) and not is_time(column.dtype) and column.nunique() > _MANY_NUMBERS:
            apart = abs(float(here.mean() - there.mean())) / (float(there.std()) or 1.0) / 2
            found.append((apart, f"{name} is {here.mean():.4g} on average and not {there.mean():.4g}"))
        elif column.nunique() <= _MOST_VALUES:
            shares = [part.value_counts(normalize=True) for part in (here, there)]
            gap = shares[0].sub(shares[1], fill_value=0)
            value = gap.idxmax() if gap.max() > _APART else gap.abs().idxmax()
            said = [f"{float(part.get(value, 0)):.0%}" for part in shares]
            found.append(
                (abs(float(gap[value])), f"{name} = {shown(value).strip(chr(39))} in {said[0]} and not {said[1]}")
            )
    return [text for apart, text in sorted(found, reverse=True)[:most] if apart > _APART]
