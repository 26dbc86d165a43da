"""Benchmarks stay runnable: docs quote their commands, and nothing else would notice that one has fallen behind."""

import importlib
import os
from pathlib import Path

import pytest
import torch

from fairflows.bijection import StackedMLP

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_a_benchmark_finds_all_that_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # some of them set the number of threads
    assert callable(importlib.import_module(name).main)


def test_products_of_rounded_factors(monkeypatch):
    """benchmarks/tf32.py puts its own products in the place of ours: networks must call them as it expects."""
    monkeypatch.syspath_prepend(FOLDER)
    tf32 = importlib.import_module("tf32")
    x = torch.randn(2, 64, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(tf32.rounded(x, 7), x.bfloat16().float(), rtol=0, atol=0)
    gradients = {}
    for name in ("float32", tf32.WEIGHTS, tf32.ALL):
        network = StackedMLP(3, (8,), 1, seeds=[0, 1])
        with tf32.products(name, 7):
            network(x).square().sum().backward()
        gradients[name] = torch.cat([parameter.grad.ravel() for parameter in network.parameters()])
    for name in (tf32.WEIGHTS, tf32.ALL):
        assert not torch.equal(gradients[name], gradients["float32"])
        torch.testing.assert_close(gradients[name], gradients["float32"], rtol=0.05, atol=0.5)
