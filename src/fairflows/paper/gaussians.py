"""Tables drawn from Gaussians: the densities are known, and the truth about the tables is in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fairflows.table.table import Table

if TYPE_CHECKING:
    from torch.distributions import Distribution


def make_gaussians(n_samples: int = 2000, *, random_state: int | None = None) -> tuple[Table, list[Distribution]]:
    """Draw the paper's four Gaussian blobs, in two groups that are easy to tell apart.

    With means ``(±3, 3)`` for a = 0 and ``(±3, −3)`` for a = 1,

        p_a = ½ N((−3, ±3), I) + ½ N((3, ±3), I),      y = 1 where sign(x1) = sign(x2).

    A representation that hides a and keeps y exists: z = (−1)^a x.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of rows, half of them in each group.
    random_state : int, default=None
        Seed of the draw.

    Returns
    -------
    table : Table
        Features x1, x2.
    densities : list of torch.distributions.Distribution
        p_0 and p_1, in float64, over (x1, x2).

    Examples
    --------
    >>> table, (p0, p1) = make_gaussians(1000, random_state=0)
    >>> table.summary()["rows"].tolist()
    [500, 500, 1000]
    """
    means = np.array([[(-3.0, 3.0), (3.0, 3.0)], [(-3.0, -3.0), (3.0, -3.0)]])
    weights, scales = np.full((2, 2), 0.5), np.ones((2, 2))
    x, a = _draw(n_samples, weights, means, scales, random_state)
    y = np.sign(x[:, 0]) == np.sign(x[:, 1])
    return _table(x, y, a, "gaussians", [0, 1]), _densities(weights, means, scales)


def make_three_groups(n_samples: int = 3000, *, random_state: int | None = None) -> tuple[Table, list[Distribution]]:
    """Draw three groups, "north", "centre" and "south", that differ in place and spread.

        p_a = ½ N((−2, m_a), s_a² I) + ½ N((2, m_a), s_a² I),      y = 1 where x1 > 0,

    with m = (3, 0, −3) and s = (1, .75, 1.25). The group shows in x2 and, through its spread, in x1; the label is a
    function of x1 alone and equally frequent in all groups, so that encoders exist which hide the group and keep it.

    Parameters
    ----------
    n_samples : int, default=3000
        Number of rows, a third of them in each group.
    random_state : int, default=None
        Seed of the draw.

    Returns
    -------
    table : Table
        Features x1, x2.
    densities : list of torch.distributions.Distribution
        One per group, in the order of ``table.groups`` (sorted: centre, north, south), in float64.

    Examples
    --------
    >>> table, densities = make_three_groups(300, random_state=0)
    >>> table.groups, len(densities)
    (['centre', 'north', 'south'], 3)
    """
    names = ["centre", "north", "south"]
    height, spread = np.array([0.0, 3.0, -3.0]), np.array([0.75, 1.0, 1.25])
    weights = np.full((3, 2), 0.5)
    means = np.stack([np.stack([np.full(3, side), height], axis=1) for side in (-2.0, 2.0)], axis=1)
    scales = np.repeat(spread[:, None], 2, axis=1)
    x, a = _draw(n_samples, weights, means, scales, random_state)
    return _table(x, x[:, 0] > 0, a, "three groups", names), _densities(weights, means, scales)


def make_shifted_gaussians(
    distance: float, n_samples: int = 2000, *, random_state: int | None = None
) -> tuple[Table, list[Distribution]]:
    """Draw two unit Gaussians whose means are `distance` apart, so that their statistical distance is known.

        p_a = N((±d/2, 0), I),      Δ(p_0, p_1) = 2 Φ(d/2) − 1,      y = 1 where x2 > 0.

    The best adversary compares x1 with 0 and has the balanced accuracy Φ(d/2); the label is independent of the group.

    Parameters
    ----------
    distance : float
        d, at least 0.
    n_samples : int, default=2000
        Number of rows, half of them in each group.
    random_state : int, default=None
        Seed of the draw.

    Returns
    -------
    table : Table
        Features x1, x2.
    densities : list of torch.distributions.Distribution
        p_0 and p_1, in float64, over (x1, x2).

    Examples
    --------
    Half of ∫|p_0 − p_1| along x1, against the formula:

    >>> import torch
    >>> from scipy.stats import norm
    >>> _, (p0, p1) = make_shifted_gaussians(1.0, random_state=0)
    >>> x1 = torch.linspace(-8, 8, 401, dtype=torch.float64)
    >>> x = torch.cartesian_prod(x1, x1)
    >>> delta = 0.5 * (p0.log_prob(x).exp() - p1.log_prob(x).exp()).abs().sum() * 0.04**2
    >>> f"{delta:.4f} {2 * norm.cdf(0.5) - 1:.4f}"
    '0.3829 0.3829'
    """
    if not distance >= 0:
        raise ValueError(f"distance must be at least 0; got {distance!r}.")
    means = np.array([[(-distance / 2, 0.0)], [(distance / 2, 0.0)]])
    weights, scales = np.ones((2, 1)), np.ones((2, 1))
    x, a = _draw(n_samples, weights, means, scales, random_state)
    return _table(x, x[:, 1] > 0, a, "shifted gaussians", [0, 1]), _densities(weights, means, scales)


def _draw(
    n_samples: int,
    weights: npt.NDArray[np.float64],
    means: npt.NDArray[np.float64],
    scales: npt.NDArray[np.float64],
    random_state: int | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Draw rows x of shape (B, D) and their groups from K mixtures of round Gaussians, in random order.

    weights and scales have the shape (K, components), means (K, components, D). The groups are of equal size, up to one
    row.
    """
    n_groups, _, n_features = means.shape
    if n_samples < 2 * n_groups:
        raise ValueError(f"n_samples must be at least {2 * n_groups}, two rows per group; got {n_samples!r}.")
    generator = np.random.default_rng(random_state)
    a = generator.permutation(np.arange(n_samples) % n_groups)
    component = (generator.random(n_samples)[:, None] > weights.cumsum(axis=1)[a, :-1]).sum(axis=1)
    noise = generator.standard_normal((n_samples, n_features))
    return means[a, component] + scales[a, component, None] * noise, a


def _densities(
    weights: npt.NDArray[np.float64], means: npt.NDArray[np.float64], scales: npt.NDArray[np.float64]
) -> list[Distribution]:
    import torch
    from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

    return [
        MixtureSameFamily(
            Categorical(torch.from_numpy(weight)),
            Independent(Normal(torch.from_numpy(mean), torch.from_numpy(scale)[:, None].expand(mean.shape)), 1),
        )
        for weight, mean, scale in zip(weights, means, scales, strict=True)
    ]


def _table(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.bool_], a: npt.NDArray[np.int64], name: str, groups: Sequence[Any]
) -> Table:
    return Table(
        {"x1": x[:, 0], "x2": x[:, 1], "y": y.astype(np.int64), "a": np.asarray(groups)[a]},
        sensitive="a",
        label="y",
        name=name,
        kinds={"x1": "continuous", "x2": "continuous"},
    )
