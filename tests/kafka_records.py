"""Fields of a record that confluent-kafka may leave out, by its types, and never does; and a record that was read
nowhere."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from pulsar_on_kafka.kafka.records import headers_of as layers_headers_of
from pulsar_on_kafka.mapping.records.message_record import Headers


def place_of(record: Message) -> tuple[int, int]:
    """Partition and offset of a record that is in the log."""
    partition, offset = record.partition(), record.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def headers_of(record: Message) -> Any:
    """The headers of a record that was read, which are a list of names and bytes, or None."""
    return layers_headers_of(record)


class ReadRecord:
    """A record in confluent-kafka's form, for those who look at its place and headers alone."""

    def __init__(self, offset: int, headers: Headers) -> None:
        self._offset, self._headers = offset, headers

    def offset(self) -> int:
        return self._offset

    def headers(self) -> Headers:
        return self._headers
