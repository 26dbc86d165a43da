"""Columns to model space, or to cells, and exactly back."""
