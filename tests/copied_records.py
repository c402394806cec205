"""Records in memory, as replicators read and write them."""

from __future__ import annotations

from typing import Any


class CopiedRecord:
    """A record of either side: one that is read, one that is reported, or one of the target's log."""

    def __init__(self, offset: int, value: bytes | None = None, headers: Any = None) -> None:
        self._offset, self._value, self._headers = offset, value, headers

    def __len__(self) -> int:
        return 10

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def headers(self) -> Any:
        return self._headers

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> None:
        return None
