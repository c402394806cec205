"""Atomic writes to many partitions and acknowledgements on many subscriptions. Source: design.md 9."""
