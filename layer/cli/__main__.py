"""`python -m layer.cli` is `pok`."""

from __future__ import annotations

from layer.cli.main import main

main()
