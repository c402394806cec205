"""Table views under the official module's name."""

from __future__ import annotations

from pulsar_on_kafka.client.reader.table_view import TableView

__all__ = ["TableView"]
