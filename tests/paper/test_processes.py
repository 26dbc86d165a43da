"""Work side by side in processes."""

import os

import torch

from fairflows.paper.experiments.processes import in_processes


def describe(x: torch.Tensor) -> tuple[float, int]:
    return float(x.sum()), os.getpid()


def test_results_come_in_order_from_other_processes():
    items = [torch.full((3,), float(i)) for i in range(3)]
    found = in_processes(describe, items, 2)
    assert [total for total, _ in found] == [0, 3, 6]
    assert os.getpid() not in {process for _, process in found}
    assert in_processes(describe, items[:1], 1) == [(0, os.getpid())]
