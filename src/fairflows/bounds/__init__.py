"""Upper and lower bounds on how much a release reveals about the group, as pure functions of arrays."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
