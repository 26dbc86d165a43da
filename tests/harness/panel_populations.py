"""Populations of persons with histories: panels of finitely many kinds, and the law of the kinds in each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import fairflows as ff


@dataclass(frozen=True)
class PanelKinds:
    """Kinds of panels, each a list of rows (time, value), and the law of the kinds in two groups."""

    name: str
    kinds: list[list[tuple[int, str]]]
    law: np.ndarray  # (2, n_kinds)
    is_linked: bool = False  # whether persons stand in a table of their own, and may have no rows

    def table(self, kind: np.ndarray, group: np.ndarray, name: str) -> ff.Table:
        """The table of persons of these kinds and groups, whose names begin with a name."""
        if self.is_linked:
            return self._linked_tables(kind, group, name)
        m = np.array([len(rows) for rows in self.kinds])[kind]
        who = np.repeat(np.arange(len(kind)), m)
        rows = pd.DataFrame([row for k in kind for row in self.kinds[k]], columns=["day", "value"])
        rows = rows.assign(group=np.where(group[who] == 0, "a", "b"), who=[f"{name}{i}" for i in who])
        return ff.Table(rows, sensitive="group", identifier="who", time="day")

    def _linked_tables(self, kind: np.ndarray, group: np.ndarray, name: str) -> ff.LinkedTables:
        """The same persons in a table of their own, with a column that half of the kinds share; the rows beside it."""
        names = np.array([f"{name}{i}" for i in range(len(kind))])
        own = pd.DataFrame({"who": names, "ward": np.where(kind % 2, "x", "y"), "group": np.where(group, "b", "a")})
        m = np.array([len(rows) for rows in self.kinds])[kind]
        rows = pd.DataFrame([row for k in kind for row in self.kinds[k]], columns=["day", "value"])
        tables = {"persons": own, "rows": rows.assign(who=np.repeat(names, m))}
        return ff.LinkedTables(tables, sensitive="group", identifier="who", time="day")

    def draw(self, rng: np.random.Generator, n: int, name: str) -> ff.Table:
        """The table of random persons, half of each group."""
        group = np.repeat([0, 1], n // 2)
        kind = np.concatenate([rng.choice(len(self.kinds), n // 2, p=law) for law in self.law])
        return self.table(kind, group, name)


def _made() -> list[PanelKinds]:
    few = [[(day, "u") for day in range(m)] for m in range(1, 6)]
    orders = [[(0, one), (1, other)] for one in "uvw" for other in "uvw"]
    gaps = [[(0, "u"), (gap, value)] for gap in (1, 2, 5, 30) for value in "uv"]
    rng = np.random.default_rng(0)
    mixed = []
    for m in rng.integers(1, 7, 40):
        days, values = np.cumsum(rng.integers(1, 9, m)), rng.choice(list("uvw"), m)
        mixed.append([(int(day), str(value)) for day, value in zip(days, values, strict=True)])
    tilted = np.exp(np.linspace(-1, 1, 40))
    return [
        PanelKinds("number of rows", few, np.array([[0.5, 0.2, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.2, 0.5]])),
        PanelKinds("order", orders, np.stack([w / w.sum() for w in (np.arange(1.0, 10), np.arange(9.0, 0, -1))])),
        PanelKinds("gaps in time", gaps, np.stack([w / w.sum() for w in (2.0 ** np.arange(8), 2.0 ** -np.arange(8))])),
        PanelKinds(
            "rows or none", [[], *few[:4]], np.array([[0.5, 0.2, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.2, 0.5]]), True
        ),
        PanelKinds("mixed", mixed, np.stack([tilted / tilted.sum(), tilted[::-1] / tilted.sum()])),
    ]


PANELS = _made()
