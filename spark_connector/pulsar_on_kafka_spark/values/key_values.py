"""Key/value schemas as SQL: columns `key` and `value`, each by its own schema.

Inline, both are in the payload behind their lengths (4 bytes, big-endian, -1 for None); separated, the key is the
record's key. The schema version of a message decides which of the two it is. See `schema.key_value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka.schema.key_value import KeyValueEncodingType, encoding_of
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_schema_compat.key_value import split
from pulsar_on_kafka_spark.values.plain_values import number, number_bytes
from pulsar_on_kafka_spark.values.value_codec import ValueCodec

CodecOf = Callable[[SchemaInfo, Mapping[SchemaVersion, SchemaInfo]], ValueCodec]

_PARTS: Final = ("key", "value")
_LENGTH: Final = 4


class KeyValueParts:
    """The schemas of keys and values, and the versions that have keys elsewhere than the reader's."""

    def __init__(self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo]) -> None:
        """Raises ValueError: a definition cannot be read."""
        own = split(reader)
        theirs = {version: split(info) for version, info in writers.items()}
        self.schemas = {
            part: (own[part], {version: parts[part] for version, parts in theirs.items()}) for part in _PARTS
        }
        """The reader's and the writers' of each part."""
        self.separated = encoding_of(reader) is KeyValueEncodingType.SEPARATED
        self.otherwise = [
            version.number
            for version, info in sorted(writers.items())
            if (encoding_of(info) is KeyValueEncodingType.SEPARATED) is not self.separated
        ]
        """The numbers of these versions."""


class KeyValueCodec(ValueCodec):
    """The codec has one codec for the key and one for the value. Raises ValueError: a definition cannot be read."""

    def __init__(
        self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo], record_key: Column, codec_of: CodecOf
    ) -> None:
        """`codec_of` makes the codec of a part; `record_key` is the column with the records' keys (binary)."""
        parts = KeyValueParts(reader, writers)
        self._codecs = {part: codec_of(*schemas) for part, schemas in parts.schemas.items()}
        self._record_key = record_key
        self._separated = parts.separated
        self._otherwise = parts.otherwise
        self.by_version = bool(self._otherwise) or any(codec.by_version for codec in self._codecs.values())

    def parse(self, payload: Column, version: Column | None) -> Column:
        parts = self._parts(payload, version)
        parsed = [
            codec.parse(parts.getField(part), version if codec.by_version else None).alias(part)
            for part, codec in self._codecs.items()
        ]
        return F.struct(*parsed, parts.alias("payloads"))

    def failed(self, payload: Column, parsed: Column) -> Column:
        payloads = parsed["payloads"]
        found = payloads["broken"]
        for part, codec in self._codecs.items():
            found = found | codec.failed(payloads[part], parsed[part])
        return found

    def value(self, parsed: Column) -> Column:
        return F.struct(*self.columns(parsed))

    def columns(self, parsed: Column) -> list[Column]:
        return [codec.value(parsed.getField(part)).alias(part) for part, codec in self._codecs.items()]

    def _parts(self, payload: Column, version: Column | None) -> Column:
        """Payloads of key and value, and whether they could not be separated."""
        apart = F.struct(self._record_key.alias("key"), payload.alias("value"), F.lit(False).alias("broken"))
        own, other = (apart, _inline(payload)) if self._separated else (_inline(payload), apart)
        if not self._otherwise or version is None:
            return own
        return F.when(version.isin(self._otherwise), other).otherwise(own)


def inline_payload(key: Column, value: Column) -> Column:
    """Both in one payload; null is -1 in place of its length."""
    return F.concat(_framed(key), _framed(value))


def _framed(data: Column) -> Column:
    known = F.concat(number_bytes(F.octet_length(data), _LENGTH), data)
    return F.coalesce(known, F.lit(b"\xff\xff\xff\xff"))


def _inline(payload: Column) -> Column:
    size = F.octet_length(payload)
    key_length = number(payload, 0, _LENGTH)
    value_at = F.greatest(key_length, F.lit(0)) + 2 * _LENGTH
    value_length = number(F.substr(payload, (value_at - _LENGTH + 1).try_cast("int"), F.lit(_LENGTH)), 0, _LENGTH)
    whole = (size >= 2 * _LENGTH) & (key_length >= -1) & (value_at <= size)
    fits = whole & (value_length >= -1) & (value_at + F.greatest(value_length, F.lit(0)) <= size)
    key = F.when(fits & (key_length >= 0), F.substr(payload, F.lit(_LENGTH + 1), key_length.cast("int")))
    value = F.when(fits & (value_length >= 0), F.substr(payload, (value_at + 1).cast("int"), value_length.cast("int")))
    return F.struct(
        key.alias("key"), value.alias("value"), (payload.isNotNull() & ~F.coalesce(fits, F.lit(False))).alias("broken")
    )
