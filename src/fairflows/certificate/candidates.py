"""Certifying with a better density than training could use.

Training needs a smooth, differentiable p̂; a certificate only evaluates p̂_Za(z) = p̂_a(f_a⁻¹(z))·|det|. So it may take
the density of best held-out likelihood among several, whatever the encoder was trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fairflows.encoder.base import Encoder, FloatArray
from fairflows.encoder.fair_flow import FairFlow
from fairflows.table.table import Table

if TYPE_CHECKING:
    from fairflows.density.base import Density, GroupDensities

DensityLike: TypeAlias = "str | Density | GroupDensities | Sequence[str | Density | GroupDensities]"
"""Densities to certify with: their names, their settings, or fitted ones."""

_HELD_OUT = 0.2
OWN = "the densities that the model was fitted with"


class CandidateDensities(NamedTuple):
    """Densities that a model-based bound is to be about, and what they are called."""

    densities: GroupDensities  # in model space, in float64
    name: str  # what they are, and how they did
    encoder: FairFlow  # the encoder that they are judged with

    def log_density_table(self, n: int, seed: int) -> FloatArray:
        """The table (n, K drawn, K density) of the encoder's latent laws if these densities are the truth."""
        import torch

        from fairflows.training.evaluation import log_density_table

        generator = torch.Generator().manual_seed(seed)
        return log_density_table(self.encoder.flow_.bijection, self.densities, n, generator)[0].numpy()


def best_densities(
    encoder: Encoder | None, density: DensityLike, train: Table | None, random_state: int
) -> CandidateDensities:
    """Fit candidates to the groups' training rows, and take those of best held-out likelihood, all groups together.

    They are fitted in the model space of the encoder's codec, on its ``device``, to rows that it was fitted on. Fitted
    `GroupDensities` of model space are taken as they are, and cannot be among several: they may have seen the rows that
    these are compared on.
    """
    import torch

    from fairflows.compute.resources import chosen_device
    from fairflows.density.base import Density, GroupDensities
    from fairflows.encoder.flow_fitting import density_of

    if not isinstance(encoder, FairFlow):
        raise ValueError(f"density is for encoders of continuous tables (FairFlow); got {type(encoder).__name__}.")
    candidates = [density] if isinstance(density, str | Density | GroupDensities) else list(density)
    settings = [candidate for candidate in candidates if not isinstance(candidate, GroupDensities)]
    fitted = [candidate for candidate in candidates if isinstance(candidate, GroupDensities)]
    if fitted:
        if len(candidates) > 1:
            raise ValueError(
                "density must not name fitted densities among several: they may have been fitted to the rows that the "
                "others are compared on. Pass them alone, or the settings to fit."
            )
        return CandidateDensities(fitted[0].double(), "densities that were passed fitted", encoder)
    if not candidates:
        raise ValueError("density must name at least one density; got an empty list.")
    if train is None:
        raise ValueError("density takes training rows to fit on and to choose by: pass train.")
    fit, held = _by_group(encoder, train, random_state)
    device = chosen_device(encoder.device)
    fit_rows = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in fit]
    held_rows = [torch.as_tensor(x, device=device) for x in held]
    found = []
    for candidate in settings:
        densities = GroupDensities.fit(density_of(candidate), fit_rows, random_state=random_state).double()
        found.append((float(np.mean(densities.score(held_rows))), name_of(candidate), densities.cpu()))
    likelihood, name, densities = max(found, key=lambda entry: entry[0])
    chosen = f"{name}, the best of {len(found)}" if len(found) > 1 else name
    return CandidateDensities(densities, f"{chosen}: {likelihood:.3f} nats per held-out row, in model space", encoder)


def _by_group(encoder: FairFlow, train: Table, random_state: int) -> tuple[list[FloatArray], list[FloatArray]]:
    """Training rows of each group in model space, and rows held out; no person in both."""
    rows = encoder.read(train)
    x, _ = encoder.codec_.encode(rows.X, rows.persons.named_or_numbered())
    parts = []
    for places in rows.persons.split(_HELD_OUT, random_state=random_state):
        x_part, group = x[places], rows.group[places]
        parts.append([x_part[group == a] for a in range(len(encoder.groups_))])
    return parts[0], parts[1]


def name_of(candidate: str | Density) -> str:
    """A density's name, with those of its settings that are not the default.

    Examples
    --------
    >>> from fairflows.density import MixtureDensity
    >>> name_of(MixtureDensity(3)), name_of("kde")
    ('MixtureDensity(n_components=3)', 'kde')
    """
    return candidate if isinstance(candidate, str) else repr(candidate).removesuffix("()")
