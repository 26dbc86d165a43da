r"""Invertible maps f_a(x) with leading axes (models, groups), each direction with its log-determinant."""

from fairflows.bijection.base import Bijection, check_bijection
from fairflows.bijection.couplings import NeuralSpline, RealNVP
from fairflows.bijection.networks import StackedMLP
from fairflows.bijection.splines import AutoregressiveSpline
from fairflows.bijection.zuko_flows import Zuko

__all__ = ["AutoregressiveSpline", "Bijection", "NeuralSpline", "RealNVP", "StackedMLP", "Zuko", "check_bijection"]
