"""Records as the dispatcher sees them, for histories that are played without a broker."""

from __future__ import annotations


def key_of(offset: int) -> bytes:
    """One of five keys, mixed over the offsets."""
    return b"key %d" % (offset * 7 // 3 % 5)


class Record:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def headers(self) -> None:
        return None

    def key(self) -> bytes:
        return key_of(self._offset)

    def value(self) -> bytes:
        return b""

    def __len__(self) -> int:
        return 10
