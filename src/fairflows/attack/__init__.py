"""Adversaries that try to tell the group from what is released."""
