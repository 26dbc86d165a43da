"""The report: plain values in, one HTML page out. It sees no model, and imports neither torch nor scikit-learn."""

from fairflows.reporting.page import Report

__all__ = ["Report"]
