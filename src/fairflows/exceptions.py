"""The errors and warnings that fairflows raises about what it was given."""


class DataError(ValueError):
    """A table, a file or a value that cannot be used; the message names the column, the rule and what came."""


class DataWarning(UserWarning):
    """Something about the data that the user should know, though the work goes on."""
