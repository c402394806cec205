"""The key of a record as bytes, where it does not come from an application's text."""

from __future__ import annotations


class RecordKey(bytes):
    """A partition key that is bytes already: of a separated KeyValue, of a copied message. Also an empty one counts."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


def key_bytes(partition_key: str | RecordKey) -> bytes:
    """What becomes the Kafka key. Raises UnicodeEncodeError for lone surrogates."""
    return bytes(partition_key) if isinstance(partition_key, RecordKey) else partition_key.encode("utf-8")
