"""Explanations: recourse for rejected rows and matches between groups of an invertible encoder; what a release tells.

The first two show single rows of the table, and must not be part of a public report.
"""

from fairflows.explain.flipping import Recourse, recourse
from fairflows.explain.pairs import MatchedPairs, matched_pairs
from fairflows.explain.usefulness import StillTells, still_tells

__all__ = ["MatchedPairs", "Recourse", "StillTells", "matched_pairs", "recourse", "still_tells"]
