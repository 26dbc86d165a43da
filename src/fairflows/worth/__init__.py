"""The worth of a shared table: to train on, to decide by, beside the real one, and column by column."""
