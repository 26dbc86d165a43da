"""The shapes of arrays: annotations are read, and tests fail where an array has another shape."""

import importlib
import inspect
import re
import typing

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from test_package import MODULES, name_of

from fairflows.bounds.blocks import blocks_to_the_left
from fairflows.bounds.shared_table import mean_of_folded_normal
from fairflows.encoder.matched_tree import MatchedTree, TreeStructure
from shapes import has_shape

# The parts whose arrays have annotated shapes.
SHAPED = ("bijection", "bounds", "density", "encoder", "training")
NAMES = [name for name in map(name_of, MODULES) if name.split(".")[1:2] and name.split(".")[1] in SHAPED]


def test_an_array_of_another_shape_is_an_error():
    assert mean_of_folded_normal(np.zeros((1, 3)), np.ones((2, 3))).shape == (2, 3)
    with pytest.raises(TypeCheckError, match="parameter 'variance'"):
        mean_of_folded_normal(np.zeros((2, 3)), np.ones((4, 3)))
    with pytest.raises(TypeCheckError, match="parameter 'blocks'"):
        blocks_to_the_left(np.ones(3), 0.5)  # not whole numbers


def test_the_arrays_of_a_dataclass_fit_together():
    tree = TreeStructure(np.zeros(1, np.int64), np.full((1, 2), 0.5), np.array([[-1, -2]]))
    with pytest.raises(TypeCheckError, match="parameter 'coin'"):
        MatchedTree(tree, np.zeros((1, 2)), np.zeros((1, 3)))


def functions_of(module):
    """All functions of a module and of its classes."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        members = vars(thing).values() if inspect.isclass(thing) else [thing]
        for member in members:
            member = getattr(member, "fget", getattr(member, "__func__", member))
            if inspect.isfunction(member):
                yield member


@pytest.mark.parametrize("name", NAMES)
def test_shapes_can_be_read(name):
    """An annotation that cannot be evaluated would be left out in silence."""
    module = importlib.import_module(name)
    for function in functions_of(module):
        for of, text in inspect.unwrap(function).__annotations__.items():
            if isinstance(text, str) and any(f"{kind}[" in text for kind in ("Float", "Int", "Bool", "Shaped")):
                hint = eval(text, {**vars(typing), **vars(module)})
                assert has_shape(hint), f"{function.__qualname__}, {of}: {text}"


def test_no_shape_stands_around_an_alias_that_numpy_computes_late():
    """NumPy 2.5 made `numpy.typing.NDArray` an alias that jaxtyping cannot read: the package could not be imported."""
    late = re.compile(
        r"(Float|Int|Bool|Shaped)\[npt\.|^\w+(: TypeAlias)? = npt\.|^from numpy\.typing import .*NDArray", re.M
    )
    assert late.search("Places = npt.NDArray[np.intp]")
    assert [module.name for module in MODULES if late.search(module.read_text())] == []
