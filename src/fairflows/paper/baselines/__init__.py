"""Other ways to learn fair representations, to compare with: the same fit and transform as an encoder."""

from fairflows.paper.baselines.adversarial import AdversarialEncoder
from fairflows.paper.baselines.fare import FARE
from fairflows.paper.baselines.forgetting import AdversarialForgetting
from fairflows.paper.baselines.laftr import LAFTR
from fairflows.paper.baselines.maxent_arl import MaxEntARL

__all__ = ["FARE", "LAFTR", "AdversarialEncoder", "AdversarialForgetting", "MaxEntARL"]
