"""Certifying with a better density than training could use.

Training needs a smooth, differentiable p̂; a certificate only evaluates p̂_Za(z) = p̂_a(f_a⁻¹(z))·|det|. So it may take
the density of best held-out likelihood among several, whatever the encoder was trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import train_test_split

from fairflows.data.ledger import named_persons
from fairflows.data.table import Table

if TYPE_CHECKING:
    from fairflows.density.groups import GroupDensities

_HELD_OUT = 0.2


def best_densities(encoder: Any, density: Any, train: Table | None, random_state: int) -> tuple[GroupDensities, str]:
    """Fit candidates to the groups' training rows, and take those of best held-out likelihood, all groups together.

    Parameters
    ----------
    encoder : FairFlow
        A fitted encoder: its codec says what model space is.
    density : str, density, fitted densities, or a list of these
        A name or a density of `fairflows.density` is fitted to `train`; a fitted `GroupDensities` of model space is
        taken as it is.
    train : Table, or None
        Rows to fit on: those that the encoder was fitted on, never those to certify on.
    random_state : int
        Seed of the fits and of the split.

    Returns
    -------
    densities : GroupDensities
        In float64.
    name : str
        What they are, and how they did.
    """
    import torch

    from fairflows.density.groups import GroupDensities

    if not hasattr(encoder, "flow_"):
        raise ValueError(f"density is for encoders of continuous tables (FairFlow); got {type(encoder).__name__}.")
    candidates = list(density) if isinstance(density, list | tuple) else [density]
    if len(candidates) == 1 and isinstance(candidates[0], GroupDensities):
        return candidates[0].double(), "the densities that were passed"
    if train is None:
        raise ValueError("density takes training rows to fit on and to choose by: pass train.")
    fit, held = _by_group(encoder, train, random_state)
    to_tensor = [torch.as_tensor(x, dtype=torch.float32) for x in fit]
    found = []
    for candidate in candidates:
        densities = candidate
        if not isinstance(candidate, GroupDensities):
            densities = GroupDensities.fit(_template(candidate), to_tensor, random_state=random_state)
        densities = densities.double()
        likelihood = densities.score([torch.as_tensor(x) for x in held])
        found.append((float(np.mean(likelihood)), _name(candidate), densities))
    likelihood, name, densities = max(found, key=lambda entry: entry[0])
    return densities, f"{name}, the best of {len(found)}: {likelihood:.3f} nats a held-out row, in model space"


def log_densities_under(encoder: Any, densities: GroupDensities, n: int, seed: int) -> npt.NDArray[np.float64]:
    """The table (n, K drawn, K density) of an encoder's latent laws if these densities are the truth."""
    import torch

    from fairflows.training_evaluation import log_density_table

    generator = torch.Generator().manual_seed(seed)
    return log_density_table(encoder.flow_.bijection, densities, n, generator)[0].numpy()


def _by_group(encoder: Any, train: Table, random_state: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Training rows of each group in model space, and rows held out; no person in both."""
    persons = named_persons(train.X)
    person = np.arange(len(train)) if persons is None else persons.codes
    x, _ = encoder.codec_.encode(train.X, persons)
    kept, _ = train_test_split(np.unique(person), test_size=_HELD_OUT, random_state=random_state)
    group = np.array([encoder.groups_.index(value) for value in train.a])
    used = np.isin(person, kept)
    parts = [[x[(group == a) & rows] for a in range(len(encoder.groups_))] for rows in (used, ~used)]
    return parts[0], parts[1]


def _template(candidate: Any) -> Any:
    if not isinstance(candidate, str):
        return candidate
    from fairflows.encoder.flow_fitting import DENSITIES

    if candidate not in DENSITIES:
        raise ValueError(f"density must be one of {', '.join(DENSITIES)}, or a density; got {candidate!r}.")
    return DENSITIES[candidate]()


def _name(candidate: Any) -> str:
    return candidate if isinstance(candidate, str) else type(candidate).__name__
