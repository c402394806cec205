"""Decompresses the records of a batch in Kafka's formats, within bounds: gzip, Snappy (raw, or framed by xerial's
library as Java clients do), LZ4 frames, and Zstandard."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka_mapping.wire.compression import MAX_UNCOMPRESSED_BYTES, decompress

_GZIP_WINDOW: Final = 31
"""zlib's number for the largest window behind a header of gzip."""
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES: Final = 16
"""The bytes of the name, a version, and the oldest version that can read it."""
_FIRST_GROWTH: Final = 8
_NEXT_GROWTH: Final = 4
_MIN_BUFFER_BYTES: Final = 64 * 1024
_BUFFER_FULL: Final = "failed to write whole buffer"
"""Rust's words for an output that does not fit, which cramjam passes on."""


def decompressed(codec: int, payload: bytes) -> bytes:
    """The plain records of a batch; `codec` is Kafka's number, 1 to 4.

    Memory: twice the result, which has at most `MAX_UNCOMPRESSED_BYTES`.

    Raises:
        CorruptRecord: an unknown codec, other bytes than this codec writes, or a larger result.
    """
    if codec not in _CODECS:
        raise CorruptRecord(f"compression codec is {codec}, expected 0 to {max(_CODECS)}")
    name, of = _CODECS[codec]
    try:
        return of(payload)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptRecord(f"{len(payload)} bytes, {payload[:20]!r}, are not {name}: {error}") from error


def _too_large() -> CorruptRecord:
    return CorruptRecord(f"compressed records have more than {MAX_UNCOMPRESSED_BYTES} bytes, expected up to that")


def _gzip(payload: bytes) -> bytes:
    inflating = zlib.decompressobj(_GZIP_WINDOW)
    plain = inflating.decompress(payload, MAX_UNCOMPRESSED_BYTES + 1)
    if len(plain) > MAX_UNCOMPRESSED_BYTES:
        raise _too_large()
    if not inflating.eof:
        raise zlib.error("the stream is truncated")
    return plain


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(_XERIAL):
        return _raw_snappy(payload, MAX_UNCOMPRESSED_BYTES)
    blocks: list[bytes] = []
    room, at = MAX_UNCOMPRESSED_BYTES, _XERIAL_HEADER_BYTES
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        if end > len(payload):
            raise CorruptRecord(f"a block of Snappy ends at byte {end} of {len(payload)}")
        block = _raw_snappy(payload[at + 4 : end], room)
        room -= len(block)
        blocks.append(block)
        at = end
    return b"".join(blocks)


def _raw_snappy(block: bytes, room: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > room:
        raise _too_large()
    return decompress(block, CompressionInfo(Codec.SNAPPY, size))


def _growing(decompress_into: Callable[[bytes, bytearray], int], payload: bytes) -> bytes:
    """The output of a codec whose frames need not have their size: begins again with a larger buffer."""
    size = max(_MIN_BUFFER_BYTES, _FIRST_GROWTH * len(payload))
    while True:
        plain = bytearray(min(size, MAX_UNCOMPRESSED_BYTES))
        try:
            return bytes(memoryview(plain)[: decompress_into(payload, plain)])
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise
        if size >= MAX_UNCOMPRESSED_BYTES:
            raise _too_large()
        size *= _NEXT_GROWTH


def _lz4(payload: bytes) -> bytes:
    return _growing(cramjam.lz4.decompress_into, payload)


def _zstd(payload: bytes) -> bytes:
    return _growing(cramjam.zstd.decompress_into, payload)


_CODECS: Final[dict[int, tuple[str, Callable[[bytes], bytes]]]] = {
    1: ("gzip", _gzip),
    2: ("Snappy", _snappy),
    3: ("a frame of LZ4", _lz4),
    4: ("Zstandard", _zstd),
}
