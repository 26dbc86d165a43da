"""Densities p̂_a(x): fit, log_prob, sample. They are loaded on first use: densities of cells need no torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
