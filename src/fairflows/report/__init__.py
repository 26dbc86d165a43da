"""The report: plain values in, one HTML page out. It sees no model, and imports neither torch nor scikit-learn."""
