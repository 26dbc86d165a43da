"""Explanations: recourse, matches between groups of an invertible encoder, what a release tells, models side by side.

The first two show single rows of the table, and must not be part of a public report.
"""

from fairflows.explain.comparison import compare
from fairflows.explain.pairs import MatchedPairs, matched_pairs
from fairflows.explain.recourse_search import Recourse, recourse
from fairflows.explain.usefulness import StillTells, still_tells

__all__ = ["MatchedPairs", "Recourse", "StillTells", "compare", "matched_pairs", "recourse", "still_tells"]
