"""A message before its sending: first as a request with Pulsar's options, and then as payload, key and metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct

from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.in_flight import SendCallback
from pulsar_on_kafka.broker.publishing.outgoing_schema import Marks, RecordKey, key_bytes
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka_mapping.records.message_record import Headers, MessageMetadata, encode_headers, key_text

MAX_SEQUENCE_ID: Final = 2**63 - 1
"""Clients receive the last sequence id as a signed number."""


class SendRequest(Struct, frozen=True):
    """A sender's request: content, and the given options of Pulsar's `send`."""

    content: Any
    callback: SendCallback | None
    properties: dict[str, str] | None = None
    partition_key: str | RecordKey | None = None
    ordering_key: str | None = None
    sequence_id: int | None = None
    replication_clusters: Sequence[str] | None = None
    disable_replication: bool = False
    event_timestamp: int | None = None
    deliver_at: int | None = None
    deliver_after: timedelta | None = None
    txn: Transaction | None = None

    def key_and_metadata(self, now_ms: Callable[[], int]) -> tuple[bytes | None, MessageMetadata | None]:
        """Kafka key, and metadata if there is more. `now_ms`: the brokers' time, by which a delayed message is due.

        Raises:
            ValueError, TypeError, NotSupported: as `Producer.send`; the message names the value.
        """
        properties, partition_key, ordering_key = self.properties, self.partition_key, self.ordering_key
        sequence_id, event_timestamp = self.sequence_id, self.event_timestamp
        deliver_at, deliver_after = self.deliver_at, self.deliver_after
        replication_clusters, disable_replication = self.replication_clusters, self.disable_replication
        # Each argument is checked only where it is given: this runs for every message that has any.
        if partition_key is not None and not isinstance(partition_key, RecordKey):
            check_type(str, "partition_key", partition_key)
        if ordering_key is not None:
            check_type(str, "ordering_key", ordering_key)
        if sequence_id is not None:
            check_type(int, "sequence_id", sequence_id)
            if sequence_id < 0:
                raise ValueError(f"sequence_id must be 0 or more, got {sequence_id}")
            if sequence_id > MAX_SEQUENCE_ID:
                raise TypeError(f"sequence_id must be at most {MAX_SEQUENCE_ID}, got {sequence_id}")
        if event_timestamp is not None:
            check_type(int, "event_timestamp", event_timestamp)
            if event_timestamp < 0:
                raise TypeError(f"event_timestamp must be 0 or more, got {event_timestamp}")
        timed = deliver_at is not None or deliver_after is not None
        deliver_at_ms = _delivery_time(deliver_at, deliver_after, now_ms) if timed else None
        chosen = replication_clusters is not None or disable_replication is not False
        replicate_to = _replicate_to(replication_clusters, disable_replication) if chosen else None
        texts = {} if properties is None else _texts(properties)
        ordering = ordering_key.encode("utf-8") if ordering_key else None
        key = key_bytes(partition_key) if partition_key else ordering
        described = texts or ordering is not None or event_timestamp is not None or deliver_at_ms is not None
        if not described and replicate_to is None:
            return key, None
        metadata = MessageMetadata(
            properties=texts,
            event_time_ms=event_timestamp or 0,
            deliver_at_ms=deliver_at_ms,
            ordering_key=ordering if partition_key else None,
            key_is_ordering_key=not partition_key and ordering is not None,
            replicate_to=replicate_to,
        )
        return key, metadata


UNCHOSEN: Final = -1
"""The partition of a message that goes wherever messages without a key go just now."""


class ReadyMessage(Struct, frozen=True):
    """A message that is ready to be numbered, and sent to its partition."""

    payload: bytes | None
    key: bytes | None
    metadata: MessageMetadata | None
    """None for nothing but a key."""
    partition: int
    callback: SendCallback | None
    sequence_id: int | None = None
    """None for the next one."""
    marks: Marks = ()
    stamp: Callable[[], int] | None = None
    """Returns the record's time in Unix ms when the record is handed to Kafka; may refuse with an error. None: now."""
    encoded: Headers | None = None
    """`metadata` as headers, where they are made already."""

    def metadata_headers(self) -> Headers:
        """Headers of the message's metadata. Raises MappingError: a value cannot be written."""
        if self.encoded is not None:
            return self.encoded
        return [] if self.metadata is None else encode_headers(self.metadata)


class OutgoingMessage:
    """A `message_router` gets this view of a message that is about to be sent."""

    __slots__ = ("_event_timestamp", "_key", "_ordering_key", "_payload", "_properties")

    def __init__(
        self,
        payload: bytes | None,
        properties: dict[str, str] | None,
        key: str | RecordKey | None,
        ordering_key: str | None,
        event_timestamp: int | None,
    ) -> None:
        self._payload = payload
        self._properties = properties or {}
        self._key = key
        self._ordering_key = ordering_key
        self._event_timestamp = event_timestamp

    def data(self) -> bytes:
        return b"" if self._payload is None else self._payload

    def properties(self) -> dict[str, str]:
        return dict(self._properties)

    def partition_key(self) -> str:
        key = self._key
        return key_text(bytes(key)) if isinstance(key, RecordKey) else key or ""

    def ordering_key(self) -> str:
        return self._ordering_key or ""

    def event_timestamp(self) -> int:
        return self._event_timestamp or 0


def needs_headers(metadata: MessageMetadata) -> bool:
    """Whether readers of the message need its headers (see `ProducerClaims.plain`)."""
    return metadata.deliver_at_ms is not None or metadata.key_is_ordering_key


def _replicate_to(clusters: Sequence[str] | None, disabled: bool) -> tuple[str, ...] | None:
    """None leaves it to the policies, as officially an empty list does; to be kept here wins over a list."""
    check_type(bool, "disable_replication", disabled)
    names: Sequence[Any] = clusters or ()
    if clusters is not None:
        check_type(list, "replication_clusters", clusters)
    if disabled:
        return ()
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"replication_clusters are names of clusters, got {name!r:.60}")
    return tuple(names) or None


def _texts(given: dict[Any, Any]) -> dict[str, str]:
    if type(given) is not dict:
        check_type(dict, "properties", given)
    made = {}
    for name, text in given.items():
        if not isinstance(name, (str, bytes)) or not isinstance(text, (str, bytes)):
            raise TypeError(f"properties are text, got {name!r:.60}: {text!r:.60}")
        made[name if type(name) is str else _text(name)] = text if type(text) is str else _text(text)
    return made


def _text(given: str | bytes) -> str:
    # The official client's extension takes either.
    return given if isinstance(given, str) else given.decode("utf-8")


def _delivery_time(deliver_at: int | None, deliver_after: timedelta | None, now_ms: Callable[[], int]) -> int | None:
    """Unix time in ms; None for at once. `deliver_after` wins, as officially."""
    if deliver_at is not None:
        check_type(int, "deliver_at", deliver_at)
        if deliver_at < 0:
            raise TypeError(f"deliver_at must be 0 or more, got {deliver_at}")
    if deliver_after is not None:
        check_type(timedelta, "deliver_after", deliver_after)
    if deliver_after:
        return max(0, now_ms() + int(deliver_after.total_seconds() * 1000))
    return deliver_at or None
