"""The classes that can be stored, and what each is made of.

A form names a class in files, says which values describe an object of it, and builds the object again from these. Names
are part of the file format: a class may move, its name in files may not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any

from fairflows.exceptions import DataError

State = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """How objects of one class are stored.

    Attributes
    ----------
    name : str
        The class's name in files.
    home : str
        The module it lives in; imported when an object of it is met, and not before.
    describe : callable
        The values that describe an object; the second argument says in messages where it was met.
    rebuild : callable
        The object, from its class and these values.
    """

    name: str
    home: str
    describe: Callable[[Any, str], State]
    rebuild: Callable[[Any, State], Any]

    def build(self, state: State) -> Any:
        """The object that these values describe."""
        return self.rebuild(getattr(import_module(self.home), self.name), state)


def form_of(value: Any, where: str) -> Form:
    """The form of an object; a DataError says what cannot be stored."""
    form = _FORMS.get(type(value).__name__)
    if form is None or not type(value).__module__.startswith(form.home.split(".")[0]):
        name = type(value).__name__
        kind = "a function" if inspect.isroutine(value) else f"a {name}"
        raise DataError(
            f"{where}: {kind} cannot be saved: a saved model holds no code. What can: fairflows' own encoders, "
            "densities and releases, pipelines of them, common torch.distributions, LogisticRegression and "
            "HistGradientBoostingClassifier. A setting that only training needs may be replaced with set_params first."
        )
    return form


def form_named(name: str) -> Form | None:
    """The form with this name in files."""
    return _FORMS.get(name)


# Plain objects: all that they hold.


def _attributes(value: Any, where: str) -> State:
    names = [field.name for field in fields(value)] if is_dataclass(value) else list(vars(value))
    return {name: getattr(value, name) for name in names}  # of a dataclass the fields: the rest is a cache


def _with_attributes(kind: Any, state: State) -> Any:
    value = kind.__new__(kind)
    if is_dataclass(kind):
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        if not needed <= set(state) <= {field.name for field in fields(kind)}:
            raise KeyError(f"an object has the parts {', '.join(sorted(state))}")
        state = {field.name: field.default for field in fields(kind) if field.name not in state} | state
    value.__dict__.update(state)
    return value


# Estimators: settings, and what fitting added.

_REQUESTS = "_metadata_request"


def _estimator(value: Any, where: str) -> State:
    settings = value.get_params(deep=False)
    fitted = {name: part for name, part in vars(value).items() if name not in settings and name != _REQUESTS}
    requests = getattr(value, _REQUESTS, None)
    asked = (
        {} if requests is None else {m: dict(r.requests) for m, r in vars(requests).items() if hasattr(r, "requests")}
    )
    return {"settings": settings, "fitted": fitted, "requests": {m: r for m, r in asked.items() if r}}


def _with_settings(kind: Any, state: State) -> Any:
    import sklearn

    value = kind(**state["settings"])
    value.__dict__.update(state["fitted"])
    with sklearn.config_context(enable_metadata_routing=True):
        for method, asked in state["requests"].items():
            getattr(value, f"set_{method}_request")(**asked)
    return value


def _pipeline(value: Any, where: str) -> State:
    return {"steps": [tuple(step) for step in value.steps]}


def _unfitted(value: Any, where: str) -> State:
    if hasattr(value, "classes_"):
        raise DataError(f"{where}: a fitted {type(value).__name__} cannot be saved here; clone it first.")
    return _estimator(value, where)


def _transported_score(value: Any, where: str) -> State:
    from fairflows.encoder.plain_score import PlainScore

    for score in value.classifiers:
        if not isinstance(score, PlainScore):
            raise DataError(
                f"{where}.classifiers: a {type(score[-1]).__name__} cannot be saved: of scikit-learn's classifiers, "
                "LogisticRegression and HistGradientBoostingClassifier with numeric columns have a form that is not a "
                "pickle."
            )
    return _attributes(value, where)


# Densities and bijections: settings of the constructor, and the state of the module.


def _settings_of(value: Any) -> State:
    return {name: getattr(value, name) for name in inspect.signature(type(value)).parameters}


def _density(value: Any, where: str) -> State:
    return {"settings": _settings_of(value), "weights": dict(value.state_dict()) if value.n_features else None}


def _fitted_density(kind: Any, state: State) -> Any:
    density = kind(**state["settings"])
    if state["weights"] is not None:
        density.load_state_dict(state["weights"])
    return density


def _group_densities(value: Any, where: str) -> State:
    return {"members": value.members, "n_labels": value.n_labels}


def _joined_densities(kind: Any, state: State) -> Any:
    members, n = state["members"], state["n_labels"]
    return kind([members[i : i + n] for i in range(0, len(members), n)])


def _known(value: Any, where: str) -> State:
    return {"distribution": value._source}


def _in_model_space(value: Any, where: str) -> State:
    return {name: getattr(value, name) for name in ("density", "low", "width", "alpha")}


def _hidden(network: Any) -> list[int]:
    """The widths of hidden layers: where the unit that is always one sits in each matrix."""
    fixed = [getattr(network, f"fixed_{i}") for i in range(len(network.weights) - 1)]
    return [int(matrix.nonzero()[0, 1]) for matrix in fixed]


def _stack_of(value: Any) -> tuple[Any, State]:
    """A network of the stack, and the settings that all stacks share."""
    network = value.conditioner if hasattr(value, "conditioner") else value.conditioners[0]
    blocks = network.weights[0].shape[2] if hasattr(value, "conditioner") else len(value.conditioners)
    return network, {
        "n_features": value.n_features,
        "n_groups": value.n_groups,
        "n_blocks": blocks,
        "hidden": _hidden(network),
        "seeds": [0] * value.n_models,
    }


def _real_nvp(value: Any, where: str) -> State:
    return {"settings": _stack_of(value)[1], "weights": dict(value.state_dict())}


def _neural_spline(value: Any, where: str) -> State:
    settings = {**_stack_of(value)[1], "n_bins": value.n_bins, "bound": value.bound}
    # Which features a block moves is drawn by torch, whose draws may change from one release to the next.
    parts = {"_passive": value._passive, "_moved": value._moved}
    return {"settings": settings, "weights": dict(value.state_dict()), "parts": parts}


def _elementwise_spline(value: Any, where: str) -> State:
    names = ("n_features", "n_groups", "n_bins", "bound")
    settings = {**{name: getattr(value, name) for name in names}, "seeds": [0] * value.n_models}
    return {"settings": settings, "weights": dict(value.state_dict())}


def _network(value: Any, where: str) -> State:
    n_inputs = int(value.free_0.any(-1).nonzero().max())  # the last row that is read is the bias
    settings = {"n_inputs": n_inputs, "hidden": _hidden(value), "n_outputs": int(value.weights[-1].shape[-1])}
    return {"settings": {**settings, "seeds": [0] * value.n_models}, "weights": dict(value.state_dict())}


def _module(kind: Any, state: State) -> Any:
    module = kind(**state["settings"])
    weights = state["weights"]
    module.__dict__.update(state.get("parts", {}))
    module = module.to(next(iter(weights.values())).dtype)
    module.load_state_dict(weights)
    return module.requires_grad_(False)


def _distribution(kind: Any, state: State) -> Any:
    import torch

    value = _with_attributes(kind, state)
    for name in ("_batch_shape", "_event_shape"):
        setattr(value, name, torch.Size(state[name]))
    return value


def _forms() -> dict[str, Form]:
    by_kind: list[tuple[Callable[[Any, str], State], Callable[[Any, State], Any], dict[str, str]]] = [
        (
            _attributes,
            _with_attributes,
            {
                "fairflows.codec.product": "Codec",
                "fairflows.codec.cell_codec": "CellCodec Bins",
                "fairflows.codec.levels": "Levels",
                "fairflows.codec.scale": "Scale",
                "fairflows.table.grid": "Grid",
                "fairflows.table.schema": "Schema",
                "fairflows.density.made": "CategoricalMADE",
                "fairflows.density.smoothed_counts": "SmoothedCounts PairTree",
                "fairflows.density.cell_density": "CellCounts",
                "fairflows.density.latent_class": "LatentClassMixture",
                "fairflows.encoder.flow_fitting": "FittedFlow",
                "fairflows.encoder.cell_model": "CellModel",
                "fairflows.encoder.cell_coupling": "CellCoupling",
                "fairflows.encoder.transported_cells": "TransportedCells",
                "fairflows.encoder.transported_score": "Barycentre",
                "fairflows.release.numeric_view": "NumericView NumberColumn LevelColumn",
                "fairflows.release.partitions": "TreePartition QuantilePartition CentrePartition",
                "fairflows.encoder.plain_score": "PlainScore TextColumn BoostedTrees LogisticScores",
            },
        ),
        (
            _estimator,
            _with_settings,
            {
                "fairflows.encoder.fair_flow": "FairFlow",
                "fairflows.encoder.fair_matching": "FairMatching",
                "fairflows.encoder.fair_transport": "FairTransport",
                "fairflows.release.cell_release": "CellRelease",
                "sklearn.linear_model": "LogisticRegression",
            },
        ),
        (_unfitted, _with_settings, {"sklearn.ensemble": "HistGradientBoostingClassifier"}),
        (_pipeline, lambda kind, state: kind(state["steps"]), {"sklearn.pipeline": "Pipeline"}),
        (_transported_score, _with_attributes, {"fairflows.encoder.transported_score": "TransportedScore"}),
        (
            _density,
            _fitted_density,
            {"fairflows.density": "MixtureDensity FlowDensity AutoregressiveDensity KernelDensity"},
        ),
        (_group_densities, _joined_densities, {"fairflows.density": "GroupDensities"}),
        (_known, lambda kind, state: kind(state["distribution"]), {"fairflows.density": "KnownDensity"}),
        (_in_model_space, lambda kind, state: kind(**state), {"fairflows.density.units": "InModelSpace"}),
        (_real_nvp, _module, {"fairflows.bijection": "RealNVP"}),
        (_neural_spline, _module, {"fairflows.bijection": "NeuralSpline"}),
        (_elementwise_spline, _module, {"fairflows.bijection": "ElementwiseSpline"}),
        (_network, _module, {"fairflows.bijection": "StackedMLP"}),
        (
            _attributes,
            _distribution,
            {
                "torch.distributions": "Normal MultivariateNormal Independent MixtureSameFamily Categorical Uniform "
                "Laplace StudentT Gamma Beta Exponential"
            },
        ),
    ]
    return {
        name: Form(name, home, describe, rebuild)
        for describe, rebuild, homes in by_kind
        for home, names in homes.items()
        for name in names.split()
    }


_FORMS = _forms()
