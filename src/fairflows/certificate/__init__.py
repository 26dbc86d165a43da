"""Certificates of how much a release reveals about the group: how they are made and checked."""
