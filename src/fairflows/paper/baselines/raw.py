"""Raw features: the rows as they are, which other methods are measured against."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from fairflows.encoder.base import EncodedColumns, Encoder, Traits
from fairflows.encoder.rows import Rows, TrainingRows
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting


@dataclass(eq=False, repr=False)
class RawFeatures(Encoder):
    """Give the features as they are; needs no attribute, and learns nothing.

    Parameters
    ----------
    sensitive, identifier : str, default=None
        Columns of X that hold the sensitive attribute and name the person of a row.
    key : bytes, default=None
        The secret behind the seal of certificates; a new one at each fit by default.
    random_state : int, default=0
        Not used; all encoders have one.
    """

    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    @property
    def traits(self) -> Traits:
        """Nothing is learnt; without the attribute there are no groups."""
        return replace(super().traits, needs_attribute=False, learns_groups=False)

    def learn(self, rows: TrainingRows) -> None:
        """Remember the columns."""
        self.output_ = EncodedColumns({str(name): dtype for name, dtype in rows.X.dtypes.items()}, rows.schema)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the features."""
        return rows.X.reset_index(drop=True)
