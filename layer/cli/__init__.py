"""`pok`, the command line: a thin layer on `layer.admin`, `layer.client` and `layer.embedded`."""
