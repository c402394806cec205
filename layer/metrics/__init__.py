"""Metrics: what this process sent, received and saved. Names: docs/metrics.md."""

from __future__ import annotations

from layer.metrics.collector import MetricsCollector
from layer.metrics.server import serve

__all__ = ["MetricsCollector", "serve"]
