"""The classes that a saved model may hold, by their names in files.

A file names a class and never a module: what is not in this list is neither written nor loaded. Names are part of the
file format: a class may move, its name in files may not.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from sklearn.base import BaseEstimator

from fairflows.encoder.model_state import State, built_from, state_of
from fairflows.exceptions import DataError

_CLASSES = {  # by the module that they are imported from when an object of them is met, and not before
    "fairflows.table.grid": "Grid",
    "fairflows.table.schema": "Schema",
    "fairflows.codec.product": "Codec",
    "fairflows.codec.cell_codec": "CellCodec Bins",
    "fairflows.codec.levels": "Levels",
    "fairflows.codec.ranges": "Ranges",
    "fairflows.codec.scale": "Scale",
    "fairflows.bijection": "RealNVP NeuralSpline ElementwiseSpline StackedMLP",
    "fairflows.density": "MixtureDensity FlowDensity AutoregressiveDensity KernelDensity KnownDensity GroupDensities",
    "fairflows.density.known": "InModelSpace",
    "fairflows.density.made": "CategoricalMADE",
    "fairflows.density.smoothed_counts": "SmoothedCounts PairTree",
    "fairflows.density.cell_density": "CellCounts",
    "fairflows.density.latent_class": "LatentClassMixture",
    "fairflows.encoder.fair_flow": "FairFlow",
    "fairflows.encoder.fair_matching": "FairMatching",
    "fairflows.encoder.fair_transport": "FairTransport",
    "fairflows.encoder.fair_tree": "FairTree TreeScores",
    "fairflows.encoder.matched_tree": "MatchedTree",
    "fairflows.encoder.ranked_columns": "RankedColumns NumberRanks LevelIndicators PrincipalComponents",
    "fairflows.encoder.fair_cells": "FairCells",
    "fairflows.encoder.labels": "Label",
    "fairflows.encoder.score_bins": "BinnedScores ScoreBins",
    "fairflows.encoder.group_encoder": "Unencoded",
    "fairflows.encoder.flow_fitting": "FittedFlow",
    "fairflows.encoder.cell_model": "CellModel",
    "fairflows.encoder.cell_coupling": "CellCoupling TransportedCells",
    "fairflows.encoder.transported_score": "TransportedScore Barycentre",
    "fairflows.encoder.plain_score": "PlainScore TextColumn BoostedTrees LogisticScores",
    "fairflows.encoder.rows_given_cell": "RowsGivenCell",
    "fairflows.release.cell_release": "CellRelease",
    "fairflows.release.crossfit": "CrossFit KeptCounts",
    "fairflows.release.partitions": "NumericView NumberColumn LevelColumn TreePartition QuantilePartition "
    "CentrePartition",
    "sklearn.linear_model": "LogisticRegression",
    "sklearn.ensemble": "HistGradientBoostingClassifier",
    "sklearn.pipeline": "Pipeline",
    "torch.distributions": "Normal MultivariateNormal Independent MixtureSameFamily Categorical Laplace StudentT Chi2 "
    "Gamma Beta Dirichlet Exponential",
}
_HOMES = {name: home for home, names in _CLASSES.items() for name in names.split()}
_SIZES = ("_batch_shape", "_event_shape")  # of a distribution: tuples of a type of their own


def class_named(name: str) -> type | None:
    """The class with this name in files."""
    return getattr(import_module(_HOMES[name]), name) if name in _HOMES else None


def name_and_state(value: object, where: str) -> tuple[str, State]:
    """The name of an object's class in files, and the values that describe it; a DataError says what has none."""
    kind = type(value)
    if class_named(kind.__name__) is not kind:
        what = "a function" if inspect.isroutine(value) else f"a {kind.__name__}"
        raise DataError(
            f"{where}: {what} cannot be saved: a saved model holds no code. What can: fairflows' own encoders, "
            "densities and releases, pipelines of them, common torch.distributions, LogisticRegression and "
            "HistGradientBoostingClassifier. A setting that only training needs may be replaced with set_params first."
        )
    state = state_of(value)
    if kind.__name__ == "HistGradientBoostingClassifier" and state["fitted"]:
        raise DataError(
            f"{where}: a fitted {kind.__name__} cannot be saved here: only one that scores numeric columns has a form "
            "that is not a pickle."
        )
    if kind.__name__ == "Pipeline" and isinstance(last := state["settings"]["steps"][-1][1], BaseEstimator):
        name_and_state(last, where)  # refused by the name of its classifier, rather than of a step before it
    return kind.__name__, state


def object_of(kind: type, state: State) -> Any:
    """The object of a class that these values describe."""
    if _HOMES[kind.__name__] == "torch.distributions":
        from torch import Size

        state = state | {name: Size(state[name]) for name in _SIZES}
    return built_from(kind, state)
