"""The study itself: the paper's datasets, its baselines, its experiments. The other packages do not import it.

The names stand in ``__init__.pyi`` and are loaded on first use: listing the datasets does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
