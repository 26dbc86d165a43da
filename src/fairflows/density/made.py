"""Categorical MADE: an autoregressive network over categorical variables, normalised by construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fairflows.density.cell_counts import (
    CellCounts,
    CellDensity,
    FloatArray,
    IntArray,
    checked_levels,
    draw_levels,
    in_chunks,
    level_columns,
    one_hot,
)
from fairflows.steps import AdamSteps, chosen_device, chosen_threads


class CategoricalMADE(CellDensity):
    r"""Masked autoregressive density of D categorical variables (Germain et al., 2015).

    .. math:: \log \hat p(x) = \sum_{d=1}^{D} \log \operatorname{softmax}_d(\text{logits}_d(x_1, …, x_{d-1}))_{x_d}

    The inputs are one-hot. Hidden units have degrees 1, ..., D−1 in turn: a unit of degree h sees variables up to h;
    the logits of variable d see units of degree below d, and earlier variables directly. So each softmax is a
    conditional, and the product sums to one over the cells without renormalising.

    Parameters
    ----------
    levels : sequence of int
        Level counts m_1, ..., m_D.
    hidden : sequence of int
        Widths of the hidden layers.
    n_epochs, n_batches : int
        Passes over the sample's distinct cells, and steps in each pass. A batch is a share of the sample and not a
        number of rows, so groups of unequal size train in step.
    learning_rate, weight_decay : float
        Of Adam; the rate is divided by 10 half way. The weights kept are the best on validation rows.
    random_state : int
        Seed of the weights and the batches.
    device : str
        Where training and evaluation run: "cpu", "cuda", or "auto" for a GPU where there is one.

    Examples
    --------
    >>> x = np.array([[0, 0], [0, 0], [1, 2], [1, 2]] * 10)
    >>> density = CategoricalMADE([2, 3], hidden=[8], n_epochs=20).fit(x, x)
    >>> density.log_prob_of_all_cells().shape
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
        learning_rate: float = 0.01,
        weight_decay: float = 1e-3,
        random_state: int = 0,
        device: str = "cpu",
    ) -> None:
        self.levels = checked_levels(levels)
        self.hidden = tuple(int(width) for width in hidden)
        self.n_epochs = n_epochs
        self.n_batches = n_batches
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.device = device

    def _fit_counts(self, counts: CellCounts, held_out: CellCounts) -> None:
        _train([self], [(counts, held_out)])

    def _log_prob(self, cells: IntArray) -> FloatArray:
        first_column = np.cumsum([0, *self.levels[:-1]])
        return np.take_along_axis(self._log_conditionals(cells), cells + first_column, axis=1).sum(axis=1)

    def sample(self, n: int, generator: np.random.Generator) -> IntArray:
        """Draw n cells, one variable after the other."""
        cells = np.zeros((n, 0), dtype=np.int64)
        for columns in level_columns(self.levels):
            level = draw_levels(np.exp(self._log_conditionals(cells)[:, columns]), generator)
            cells = np.column_stack([cells, level])
        return cells

    def _log_conditionals(self, cells: IntArray) -> FloatArray:
        """Return log p̂(x_d = l | x_1, ..., x_{d−1}), a column for every level l of every variable d.

        In float64, although the weights were trained in float32: the sum over all cells is 1 to rounding. For
        variable d, prefixes of d − 1 levels will do.
        """
        device = chosen_device(self.device)
        parameters = [p[None].to(device) for p in self.parameters_]
        masks = _masks(self.levels, self.hidden, device, torch.float64)

        @torch.no_grad()
        def evaluate(part: IntArray) -> FloatArray:
            x = torch.from_numpy(one_hot(part, self.levels).toarray()).to(device)
            logits = _logits(parameters, masks, x[None])[0]
            return torch.cat([block.log_softmax(-1) for block in logits.split(self.levels, -1)], -1).cpu().numpy()

        return in_chunks(evaluate, cells)

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


def fit_together(
    models: Sequence[CategoricalMADE],
    samples: Sequence[ArrayLike],
    validations: Sequence[ArrayLike],
    sample_weights: Sequence[ArrayLike | None],
    validation_weights: Sequence[ArrayLike | None],
) -> None:
    """Fit K models of equal settings, one per sample, in one batched run; each comes out as if fitted alone.

    The models may differ in their seeds. All weights carry a leading axis K: eight small groups take a sixth of the
    time.
    """
    levels = models[0].levels
    given = zip(samples, sample_weights, validations, validation_weights, strict=True)
    _train(models, [(CellCounts.of(x, levels, w), CellCounts.of(v, levels, vw)) for x, w, v, vw in given])


def _train(models: Sequence[CategoricalMADE], data: Sequence[tuple[CellCounts, CellCounts]]) -> None:
    """Maximise each model's likelihood, parameters with a leading axis K; the best epoch on held-out rows is kept."""
    lead = models[0]
    device = chosen_device(lead.device)
    masks = _masks(lead.levels, lead.hidden, device, torch.float32)
    initial = zip(*(model._initial_parameters() for model in models), strict=True)
    parameters = [torch.stack(p).to(device).requires_grad_() for p in initial]
    train = _StackedCells([sample for sample, _ in data], lead)
    held_out = _StackedCells([sample for _, sample in data], lead)
    generators = [np.random.default_rng(model.random_state) for model in models]

    best = [p.detach().clone() for p in parameters]
    best_likelihood = torch.full((len(models),), -torch.inf, device=device)

    batches: Iterator[Tensor] = iter(())

    def loss() -> Tensor:
        return -lead.n_batches * train.log_likelihood(parameters, masks, next(batches)).sum()

    steps = AdamSteps(loss, parameters, learning_rate=lead.learning_rate, weight_decay=lead.weight_decay)
    with chosen_threads(device) as run:
        for epoch in range(lead.n_epochs):
            steps.set_learning_rate(lead.learning_rate * 0.1 ** (epoch // max(1, lead.n_epochs // 2)))
            batches = train.batches(lead.n_batches, generators)
            for _ in range(lead.n_batches):
                run(steps.step)
            with torch.no_grad():
                likelihood = held_out.log_likelihood(parameters, masks)
            better = likelihood > best_likelihood
            best_likelihood = torch.maximum(likelihood, best_likelihood)
            for kept, p in zip(best, parameters, strict=True):
                kept[better] = p.detach()[better]
    for k, model in enumerate(models):
        model.parameters_ = [p[k].to("cpu", torch.float64) for p in best]


class _StackedCells:
    """K weighted samples of cells as tensors (K, U) padded with cells of weight zero; each group's weights sum to 1."""

    def __init__(self, samples: Sequence[CellCounts], model: CategoricalMADE) -> None:
        self.sizes = [len(sample.weights) for sample in samples]
        self.levels = model.levels
        # One more cell than the largest group has: the last is always padding, and short batches point at it.
        shape = (len(samples), max(self.sizes) + 1)
        columns = np.zeros((*shape, len(model.levels)), dtype=np.int64) + np.cumsum([0, *model.levels[:-1]])
        weights = np.zeros(shape, dtype=np.float32)
        for k, sample in enumerate(samples):
            columns[k, : self.sizes[k]] += sample.cells
            weights[k, : self.sizes[k]] = sample.weights / sample.weights.sum()
        device = chosen_device(model.device)
        self.columns = torch.from_numpy(columns).to(device)
        self.weights = torch.from_numpy(weights).to(device)
        self.groups = torch.arange(len(samples), device=device)[:, None]

    def batches(self, n_batches: int, generators: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        """Yield one pass in random order: n_batches index tensors (K, B), equal up to one cell of a group."""
        padding = self.weights.shape[1] - 1
        order = np.full((len(self.sizes), -(-max(self.sizes) // n_batches) * n_batches), padding)
        for k, (size, generator) in enumerate(zip(self.sizes, generators, strict=True)):
            order[k, :size] = generator.permutation(size)
        # Every n_batches-th cell, so that a group smaller than the largest has cells in every batch.
        for b in range(n_batches):
            yield torch.from_numpy(order[:, b::n_batches]).to(self.columns.device)

    def log_likelihood(self, parameters: list[Tensor], masks: list[Tensor], batch: Tensor | None = None) -> Tensor:
        """Return σ_x w(x) log p̂_k(x) over the batch, one value per group."""
        columns = self.columns if batch is None else self.columns[self.groups, batch]
        weights = self.weights if batch is None else self.weights[self.groups, batch]
        x = torch.zeros(*columns.shape[:2], sum(self.levels), device=columns.device).scatter_(2, columns, 1.0)
        logits = _logits(parameters, masks, x)
        log_norms = torch.stack([block.logsumexp(-1) for block in logits.split(self.levels, -1)]).sum(0)
        return (weights * ((x * logits).sum(-1) - log_norms)).sum(-1)


def _logits(parameters: list[Tensor], masks: list[Tensor], x: Tensor) -> Tensor:
    """Apply the masked network with direct connections: x (K, B, columns) to logits of the same columns."""
    *layers, weight, bias, direct = parameters
    *hidden_masks, output_mask, direct_mask = masks
    h = x
    for w, b, mask in zip(layers[::2], layers[1::2], hidden_masks, strict=True):
        h = torch.relu(torch.baddbmm(b, h, w * mask))
    return torch.baddbmm(bias, h, weight * output_mask) + torch.bmm(x, direct * direct_mask)


def _masks(levels: Sequence[int], hidden: Sequence[int], device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Return which inputs each unit sees: hidden layers in order, then output, then direct connections."""
    D = len(levels)
    variable = np.repeat(np.arange(D), levels)
    degrees = [variable, *(np.arange(width) % max(1, D - 1) for width in hidden)]
    sees = [before[:, None] <= after for before, after in pairwise(degrees)]
    sees += [degrees[-1][:, None] < variable, variable[:, None] < variable]
    return [torch.from_numpy(mask).to(device, dtype) for mask in sees]
