"""Input of a user: tables, columns and their roles, persons, and files."""
