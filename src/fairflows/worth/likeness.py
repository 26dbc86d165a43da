"""How much shared rows are like real ones: columns, pairs, triples, correlations, detection."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairflows.table.columns import floats, has_order, is_time, places_in
from fairflows.table.table import Table
from fairflows.threads import one_thread
from fairflows.worth.coding import Coded, FloatArray, IntArray, tree_features
from fairflows.worth.label_worth import BOOSTING

_COMPARED = 10_000  # rows that are compared with real ones
_SETS = 100  # of two and of three columns that are compared
_STRONG = 0.3  # a rank correlation that should be kept
_SHAPES, _BARS = 24, 10  # columns that are drawn, real beside shared, and bars of each


@dataclass(frozen=True)
class Likeness:
    """How much shared rows are like real ones."""

    columns: dict[str, float]  # total variation between a column and the shared one, largest first
    pairs: tuple[float, float]  # 1 − mean total variation of pairs of columns: of shared rows, and of other real rows
    k_marginal: tuple[float, float]  # the same of three columns
    correlations: float | None  # share of the strong rank correlations that is kept; None where there are none
    detection: float  # 1: boosted trees cannot tell shared rows from real ones; 0: they always can
    shapes: list[dict[str, Any]]  # of the first columns: the shares of values or ranges, real and shared


def real_columns(table: Table, shared: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that shared rows have, as they are in the real table."""
    columns = table.X.assign(**{str(name): label for name, label in table.label_columns().items()})
    return columns[[name for name in shared if name in columns]].reset_index(drop=True)


def likeness(real: pd.DataFrame, shared: pd.DataFrame, others: pd.DataFrame, seed: int) -> Likeness:
    """Compare shared rows with the real ones; pairs and triples with real rows of others, beside those themselves."""
    codes = {str(name): Coded.of(real[name], shared[name], (20, 63)) for name in real}
    apart = {name: variation(code.train[:, None], code.test[:, None]) for name, code in codes.items()}
    again = [Coded.of(real[name], others[name], (20, 63)).test for name in real]
    n = min(len(real), len(others), _COMPARED)
    there, here, other = (
        np.column_stack(part)[:n]
        for part in ([c.test for c in codes.values()], [c.train for c in codes.values()], again)
    )
    generator = np.random.default_rng(seed)
    pairs, triples = (_alike_together(size, other, (there, here), generator) for size in (2, 3))
    return Likeness(
        dict(sorted(apart.items(), key=lambda item: -item[1])),
        pairs,
        triples,
        _kept_correlations(real[:_COMPARED], shared[:_COMPARED]),
        _detection(real[:_COMPARED], shared[:_COMPARED], seed),
        [_shape(str(name), real[name], shared[name]) for name in list(real)[:_SHAPES]],
    )


def _alike_together(
    size: int, real: IntArray, others: tuple[IntArray, IntArray], generator: np.random.Generator
) -> tuple[float, float]:
    """Return 1 − the mean total variation of some columns at a time, between real rows and each of two others."""
    chosen = list(combinations(range(real.shape[1]), min(size, real.shape[1])))
    some = [list(chosen[i]) for i in generator.permutation(len(chosen))[:_SETS]]
    shared, again = (1 - float(np.mean([variation(real[:, s], rows[:, s]) for s in some])) for rows in others)
    return shared, again


def variation(here: IntArray, there: IntArray) -> float:
    """Return the total variation between two samples of some columns, as whole numbers."""
    both, sizes = np.concatenate([here, there]), np.maximum(here.max(axis=0), there.max(axis=0)) + 1
    keys = np.unique(np.ravel_multi_index(tuple(both.T), tuple(sizes)), return_inverse=True)[1]
    shares = [np.bincount(part, minlength=keys.max() + 1) / len(part) for part in np.split(keys, [len(here)])]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _kept_correlations(real: pd.DataFrame, shared: pd.DataFrame) -> float | None:
    """Return the sum of the shared rank correlations over that of the real ones, for strongly correlated columns."""
    names = [name for name in real if has_order(real[name].dtype) and real[name].nunique() > 1]
    ranks = [pd.DataFrame({name: floats(part[name]) for name in names}).rank() for part in (real, shared)]
    here, there = (np.atleast_2d(part.corr().to_numpy()) for part in ranks)
    strong = np.triu(np.abs(here) > _STRONG, 1)
    if not strong.any():
        return None
    return float((np.sign(here) * np.nan_to_num(there))[strong].sum() / np.abs(here)[strong].sum())


def _detection(real: pd.DataFrame, shared: pd.DataFrame, seed: int) -> float:
    """Return 1 − |2 AUC − 1| of boosted trees that tell shared rows from real ones."""
    n = min(len(real), len(shared))
    parts, categories = tree_features(real[:n], shared[:n])
    rows = np.concatenate(parts)
    is_shared, is_learnt = np.repeat([0, 1], n), np.random.default_rng(seed).random(2 * n) < 0.6
    trees = HistGradientBoostingClassifier(**BOOSTING, categorical_features=categories, random_state=seed)
    with one_thread():
        trees.fit(rows[is_learnt], is_shared[is_learnt])
    scores = trees.predict_proba(rows[~is_learnt])[:, 1]
    return 1 - abs(2 * float(roc_auc_score(is_shared[~is_learnt], scores)) - 1)


def _round_starts(low: float, high: float) -> FloatArray:
    """Return the starts of at most `_BARS` ranges of equal width, which are multiples of 1, 2, 2.5 or 5 times 10^k."""
    width = max((high - low) / (_BARS - 1), 1e-300)
    power = float(10.0 ** np.floor(np.log10(width)))
    step = next(step for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power) if step >= width)
    return step * np.arange(np.floor(low / step), np.floor(high / step) + 1)


def _short(value: Any) -> str:
    """Return a value as text, a number with at most four digits where it has a fraction."""
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    is_whole = abs(number) < 1e7 and (abs(number) >= 1000 or number.is_integer())
    return f"{number:.0f}" if is_whole else f"{number:.4g}"


def _shape(name: str, real: pd.Series, shared: pd.Series) -> dict[str, Any]:
    """Return the shares of ranges of equal width, or of the most frequent values, of a column in both tables."""
    if has_order(real.dtype) and real.nunique() > _BARS:
        values = [floats(column) for column in (real, shared)]
        known = [v[~np.isnan(v)] for v in values]
        own, times = np.unique(known[0], return_counts=True)
        alone = own[[times.argmax()]] if times.max() > len(known[0]) / 2 else own[:0]  # it has a bar of its own
        low, high = np.quantile(known[0][~np.isin(known[0], alone)], [0.01, 0.99])  # others: first and last range
        starts = np.linspace(low, high, _BARS + 1)[:-1] if is_time(real.dtype) else _round_starts(low, high)
        codes = [
            np.where(np.isin(v, alone), 0, len(alone) + np.searchsorted(starts[1:], v, side="right")) for v in known
        ]
        if is_time(real.dtype):
            step = 86_400 if high - low > 86_400 * _BARS else 1
            whole = (np.floor(np.concatenate([alone, starts]) / step) * step).astype(np.int64)
            names = list(pd.Index(whole.astype(f"{real.dtype.kind}8[s]")).astype(str))
        else:
            names = [*(f"{_short(value)} exactly" for value in alone), *map(_short, starts)]
    else:
        levels = real.astype(object).value_counts().index[:_BARS]
        levels = levels.sort_values() if has_order(real.dtype) else levels
        codes = [places_in(levels, column) for column in (real, shared)]
        codes, names = [code[code >= 0] for code in codes], [_short(level) for level in levels]
    shares = [np.bincount(code, minlength=len(names)) / len(real) for code in codes]
    return {"name": name, "values": names, "real": shares[0].tolist(), "shared": shares[1].tolist()}
