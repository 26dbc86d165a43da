"""Encode batches, files of any size in bounded memory, and folders on a Ray cluster (``fairflows[ray]``)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
