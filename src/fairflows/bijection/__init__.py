"""Invertible maps f_a(x) with leading axes (models, groups), each direction with its log-determinant."""
