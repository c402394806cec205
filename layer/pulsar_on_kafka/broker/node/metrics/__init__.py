"""Metrics of this process: its meters and nodes in Prometheus's form, and a server for them. Names: docs/metrics.md."""
