"""The study itself: the paper's datasets, its baselines, its experiments. The rest does not import it."""
