"""Ray, which is optional: the extra ``fairflows[ray]``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fairflows.exceptions import DataError


def import_ray() -> Any:
    """Ray, or an error that says how to get it."""
    try:
        import_module("ray.data")
        return import_module("ray")
    except ImportError:
        raise DataError("Ray is not installed: pip install 'fairflows[ray]'.") from None
