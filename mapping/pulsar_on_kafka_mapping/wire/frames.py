"""Frames of Pulsar's binary protocol are cut out of a stream of bytes, and made.

    total (4) | size of the command (4) | command | entry

Numbers are big-endian, and `total` counts what is behind itself. Only frames with a message have an `entry`
(`wire.entries`). Source: Pulsar's Commands and PulsarDecoder, 4.0.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES

MAX_FRAME_BYTES: Final = MAX_ENTRY_BYTES
"""The limit of Pulsar's decoder, with its default `maxMessageSize`."""
_NUMBER: Final = 4
_sizes: Final = Struct(">II").pack


class Frame(NamedTuple):
    """`entry` is b'' where there is no message."""

    command: bytes
    entry: bytes


class MalformedFrame(MappingError):
    """Bytes are no frame of Pulsar's protocol, so nothing behind them can be understood either."""

    def __init__(self, message: str, before: Sequence[Frame] = ()) -> None:
        super().__init__(message)
        self.before = before
        """Frames that were well."""


class FrameCutter:
    """Memory: a frame at most, besides what is fed at a time."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        """Bytes that a frame may have, behind its first four; may be changed between two calls of `feed`."""
        self._kept = bytearray()
        self._required = 0
        """Bytes that the frame at the beginning of `_kept` has, as far as that is known."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end in `data`.

        Raises:
            MalformedFrame: a frame is larger than `most`, or its command is larger than itself.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._required:
                return []
            data = bytes(self._kept)
        frames: list[Frame] = []
        at, end, self._required = 0, len(data), 0
        while end - at >= _NUMBER:
            start = at + _NUMBER
            total = int.from_bytes(data[at:start], "big")
            if not _NUMBER <= total <= self.max_bytes:
                raise MalformedFrame(f"a frame has {total} bytes, expected {_NUMBER} to {self.max_bytes}", frames)
            stop = start + total
            if stop > end:
                self._required = stop - at
                break
            begin = start + _NUMBER
            size = int.from_bytes(data[start:begin], "big")
            if size > total - _NUMBER:
                raise MalformedFrame(f"a command has {size} bytes in a frame of {total}", frames)
            frames.append(Frame(data[begin : begin + size], data[begin + size : stop]))
            at = stop
        self._kept[:] = data[at:]
        return frames


def frame(command: bytes, entry: bytes = b"") -> bytes:
    """A frame's bytes. `entry` is at most `MAX_ENTRY_BYTES`."""
    size = len(command)
    return b"".join((_sizes(_NUMBER + size + len(entry), size), command, entry))
