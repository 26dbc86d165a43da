"""The paper's figures and tables, and experiments beyond it: one call runs one of them.

``run("figure-4a", quick=True)`` prints the paper's numbers beside ours, and saves tables (CSV), everything (JSON) and
the figure (PNG).
"""

from fairflows.paper.experiments.registry import list_experiments, run, run_many
from fairflows.paper.experiments.result import Result

__all__ = ["Result", "list_experiments", "run", "run_many"]
