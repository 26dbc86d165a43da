"""Other methods of learning fair representations, with the fit and transform of an encoder."""

from fairflows.paper.baselines.adversarial import LAFTR, AdversarialEncoder, AdversarialForgetting, MaxEntARL
from fairflows.paper.baselines.fare import FARE
from fairflows.paper.baselines.fcrl import FCRL
from fairflows.paper.baselines.raw import RawFeatures

__all__ = ["FARE", "FCRL", "LAFTR", "AdversarialEncoder", "AdversarialForgetting", "MaxEntARL", "RawFeatures"]
