"""Spending a part of a target on a label with two classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from fairflows.bounds.arguments import FloatArray

_RATES = 201  # lowest rates that are tried


def best_rates(
    eta: Sequence[Float[FloatArray, " _"]], spend: float, chance: Float[FloatArray, " K"] | None = None
) -> Float[FloatArray, " K"]:
    """Return the share of each group to decide for, at most `spend` apart, that predicts the label best.

    With η the probability of the second class, one array of each group, ρ_a* = P(η > ½ | a) is best for group a by
    itself. Because the gain of deciding for the top share ρ of a group is concave in ρ, the best rates in [c, c + b]
    are ρ_a = clip(ρ_a*, c, c + b) (CERTIFICATES, "spending a target"); c is searched.

    `chance` is how far the share of each group may be off because few persons of it set the threshold. The range of a
    group is narrower at both ends by how much more that is than for the largest group: a small group decides little
    about the label, and much about the bound.
    """
    n = np.array([len(scores) for scores in eta])
    best = np.array([(scores > 0.5).mean() for scores in eta])
    gains = [np.concatenate([[0.0], np.cumsum(np.sort(2 * scores - 1)[::-1])]) for scores in eta]
    lowest = np.linspace(0, 1 - spend, _RATES)
    less = np.zeros(len(n)) if chance is None else np.minimum(chance - chance.min(), spend / 2)
    rates = np.clip(best, lowest[:, None] + less, lowest[:, None] + spend - less)  # (_RATES, K)
    gained = sum(gain[np.round(rates[:, a] * n[a]).astype(np.intp)] for a, gain in enumerate(gains))
    return rates[int(np.argmax(gained))]
