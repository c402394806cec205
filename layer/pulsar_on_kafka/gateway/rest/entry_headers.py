"""Headers of an entry over REST: the fields of its metadata. Source: PersistentTopicsBase.generateResponseWithEntry and
TopicsImpl.getMessagesFromHttpResponse of Pulsar 4.0.7."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from pulsar_on_kafka.gateway.handlers.rate_meter import time_text
from pulsar_on_kafka_mapping.encoding.varint import text_or_latin1
from pulsar_on_kafka_mapping.records.message_record import Codec
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata

_CONTROLS: Final = dict.fromkeys((*range(32), 127))
"""Characters that no header can have."""


def flag(value: object) -> str:
    return "true" if value else "false"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _codec(number: int) -> str:
    return Codec(number).name if number else "NONE"


_FIELDS: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("publish-time", "publish_time_ms", time_text),
    ("event-time", "event_time_ms", time_text),
    ("deliver-at-time", "deliver_at_ms", time_text),
    ("num-batch-message", "messages", str),
    ("null-value", "null_value", flag),
    ("PROPERTY-TOTAL-CHUNKS", "chunks", str),
    ("PROPERTY-CHUNK-ID", "chunk_id", str),
    ("producer-name", "producer_name", str),
    ("sequence-id", "sequence_id", str),
    ("replicated-from", "replicated_from", str),
    ("partition-key", "partition_key", text_or_latin1),
    ("compression", "compression", _codec),
    ("uncompressed-size", "uncompressed_bytes", str),
    ("Base64-schema-version", "schema_version", _base64),
    ("partition-key-b64-encoded", "in_base64", flag),
    ("Base64-ordering-key", "ordering_key", _base64),
    ("marker-type", "marker_type", str),
    ("txnid-least-bits", "txn_least", str),
    ("txnid-most-bits", "txn_most", str),
    ("highest-sequence-id", "highest_sequence_id", str),
    ("uuid", "uuid", str),
    ("num-chunks-from-msg", "chunks", str),
    ("total-chunk-msg-size", "chunked_bytes", str),
    ("chunk-id", "chunk_id", str),
)
"""The header, behind `X-Pulsar-`, of each field that is set."""
_ENCRYPTION_KEYS: Final = 13
_ENCRYPTION: Final[dict[int, tuple[str, Callable[[bytes], str]]]] = {
    _ENCRYPTION_KEYS: ("Base64-encryption-keys", _base64),
    14: ("encryption-algo", text_or_latin1),
    15: ("Base64-encryption-param", _base64),
}
"""The same for fields about encryption, by their numbers."""


def metadata_headers(metadata: PulsarMetadata, payload_bytes: int) -> Iterator[tuple[str, str]]:
    """The fields of an entry's metadata, as name and value. Control characters of texts are left out."""
    if metadata.properties:
        properties = {text_or_latin1(name): text_or_latin1(value) for name, value in metadata.properties}
        yield "X-Pulsar-PROPERTY", json.dumps(properties)
    if metadata.messages is not None:
        yield "X-Pulsar-batch-size", str(payload_bytes)
    yield "X-Pulsar-Is-Encrypted", flag(any(number == _ENCRYPTION_KEYS for number, _ in metadata.encryption))
    for destination in metadata.replicate_to:
        yield "X-Pulsar-replicated-to", _header_text(destination)
    for name, field, text in _FIELDS:
        value = getattr(metadata, field)
        if value is not None:
            yield f"X-Pulsar-{name}", _header_text(text(value))
    for number, data in metadata.encryption:
        if number in _ENCRYPTION and isinstance(data, bytes):
            name, encoded = _ENCRYPTION[number]
            yield f"X-Pulsar-{name}", _header_text(encoded(data))


def _header_text(value: str) -> str:
    return value.translate(_CONTROLS).strip()
