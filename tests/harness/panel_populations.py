"""Populations of persons with histories: panels of finitely many kinds, and the law of the kinds in each group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

    def frames(self, kind: np.ndarray, group: np.ndarray, name: str) -> list[pd.DataFrame]:
        """The rows of persons of these kinds and groups, whose names begin with a name.

        Of linked tables the persons come second, with a column that half of the kinds share.
        """
        names, groups = np.array([f"{name}{i}" for i in range(len(kind))]), np.where(group, "b", "a")
        m = np.array([len(rows) for rows in self.kinds])[kind]
        rows = pd.DataFrame([row for k in kind for row in self.kinds[k]], columns=["day", "value"])
        rows["who"] = np.repeat(names, m)
        if not self.is_linked:
            return [rows.assign(group=np.repeat(groups, m))]
        return [rows, pd.DataFrame({"who": names, "ward": np.where(kind % 2, "x", "y"), "group": groups})]

    def table(self, kind: np.ndarray, group: np.ndarray, name: str) -> ff.Table:
        """The same as a table, or as linked tables."""
        rows, *own = self.frames(kind, group, name)
        roles = {"sensitive": "group", "identifier": "who", "time": "day"}
        return ff.LinkedTables({"persons": own[0], "rows": rows}, **roles) if own else ff.Table(rows, **roles)

    def files(self, rng: np.random.Generator, n: int, name: str, folder: Path) -> list[Path]:
        """The files of random persons, half of each group."""
        group = np.repeat([0, 1], n // 2)
        kind = np.concatenate([rng.choice(len(self.kinds), n // 2, p=law) for law in self.law])
        frames = self.frames(kind, group, name)
        paths = [folder / f"{part}.csv" for part in ("rows", "persons")[: len(frames)]]
        for path, frame in zip(paths, frames, strict=True):
            frame.to_csv(path, index=False)
        return paths


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
