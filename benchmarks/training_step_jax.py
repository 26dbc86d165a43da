"""The paper's step in JAX, a second anchor; run by ``training_step.py --jax PYTHON`` in an environment with JAX.

python benchmarks/training_step_jax.py SIZE N_MODELS

SIZE is a size of ``training_step.py`` as JSON. Encoders, classifier, densities, loss and Adam are those of Algorithm 1.
Models are an axis of `vmap`, steps are a `scan`, and the whole is one `jit`. Prints the milliseconds of a step.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

Weights = Any  # lists of pairs of arrays
LogProb = Callable[[Array], Array]

N_GROUPS, N_POINTS, N_STEPS, REPEATS = 2, 1024, 64, 3


def network(key: Array, widths: list[int]) -> Weights:
    """Return weights and biases of each layer."""
    keys = jax.random.split(key, len(widths))
    return [
        (jax.random.normal(k, (a, b)) / jnp.sqrt(a), jnp.zeros(b))
        for k, (a, b) in zip(keys, pairwise(widths), strict=False)
    ]


def applied(layers: Weights, x: Array) -> Array:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def couplings(key: Array, n_features: int, n_blocks: int, hidden: list[int]) -> Weights:
    widths = [n_features, *hidden, 2 * n_features]
    return [network(k, widths) for k in jax.random.split(key, n_blocks)]


def moved(blocks: Weights, x: Array, *, inverse: bool) -> tuple[Array, Array]:
    """Return z = x ⊙ eˢ + t, block after block, and the log-determinant; or the inverse."""
    log_det, places = jnp.zeros(x.shape[:-1]), range(len(blocks))
    for place in reversed(places) if inverse else places:
        passive = (jnp.arange(x.shape[-1]) + place) % 2
        r, t = jnp.split(applied(blocks[place], x * passive), 2, axis=-1)
        s, t = jnp.tanh(r) * (1 - passive), t * (1 - passive)
        x = (x - t) * jnp.exp(-s) if inverse else x * jnp.exp(s) + t
        log_det = log_det + (-s if inverse else s).sum(-1)
    return x, log_det


def normal(x: Array) -> Array:
    return -0.5 * (x**2).sum(-1) - 0.5 * x.shape[-1] * jnp.log(2 * jnp.pi)


def densities(name: str, n_features: int) -> list[LogProb]:
    """Return log p̂_a: mixtures with full covariances for Crime, flows for Health."""

    def mixture(means: Array, factors: Array, x: Array) -> Array:
        y = jnp.einsum("...cd,cde->...ce", x[..., None, :] - means, factors)
        return logsumexp(normal(y) + jnp.linalg.slogdet(factors)[1], axis=-1) - jnp.log(len(means))

    def flow(blocks: Weights, x: Array) -> Array:
        z, log_det = moved(blocks, x, inverse=False)
        return normal(z) + log_det

    found: list[LogProb] = []
    for a, key in enumerate(jax.random.split(jax.random.key(1), N_GROUPS)):
        if name == "Crime":
            n = (2, 4)[a]
            factors = jnp.eye(n_features) + 0.1 * jax.random.normal(key, (n, n_features, n_features))
            found.append(partial(mixture, jax.random.normal(key, (n, n_features)), factors))
        else:
            found.append(partial(flow, couplings(key, n_features, 4, [20])))
    return found


def algorithm_1(weights: Weights, gamma: Array, batch: dict[str, Array], log_p: list[LogProb]) -> Array:
    """Return the loss of one model, γ·L_KL + (1 − γ)·L_clf."""
    encoders, head = weights
    L_KL, L_clf = 0.0, 0.0
    for a, encoder in enumerate(encoders):
        b = 1 - a
        points = jnp.concatenate([batch["x"][a], batch["drawn"][a]])
        z, log_det = moved(encoder, points, inverse=False)
        z_rows, z_drawn = jnp.split(z, 2)
        log_p_z = batch["log_p"][a] - jnp.split(log_det, 2)[1]
        decoded, log_det = moved(encoders[b], z_drawn, inverse=True)
        L_KL += (log_p_z - log_p[b](decoded) - log_det).mean() / N_GROUPS
        told = jax.nn.log_softmax(applied(head, z_rows))
        L_clf -= jnp.take_along_axis(told, batch["y"][a][:, None], axis=1).mean() / N_GROUPS
    return gamma * L_KL + (1 - gamma) * L_clf


def main() -> None:
    size, n_models = json.loads(sys.argv[1]), int(sys.argv[2])
    D, B = size["n_features"], size["batch_size"]
    log_p = densities(size["name"], D)
    keys = jax.random.split(jax.random.key(0), n_models)

    def started(key: Array) -> Weights:
        first, second = jax.random.split(key)
        encoder = couplings(first, D, size["n_blocks"], size["hidden"])
        return [encoder] * N_GROUPS, network(second, [D, *size["head"], 2])

    weights = jax.vmap(started)(keys)
    gamma = jnp.linspace(0, 0.9, n_models)
    rows = jax.random.normal(jax.random.key(2), (N_GROUPS, N_POINTS, D))
    drawn = jax.random.normal(jax.random.key(3), (N_GROUPS, N_POINTS, D))
    known = {
        "x": rows,
        "y": (rows.sum(-1) > 0).astype(jnp.int32),
        "drawn": drawn,
        "log_p": jnp.stack([log_p[a](drawn[a]) for a in range(N_GROUPS)]),
    }
    gradient = jax.vmap(jax.value_and_grad(partial(algorithm_1, log_p=log_p)), in_axes=(0, 0, 0))

    def step(state: tuple[Weights, Weights, Weights, Array], key: Array) -> tuple[Any, Array]:
        weights, mean, square, t = state
        place = jax.random.randint(key, (n_models, B), 0, N_POINTS)
        batch = {name: jnp.moveaxis(values[:, place], 1, 0) for name, values in known.items()}
        loss, found = gradient(weights, gamma, batch)
        found = jax.tree.map(lambda g, w: g + size["weight_decay"] * w, found, weights)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, found)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, square, found)

        def adam(w: Array, m: Array, v: Array) -> Array:
            return w - size["learning_rate"] * m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)

        return (jax.tree.map(adam, weights, mean, square), mean, square, t + 1), loss

    zero = jax.tree.map(jnp.zeros_like, weights)
    state = (weights, zero, zero, jnp.asarray(1.0))
    train = jax.jit(partial(jax.lax.scan, step))
    keys = jax.random.split(jax.random.key(4), N_STEPS)
    _, losses = jax.block_until_ready(train(state, keys))  # compiles
    if not bool(jnp.isfinite(losses).all() & (losses[-8:].mean() < losses[:8].mean())):
        sys.exit("The loss does not fall: this is no training.")
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(train(state, keys))
        seconds.append((time.perf_counter() - start) / N_STEPS)
    print(1e3 * min(seconds))


if __name__ == "__main__":
    main()
