"""Algorithm 1 of the paper, for many models at once."""
