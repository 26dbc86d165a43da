"""Anybody's representation, as arrays in a file: attacked by the suite, and judged by its label."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from fairflows.attack.auditing import Audit, audit
from fairflows.exceptions import DataError
from fairflows.table.table import Table
from fairflows.threads import one_thread

PARTS = ("train", "test")


@dataclass(frozen=True)
class GivenRepresentation:
    """The rows Z of training and test persons, their groups, and their labels where they have any."""

    Z: tuple[pd.DataFrame, pd.DataFrame]
    a: tuple[npt.NDArray, npt.NDArray]
    y: tuple[npt.NDArray, npt.NDArray] | None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the arrays Z_train, a_train, Z_test, a_test and, if they are there, y_train and y_test of an .npz file.

        Raises
        ------
        DataError
            The file is none, lacks an array, or arrays do not have one entry for every row.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: not an .npz file of numbers and texts: {error}") from None
        needed = [f"{name}_{part}" for name in "Za" for part in PARTS]
        if missing := [name for name in needed if name not in arrays]:
            raise DataError(
                f"{path}: a representation needs the arrays {', '.join(needed)}; {', '.join(missing)} is not there."
            )
        labels = [f"y_{part}" for part in PARTS if f"y_{part}" in arrays]
        if len(labels) == 1:
            raise DataError(f"{path}: labels are needed for both parts or for none; there is {labels[0]} only.")
        for part in PARTS:
            _check_part(path, part, arrays)
        Z = tuple(pd.DataFrame(arrays[f"Z_{part}"]).add_prefix("z") for part in PARTS)
        a, y = (tuple(arrays.get(f"{name}_{part}") for part in PARTS) for name in "ay")
        return cls(Z, a, y if labels else None)  # type: ignore[arg-type]

    def audit(self, *, quick: bool = False, n_jobs: int = 1) -> Audit:
        """Attack the representation with all adversaries who see it alone."""
        # An audit refuses persons of both parts; of rows without names it knows none, so all of them get numbers.
        first = len(self.a[0])
        numbers = np.arange(first), np.arange(first, first + len(self.a[1]))
        train, test = (
            Table({"row": n, "a": a}, sensitive="a", kinds={"row": "continuous"})
            for n, a in zip(numbers, self.a, strict=True)
        )
        return audit(self.Z, train, test, quick=quick, n_jobs=n_jobs)

    def accuracy(self) -> float | None:
        """Return how often boosted trees on Z predict the label of test rows: the mean over groups; None without."""
        if self.y is None:
            return None
        with one_thread():
            trees = HistGradientBoostingClassifier(random_state=0).fit(self.Z[0].to_numpy(), self.y[0])
            right = trees.predict(self.Z[1].to_numpy()) == self.y[1]
        return float(np.mean([right[self.a[1] == group].mean() for group in np.unique(self.a[1])]))


def _check_part(path: Path, part: str, arrays: dict[str, npt.NDArray]) -> None:
    Z = arrays[f"Z_{part}"]
    if Z.ndim != 2 or Z.dtype.kind not in "fiub" or not np.isfinite(Z).all():
        raise DataError(f"{path}: Z_{part} must be a table of finite numbers; got {Z.dtype}, shape {Z.shape}.")
    for name in (f"a_{part}", f"y_{part}"):
        if name in arrays and arrays[name].shape != (len(Z),):
            raise DataError(
                f"{path}: {name} must have one value for each of the {len(Z):,} rows of Z_{part}; got shape "
                f"{arrays[name].shape}."
            )
