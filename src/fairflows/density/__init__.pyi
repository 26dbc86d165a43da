from .base import Density as Density
from .base import GroupDensities as GroupDensities
from .base import KnownDensity as KnownDensity
from .base import check_density as check_density
from .estimated import FlowDensity as FlowDensity
from .estimated import MixtureDensity as MixtureDensity
