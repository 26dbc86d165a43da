"""Explanations: recourse, and matches between groups of an invertible encoder.

Both show single rows of the table, and must not be part of a public report.
"""

from fairflows.explain.pairs import Matches, matches
from fairflows.explain.recourse_search import Recourse, recourse

__all__ = ["Matches", "Recourse", "matches", "recourse"]
