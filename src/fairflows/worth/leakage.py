"""How much a shared row still tells of a person's own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import delayed
from sklearn.ensemble import RandomForestClassifier

from fairflows.codec.combination_codec import one_hot
from fairflows.table.table import Table
from fairflows.worth.coding import Coded, IntArray

_WORK = 200_000  # rows · columns that forests learn from: a table of 100 columns is judged on 2,000 rows
_FEWEST_ROWS = 2_000
_TREES = 10  # of a forest
_ROWS_PER_TREE = 10_000  # twice as many take longer, and tell hardly more
_COLUMNS = 12  # that tell most of a value: what a forest looks at
_FINE, _COARSE = (32, 63), (4, 20)  # bins of numbers and most frequent categories, to learn from and to be predicted


@dataclass(frozen=True)
class ColumnLeakage:
    """How often the value of a person in one column is predicted correctly."""

    name: str  # the column
    released: float  # from the person's released row
    majority: float  # by a blind guess, the most frequent value

    @property
    def told(self) -> float:
        """Share of a blind guess's errors that the released row avoids: 0 reveals nothing, 1 everything."""
        return max(0.0, (self.released - self.majority) / (1 - self.majority)) if self.majority < 1 else 0.0

    def to_dict(self) -> dict[str, str | float]:
        """Return plain values, as JSON holds them."""
        return asdict(self) | {"told": self.told}


@dataclass(frozen=True)
class Forests:
    """The forests that predict each person's own values from the columns of the released row that tell most."""

    shown: tuple[IntArray, IntArray]  # the columns of released rows, to learn from and of the judged persons
    targets: dict[str, Coded]
    sensitive: str  # the name of the sensitive attribute
    groups: Coded

    @classmethod
    def of(
        cls, learn: Table, judge: Table, rows: tuple[pd.DataFrame, pd.DataFrame], generator: np.random.Generator
    ) -> Forests:
        """Code released rows, and the persons' own values that are to be predicted; of wide tables fewer rows."""
        few = max(_FEWEST_ROWS, _WORK // max(learn.X.shape[1], rows[0].shape[1]))
        kept = [generator.permutation(len(table))[:few] for table in (learn, judge)]
        learn, judge = learn.take(kept[0]), judge.take(kept[1])
        shown = [Coded.of(rows[0].iloc[kept[0], j], rows[1].iloc[kept[1], j], _FINE) for j in range(rows[0].shape[1])]
        seen = np.column_stack([c.train for c in shown]), np.column_stack([c.test for c in shown])
        targets = {str(name): Coded.of(learn.X[name], judge.X[name], _COARSE) for name in learn.X}
        return cls(seen, targets, str(learn.a.name), Coded.of(learn.a, judge.a, _COARSE))

    @property
    def n(self) -> int:
        """The number of judged rows."""
        return len(self.shown[1])

    def tasks(self, seed: int) -> list[Any]:
        """Return one task for each target, and the last for the group: how often it is predicted right."""
        forests = [delayed(_accuracy)(*self.shown, target, seed) for target in self.targets.values()]
        return [*forests, delayed(_accuracy)(*self.shown, self.groups, seed, balanced=True)]

    def told(self, right: Sequence[float]) -> tuple[tuple[ColumnLeakage, ...], ColumnLeakage]:
        """Return what the results of these tasks say of each column, most told first, and of the attribute."""
        *of_columns, of_group = right
        columns = [
            ColumnLeakage(name, released, target.majority)
            for (name, target), released in zip(self.targets.items(), of_columns, strict=True)
        ]
        sensitive = ColumnLeakage(self.sensitive, of_group, 1 / len(np.unique(self.groups.test)))
        return tuple(sorted(columns, key=lambda each: -each.told)), sensitive


def _accuracy(fit: IntArray, asked: IntArray, target: Coded, seed: int, *, balanced: bool = False) -> float:
    """Return how often a forest predicts the target of asked rows right; on average over its values where balanced."""
    chosen = np.argsort(-_mutual_information(fit, target.train), kind="stable")[:_COLUMNS]
    forest = RandomForestClassifier(
        _TREES,
        min_samples_leaf=10,
        max_features=0.4,
        max_samples=min(len(fit), _ROWS_PER_TREE),
        class_weight="balanced" if balanced else None,
        random_state=seed,
    )
    right = forest.fit(fit[:, chosen], target.train).predict(asked[:, chosen]) == target.test
    if not balanced:
        return float(right.mean())
    return float(np.mean([right[target.test == value].mean() for value in np.unique(target.test)]))


def _mutual_information(columns: IntArray, target: IntArray) -> npt.NDArray[np.float64]:
    """Return the mutual information of each column and the target, in nats, from their counts."""
    n, sizes = len(columns), columns.max(axis=0) + 1
    joint = one_hot(columns, sizes).T @ np.eye(int(target.max()) + 1)[target] / n
    product = joint.sum(axis=1, keepdims=True) * (np.bincount(target) / n)
    terms = joint * np.log(np.divide(joint, product, out=np.ones_like(joint), where=joint > 0))
    return np.add.reduceat(terms.sum(axis=1), np.cumsum(sizes) - sizes)
