"""A filter selects stored messages by their ids, keys, properties and delivery times, without reading values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.subscriptions.partition.delayed import deliver_at_ms
from pulsar_on_kafka.broker.subscriptions.records.batches import batch_size, messages_in
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import decode_headers, key_text
from pulsar_on_kafka_mapping.records.record_headers import BATCH, DELIVER_AT, ENCRYPTION, ORDERING_KEY, property_header

HeadersByName: TypeAlias = Mapping[str, "bytes | None"]

MAX_IDS: Final = 100_000
"""The limit of ids in one call."""


@dataclass(frozen=True, slots=True)
class Match:
    """A message of a record that a filter takes. `index` and `size` are those of a message of a batch, -1 and 0 of any
    other; `deliver_at_ms` is 0 for a message without a delivery time."""

    key: str
    deliver_at_ms: int
    index: int = -1
    size: int = 0


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Messages that are meant: all of these hold. Key and properties of an encrypted batch cannot be read, so no filter
    by them takes its messages."""

    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    due_after_ms: int | None = None
    """Only messages whose delivery time is later (Unix time in ms)."""

    def matches(
        self, record: KafkaRecord, headers: HeadersByName, indexes: frozenset[int] | None = None
    ) -> Iterator[Match]:
        """The messages of a record that the filter takes; of a batch those with these `indexes` (None: all). An
        unreadable record has none."""
        due_ms = deliver_at_ms([(DELIVER_AT, headers[DELIVER_AT])]) if DELIVER_AT in headers else 0
        if self.due_after_ms is not None and due_ms <= self.due_after_ms:
            return
        try:
            size = batch_size(record) if BATCH in headers else 0
            if size:
                yield from self._in_batch(record, headers, size, due_ms, indexes)
            elif indexes is None:
                key = _key(record, headers)
                if (self.key is None or key == self.key) and self._has_properties(headers):
                    yield Match(key, due_ms)
        except CorruptRecord:
            return  # a consumer skips it, and reports it

    def _in_batch(
        self, record: KafkaRecord, headers: HeadersByName, size: int, due_ms: int, indexes: frozenset[int] | None
    ) -> Iterator[Match]:
        chosen = [index for index in range(size) if indexes is None or index in indexes]
        if ENCRYPTION in headers:
            if self.key is None and not self.properties:
                yield from (Match("", due_ms, index, size) for index in chosen)
            return
        entry = messages_in(record, record.value() or b"", size)
        for index in chosen:
            if index in entry.unreadable:
                continue
            message = entry.message(index)
            key = key_text(message.key)
            named = message.properties or {}
            if (self.key is None or key == self.key) and self.properties.items() <= named.items():
                yield Match(key, due_ms, index, size)

    def _has_properties(self, headers: HeadersByName) -> bool:
        for name, expected in self.properties.items():
            header = property_header(name)
            if header not in headers:
                return False
            found = headers[header]
            if found != expected.encode() and decode_headers([(header, found)]).properties[name] != expected:
                return False
        return True


def headers_by_name(record: KafkaRecord) -> HeadersByName:
    """The headers of a record; of several of one name the last counts."""
    return dict(headers_of(record) or ())


def _key(record: KafkaRecord, headers: HeadersByName) -> str:
    """The partition key; '' where the record's key is the ordering key."""
    if ORDERING_KEY in headers and headers[ORDERING_KEY] is None:
        return ""
    return key_text(record.key())


class NamedMessages:
    """The messages of one partition that ids name. Memory: an entry for each id, `MAX_IDS` at most."""

    def __init__(self) -> None:
        self._indexes: dict[int, set[int] | None] = {}
        """By offset: batch indexes, None for the whole entry."""
        self._begins: dict[int, int] = {}
        """The offset of the first chunk, by that of the last one."""

    def add(self, offset: int, batch_index: int, first_chunk: int | None = None) -> None:
        if first_chunk is not None:
            self._begins[offset] = first_chunk
        known = self._indexes.setdefault(offset, set())
        if batch_index < 0 or known is None:
            self._indexes[offset] = None
        else:
            known.add(batch_index)

    def __contains__(self, offset: int) -> bool:
        return offset in self._indexes

    def indexes(self, offset: int) -> frozenset[int] | None:
        named = self._indexes[offset]
        return None if named is None else frozenset(named)

    def ranges(self) -> list[tuple[int, int]]:
        """The offsets to read, ascending: first and last one of each message."""
        return sorted((self._begins.get(offset, offset), offset) for offset in self._indexes)


def checked_filter(
    key: str | None, properties: Mapping[str, str] | None, due_after_ms: int | None, ids: Sequence[object]
) -> MessageFilter:
    """Raises InvalidOption: nothing is named, or too many ids."""
    if key is None and not properties and due_after_ms is None and not ids:
        raise errors.InvalidOption(
            "no message is named: expected message_ids, key, properties or delayed (clear_backlog takes all)"
        )
    if len(ids) > MAX_IDS:
        raise errors.InvalidOption(f"{len(ids):,} message ids, expected up to {MAX_IDS:,}")
    return MessageFilter(key, dict(properties or {}), due_after_ms)
