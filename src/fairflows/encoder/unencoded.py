"""Unencoded: the rows as they are, with the contract of an encoder; what releases without an encoder are built on."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairflows.encoder.base import FloatArray, LabelsLike, Learnt, Rows
from fairflows.encoder.group_encoder import GroupEncoder


class Unencoded(GroupEncoder):
    """The rows themselves; needs no attribute.

    Parameters
    ----------
    sensitive, identifier : str, optional
        Columns of X that hold the sensitive attribute and name the person of a row.
    key : bytes, optional
        The secret behind the coins of a release; a new one at each fit when not given.
    random_state : int
        Not used; all encoders have one.
    """

    def __init__(
        self,
        *,
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        key: bytes | None = None,
        random_state: int = 0,
    ) -> None:
        self.sensitive = sensitive
        self.identifier = identifier
        self.key = key
        self.random_state = random_state

    @property
    def needs_attribute(self) -> bool:
        """The rows are given as they are, whatever the group."""
        return False

    @property
    def _fit_needs_attribute(self) -> bool:
        """Nothing is learnt; without the attribute there are no groups."""
        return False

    def _fit(
        self,
        rows: Rows,
        y: LabelsLike | None,
        sample_weight: FloatArray | None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Learnt | None]:
        self._read_label(y, len(rows.X))
        self.columns_ = list(rows.X.columns)
        return [{} for _ in strengths for _ in seeds]

    def encode(self, rows: Rows) -> pd.DataFrame:
        """The features."""
        return rows.X

    def _names_out(self) -> list[str]:
        return [str(name) for name in self.columns_]
