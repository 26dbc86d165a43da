"""Explanations from an invertible encoder: recourse for rejected rows, and matches between groups.

Both show single rows of the table, and must not be part of a public report.
"""

from fairflows.explain.flipping import Recourse, recourse
from fairflows.explain.pairs import MatchedPairs, matched_pairs

__all__ = ["MatchedPairs", "Recourse", "matched_pairs", "recourse"]
