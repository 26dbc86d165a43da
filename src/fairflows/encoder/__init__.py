"""The scikit-learn estimators: one invertible encoder per group."""
