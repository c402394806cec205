"""What confluent-kafka may leave out of a record that was read, by its types, and never does."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message


def place_of(record: Message) -> tuple[int, int]:
    """Partition and offset of a record that is in the log."""
    partition, offset = record.partition(), record.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def headers_of(record: Message) -> Any:
    """The headers of a record that was read, which are a list of names and bytes, or None."""
    return record.headers()
