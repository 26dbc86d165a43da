"""Columns to numbers and exactly back: to the model space of flows, or to combinations of levels."""
