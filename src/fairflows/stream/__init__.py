"""Files of any size, encoded and decoded in bounded memory."""
