"""What an invertible encoder lets one see: how a rejection could be turned, and who is matched with whom.

Both are for the people who hold the table: they show single rows, and belong into no public report.
"""

from fairflows.explain.flipping import Recourse, recourse
from fairflows.explain.pairs import MatchedPairs, matched_pairs

__all__ = ["MatchedPairs", "Recourse", "matched_pairs", "recourse"]
