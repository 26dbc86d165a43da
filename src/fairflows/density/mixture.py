r"""Gaussian mixtures: of a few components with full covariances, or with one component on every point.

.. math:: \hat p(x) = \sum_c w_c\, N(x; \mu_c, \Sigma_c), \qquad
          (x - \mu_c) P_c \sim N(0, I) \text{ with } P_c P_c^\top = \Sigma_c^{-1}.

They are fitted by scikit-learn and evaluated in torch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from fairflows.density.base import Density, checked_rows
from fairflows.exceptions import DataError

_ROWS_FOR_BIC = 20_000
_UNTIL_GIVEN_UP = 3  # components more than the best number so far


class MixtureDensity(Density):
    """A mixture of Gaussians.

    Parameters
    ----------
    n_components
        Number of components; chosen between 1 and ``max_components`` by the Bayesian information criterion when None.
    max_components
        The largest number tried; larger ones are not where three more components did not help.
    n_init
        Starts of the EM algorithm; the best is kept.

    Examples
    --------
    >>> density = MixtureDensity(2).fit(torch.randn(500, 3))
    >>> density.log_prob(torch.zeros(7, 3)).shape
    torch.Size([7])
    """

    log_weights: Tensor
    means: Tensor
    whitening: Tensor
    capturable = True

    def __init__(self, n_components: int | None = None, *, max_components: int = 8, n_init: int = 1):
        super().__init__()
        self.n_components, self.max_components, self.n_init = n_components, max_components, n_init

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Estimate the mixture from rows (n, D) by EM."""
        rows = checked_rows(x).detach().double().cpu().numpy()
        if self.n_components is None:
            mixture = self._best_by_bic(rows, random_state)
        else:
            mixture = self._em(rows, min(self.n_components, len(rows)), random_state)
        fitted = {
            "log_weights": torch.as_tensor(mixture.weights_).log(),
            "means": torch.as_tensor(mixture.means_),
            "whitening": torch.as_tensor(mixture.precisions_cholesky_),
        }
        return self._keep(x.shape[1], **fitted).to(x)

    def _best_by_bic(self, rows: NDArray[np.float64], random_state: int) -> GaussianMixture:
        """Return the mixture of least BIC; with very many rows, choose on a subset and go on with all of them."""
        subset = rows
        if len(rows) > _ROWS_FOR_BIC:
            subset = np.random.default_rng(random_state).choice(rows, _ROWS_FOR_BIC, replace=False)
        most = min(self.max_components, max(1, len(subset) // (2 * subset.shape[1])))
        best = self._em(subset, 1, random_state)
        least = best.bic(subset)
        for k in range(2, most + 1):
            if k > best.n_components + _UNTIL_GIVEN_UP:
                break  # of many columns, each component takes long and tells little
            mixture = self._em(subset, k, random_state)
            bic = mixture.bic(subset)
            if bic < least:
                best, least = mixture, bic
        return best if subset is rows else self._em(rows, best.n_components, random_state, start=best)

    def _em(
        self, rows: NDArray[np.float64], n_components: int, random_state: int, start: GaussianMixture | None = None
    ) -> GaussianMixture:
        mixture = GaussianMixture(n_components, n_init=self.n_init, max_iter=200, random_state=random_state)
        if start is not None:
            mixture.set_params(
                n_init=1, weights_init=start.weights_, means_init=start.means_, precisions_init=start.precisions_
            )
        with warnings.catch_warnings():
            # A fit that stops at the iteration limit is still a density; held-out scores tell how good it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return mixture.fit(rows)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log-densities (...) of points (..., D)."""
        return MixtureStack([self]).log_prob(x.reshape(1, -1, self.n_features)).view(x.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (n, D)."""
        return MixtureStack([self]).sample(n, generator)[0]

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> MixtureStack:
        """Return all of these as one computation."""
        return MixtureStack(densities)


class MixtureStack:
    """G mixtures as one batched product; components that a mixture does not have carry no weight."""

    def __init__(self, mixtures: Sequence[MixtureDensity]):
        most = max(len(mixture.log_weights) for mixture in mixtures)
        self.log_weights = _padded([mixture.log_weights for mixture in mixtures], most, -math.inf)  # (G, C)
        means = _padded([mixture.means for mixture in mixtures], most)  # (G, C, D)
        identity = torch.eye(means.shape[-1]).to(means)
        whitening = torch.stack(
            [torch.cat([m.whitening, identity.expand(most - len(m.whitening), -1, -1)]) for m in mixtures]
        )  # (G, C, D, D)
        self.n_components, self.n_features = most, means.shape[-1]
        # y = (x − μ_c) P_c for all components at once: one product with a matrix (D, C·D) and one offset
        self._whitening = whitening.movedim(1, 2).flatten(2)
        self._offset = -torch.einsum("gcd,gcde->gce", means, whitening).flatten(1).unsqueeze(1)
        self._means = means.flatten(1).unsqueeze(1)
        self._colouring = torch.linalg.inv(whitening).movedim(1, 2).flatten(2)
        self._constant = (
            self.log_weights
            + whitening.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            - 0.5 * self.n_features * math.log(2 * math.pi)
        ).unsqueeze(1)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log-densities (G, N) of points (G, N, D)."""
        y = torch.baddbmm(self._offset, x, self._whitening).unflatten(-1, (self.n_components, self.n_features))
        return torch.logsumexp(self._constant - 0.5 * y.square().sum(-1), dim=-1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (G, n, D)."""
        n_groups = len(self.log_weights)
        component = torch.multinomial(self.log_weights.exp(), n, replacement=True, generator=generator)
        noise = torch.randn(
            n_groups, n, self.n_features, generator=generator, device=self._means.device, dtype=self._means.dtype
        )
        of_each = torch.baddbmm(self._means, noise, self._colouring).unflatten(-1, (self.n_components, -1))
        return of_each.gather(2, component[..., None, None].expand(-1, -1, 1, self.n_features)).squeeze(2)


class KernelDensity(Density):
    r"""A Gaussian on every point, with Scott's bandwidth.

    .. math:: \hat p(x) = \frac1n \sum_i N(x;\, x_i,\, h^2 \hat\Sigma), \qquad h = n^{-1/(D+4)}.

    Parameters
    ----------
    bandwidth
        h, in units of the sample's own covariance; Scott's rule when None.
    n_points
        At most this many rows, drawn at random, carry a kernel: the cost of log_prob grows with them.

    Examples
    --------
    >>> density = KernelDensity().fit(torch.randn(500, 3))
    >>> density.log_prob(torch.zeros(7, 3)).shape
    torch.Size([7])
    """

    points: Tensor
    whitening: Tensor
    width: Tensor
    capturable = True

    def __init__(self, bandwidth: float | None = None, *, n_points: int = 2000):
        super().__init__()
        if bandwidth is not None and not bandwidth > 0:
            raise ValueError(f"bandwidth must be positive; got {bandwidth}.")
        self.bandwidth, self.n_points = bandwidth, n_points

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Put kernels on rows (n, D)."""
        x = checked_rows(x)
        generator = torch.Generator().manual_seed(random_state)
        chosen = torch.randperm(len(x), generator=generator)[: self.n_points].to(x.device)
        covariance = torch.cov(x.double().T).reshape(x.shape[1], x.shape[1])
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed):
            raise DataError("a kernel density needs features that are not linear functions of each other.")
        width = self.bandwidth or len(chosen) ** (-1 / (x.shape[1] + 4))
        whitening = torch.linalg.inv(factor).T  # (x W)ᵀ(x W) = xᵀ Σ⁻¹ x
        fitted = {
            "points": x[chosen].double() @ whitening,
            "whitening": whitening,
            "width": torch.tensor(width, dtype=torch.float64),
        }
        return self._keep(x.shape[1], **fitted).to(x)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log-densities (...) of points (..., D)."""
        u = (x @ self.whitening) / self.width
        points = self.points / self.width
        # −½|u − u_i|² without a (rows, points, D) tensor
        exponents = u @ points.T - 0.5 * points.square().sum(-1) - 0.5 * u.square().sum(-1, keepdim=True)
        constant = self.whitening.diagonal().log().sum() - self.n_features * (
            self.width.log() + 0.5 * math.log(2 * math.pi)
        )
        return torch.logsumexp(exponents, dim=-1) + constant - math.log(len(points))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (n, D)."""
        points = self.points
        chosen = torch.randint(len(points), (n,), generator=generator, device=points.device)
        noise = torch.randn(n, self.n_features, generator=generator, device=points.device, dtype=points.dtype)
        return (points[chosen] + self.width * noise) @ torch.linalg.inv(self.whitening)


def _padded(parts: Sequence[Tensor], length: int, value: float = 0.0) -> Tensor:
    """Return the parts along a new first axis, each filled up along its own first axis."""
    return torch.stack([torch.cat([p, p.new_full((length - len(p), *p.shape[1:]), value)]) for p in parts])
