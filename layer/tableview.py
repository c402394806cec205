"""Table views under the official module's name."""

from __future__ import annotations

from layer.client.table_view import TableView

__all__ = ["TableView"]
