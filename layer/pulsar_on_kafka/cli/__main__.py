"""`python -m cli` is `pok`."""

from __future__ import annotations

from pulsar_on_kafka.cli.main import main

main()
