"""A message that is about to be sent has content, which a router sees, and metadata."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pulsar_on_kafka.mapping.records.message_record import MessageMetadata, key_text
from pulsar_on_kafka.sending.record_key import RecordKey, key_bytes


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


def key_and_metadata(
    properties: dict[str, str] | None,
    partition_key: str | RecordKey | None,
    ordering_key: str | None,
    sequence_id: int | None,
    replication_clusters: Sequence[str] | None,
    disable_replication: bool,
    event_timestamp: int | None,
    deliver_at: int | None,
    deliver_after: timedelta | None,
) -> tuple[bytes | None, MessageMetadata | None]:
    """Kafka key and metadata of a message that has more than a payload; None when a key is all there is.

    Raises:
        ValueError, TypeError, NotSupported: as `Producer.send`; the message names the value.
    """
    _check_type(dict, "properties", properties)
    if not isinstance(partition_key, RecordKey):
        _check_type(str, "partition_key", partition_key)
    _check_type(str, "ordering_key", ordering_key)
    _check_type(int, "sequence_id", sequence_id)
    _check_type(list, "replication_clusters", replication_clusters)
    _check_type(bool, "disable_replication", disable_replication)
    _check_type(int, "event_timestamp", event_timestamp)
    if sequence_id is not None and sequence_id < 0:
        raise ValueError(f"sequence_id must be 0 or more, got {sequence_id}")
    if event_timestamp is not None and event_timestamp < 0:
        raise TypeError(f"event_timestamp must be 0 or more, got {event_timestamp}")
    deliver_at_ms = _delivery_time(deliver_at, deliver_after)
    replicate_to = _replicate_to(replication_clusters, disabled=disable_replication)
    described = properties or ordering_key or event_timestamp is not None or deliver_at_ms is not None
    if partition_key and not described and replicate_to is None:
        return key_bytes(partition_key), None
    key: bytes | None = None
    ordering: bytes | None = None
    if partition_key:
        key = key_bytes(partition_key)
        ordering = ordering_key.encode("utf-8") if ordering_key else None
    elif ordering_key:
        key = ordering_key.encode("utf-8")
    given: dict[Any, Any] = properties or {}
    for name, value in given.items():
        if not isinstance(name, (str, bytes)) or not isinstance(value, (str, bytes)):
            raise TypeError(f"properties are text, got {name!r:.60}: {value!r:.60}")
    metadata = MessageMetadata(
        properties={_text(name): _text(value) for name, value in given.items()},
        event_time_ms=event_timestamp or 0,
        deliver_at_ms=deliver_at_ms,
        ordering_key=ordering,
        key_is_ordering_key=not partition_key and bool(ordering_key),
        replicate_to=replicate_to,
    )
    return key, metadata


def is_more_than_plain(metadata: MessageMetadata) -> bool:
    """Whether who reads it needs its headers (see `ProducerClaims.plain`)."""
    return metadata.deliver_at_ms is not None or metadata.key_is_ordering_key


def _replicate_to(clusters: Sequence[str] | None, *, disabled: bool) -> tuple[str, ...] | None:
    """None leaves it to the policies, as officially an empty list does; to be kept here wins over a list."""
    if disabled:
        return ()
    names: Sequence[Any] = clusters or ()
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"replication_clusters are names of clusters, got {name!r:.60}")
    return tuple(names) or None


def _text(given: str | bytes) -> str:
    # The official client's extension takes either.
    return given if isinstance(given, str) else given.decode("utf-8")


def _delivery_time(deliver_at: int | None, deliver_after: timedelta | None) -> int | None:
    """When a message is to be delivered, Unix time in ms; None for at once. `deliver_after` wins, as officially.

    Raises:
        TypeError: `deliver_at` is negative, as the official client has it.
    """
    _check_type(int, "deliver_at", deliver_at)
    _check_type(timedelta, "deliver_after", deliver_after)
    if deliver_at is not None and deliver_at < 0:
        raise TypeError(f"deliver_at must be 0 or more, got {deliver_at}")
    if deliver_after:
        return max(0, time.time_ns() // 1_000_000 + int(deliver_after.total_seconds() * 1000))
    return deliver_at or None


def _check_type(kind: type[Any], name: str, value: object) -> None:
    """None says nothing, but for a bool. Raises ValueError, as the official `_check_type`; a bool is no int."""
    if (value is not None or kind is bool) and (
        not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    ):
        raise ValueError(
            f"Argument {name} is expected to be of type {kind.__name__}, got {type(value).__name__}: {value!r:.60}"
        )
