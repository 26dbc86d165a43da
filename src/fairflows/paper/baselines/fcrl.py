"""FCRL: fair representations by contrastive information estimation.

Gupta, Ferber, Dilkina and Ver Steeg, "Controllable Guarantees for Fair Outcomes via Contrastive Information
Estimation", AAAI 2021: a randomised representation z of x that is useful for the label given the group, and holds
little that is not. Since I(z; a) = I(z; x) − I(z; x | a) for an encoder that sees x alone, an upper bound on the first
term less a lower bound on the second bounds what z tells about the group, and with it the parity distance of every
classifier on z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn.functional import softplus

from fairflows.bijection import StackedMLP
from fairflows.bijection.networks import generator_of
from fairflows.encoder.base import Rows
from fairflows.paper.baselines.neural import (
    BaselineBatch,
    BaselineNetworks,
    NeuralBaseline,
    TaskRows,
    check_weights,
    indicators,
    mean_cross_entropy,
)

_TINY = 1e-8  # beside numbers whose logarithm is taken
_SMALLEST = 2.0**-54  # half a unit of the uniform numbers' last place: the normal quantile of 0 is infinite


class Critic(StackedMLP):
    """T(x, z) > 0, with one bilinear form per group: softplus(g(x)ᵀ W_a h(z)), where the networks are stacked."""

    def __init__(self, n_features: int, hidden: Sequence[int], n_latent: int, n_groups: int, *, seeds: Sequence[int]):
        super().__init__(n_features, hidden, n_latent, seeds=seeds, stream="critic of x")
        self.n_features, self.n_latent = n_features, n_latent
        self.of_z = StackedMLP(n_latent, (), n_latent, seeds=seeds, stream="critic of z")
        starts = [torch.randn(n_groups, n_latent, n_latent, generator=generator_of(s, "critic")) for s in seeds]
        self.forms = nn.Parameter(torch.stack(starts))  # (M, K, d, d)

    def information(self, x: Tensor, z: Tensor, a: Tensor) -> Tensor:
        """Return the contrastive estimate of I(z; x | a) of each model, (M,): a row's z against its group's."""
        by_group = torch.einsum("mbd,mkde->mbke", self(x), self.forms)
        own = by_group.gather(2, a[..., None, None].expand(-1, -1, 1, by_group.shape[-1]))[:, :, 0]
        T = softplus(own @ self.of_z(z).mT)  # (M, B, B): every row's x with every row's z
        same = (a[..., :, None] == a[..., None, :]).float()
        average = (T * same).sum(-1) / same.sum(-1)
        pair = T.diagonal(dim1=-2, dim2=-1)
        return ((pair + _TINY).log() - (average + _TINY).log()).mean(-1)


class ContrastiveLearner(BaselineNetworks):
    """The networks of FCRL and their loss; β is λ/2 where it is not given."""

    def __init__(self, method: FCRL, rows: TaskRows, seeds: Sequence[int]):
        n_features, d = rows.x.shape[1], method.n_latent
        super().__init__(method, rows, seeds, n_written=2 * d)
        self.beta, self.n_noise = method.beta, d
        if self.beta is not None:
            check_weights("beta", [self.beta])
        n_seen = d + rows.n_groups - 1
        self.informed = StackedMLP(n_seen, method.head, rows.n_classes, seeds=seeds, stream="informed head")
        self.critic = Critic(n_features, method.hidden, d, rows.n_groups, seeds=seeds)

    def represent(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return z = μ(x) + σ(x)·noise."""
        mu, sigma = self._law(x)
        return mu + sigma * noise

    def loss(self, batch: BaselineBatch, strength: Tensor) -> Tensor:
        """Return l_task + β·KL − λ·Î(z; x | a), and the loss of the predictor that sees z alone."""
        mu, sigma = self._law(batch.x)
        z = mu + sigma * batch.noise
        kl = 0.5 * (mu.square() + sigma.square() - 1 - 2 * sigma.log()).sum(-1).mean(-1)
        group = indicators(batch.a, self.critic.n_groups)
        task = mean_cross_entropy(self.informed(torch.cat([z, group], dim=-1)), batch.y)
        read = mean_cross_entropy(self.predictor(z.detach()), batch.y)
        beta = strength / 2 if self.beta is None else self.beta
        return task + beta * kl - strength * self.critic.information(batch.x, z, batch.a) + read

    def _law(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and σ of z, each (M, B, n_latent)."""
        mu, width = self.encoder(x).chunk(2, dim=-1)
        return mu, softplus(width) + _TINY


@dataclass(eq=False, repr=False)
class FCRL(NeuralBaseline):
    r"""A representation by contrastive information estimation, in its authors' setting.

    z ~ N(μ(x), diag σ(x)²) is released: each person has noise of their own, from the key. Encoder, predictors and the
    critic T of the contrastive bound minimise together

    .. math:: L_{task}(z, a) + β\, KL\big(N(μ, σ^2), N(0, 1)\big) - λ\, \hat I(z; x \mid a), \qquad
              \hat I = \overline{\log \frac{T(x_i, z_i)}{\frac1{n_a} \sum_{j: a_j = a_i} T(x_i, z_j)}}.

    The task's loss is that of a network that also sees the group, so that z need not hold it. Predictions are those of
    a second network, which sees z alone and does not change it.

    Parameters
    ----------
    lam : float
        λ, the weight of what z tells about x within a group; with β it decides how fair z is.
    beta : float, default=None
        β, the weight of what z tells about x at all; λ/2 when not given, as in the authors' experiments.
    n_latent : int
        Dimensions of z.
    hidden, head : sequence of int
        Hidden layers of encoder and critic, and of both predictors.
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        Epochs, rows per step, Adam's settings, names of two columns, where to train ("auto": a GPU), and the seed.
    key : bytes, optional
        The secret behind a person's noise, at least 16 bytes; a new one at each fit when not given.

    Examples
    --------
    >>> from fairflows.paper import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> X = table.X.rename_axis("person")
    >>> encoder = FCRL(n_epochs=2, identifier="person").fit(X, table.y, sensitive_features=table.a)
    >>> encoder.transform(X).shape
    (400, 8)
    """

    lam: float = 0.1
    _: KW_ONLY
    beta: float | None = None
    learning_rate: float = 1e-3

    _strength: ClassVar[str] = "lam"
    _learner = ContrastiveLearner
    _draws: ClassVar[bool] = True  # z is drawn from a normal law around μ(x)

    def _noise(self, rows: Rows) -> Tensor:
        persons = rows.persons_or_fresh()
        u = np.column_stack([persons.uniform(self.key_, f"z{j}") for j in range(self.n_latent)])
        return torch.as_tensor(norm.ppf(np.maximum(u, _SMALLEST)), dtype=torch.float32)
