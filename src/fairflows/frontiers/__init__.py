"""A whole accuracy/fairness frontier in one fit, and the one rule that picks a model by a target."""
