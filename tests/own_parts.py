"""A bijection and a density as users write them: with plain torch, and by the contracts in the docstrings alone."""

import torch
from torch import nn

from fairflows.bijection import Bijection
from fairflows.density import Density


class Linear(Bijection):
    """z = (x L U) eˢ + t, with unit triangular L and U: log |det| = Σ s."""

    def __init__(self, n_features, *, n_groups=2, start=0.1, seeds=(0,)):
        super().__init__()
        self.n_features, self.start = n_features, start
        first = [start * torch.randn(n_features, n_features, generator=_seeded(seed)) for seed in seeds]
        self.triangles = nn.Parameter(torch.stack(first).unsqueeze(1).repeat(1, n_groups, 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(len(seeds), n_groups, 1, n_features))
        self.shift = nn.Parameter(torch.zeros(len(seeds), n_groups, 1, n_features))

    def matrix(self):
        one = torch.eye(self.n_features).to(self.triangles)
        return (one + self.triangles.tril(-1)) @ (one + self.triangles.triu(1))

    def forward(self, x):
        z = self.stacked(x) @ self.matrix() * self.log_scale.exp() + self.shift
        return z, self.log_scale.sum(-1).expand(z.shape[:-1])

    def inverse(self, z):
        x = (self.stacked(z) - self.shift) * (-self.log_scale).exp() @ torch.linalg.inv(self.matrix())
        return x, -self.log_scale.sum(-1).expand(x.shape[:-1])


class Normal(Density):
    """A normal law with full covariance; the mean is a parameter and the rest buffers, to try both."""

    def __init__(self, shrinkage=0.0):
        super().__init__()
        self.shrinkage = shrinkage
        self.mean = nn.Parameter(torch.zeros(1))

    def fit(self, x, random_state=0):
        self.n_features = x.shape[1]
        covariance = torch.cov(x.T).reshape(self.n_features, self.n_features)
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * covariance.diagonal().diag()
        self.mean = nn.Parameter(x.mean(0), requires_grad=False)
        self.register_buffer("factor", torch.linalg.cholesky(covariance))
        return self

    def log_prob(self, x):
        return torch.distributions.MultivariateNormal(self.mean, scale_tril=self.factor).log_prob(x)

    def sample(self, n, generator):
        noise = torch.randn(n, self.n_features, generator=generator, dtype=self.mean.dtype, device=generator.device)
        return self.mean + noise @ self.factor.T


def _seeded(seed):
    return torch.Generator().manual_seed(seed)
