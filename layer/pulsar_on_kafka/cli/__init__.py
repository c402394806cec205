"""`pok`, the command line: a thin layer on `admin`, `client` and `embedded`."""
