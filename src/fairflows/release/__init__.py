"""Releases: cells, or rows drawn from cells, instead of encoded rows."""
