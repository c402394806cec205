"""Builds the headers of a record's copy in another cluster; some records are not copied. Pure, except for look-ups of
schema versions.

Source: Pulsar's `GeoPersistentReplicator`. Decision: mapping/decisions/0017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.records.original_position import original_suffix
from pulsar_on_kafka_mapping.records.record_headers import (
    ALONE,
    BATCH,
    CHUNK,
    FENCE,
    MARKER,
    ORIGINAL_ID,
    PRODUCER,
    PUBLISH_TIME,
    REPLICATE_TO,
    REPLICATED_FROM,
    SCHEMA_VERSION,
    TXN,
    is_raw,
    unpack,
)
from pulsar_on_kafka_schema_compat import CompatibilityStrategy

Headers = list[tuple[str, bytes | None]]

_CONCERNS_US: Final = frozenset(
    {MARKER, REPLICATED_FROM, REPLICATE_TO, SCHEMA_VERSION, FENCE, TXN, CHUNK, BATCH, ORIGINAL_ID, PUBLISH_TIME}
)
_ALONE: Final = ALONE[0]
_NOT_COPIED: Final = frozenset({FENCE, TXN, ORIGINAL_ID, PUBLISH_TIME})
_ASK_S: Final = 30.0
_WHATEVER_IT_IS: Final = SchemaPolicies(CompatibilityStrategy.ALWAYS_COMPATIBLE)
"""Compatibility was checked where the message was sent. Source: Pulsar's replicator registers schemas without a check,
too."""


class MetTransactions(Protocol):
    def __call__(self, *, chunk: bool, raw: bool) -> None:
        """A record is a chunk of a message, or as a client of Pulsar's batched or compressed it."""


class Copying:
    """The copies of one partition's records, by one owner of its replicator. `target_version` returns the target's
    version of a schema, by the header that names the source's; `met` is called before the copy."""

    def __init__(
        self,
        origin: str,
        target: str,
        partition: int,
        incarnation: int,
        epoch: int,
        target_version: Callable[[bytes], bytes],
        met: MetTransactions,
    ) -> None:
        self._target = target
        self._origin = (REPLICATED_FROM, origin.encode("utf-8"))
        self._suffix = original_suffix(partition, incarnation, epoch)
        self._target_version = target_version
        self._met = met

    def headers_of(self, records: Iterable[Any]) -> Iterator[Headers | None]:
        """The headers of each record's copy; None for records that are not copied: markers (except those that clusters
        exchange), records from another cluster, and those whose sender excluded the target.

        Raises:
            CorruptRecord: the names of its target clusters cannot be read.
            LayerError: its schema cannot be read.
        """
        origin, suffix = self._origin, self._suffix
        published_ms, published = -1, (PUBLISH_TIME, b"0")
        for record in records:
            time_ms = record.timestamp()[1]
            if time_ms != published_ms:  # records of a batch often have the same
                published_ms, published = time_ms, (PUBLISH_TIME, b"%d" % max(0, time_ms))
            position = (ORIGINAL_ID, b"%d%b" % (record.offset(), suffix))
            found: Headers | bytes | None = packed_headers_of(record)
            if isinstance(found, bytes):  # packed: nothing that decides whether it is copied
                if found[0] == _ALONE:
                    yield [(PRODUCER, found[1:]), origin, position, published]
                else:
                    yield [*self._copies(unpack(found)), origin, position, published]
            else:
                requested = self._headers_to_copy(found or [])
                yield None if requested is None else [*requested, origin, position, published]

    def _headers_to_copy(self, headers: Headers) -> Headers | None:
        ours = [name for name, _ in headers if name in _CONCERNS_US]
        if ours:
            if REPLICATED_FROM in ours or MARKER in ours:
                return None
            if REPLICATE_TO in ours:
                requested = decode_headers([each for each in headers if each[0] == REPLICATE_TO]).replicate_to
                if requested is not None and self._target not in requested:
                    return None
            chunk, raw = CHUNK in ours, BATCH in ours and is_raw(headers)
            if chunk or raw:
                self._met(chunk=chunk, raw=raw)
            return self._copies(headers)
        return headers

    def _copies(self, headers: Headers) -> Headers:
        return [
            (name, self._target_version(value) if name == SCHEMA_VERSION and value is not None else value)
            for name, value in headers
            if name not in _NOT_COPIED
        ]


class SchemasThere:
    """The schemas of a topic on two clusters: which version there is which one here. For one thread. Memory: 16 bytes
    and some for each version that was met."""

    def __init__(self, here: Node, there: Node, topic: TopicName) -> None:
        self._here = here
        self._there = there
        self._topic = topic.base
        self._known: dict[bytes, bytes] = {}

    def version(self, header: bytes) -> bytes:
        """The header that names a schema there, by the one that names it here; registers it there when it is new.

        Raises:
            NoSuchSchema: it was removed here.
            LayerError: it cannot be read here or written there now.
        """
        known = self._known.get(header)
        if known is None:
            deadline = Deadline.after(_ASK_S)
            stored = self._here.schemas.schema(self._topic, SchemaVersion.from_header(header), deadline)
            version = self._there.schemas.for_producer(self._topic, stored.info, deadline, _WHATEVER_IT_IS)
            known = self._known[header] = header if version is None else version.header()
        return known
