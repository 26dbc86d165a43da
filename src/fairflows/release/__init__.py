"""What leaves the house: cells instead of encoded rows."""
