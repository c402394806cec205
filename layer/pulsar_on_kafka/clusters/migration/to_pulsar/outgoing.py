"""Converts a message here into the one that Pulsar's client sends. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import PulsarMessage
from pulsar_on_kafka.clusters.migration.to_pulsar.exported_copies import (
    MAX_INDEX,
    MessagePlace,
    original_at,
    sequence_id,
)
from pulsar_on_kafka_mapping.records.message_record import RecordHeaders

_MAX_METADATA_BYTES: Final = 1 << 20
"""For keys and properties: Pulsar's client puts them into each chunk, of 5 MiB by default."""

_MIN_CHUNKED_BYTES: Final = 64 * 1024
"""Below every `maxMessageSize` in use; 5 MiB by default."""


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """`schema`: the header that names its schema here. `deliver_at_ms`: Unix time in ms, None for a message that is
    not delayed."""

    content: PulsarMessage
    schema: bytes | None
    deliver_at_ms: int | None
    may_be_in_chunks: bool = False

    @property
    def sequence_ids(self) -> tuple[int, int]:
        """The first and the last sequence id that a copy of it can have."""
        own = self.content.sequence_id
        if not self.may_be_in_chunks:
            return own, own
        offset = original_at(own).offset
        return sequence_id(MessagePlace(offset, 0)), sequence_id(MessagePlace(offset, MAX_INDEX))

    @property
    def bytes(self) -> int:
        return len(self.content.payload or b"") + _metadata_bytes(self.content)


def outgoing(message: Message, headers: RecordHeaders, index: int) -> PreparedMessage:
    """`headers`: those of the message's record. `index`: a random one, for a message that may be sent in chunks.

    Raises:
        Refused: Pulsar's client cannot send it; says why.
        MappingError: its offset is too large.
    """
    context = message.encryption_context()
    if context is not None and context.is_decryption_failed():
        raise errors.Refused("it is encrypted: give the private key (--private-key), and it is exported in clear")
    payload = message.payload()
    large = not isinstance(message, BatchedMessage) and len(payload or b"") >= _MIN_CHUNKED_BYTES
    own_index = message.batch_index if isinstance(message, BatchedMessage) else index if large else 0
    content = PulsarMessage(
        payload,
        _text("key", message.record_key()),
        _text("ordering key", _ordering_key(message, headers)),
        message.properties(),
        message.event_timestamp(),
        sequence_id(MessagePlace(message.offset, own_index)),
    )
    if (size := _metadata_bytes(content)) > _MAX_METADATA_BYTES:
        raise errors.Refused(f"its keys and properties have {size} bytes, expected at most {_MAX_METADATA_BYTES}")
    return PreparedMessage(content, message.written_with(), headers.deliver_at_ms, large)


def digest_of_message(message: PulsarMessage) -> int:
    """64 bits of BLAKE2b over all but the sequence id."""
    digest = hashlib.blake2b(digest_size=8)
    parts = [message.key, message.ordering_key, str(message.event_time_ms)]
    parts += [text for each in sorted(message.properties.items()) for text in each]
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    digest.update(b"n" if message.payload is None else b"v" + message.payload)
    return int.from_bytes(digest.digest(), "big")


def _metadata_bytes(content: PulsarMessage) -> int:
    texts = [content.key, content.ordering_key, *content.properties, *content.properties.values()]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _ordering_key(message: Message, headers: RecordHeaders) -> bytes | None:
    if isinstance(message, BatchedMessage):
        return message.entry.columns.message(message.batch_index).ordering_key
    return message.record.key() if headers.key_is_ordering_key else headers.ordering_key


def _text(what: str, key: bytes | None) -> str:
    try:
        return "" if key is None else key.decode("utf-8")
    except UnicodeDecodeError:
        raise errors.Refused(
            f"its {what} {key!r:.60} is no UTF-8, and Pulsar's Python client takes only text"
        ) from None
