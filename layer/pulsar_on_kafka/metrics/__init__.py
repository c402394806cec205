"""Metrics: what this process sent, received and saved. Names: docs/metrics.md."""

from __future__ import annotations

from pulsar_on_kafka.broker.node.metrics.collector import MetricsCollector
from pulsar_on_kafka.broker.node.metrics.server import serve

__all__ = ["MetricsCollector", "serve"]
