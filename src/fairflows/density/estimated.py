r"""Densities that are estimated from rows: Gaussian mixtures, flows, and autoregressive networks over categories.

.. math:: \hat p(x) = \sum_c w_c\, N(x; \mu_c, \Sigma_c), \qquad
          (x - \mu_c) P_c \sim N(0, I) \text{ with } P_c P_c^\top = \Sigma_c^{-1}.

Mixtures are fitted by scikit-learn and evaluated in torch. The flows of all groups are trained in one stack.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from fairflows.bijection import Bijection
from fairflows.bijection.base import BijectiveMap
from fairflows.bijection.couplings import new_bijection
from fairflows.codec.combination_codec import one_hot
from fairflows.density.base import Density, FreshNoise, checked_rows, with_noise
from fairflows.density.combinations import (
    CombinationCounts,
    CombinationDensity,
    FloatArray,
    IntArray,
    combination_levels,
    in_chunks,
)
from fairflows.steps import AdamSteps, chosen_threads, drawn_rows, milestone_rate

_ROWS_FOR_BIC = 20_000
_UNTIL_GIVEN_UP = 3  # components more than the best number so far
_RATE = 0.01  # at which a density of categories is learnt first
_ROUND = 64  # steps whose rows are drawn at once


class MixtureDensity(Density):
    """A mixture of Gaussians.

    Parameters
    ----------
    n_components
        Number of components; chosen between 1 and ``max_components`` by the Bayesian information criterion when None.
    max_components
        The largest number tried; larger ones are not where three more components did not help.

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

    def __init__(self, n_components: int | None = None, *, max_components: int = 8):
        super().__init__()
        self.n_components, self.max_components = n_components, max_components

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Estimate the mixture from rows (n, D) by EM."""
        rows = checked_rows(x).detach().double().cpu().numpy()
        if self.n_components is None:
            mixture = self._best_by_bic(rows, random_state)
        else:
            mixture = self._em(rows, min(self.n_components, len(rows)), random_state)
        log_weights, means = torch.as_tensor(mixture.weights_).log(), torch.as_tensor(mixture.means_)
        whitening = torch.as_tensor(mixture.precisions_cholesky_)
        return self._keep(x.shape[1], log_weights=log_weights, means=means, whitening=whitening).to(x)

    def _best_by_bic(self, rows: Float[FloatArray, "n D"], random_state: int) -> GaussianMixture:
        """Return the mixture of least BIC; with very many rows, choose the number on a subset."""
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
        return best if subset is rows else self._em(rows, best.n_components, random_state)

    def _em(self, rows: Float[FloatArray, "n D"], n_components: int, random_state: int) -> GaussianMixture:
        mixture = GaussianMixture(n_components, max_iter=200, random_state=random_state)
        with warnings.catch_warnings():
            # A fit that stops at the iteration limit is still a density; held-out scores tell how good it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return mixture.fit(rows)

    def log_prob(self, x: Float[Tensor, "*points D"]) -> Float[Tensor, "*points"]:
        """Return log-densities of points."""
        return MixtureStack([self]).log_prob(x.reshape(1, -1, self.n_features)).view(x.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "{n} D"]:
        """Return n draws."""
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
        identity = torch.eye(means.shape[-1], dtype=means.dtype, device=means.device)
        whitening = torch.stack(
            [torch.cat([m.whitening, identity.expand(most - len(m.whitening), -1, -1)]) for m in mixtures]
        )  # (G, C, D, D)
        self.n_components, self.n_features = most, means.shape[-1]
        # y = (x − μ_c) P_c for all components at once: one product with a matrix (D, C·D) and one offset
        self._whitening = whitening.movedim(1, 2).flatten(2)
        self._offset = -torch.einsum("gcd,gcde->gce", means, whitening).flatten(1).unsqueeze(1)
        self._means = means.flatten(1).unsqueeze(1)
        self._colouring = torch.linalg.inv(whitening.cpu()).to(whitening).movedim(1, 2).flatten(2)
        self._constant = (
            self.log_weights
            + whitening.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            - 0.5 * self.n_features * math.log(2 * math.pi)
        ).unsqueeze(1)

    def log_prob(self, x: Float[Tensor, "G N D"]) -> Float[Tensor, "G N"]:
        """Return log-densities of points."""
        y = torch.baddbmm(self._offset, x, self._whitening).unflatten(-1, (self.n_components, self.n_features))
        return torch.logsumexp(self._constant - 0.5 * y.square().sum(-1), dim=-1)

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "G {n} D"]:
        """Return draws from each."""
        n_groups = len(self.log_weights)
        component = torch.multinomial(self.log_weights.exp(), n, replacement=True, generator=generator)
        noise = torch.randn(
            n_groups, n, self.n_features, generator=generator, device=self._means.device, dtype=self._means.dtype
        )
        of_each = torch.baddbmm(self._means, noise, self._colouring).unflatten(-1, (self.n_components, -1))
        return of_each.gather(2, component[..., None, None].expand(-1, -1, 1, self.n_features)).squeeze(2)


def _padded(parts: Sequence[Tensor], length: int, value: float = 0.0) -> Tensor:
    """Return the parts along a new first axis, each filled up along its own first axis."""
    return torch.stack([torch.cat([p, p.new_full((length - len(p), *p.shape[1:]), value)]) for p in parts])


class FlowStack:
    """G flows in one bijection of G groups, and the location and scale of each."""

    def __init__(self, flows: BijectiveMap, location: Float[Tensor, "G D"], scale: Float[Tensor, "G D"]):
        self._flows = flows
        self._location, self._scale = location.unsqueeze(1), scale.unsqueeze(1)  # (G, 1, D)
        self._constant = -scale.log().sum(-1, keepdim=True) - 0.5 * scale.shape[-1] * math.log(2 * math.pi)

    def log_prob(self, x: Float[Tensor, "G N D"]) -> Float[Tensor, "G N"]:
        """Return log-densities of points."""
        z, log_det = self._flows.forward(((x - self._location) / self._scale).unsqueeze(0))
        return self._constant + log_det[0] - 0.5 * z[0].square().sum(-1)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "G {n} D"]:
        """Return draws from each."""
        n_groups, _, n_features = self._location.shape
        z = torch.randn(
            n_groups, n, n_features, generator=generator, device=self._scale.device, dtype=self._scale.dtype
        )
        return self._flows.inverse(z.unsqueeze(0))[0][0] * self._scale + self._location


class FlowDensity(Density):
    r"""A flow: standardised rows u are sent to a standard normal.

    .. math:: \log \hat p(x) = \log N(f(u); 0, I) + \log|\det f'(u)| - \textstyle\sum \log \sigma,
              \qquad u = (x - \mu)/\sigma.

    Parameters
    ----------
    kind
        ``"realnvp"``, ``"spline"``, or a bijection, whose settings are taken.
    n_blocks, hidden
        Of the named ones: couplings, and the hidden layers of each.
    n_steps, batch_size, learning_rate, weight_decay
        Adam steps on batches drawn with replacement; the learning rate is divided by ten at one and two thirds.

    Examples
    --------
    >>> density = FlowDensity(n_steps=20).fit(torch.randn(500, 3))
    >>> density.sample(4, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """

    flows: Bijection
    location: Tensor
    scale: Tensor
    capturable = True

    def __init__(
        self,
        kind: Literal["realnvp", "spline"] | Bijection = "realnvp",
        *,
        n_blocks: int = 4,
        hidden: Sequence[int] = (20, 20),
        n_steps: int = 4000,
        batch_size: int = 512,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
    ):
        super().__init__()
        self.kind, self.n_blocks, self.hidden = kind, n_blocks, tuple(hidden)
        self.n_steps, self.batch_size = n_steps, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Train the flow on rows (n, D)."""
        self.__dict__.update(self.fit_groups([x], random_state)[0].__dict__)
        return self

    def fit_groups(
        self, rows: Sequence[Tensor], random_state: int = 0, *, noise: FreshNoise | None = None
    ) -> list[Self]:
        """Return a density for each group, all trained at once; with ``noise``, rows are grid points."""
        rows = [checked_rows(x) for x in rows]
        shown = with_noise(rows, noise, random_state)
        n_features = rows[0].shape[1]
        shape = {"n_blocks": self.n_blocks, "hidden": self.hidden}
        flows = new_bijection(self.kind, n_features, n_groups=len(rows), seeds=(random_state,), **shape).to(rows[0])
        location = torch.stack([x.mean(0) for x in shown])
        scale = torch.stack([x.std(0) for x in shown]).clamp_min(1e-6)
        stack = FlowStack(flows, location, scale)
        self._maximise_likelihood(stack, flows.parameters(), rows, random_state, noise)
        return [
            copy.deepcopy(self)._keep(
                n_features, flows=flows.select_group(g), location=location[g].clone(), scale=scale[g].clone()
            )
            for g in range(len(rows))
        ]

    def _maximise_likelihood(
        self,
        stack: FlowStack,
        weights: Iterable[Tensor],
        rows: Sequence[Tensor],
        random_state: int,
        noise: FreshNoise | None,
    ) -> None:
        """Train G densities on rows of G groups: each step takes ``batch_size`` rows of every group, with replacement.

        Noise, if any, is new in every step. The loss is the sum of the groups' negative mean log-likelihoods, so every
        group is trained as it would be alone.
        """
        data = torch.cat(list(rows))
        device = data.device
        sizes = torch.tensor([len(x) for x in rows], device=device)
        generator = torch.Generator(device).manual_seed(random_state)
        pool = data.new_empty(_ROUND, len(rows), self.batch_size, data.shape[1])
        position = torch.zeros(1, dtype=torch.long, device=device)

        def loss() -> Tensor:
            x = pool.index_select(0, position).squeeze(0)
            position.add_(1)
            return -stack.log_prob(x).mean(-1).sum()

        steps = AdamSteps(
            loss,
            weights,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            capture=device.type == "cuda",
        )
        with chosen_threads(device) as run:
            for step in range(self.n_steps):
                if step % _ROUND == 0:
                    chosen = drawn_rows(sizes, _ROUND, self.batch_size, generator)
                    pool.copy_(data[chosen] if noise is None else noise.add(data[chosen], generator))
                    position.zero_()
                steps.set_learning_rate(milestone_rate(self.learning_rate, step, self.n_steps))
                run(steps.step)

    def log_prob(self, x: Float[Tensor, "*points D"]) -> Float[Tensor, "*points"]:
        """Return log-densities of points."""
        return self._alone().log_prob(x.reshape(1, -1, self.n_features)).view(x.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "{n} D"]:
        """Return n draws."""
        return self._alone().sample(n, generator)[0]

    def _alone(self) -> FlowStack:
        return FlowStack(self.flows.prepared(), self.location[None], self.scale[None])

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> FlowStack | None:
        """Return all of these as one computation, if their networks have the same shape."""
        if len({(type(density.flows), repr(density.flows.settings())) for density in densities}) > 1:
            return None
        flows = type(densities[0].flows).join_groups([density.flows for density in densities])
        return FlowStack(
            flows.prepared(),
            torch.stack([density.location for density in densities]),
            torch.stack([density.scale for density in densities]),
        )


class CategoricalMADE(CombinationDensity):
    r"""Masked autoregressive density of D categorical variables (Germain et al., 2015).

    .. math:: \log \hat p(x) = \sum_{d=1}^{D} \log \operatorname{softmax}_d(\text{logits}_d(x_1, …, x_{d-1}))_{x_d}

    The inputs are one-hot. Hidden units have degrees 1, ..., D−1 in turn: a unit of degree h sees variables up to h;
    the logits of variable d see units of degree below d, and earlier variables directly. So each softmax is a
    conditional, and the product sums to one over the combinations without renormalising.

    Parameters
    ----------
    levels : sequence of int
        Level counts m_1, ..., m_D.
    hidden : sequence of int
        Widths of the hidden layers.
    n_epochs, n_batches : int
        Passes over the sample's distinct combinations, and steps in each pass.
    weight_decay : float
        Of Adam, whose rate is divided by 10 half way. The weights kept are the best on validation rows.
    random_state : int
        Seed of the weights and the batches.

    Examples
    --------
    >>> counts = CombinationCounts.of(np.array([0, 0, 5, 5] * 10))
    >>> density = CategoricalMADE([2, 3], hidden=[8], n_epochs=20).fit(counts, counts)
    >>> density.log_prob_of_all().shape
    (6,)
    """

    parameters_: list[Tensor]

    def __init__(
        self,
        levels: Sequence[int],
        hidden: Sequence[int] = (50, 50),
        *,
        n_epochs: int = 100,
        n_batches: int = 16,
        weight_decay: float = 1e-3,
        random_state: int = 0,
    ) -> None:
        self.levels, self.hidden = tuple(levels), tuple(hidden)
        self.n_epochs, self.n_batches = n_epochs, n_batches
        self.weight_decay, self.random_state = weight_decay, random_state

    def fit(self, counts: CombinationCounts, held_out: CombinationCounts) -> Self:
        """Train the network; the best epoch on held-out rows is kept."""
        masks = _masks(self.levels, self.hidden, torch.float32)
        parameters = [p.requires_grad_() for p in self._initial_parameters()]
        (columns, weights), judged = (self._as_tensors(sample) for sample in (counts, held_out))
        generator = np.random.default_rng(self.random_state)
        best, highest = [p.detach().clone() for p in parameters], -math.inf
        batches: Iterator[Tensor] = iter(())

        def loss() -> Tensor:
            batch = next(batches)
            return -self.n_batches * self._log_likelihood(parameters, masks, columns[batch], weights[batch])

        steps = AdamSteps(loss, parameters, learning_rate=_RATE, weight_decay=self.weight_decay)
        with chosen_threads(columns.device) as run:
            for epoch in range(self.n_epochs):
                steps.set_learning_rate(_RATE * 0.1 ** (epoch // max(1, self.n_epochs // 2)))
                order = torch.from_numpy(generator.permutation(len(weights)))
                batches = iter([order[b :: self.n_batches] for b in range(self.n_batches)])
                for _ in range(self.n_batches):
                    run(steps.step)
                with torch.no_grad():
                    likelihood = float(self._log_likelihood(parameters, masks, *judged))
                if likelihood > highest:
                    best, highest = [p.detach().clone() for p in parameters], likelihood
        self.parameters_ = [p.double() for p in best]
        return self

    def _as_tensors(self, sample: CombinationCounts) -> tuple[Tensor, Tensor]:
        """Return the one-hot columns (U, D) that are 1 in each distinct combination, and its share of rows (U,)."""
        columns = combination_levels(sample.codes, self.levels) + np.cumsum([0, *self.levels[:-1]])
        return torch.from_numpy(columns), torch.from_numpy(sample.weights / sample.weights.sum()).float()

    def _log_likelihood(
        self, parameters: list[Tensor], masks: list[Tensor], columns: Tensor, weights: Tensor
    ) -> Tensor:
        x = torch.zeros(len(columns), sum(self.levels)).scatter_(1, columns, 1.0)
        logits = _logits(parameters, masks, x)
        log_norms = torch.stack([block.logsumexp(-1) for block in logits.split(self.levels, -1)]).sum(0)
        return (weights * ((x * logits).sum(-1) - log_norms)).sum()

    def _log_prob(self, combinations: Int[IntArray, "n D"]) -> Float[FloatArray, " n"]:
        first_column = np.cumsum([0, *self.levels[:-1]])
        return np.take_along_axis(self._log_conditionals(combinations), combinations + first_column, axis=1).sum(axis=1)

    def sample(self, n: int, generator: np.random.Generator) -> Int[IntArray, "{n} D"]:
        """Draw n combinations, one variable after the other."""
        combinations = np.zeros((n, 0), dtype=np.int64)
        for start, stop in pairwise(np.cumsum([0, *self.levels])):
            cumulative = np.exp(self._log_conditionals(combinations)[:, start:stop]).cumsum(axis=1)
            u = generator.random((n, 1)) * cumulative[:, -1:]
            combinations = np.column_stack([combinations, (u >= cumulative).sum(axis=1)])
        return combinations

    def _log_conditionals(self, combinations: Int[IntArray, "n D"]) -> Float[FloatArray, "n n_levels"]:
        """Return log p̂(x_d = l | x_1, ..., x_{d−1}), a column for every level l of every variable d.

        In float64, although the weights were trained in float32: the sum over all combinations is 1 to rounding. For
        variable d, prefixes of d − 1 levels will do.
        """
        masks = _masks(self.levels, self.hidden, torch.float64)

        @torch.no_grad()
        def evaluate(part: IntArray) -> FloatArray:
            logits = _logits(self.parameters_, masks, torch.from_numpy(one_hot(part, self.levels).toarray()))
            return torch.cat([block.log_softmax(-1) for block in logits.split(self.levels, -1)], -1).numpy()

        return in_chunks(evaluate, combinations)

    def _initial_parameters(self) -> list[Tensor]:
        """Return uniform weights within 1/√fan-in, zero biases; the direct connections start at zero."""
        generator = torch.Generator().manual_seed(self.random_state)
        n_columns = sum(self.levels)
        widths = [n_columns, *self.hidden, n_columns]
        parameters: list[Tensor] = []
        for n_in, n_out in pairwise(widths):
            weight = (2 * torch.rand(n_in, n_out, generator=generator) - 1) / n_in**0.5
            parameters += [weight, torch.zeros(1, n_out)]
        return [*parameters, torch.zeros(n_columns, n_columns)]


def _logits(parameters: list[Tensor], masks: list[Tensor], x: Tensor) -> Tensor:
    """Apply the masked network with direct connections: x (B, columns) to logits of the same columns."""
    *layers, weight, bias, direct = parameters
    *hidden_masks, output_mask, direct_mask = masks
    h = x
    for w, b, mask in zip(layers[::2], layers[1::2], hidden_masks, strict=True):
        h = torch.relu(torch.addmm(b, h, w * mask))
    return torch.addmm(bias, h, weight * output_mask) + x @ (direct * direct_mask)


def _masks(levels: Sequence[int], hidden: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    """Return which inputs each unit sees: hidden layers in order, then output, then direct connections."""
    D = len(levels)
    variable = np.repeat(np.arange(D), levels)
    degrees = [variable, *(np.arange(width) % max(1, D - 1) for width in hidden)]
    sees = [before[:, None] <= after for before, after in pairwise(degrees)]
    sees += [degrees[-1][:, None] < variable, variable[:, None] < variable]
    return [torch.from_numpy(mask).to(dtype) for mask in sees]
