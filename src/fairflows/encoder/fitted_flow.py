"""A trained flow, and the laws of the rows that it encodes."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fairflows.codec.model_space import Codec
from fairflows.encoder.base import Inversion, LatentLaw
from fairflows.encoder.rows import FloatArray, Groups
from fairflows.exceptions import DataError
from fairflows.training.history import LossHistory

if TYPE_CHECKING:
    from fairflows.bijection import Bijection, StackedMLP
    from fairflows.bijection.base import BijectiveMap
    from fairflows.density import GroupDensities

ROWS_PER_CHUNK = 2**12  # activations that stay in the cache: several times faster than all rows at once


@dataclass(frozen=True)
class FittedFlow:
    """One trained model, on the CPU and in float64."""

    bijection: Bijection  # the K encoders f_a, with a models' axis of length one
    head: StackedMLP | None  # the classifier on z
    densities: GroupDensities  # p̂_a in model space
    label_densities: GroupDensities | None  # p̂(x | a, y), where the criterion speaks of labels
    label_numbers: tuple[int, ...]  # which labels these are of
    held_out_log_likelihood: Float[FloatArray, " K"] | None  # of the densities, in table units
    gaps: Float[FloatArray, " K"] | None  # how far each density is from held-out rows, at least
    history: LossHistory  # the losses of every epoch

    @cached_property
    def encoders(self) -> list[BijectiveMap]:
        """Each group's f_a by itself, for points (1, 1, n, D)."""
        return [self.bijection.select_group(a).prepared() for a in range(self.bijection.n_groups)]

    def encode(self, x: Float[FloatArray, "n D"], group: int) -> Float[FloatArray, "n D"]:
        """Return f_a(x) of points of one group."""
        import torch

        with torch.no_grad():
            parts = [
                self.encoders[group].forward(part[None, None])[0] for part in torch.tensor(x).split(ROWS_PER_CHUNK)
            ]
        return torch.cat([z[0, 0] for z in parts]).numpy()

    def decode(
        self, z: Float[FloatArray, "n D"], group: int
    ) -> tuple[Float[FloatArray, "n D"], Float[FloatArray, " n"]]:
        """Return f_a⁻¹(z) and its log-determinant, of points of one group."""
        import torch

        with torch.no_grad():
            found = [self.encoders[group].inverse(part[None, None]) for part in torch.tensor(z).split(ROWS_PER_CHUNK)]
        return torch.cat([x[0, 0] for x, _ in found]).numpy(), torch.cat([det[0, 0] for _, det in found]).numpy()

    def predicted(self, z: Float[FloatArray, "n D"]) -> Int[Groups, " n"]:
        """Return the class numbers that the classifier predicts for points z."""
        import torch

        if self.head is None:
            raise DataError("The encoder was fitted without a label, and so without a classifier.")
        with torch.no_grad():
            scores = [self.head(part[None])[0] for part in torch.tensor(z).split(ROWS_PER_CHUNK)]
        return torch.cat(scores).argmax(-1).numpy()


@dataclass(frozen=True)
class FlowLaw(LatentLaw):
    """The laws of z = f_a(x), x ~ p̂_a, for each group a."""

    flow: FittedFlow  # the encoders f_a and the densities p̂_a
    codec: Codec  # rows of the table as points of model space
    classes: np.ndarray | None  # the values of the label
    device: str  # where draws are made

    @property
    def labels(self) -> list[Hashable]:
        """Labels that have densities."""
        return [] if self.classes is None else [self.classes[number] for number in self.flow.label_numbers]

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> Float[FloatArray, "{n} K K"]:
        """Draw from every group's law; return the log-density under every group, (n, K drawn, K density)."""
        import torch

        from fairflows.steps import chosen_device
        from fairflows.training.loop import log_density_table

        densities = self.flow.densities
        if label is not None:
            if self.flow.label_densities is None or label not in self.labels:
                raise DataError(f"the encoder has no densities given label {label!r}; fit it with another criterion.")
            densities = self.flow.label_densities.for_label(self.labels.index(label))
        device = chosen_device(self.device)
        if device.type == "mps":  # which has no double precision
            device = torch.device("cpu")
        generator = torch.Generator(device).manual_seed(random_state)
        bijection = copy.deepcopy(self.flow.bijection).to(device)
        return log_density_table(bijection, copy.deepcopy(densities).to(device), n, generator)[0].numpy()

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame]:
        """Draw n rows of each group from its density p̂_a."""
        import torch

        draws = self.flow.densities.sample(n, torch.Generator().manual_seed(random_state))
        return [self.codec.decode(x.numpy()) for x in draws]

    def draw(self, group: int, n: int, random_state: int = 0) -> Float[FloatArray, "{n} D"]:
        """Draw n points of model space from the density p̂_a of one group."""
        import torch

        generator = torch.Generator().manual_seed(random_state)
        with torch.no_grad():
            return self.flow.densities.members[group].sample(n, generator).numpy()

    def log_prob(self, group: int, x: Float[FloatArray, "n D"]) -> Float[FloatArray, " n"]:
        """Return log p̂_a of points of model space under the density of one group."""
        import torch

        with torch.no_grad():
            parts = torch.from_numpy(x).split(ROWS_PER_CHUNK)
            return torch.cat([self.flow.densities.members[group].log_prob(part) for part in parts]).numpy()

    def inversions(self, Z: pd.DataFrame) -> list[Inversion]:
        """Decode encoded rows by each group's inverse: all that an adversary who holds the encoders can compute."""
        z, found = np.asarray(Z, dtype=np.float64), []
        for b in range(len(self.flow.encoders)):
            x, log_det = self.flow.decode(z, b)
            log_p = self.log_prob(b, x)
            found.append(Inversion(self.codec.names_, self.codec.decode(x), self.codec.values(x), x, log_p, log_det))
        return found
