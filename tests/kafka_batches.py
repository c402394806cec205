"""Record batches as a broker returns them, encoded by kafka-python."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import cramjam
import google_crc32c

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python 3.11 and 3.12 call deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder

HEADER_BYTES: Final = 61
ATTRIBUTES_AT: Final = 21

Given = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Timestamp, key, value, headers."""


def xerial(plain: bytes) -> bytes:
    """The form of Java clients: blocks behind their sizes."""
    half = len(plain) // 2
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (plain[:half], plain[half:])]
    return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


CODECS: Final[dict[str, tuple[int, Callable[[bytes], Any]]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "raw snappy": (2, cramjam.snappy.compress_raw),
    "xerial snappy": (2, xerial),
    "lz4": (3, cramjam.lz4.compress),
    "zstd": (4, cramjam.zstd.compress),
}


def batch(
    records: Sequence[Given],
    base: int = 0,
    codec: str = "none",
    *,
    producer_id: int = -1,
    attributes: int = 0,
    epoch: int = 0,
    offsets: Sequence[int] = (),
    last: int | None = None,
) -> bytes:
    """A batch at `base`; `offsets` are relative to it, as is the `last` one, which compaction may have removed."""
    builder = DefaultRecordBatchBuilder(2, 0, False, producer_id, -1, -1, 1 << 30)
    for offset, (timestamp_ms, key, value, headers) in zip(offsets or range(len(records)), records, strict=True):
        builder.append(offset, timestamp_ms, key, value, headers)
    built = bytes(builder.build())
    last_delta = built[23:27] if last is None else last.to_bytes(4, "big")
    number, compress = CODECS[codec]
    payload = bytes(compress(built[HEADER_BYTES:]))
    flags = (number | attributes).to_bytes(2, "big")
    return sealed(base, epoch.to_bytes(4, "big") + built[16:21] + flags + last_delta + built[27:HEADER_BYTES] + payload)


def sealed(base: int, rest: bytes) -> bytes:
    """A batch with its length and its CRC; `rest` is what follows the length."""
    crc: bytes = google_crc32c.value(rest[9:]).to_bytes(4, "big")
    return base.to_bytes(8, "big") + len(rest).to_bytes(4, "big") + rest[:5] + crc + rest[9:]


def with_bytes(whole: bytes, at: int, new: bytes) -> bytes:
    return sealed(int.from_bytes(whole[:8], "big"), (whole[:at] + new + whole[at + len(new) :])[12:])


def control(base: int, producer_id: int, *, commit: bool, epoch: int = 0) -> bytes:
    """The marker of a transaction's end."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    return batch([(5, key, b"\0" * 6, [])], base, producer_id=producer_id, attributes=0x30, epoch=epoch)
