"""Check the shapes of arrays while the tests run.

Other annotations are left out, because mypy reads them and tests hand over wrong types on purpose.
"""

from typing import get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number is a float, as for mypy


def has_shape(hint):
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(has_shape, get_args(hint)))


def checked(function):
    """Check the annotations of a function that name a shape."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    return _check(function) if function.__annotations__ else function
