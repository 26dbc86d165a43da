"""scikit-learn estimators that encode the rows of a table, each group in its own way."""
