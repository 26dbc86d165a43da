"""Save and load fitted models, as JSON and arrays."""
