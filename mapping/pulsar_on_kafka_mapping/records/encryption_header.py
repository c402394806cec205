"""The header `__pulsar.encryption` describes the encryption of a message.

The bytes are a Protobuf message: the fields of Pulsar's MessageMetadata about encryption, under their numbers there.

    field 13 (repeated)  1 key's name, 2 data key encrypted with that public key, 3 (repeated) metadata: 1 key, 2 value
    field 14             algorithm's name (Pulsar's clients leave it out)
    field 15             parameter: the 12 bytes of AES-GCM's initialization vector

Everything but the parameter is the same for all messages of a data key, so it comes first and is made once. Decision:
mapping/decisions/0007.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, text_of, utf8, write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord

TAG_BYTES: Final = 16
"""The bytes that AES-GCM adds to a message."""

_KEY, _ALGORITHM, _PARAM = 13, 14, 15
_NAME, _VALUE, _METADATA = 1, 2, 3
_BYTES: Final = 2  # Protobuf's wire type for bytes, text and messages


class EncryptedKey(NamedTuple):
    """A data key is encrypted for the holder of the private key called `name`."""

    name: str
    value: bytes
    metadata: Mapping[str, str]


class EncryptionInfo(NamedTuple):
    """A consumer needs this besides its private key."""

    keys: tuple[EncryptedKey, ...]
    param: bytes
    algorithm: str = ""


def encode_keys(keys: Sequence[EncryptedKey], algorithm: str = "") -> bytes:
    """The part of a header that does not change from message to message."""
    out = bytearray()
    for key in keys:
        inner = bytearray()
        _write(inner, _NAME, _utf8(key.name))
        _write(inner, _VALUE, key.value)
        for name, value in key.metadata.items():
            pair = bytearray()
            _write(pair, 1, _utf8(name))
            _write(pair, 2, _utf8(value))
            _write(inner, _METADATA, pair)
        _write(out, _KEY, inner)
    if algorithm:
        _write(out, _ALGORITHM, _utf8(algorithm))
    return bytes(out)


def encode_encryption(keys: bytes, param: bytes) -> bytes:
    """A header's value: what `encode_keys` gave, and this message's parameter."""
    out = bytearray(keys)
    _write(out, _PARAM, param)
    return bytes(out)


def decode_encryption(data: bytes) -> EncryptionInfo:
    """Read a header's value; fields that are not known are passed over.

    Raises:
        CorruptRecord: it ends early, is no Protobuf, or names no key.
    """
    keys: list[EncryptedKey] = []
    param, algorithm = b"", ""
    for field, value in _fields(data):
        if field == _KEY:
            keys.append(_decode_key(value))
        elif field == _ALGORITHM:
            algorithm = _text(value)
        elif field == _PARAM:
            param = value
    if not keys:
        raise CorruptRecord(f"encryption header {data[:40].hex()} names no key")
    return EncryptionInfo(tuple(keys), param, algorithm)


def _decode_key(data: bytes) -> EncryptedKey:
    name, value, metadata = "", b"", {}
    for field, part in _fields(data):
        if field == _NAME:
            name = _text(part)
        elif field == _VALUE:
            value = part
        elif field == _METADATA:
            pair = {number: _text(text) for number, text in _fields(part)}
            metadata[pair.get(1, "")] = pair.get(2, "")
    return EncryptedKey(name, value, metadata)


def _write(out: bytearray, field: int, value: bytes | bytearray) -> None:
    out.append(field << 3 | _BYTES)  # all fields are below 16, so that the tag is one byte
    write_varint(out, len(value))
    out += value


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    for field, value in ByteReader(data, "encryption header").fields():
        if isinstance(value, bytes):
            yield field, value


def _text(data: bytes) -> str:
    return text_of(data, "encryption header")


def _utf8(text: str) -> bytes:
    return utf8(text, "encryption key")
