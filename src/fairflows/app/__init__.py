"""The page in the browser: a server on this machine that shares and checks tables, and sends nothing anywhere."""
