"""Check the shapes of arrays while the tests run.

Other annotations are left out, because mypy reads them and tests hand over wrong types on purpose. Functions without
shapes are left alone, and each combination of shapes is checked once: a quarter of the tests' time.
"""

import functools
import inspect
import re
import threading
import typing
from typing import get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, install_import_hook, jaxtyped

_typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number is a float, as for mypy


def install():
    """Check what is imported of the package from now on."""
    install_import_hook("fairflows", None)
    jaxtyping.jaxtyped = lambda *, typechecker: checked  # the decorator that the hook puts on functions and classes


def has_shape(hint):
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(has_shape, get_args(hint)))


def names_shape(annotation):
    """Whether an annotation, evaluated or not, names the shape of an array."""
    if isinstance(annotation, str):
        return re.search(r"\b(Float|Int|Bool|Shaped)\[", annotation) is not None
    return has_shape(annotation)


def checked(thing):
    """Check a function, or the arguments of a dataclass."""
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(checked(thing.__func__))
    if isinstance(thing, property):
        return property(*(function and checked(function) for function in (thing.fget, thing.fset, thing.fdel)))
    if inspect.isclass(thing):
        if "__dataclass_fields__" in vars(thing):
            thing.__init__ = checked(thing.__init__)
        return thing
    annotations = getattr(thing, "__annotations__", {})  # a decorated function may be an object of another kind
    shaped = {name: hint for name, hint in annotations.items() if names_shape(hint)}
    return _with_checks(thing, shaped) if shaped else thing


def _with_checks(function, shaped):
    """Check what is called with shapes that were not seen before, and results that were not seen with them."""
    signature = inspect.signature(function)
    values = set(re.findall(r"\{(\w+)\}", " ".join(map(str, shaped.values()))))  # lengths that arguments say
    deciding = [(place, name) for place, name in enumerate(signature.parameters) if name in shaped or name in values]
    seen = set()

    @functools.cache
    def only_shapes():
        names = {**vars(typing), **function.__globals__}
        hints = {name: eval(hint, names) if isinstance(hint, str) else hint for name, hint in shaped.items()}
        parameters = [p.replace(annotation=hints.get(p.name, p.empty)) for p in signature.parameters.values()]
        return signature.replace(parameters=parameters, return_annotation=hints.get("return", signature.empty))

    def with_all_checks(call):
        def stand_in(*args, **kwargs):
            return call(*args, **kwargs)

        functools.update_wrapper(stand_in, function).__signature__ = only_shapes()
        return jaxtyped(stand_in, typechecker=_typechecker)

    returned = threading.local()
    check_and_call = functools.cache(lambda: with_all_checks(function))
    check_returned = functools.cache(lambda: with_all_checks(lambda *args, **kwargs: returned.result))

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        __tracebackhide__ = True
        arguments = [args[place] if place < len(args) else kwargs.get(name) for place, name in deciding]
        shapes = tuple(map(_shape_of, arguments))
        if shapes not in seen:
            result = check_and_call()(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
            if "return" not in shaped or (shapes, _shape_of(result)) in seen:
                return result
            returned.result = result
            check_returned()(*args, **kwargs)
        seen.update([shapes, (shapes, _shape_of(result))])
        return result

    return wrapper


def _shape_of(value):
    """All of an argument that its check depends on."""
    if hasattr(value, "dtype"):
        return type(value), value.dtype, tuple(value.shape)
    if isinstance(value, list | tuple):
        return type(value), *map(_shape_of, value)
    return value if isinstance(value, int | float) else type(value)
