"""A table, where it comes from, and its way to model space and back."""
