"""The models of a frontier trained by the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone

from fairflows.compute.ray_engine import import_ray
from fairflows.encoder.base import Encoder
from fairflows.frontiers.sweep import Frontier, frontier
from fairflows.table.persons import new_key
from fairflows.table.table import Table


def frontier_on_ray(
    estimator: Encoder,
    table: Table,
    *,
    gammas: Sequence[float],
    seeds: int | Sequence[int] = 1,
    validation: Table | None = None,
    n_parts: int = 2,
    n_draws: int = 10_000,
) -> Frontier:
    """`fairflows.frontier` with the seeds spread over the Ray cluster in so many parts; the same models come out.

    Every worker trains all gammas of its seeds in one run: models of a run share densities, and do not depend on which
    others are trained beside them.
    """
    ray = import_ray()
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if validation is None:
        table, validation = table.split(validation=0)
    settings = estimator.get_params()
    for key in {"key", "encoder__key"} & set(settings):  # of an encoder, or of the one in a release
        if settings[key] is None:
            estimator = clone(estimator).set_params(**{key: new_key()})  # one key for all parts
    parts = [part.tolist() for part in np.array_split(seeds, min(n_parts, len(seeds)))]
    train = ray.remote(frontier)
    shared = [ray.put(thing) for thing in (estimator, table)]
    held_out = ray.put(validation)
    jobs = [train.remote(*shared, gammas=gammas, seeds=part, validation=held_out, n_draws=n_draws) for part in parts]
    found: list[Frontier] = ray.get(jobs)
    measured = pd.concat([part.measured for part in found], keys=range(len(found)), names=["part", "place"])
    order = {(gamma, seed): i for i, (gamma, seed) in enumerate((float(g), s) for g in gammas for s in seeds)}
    measured = measured.iloc[np.argsort([order[key] for key in zip(measured["gamma"], measured["seed"], strict=True)])]
    encoders = [found[part].encoders[place] for part, place in measured.index]
    trained = [encoder for encoder in encoders if encoder.is_fitted]
    for encoder in trained:  # the parts saw the same rows: one ledger counts the certificates of all
        encoder.ledger_ = trained[0].ledger_
    return Frontier(encoders, measured.reset_index(drop=True))
