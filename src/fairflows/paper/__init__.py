"""The study itself: the paper's datasets, its baselines, its experiments. The other packages do not import it."""
