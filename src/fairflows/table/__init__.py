"""What a user brings: tables, their columns and roles, who is who in them, and the files they come from."""
