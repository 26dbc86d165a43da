"""The command ``fairflows``."""
