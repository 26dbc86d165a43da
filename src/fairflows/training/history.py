"""The losses of one model over its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from fairflows.arrays import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Losses = NDArray[np.float64]


@dataclass(frozen=True)
class LossHistory:
    """Mean losses of every epoch: of the task, of the divergence between the groups, and both as trained.

    While γ rises the joint loss changes with it.
    """

    task: Float[Losses, " epochs"]  # L_clf; zero without a label
    kl: Float[Losses, " epochs"]  # L_KL, an estimate; below zero it is the noise of a batch
    joint: Float[Losses, " epochs"]  # L = γ·L_KL + (1 − γ)·L_clf, or Chebyshev's

    def to_frame(self) -> pd.DataFrame:
        """Return one row per epoch."""
        frame = pd.DataFrame({"task": self.task, "KL": self.kl, "joint": self.joint})
        return frame.rename_axis("epoch")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the losses against the epoch."""
        frame = self.to_frame()
        frame.index += 1
        return frame.plot(ax=ax, xlabel="epoch", ylabel="mean loss", lw=1)
