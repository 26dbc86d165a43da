"""Invertible maps f_a(x) with leading axes (models, groups), each direction with its log-determinant."""

from fairflows.bijection.base import Bijection
from fairflows.bijection.coupling import RealNVP
from fairflows.bijection.spline import ElementwiseSpline, NeuralSpline
from fairflows.bijection.stacked import StackedMLP

__all__ = ["Bijection", "ElementwiseSpline", "NeuralSpline", "RealNVP", "StackedMLP"]
