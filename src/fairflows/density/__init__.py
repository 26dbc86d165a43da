"""Densities p̂_a(x): fit, log_prob, sample."""
