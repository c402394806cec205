"""A schema version numbers a schema within its topic and stands in the header of each message."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError

_HEADER_BYTES = 8
_MAX = 2**63 - 1


@dataclass(frozen=True, order=True, slots=True)
class SchemaVersion:
    """A version's `number` counts from 0; a deletion takes a number too. Source: Pulsar `LongSchemaVersion`.

    Raises:
        MappingError: the number is not from 0 to 2**63 - 1.
    """

    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number <= _MAX:
            raise MappingError(f"schema version is {self.number}, expected 0 to {_MAX}")

    def header(self) -> bytes:
        """8 bytes, big endian."""
        return self.number.to_bytes(_HEADER_BYTES, "big")

    @classmethod
    def from_header(cls, header: bytes) -> SchemaVersion:
        """Raises CorruptRecord for anything but 8 bytes below 2**63."""
        number = int.from_bytes(header, "big")
        if len(header) != _HEADER_BYTES or number > _MAX:
            raise CorruptRecord(f"schema version is {header[:40]!r}, expected {_HEADER_BYTES} bytes below 2**63")
        return cls(number)

    def __str__(self) -> str:
        return str(self.number)
