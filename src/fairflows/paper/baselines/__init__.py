"""Other methods of learning fair representations, with the fit and transform of an encoder."""

from fairflows.paper.baselines.adversarial import AdversarialEncoder
from fairflows.paper.baselines.fare import FARE
from fairflows.paper.baselines.forgetting import AdversarialForgetting
from fairflows.paper.baselines.laftr import LAFTR
from fairflows.paper.baselines.maxent_arl import MaxEntARL

__all__ = ["FARE", "LAFTR", "AdversarialEncoder", "AdversarialForgetting", "MaxEntARL"]
