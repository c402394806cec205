"""A chunked message as one record, and which records are chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of, packed_headers_of
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.records.message_record import ChunkInfo, Headers
from pulsar_on_kafka.mapping.records.message_record import chunk_info as chunk_info_of
from pulsar_on_kafka.mapping.records.record_headers import CHUNK


def chunk_info(record: Any) -> ChunkInfo | None:
    """What a record says of the message that it is a chunk of; None when it is none.

    Raises:
        CorruptRecord: its headers cannot be read.
    """
    if not any(name == CHUNK for name, _ in headers_of(record) or ()):
        return None
    return chunk_info_of(headers_of(record))


class WholeMessage:
    """A chunked message as one record: at its last chunk's offset, with that one's key, headers and time.

    Its payload may be absent (`present`), and is to be read again then. Memory: the payload, once.
    """

    __slots__ = ("_chunks", "_last", "_value", "decrypted", "offsets", "total_bytes")

    def __init__(self, offsets: Sequence[int], total_bytes: int, last: Any, chunks: Sequence[Any] | None) -> None:
        self.offsets = offsets
        """Its chunks', in the order of the chunks."""
        self.total_bytes = total_bytes
        self._last = last
        self._chunks: Sequence[KafkaRecord] | None = chunks
        self._value: bytes | None = None
        self.decrypted = False

    @property
    def present(self) -> bool:
        return self._chunks is not None or self._value is not None

    def chunks(self) -> Sequence[KafkaRecord]:
        return self._chunks or ()

    def with_chunks(self, chunks: Sequence[Any], *, decrypted: bool = False) -> WholeMessage:
        """The same message made of these."""
        made = WholeMessage(self.offsets, self.total_bytes, self._last, chunks)
        made.decrypted = decrypted
        return made

    def check(self) -> None:
        """Raises CorruptRecord when the chunks have another length than they say."""
        found = sum(len(chunk.value() or b"") for chunk in self.chunks())
        if found != self.total_bytes:
            raise CorruptRecord(f"{len(self.offsets)} chunks hold {found} bytes, expected {self.total_bytes}")

    def value(self) -> bytes:
        if self._value is None:
            self._value = b"".join([chunk.value() or b"" for chunk in self.chunks()])
            self._chunks = None
        return self._value

    def topic(self) -> str:
        return str(self._last.topic())

    def partition(self) -> int:
        return int(self._last.partition())

    def offset(self) -> int:
        return self.offsets[-1]

    def key(self) -> bytes | None:
        key: bytes | None = self._last.key()
        return key

    def headers(self) -> Headers | bytes | None:
        headers: Headers | bytes | None = packed_headers_of(self._last)
        return headers

    def timestamp(self) -> tuple[int, int]:
        timestamp: tuple[int, int] = self._last.timestamp()
        return timestamp

    def __len__(self) -> int:
        return self.total_bytes if self.present else len(self._last)
