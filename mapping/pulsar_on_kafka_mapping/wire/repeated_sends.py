"""Single messages of a producer differ from one another in number, time and payload alone, most of them: what the bytes
of one were understood to mean holds for the next one, too.

    command     08 06 32 size | 08 producer | 10 number
    metadata    0a size name | 10 number | 18 time, six bytes | rest

These are the bytes of all clients that are known: Protobuf's libraries write fields in the order of their numbers.
Whatever has others is read as usual (`wire.commands`, `wire.message_metadata`): nothing here refuses anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import google_crc32c

from pulsar_on_kafka_mapping.wire.stored_entries import MAX_CLOCK_DIFFERENCE_MS

T = TypeVar("T")

MAX_KNOWN: Final = 64
MAX_REST_BYTES: Final = 256
_RELEARN_EVERY: Final = 1_000
"""Without repetitions (each message has a key of its own) one in this many is learned."""
_MAX_NUMBER_BYTES: Final = 9
_TIME_BYTES: Final = 6
"""The bytes of a time from 1971 to 2109."""
_COMMANDS: Final = [b"\x08\x06\x32%c\x08" % (3 + size) for size in range(_MAX_NUMBER_BYTES + 1)]
"""The beginning of a SEND whose number has this many bytes."""
_CHECKSUM: Final = b"\x0e\x01"
_METADATA_AT: Final = 10


def plain_send(command: bytes) -> tuple[int, int, bytes] | None:
    """The producer's id, the sequence id, and its varint, of a SEND without other fields; None for any other
    command."""
    number = command[7:]
    size = len(number)
    if not 0 < size <= _MAX_NUMBER_BYTES or command[:5] != _COMMANDS[size]:
        return None
    producer_id = command[5]
    if producer_id > 0x7F or command[6] != 0x10:
        return None
    sequence_id = shift = 0
    for byte in number:
        sequence_id |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return (producer_id, sequence_id, number) if shift == 7 * (size - 1) and byte < 0x80 else None


class RepeatedEntries(Generic[T]):
    """Knows entries of one producer by their bytes. For one thread.

    Memory: `MAX_KNOWN` meanings, the oldest of which goes, with up to `MAX_REST_BYTES` each.
    """

    def __init__(self) -> None:
        self._start = b""
        self._meanings: dict[bytes, tuple[int | None, T]] = {}
        self._time = b""
        self._time_ms = 0
        self._learned = 0
        """The number of learned entries since the last hit."""

    def learn(self, metadata: bytes, number: bytes, size: int | None, meaning: T) -> None:
        """Learns the meaning of an entry's metadata, with any number, any near time, and any payload, which has `size`
        bytes where the metadata contain a size."""
        self._learned += 1
        if self._learned > MAX_KNOWN and self._learned % _RELEARN_EVERY:
            self._meanings.clear()
            return
        named = 2 + metadata[1] if metadata[:1] == b"\x0a" and len(metadata) > 1 and metadata[1] < 0x80 else 0
        start = metadata[:named] + b"\x10"
        begin = b"%b%b\x18" % (start, number)
        at = len(begin) + _TIME_BYTES
        rest = metadata[at:]
        if not named or not metadata.startswith(begin) or len(metadata) < at or len(rest) > MAX_REST_BYTES:
            return
        if start != self._start:
            self._start = start
            self._meanings.clear()
        if len(self._meanings) >= MAX_KNOWN:
            del self._meanings[next(iter(self._meanings))]
        self._meanings[rest] = size, meaning

    def find(self, number: bytes, entry: bytes, now_ms: Callable[[], int]) -> tuple[T, bytes, int] | None:
        """The meaning of an entry of this number, its payload, and its publish time. None: it is unknown, or its
        checksum is wrong, or its time far away."""
        if not self._meanings:
            return None
        begin = b"%b%b\x18" % (self._start, number)
        if not entry.startswith(begin, _METADATA_AT):
            return None
        at = _METADATA_AT + len(begin)
        end = _METADATA_AT + int.from_bytes(entry[6:_METADATA_AT], "big")
        behind = at + _TIME_BYTES
        if not behind <= end <= len(entry):
            return None
        known = self._meanings.get(entry[behind:end])
        if known is None:
            return None
        size, meaning = known
        time = entry[at:behind]
        if (size is not None and size != len(entry) - end) or (
            time != self._time and not self._is_near(time, now_ms())
        ):
            return None
        if entry[:2] != _CHECKSUM or google_crc32c.value(entry[6:]) != int.from_bytes(entry[2:6], "big"):
            return None
        self._learned = 0
        return meaning, entry[end:], self._time_ms

    def _is_near(self, time: bytes, now_ms: int) -> bool:
        """Whether the time is near; a near one is cached: many messages have the same one."""
        if time[-1] > 0x7F or not all(byte & 0x80 for byte in time[:-1]):
            return False
        value = 0
        for shift, byte in enumerate(time):
            value |= (byte & 0x7F) << 7 * shift
        if abs(value - now_ms) > MAX_CLOCK_DIFFERENCE_MS:
            return False
        self._time, self._time_ms = time, value
        return True
