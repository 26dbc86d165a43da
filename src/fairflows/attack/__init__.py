"""Adversaries that guess the group from a release."""
