"""Other ways to learn fair representations, to compare with: the same fit and transform as an encoder."""

from fairflows.baselines.adversarial import AdversarialEncoder
from fairflows.baselines.fare import FARE
from fairflows.baselines.forgetting import AdversarialForgetting
from fairflows.baselines.laftr import LAFTR
from fairflows.baselines.maxent_arl import MaxEntARL

__all__ = ["FARE", "LAFTR", "AdversarialEncoder", "AdversarialForgetting", "MaxEntARL"]
