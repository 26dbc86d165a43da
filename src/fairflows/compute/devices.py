"""Which device computes."""

from __future__ import annotations

import torch

from fairflows.exceptions import ParameterError


def chosen_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where torch can use one, else the CPU.

    Examples
    --------
    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ParameterError("device", "must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'", name)
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ParameterError(
            "device", f"must name one of the GPUs that torch can use ({torch.cuda.device_count()} here)", name
        )
    return torch.device(name)
