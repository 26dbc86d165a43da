"""Invertible maps f_a(x) with leading axes (models, groups), each direction with its log-determinant."""

from fairflows.bijection.base import Bijection, check_bijection
from fairflows.bijection.couplings import ElementwiseSpline, NeuralSpline, RealNVP
from fairflows.bijection.networks import StackedMLP

__all__ = ["Bijection", "ElementwiseSpline", "NeuralSpline", "RealNVP", "StackedMLP", "check_bijection"]
