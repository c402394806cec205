"""Arrays of key/value schemas: columns `key` and `value`, each by its own codec.

`values.key_values` has the layout. The schema version of a message decides whether its key is in the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql.types import StructField, StructType

from pulsar_on_kafka.schema.key_value import inline_parts
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.source.array_codec import ArrayCodec, Decoded, Payloads, Versions
from pulsar_on_kafka_spark.source.arrow_columns import arrow_type, struct_array
from pulsar_on_kafka_spark.values.key_values import KeyValueParts

CodecOf = Callable[[SchemaInfo, Mapping[SchemaVersion, SchemaInfo]], ArrayCodec]
_Parts = tuple[bytes | None, bytes | None]


class KeyValueArrays(ArrayCodec):
    """The codec has one codec for the key and one for the value. Raises ValueError: a definition cannot be read."""

    is_record = True

    def __init__(self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo], codec_of: CodecOf) -> None:
        """`codec_of` makes the codec of a part."""
        parts = KeyValueParts(reader, writers)
        self._separated = parts.separated
        self._otherwise = frozenset(parts.otherwise)
        self._codecs = [codec_of(*schemas) for schemas in parts.schemas.values()]
        self.by_version = bool(parts.otherwise) or any(codec.by_version for codec in self._codecs)
        self.kind = StructType(
            [StructField(part, codec.kind) for part, codec in zip(parts.schemas, self._codecs, strict=True)]
        )
        self._arrow = arrow_type(self.kind)

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        """As `ArrayCodec.decode`. `keys` are the keys of the records."""
        parts, failed = self._parts(payloads, versions, keys)
        found = [codec.decode(part, versions if codec.by_version else None) for part, codec in self._by_codec(parts)]
        broken = failed.union(*(rows for _, rows in found))
        if broken:  # a message fails as a whole
            for at in broken:
                parts[at] = (None, None)
            found = [
                codec.decode(part, versions if codec.by_version else None) for part, codec in self._by_codec(parts)
            ]
        arrays = [array for array, _ in found]
        return struct_array(self._arrow, arrays, parts, some_null=False), sorted(broken)

    def _by_codec(self, parts: Sequence[_Parts]) -> list[tuple[list[bytes | None], ArrayCodec]]:
        return [([part[at] for part in parts], codec) for at, codec in enumerate(self._codecs)]

    def _parts(self, payloads: Payloads, versions: Versions, keys: Payloads | None) -> tuple[list[_Parts], set[int]]:
        """Key and value of each message, and the indexes of payloads that are not both."""
        record_keys = keys if keys is not None else [None] * len(payloads)
        named = versions if versions is not None else [None] * len(payloads)
        failed: set[int] = set()
        parts: list[_Parts] = []
        for at, (payload, key, version) in enumerate(zip(payloads, record_keys, named, strict=True)):
            found: _Parts = (None, None)
            if self._separated is not (version in self._otherwise):
                found = (key, payload)
            elif payload is not None:
                try:
                    found = inline_parts(payload)
                except ValueError:
                    failed.add(at)
            parts.append(found)
        return parts, failed
