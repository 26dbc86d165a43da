"""Training rounds some products of a GPU, and leaves the user's settings as they were."""

import pytest
import torch

from fairflows.bijection.networks import _tf32


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_the_users_precision_comes_back(precision):
    torch.set_float32_matmul_precision(precision)
    try:
        with _tf32():
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9")
def test_a_precision_of_the_newer_settings_is_left_alone():
    settings = torch.backends.cuda.matmul
    before, settings.fp32_precision = settings.fp32_precision, "tf32"
    try:
        with _tf32():
            assert settings.fp32_precision == "tf32"
        assert settings.fp32_precision == "tf32"
    finally:
        settings.fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"
