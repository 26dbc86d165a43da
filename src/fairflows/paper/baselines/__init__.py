"""Other methods of learning fair representations, with the fit and transform of an encoder."""

from fairflows.paper.baselines.adversarial import LAFTR, AdversarialEncoder, AdversarialForgetting, MaxEntARL
from fairflows.paper.baselines.fare import FARE

__all__ = ["FARE", "LAFTR", "AdversarialEncoder", "AdversarialForgetting", "MaxEntARL"]
