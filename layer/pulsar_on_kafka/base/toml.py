"""TOML is parsed by `tomllib`, which Python has from 3.11 on, and by its backport before."""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
