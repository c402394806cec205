"""Payloads that a Pulsar client compressed become plain again, within bounds.

Pulsar's codecs are a raw LZ4 block, a zlib stream (which Java's client flushes and never ends), one Zstandard frame,
and raw Snappy; the uncompressed size stands beside them. Source: CompressionCodecProvider and its codecs of
pulsar-common 4.0.7; the tests have what the official clients wrote. The Rust crate `pulsar` (6.9.1) writes Snappy's
framing format, which no official client reads; here it is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo

MAX_UNCOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""The limit of one payload. Larger payloads of clients are refused at the store, so that no unreadable one is
stored."""

_MAX_GROWTH: Final = {Codec.LZ4: 256, Codec.ZLIB: 1_040, Codec.ZSTD: 44_000, Codec.SNAPPY: 64}
"""The largest growth of a payload that its format allows: no buffer is allocated for more. LZ4's longest run has 255
bytes for one, zlib's 258 for two bits, Zstandard's 128 KiB for three, Snappy's 64 for three."""
_SMALL_BYTES: Final = 64 * 1024
_SNAPPY_STREAM: Final = b"\xff\x06\x00\x00sNaPpY"
"""The beginning of Snappy's framing format; a raw block of 895 bytes may begin with the same first two."""


def decompress(payload: bytes, info: CompressionInfo) -> bytes:
    """The plain payload. Memory: `info.uncompressed_bytes`, which is at most `MAX_UNCOMPRESSED_BYTES`, twice.

    Raises:
        CorruptRecord: it is not compressed that way, or has another size then.
    """
    codec, size = info
    if size > MAX_UNCOMPRESSED_BYTES:
        raise CorruptRecord(f"payload has {size} bytes uncompressed, expected up to {MAX_UNCOMPRESSED_BYTES}")
    if size > _SMALL_BYTES and size > _MAX_GROWTH[codec] * len(payload):
        raise CorruptRecord(
            f"payload of {len(payload)} bytes in {codec.name} has {size} bytes uncompressed, "
            f"expected up to {_MAX_GROWTH[codec] * len(payload)}"
        )
    try:
        plain = _inflate(payload, size) if codec is Codec.ZLIB else _into(_DECOMPRESSORS[codec], payload, size)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptRecord(
            f"payload of {len(payload)} bytes, {payload[:20]!r}, is no {codec.name} of {size} bytes: {error}"
        ) from error
    if len(plain) != size:
        raise CorruptRecord(f"payload in {codec.name} has {len(plain)} bytes uncompressed or more, expected {size}")
    return plain


def _into(decompress_into: Callable[[bytes, bytearray], int], payload: bytes, size: int) -> bytes:
    if not size and not payload:
        return b""
    plain = bytearray(size)
    return bytes(memoryview(plain)[: decompress_into(payload, plain)])


def _snappy_into(payload: bytes, plain: bytearray) -> int:
    try:
        return cramjam.snappy.decompress_raw_into(payload, plain)
    except cramjam.DecompressionError:
        if not payload.startswith(_SNAPPY_STREAM):
            raise
        return cramjam.snappy.decompress_into(payload, plain)


def _inflate(payload: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(payload, size + 1)


_DECOMPRESSORS: Final[dict[Codec, Callable[[bytes, bytearray], int]]] = {
    Codec.LZ4: cramjam.lz4.decompress_block_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
    Codec.SNAPPY: _snappy_into,
}
