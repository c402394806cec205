"""A transaction id has 128 bits. Headers show `<most significant half>:<least significant half>` in decimal, people see
`(most,least)`, as Pulsar prints it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.errors import MappingError

_TEXT: Final = re.compile(rb"([0-9]{1,20}):([0-9]{1,20})")
_PRINTED: Final = re.compile(r"\(\s*([0-9]{1,20})\s*,\s*([0-9]{1,20})\s*\)|([0-9]{1,20}):([0-9]{1,20})", re.ASCII)
_HALF_MAX: Final = 2**64 - 1


class TxnId(NamedTuple):
    """A transaction id has two halves of 0 to 2^64 - 1; the high 16 bits of `most_bits` are the coordinator's id.
    Source: Pulsar TxnID."""

    most_bits: int
    least_bits: int

    @property
    def coordinator(self) -> int:
        """The number of the coordinator that began it."""
        return self.most_bits >> 48

    def __str__(self) -> str:
        """Give `(most,least)`, as Pulsar prints it."""
        return f"({self.most_bits},{self.least_bits})"

    @staticmethod
    def parse(text: str) -> TxnId:
        """Parses `(most,least)` or `most:least`. Raises MappingError."""
        found = _PRINTED.fullmatch(text.strip())
        halves = [] if found is None else [int(half) for half in found.groups() if half is not None]
        if len(halves) != 2 or max(halves) > _HALF_MAX:
            raise MappingError(
                f"{text[:60]!r} is no transaction id; expected (most,least) or most:least, each 0 to {_HALF_MAX}"
            )
        return TxnId(*halves)

    def to_bytes(self) -> bytes:
        """ASCII text.

        Raises:
            MappingError: a half has more than 64 bits or is negative.
        """
        for half in self:
            if not 0 <= half <= _HALF_MAX:
                raise MappingError(f"transaction id is {tuple(self)}, expected halves of 0 to {_HALF_MAX}")
        return b"%d:%d" % self

    @staticmethod
    def from_bytes(text: bytes) -> TxnId:
        """The inverse of `to_bytes`. Raises MappingError."""
        found = _TEXT.fullmatch(text)
        if found is None or int(found[1]) > _HALF_MAX or int(found[2]) > _HALF_MAX:
            raise MappingError(f"transaction id is {text[:60]!r}, expected <most>:<least>, each 0 to {_HALF_MAX}")
        return TxnId(int(found[1]), int(found[2]))
