"""Fair representations of tables, and certificates of how much they reveal about a sensitive attribute.

The public names stand in ``__init__.pyi`` and are loaded on first use, so that ``import fairflows`` and
``fairflows --help`` start at once and do not import torch.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
