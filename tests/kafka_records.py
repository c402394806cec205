"""Fields of a record that confluent-kafka may leave out, by its types, and never does; and a record that was read
nowhere."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from pulsar_on_kafka.kafka.records import headers_of as layers_headers_of
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.records.message_record import Headers


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


class LoggedRecord:
    """A record of a log in memory in confluent-kafka's form, as a consumer of `topic` gets it."""

    def __init__(self, topic: str, partition: int, record: LogRecord) -> None:
        self._topic, self._partition, self._record = topic, partition, record

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._record.offset

    def key(self) -> bytes:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp_ms
