"""Later persons of a release, watched: counts, tests that hold at all times, and the file that keeps them."""
