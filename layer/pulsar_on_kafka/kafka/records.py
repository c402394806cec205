"""Records, topics and groups as the code above librdkafka sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pulsar_on_kafka_mapping.records.record_headers import unpack

if TYPE_CHECKING:
    from pulsar_on_kafka_mapping.records.message_record import Headers

_log = logging.getLogger(__name__)

UNREADABLE: Final = (SystemError, UnicodeDecodeError)
"""The exceptions of confluent-kafka for the name of a header that is no UTF-8; the former up to 2.16 at least."""
_NULL_NAME: Final = "(<NULL>"


class KafkaRecord(Protocol):
    """The part of librdkafka's message that this project reads.

    Headers are parsed on the first call, and packed once the record was scanned (`look_over`). Only `headers_of` and
    `packed_headers_of` read them, because those of foreign records may be unreadable.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...


HEADERS: Final[Callable[[Any], Headers | bytes | None]] = methodcaller("headers")
"""Reads a record's headers so that their errors are raised. `record.headers()` itself does not raise, once Python has
specialized that call: it trusts C code to return a result or an exception; confluent-kafka returns both.
"""


def headers_of(record: Any) -> Headers | None:
    """The headers of a record, which may be packed; without those whose name is no UTF-8 (`mend_headers`)."""
    headers = packed_headers_of(record)
    return unpack(headers) if isinstance(headers, bytes) else headers


def packed_headers_of(record: Any) -> Headers | bytes | None:
    """The same, packed where they are."""
    try:
        return HEADERS(record)
    except UNREADABLE:
        mend_headers([record])
        return HEADERS(record)


def mend_headers(records: Iterable[Any]) -> None:
    """Removes headers from records whose name is no UTF-8 (any C, Go or Rust client can write such), and logs that:
    after `HEADERS` raised one of `UNREADABLE`.

    From its second call on confluent-kafka 2.16 returns tuples with a null pointer for the name. Any access ends the
    process; `repr` alone shows it safely.
    """
    for record in records:
        try:
            found = HEADERS(record)
        except UNREADABLE:
            try:
                found = HEADERS(record)
            except UNREADABLE:
                found = None
        if isinstance(found, bytes):
            continue
        kept = [header for header in found or () if not repr(header).startswith(_NULL_NAME)]
        if found is None or len(kept) < len(found):
            record.set_headers(kept)
        if len(kept) < len(found or ()):
            log_left_out(record.topic(), record.partition(), record.offset(), len(kept))


def log_left_out(topic: str, partition: int, offset: int, kept: int) -> None:
    """Logs that headers of a record are left out because their names are no UTF-8."""
    where = f"{topic}-{partition} offset={offset}"
    _log.warning("%s: headers whose name is not UTF-8 are left out, %d others are kept", where, kept)


class CommittedOffset(NamedTuple):
    """A group's commit for one partition: the next offset, and the committer's metadata ('' for none)."""

    kafka_offset: int
    metadata: str


def commit_metadata(stored: str | None) -> str:
    """The committer's metadata. confluent-kafka also stores the zero byte that ends a string in C, and leaves it out
    when it reads."""
    return (stored or "").removesuffix("\0")


def stored_metadata(metadata: str) -> str:
    """The metadata as a commit stores it: confluent-kafka reads beyond the end of a string without the zero byte."""
    return metadata + "\0"


class TopicDescription(NamedTuple):
    """A Kafka topic as the cluster knows it now."""

    name: str
    topic_id: str
    partitions: int


class GroupMember(NamedTuple):
    """One live member of a consumer group; `assigned` holds (topic, partition) pairs."""

    member_id: str
    client_id: str
    host: str
    assigned: tuple[tuple[str, int], ...]


class GroupDescription(NamedTuple):
    """A consumer group; `state` is Kafka's word (`EMPTY`, `STABLE`, `DEAD` ...)."""

    group_id: str
    state: str
    members: tuple[GroupMember, ...]
