"""Payloads of a topic become the Arrow arrays of its value's columns, on executors without a JVM.

The counterpart of `values.value_decoding` for the Python data source:

    arrays = ValueArrays(schemas, mode)          # on the driver and, by pickle, on executors
    StructType([*arrays.fields, ...])            # the value's columns
    arrays.arrays(payloads, versions, keys, place)

`TopicSchemas` are read on the driver (`topic_schemas`). A pickled object holds no more than these and the options, and
is built again where it is loaded: some milliseconds for each definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.options.read_options import CORRUPT, FAILFAST
from pulsar_on_kafka_spark.source.array_codec import ArrayCodec
from pulsar_on_kafka_spark.source.avro_arrays import AvroArrays
from pulsar_on_kafka_spark.source.json_arrays import JsonArrays
from pulsar_on_kafka_spark.source.key_value_arrays import KeyValueArrays
from pulsar_on_kafka_spark.source.plain_arrays import BytesArrays, PlainArrays, TextArrays
from pulsar_on_kafka_spark.source.protobuf_arrays import ProtobufArrays
from pulsar_on_kafka_spark.values.plain_values import PLAIN_TYPES
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas
from pulsar_on_kafka_spark.values.value_codec import VALUE
from pulsar_on_kafka_spark.values.value_decoding import (
    check_case,
    check_mode,
    complaint,
    needs_key,
    not_read,
    readable_schema,
)


class ValueArrays:
    """The value's columns of one topic, or of topics with the same schemas.

    Each call needs memory for its payloads, for their Python values and for the arrays. A call takes less than 2 GiB of
    payloads, Arrow's limit for a column of bytes.
    """

    fields: list[StructField]
    """The columns: a value's fields, or one called `value`; then `CORRUPT` where it is kept. All may be null."""
    needs_key: bool
    """`arrays` needs the records' keys."""
    needs_version: bool
    """`arrays` needs the schema versions of messages."""

    def __init__(self, schemas: TopicSchemas, mode: str = FAILFAST, *, keeps_corrupt: bool = False) -> None:
        """`keeps_corrupt`: payloads that are no value of the schema get a last column, `CORRUPT`.

        Raises:
            InvalidReadOption: no such mode.
            NotReadable: the schema cannot be read, in the words of `value_decoding.codec_of`; or fields differ in case
                alone: a data source does not learn whether the session tells them apart.
        """
        check_mode(mode)
        self._options = (schemas, mode, keeps_corrupt)
        self._fails = mode == FAILFAST
        with readable_schema(schemas):
            self._codec = _codec(schemas.reader, schemas.writers)
        try:
            check_case(schemas)
        except NotReadable as refused:
            raise NotReadable(f"{refused}, and use read_pulsar or stream_pulsar") from refused
        kind = self._codec.kind
        named = kind.fields if self._codec.is_record and isinstance(kind, StructType) else None
        self._is_record = named is not None
        self.fields = [StructField(VALUE, kind)] if named is None else list(named)
        self._keeps_corrupt = keeps_corrupt
        if keeps_corrupt:
            self.fields.append(StructField(CORRUPT, BinaryType()))
        self.needs_version = self._codec.by_version
        self.needs_key = needs_key(schemas)

    def __reduce__(self) -> tuple[Any, ...]:
        return _built, self._options

    def arrays(
        self,
        payloads: Sequence[bytes | None],
        versions: Sequence[int | None] | None,
        keys: Sequence[bytes | None] | None,
        place: Callable[[int], str],
    ) -> list[Any]:
        """One Arrow array for each of `fields`, of the type that Spark expects of a data source.

        Args:
            versions: the schema version of each message, None for one that names none; needed where `needs_version`.
            keys: the key of each record; needed where `needs_key`.
            place: "topic, partition P, offset O" of the message at an index.
        Raises:
            NotReadable: with FAILFAST, the first payload that is no value of the schema. PERMISSIVE gives nulls.
        """
        found, failed = self._codec.decode(payloads, versions if self.needs_version else None, keys)
        if failed and self._fails:
            at = failed[0]
            named = versions[at] if self.needs_version and versions is not None else None
            raise NotReadable(complaint(self._options[0], place(at), named, by_version=self.needs_version))
        arrays = [found.field(at) for at in range(found.type.num_fields)] if self._is_record else [found]
        if self._keeps_corrupt:
            arrays.append(_corrupt(payloads, failed))
        return arrays


def _built(schemas: TopicSchemas, mode: str, keeps_corrupt: bool) -> ValueArrays:
    return ValueArrays(schemas, mode, keeps_corrupt=keeps_corrupt)


def _corrupt(payloads: Sequence[bytes | None], failed: Sequence[int]) -> pa.Array:
    """The payloads at the indexes in `failed`; null elsewhere."""
    if not failed:
        return pa.nulls(len(payloads), pa.binary())
    kept: list[bytes | None] = [None] * len(payloads)
    for at in failed:
        kept[at] = payloads[at]
    return pa.array(kept, pa.binary())


def _codec(reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo]) -> ArrayCodec:
    kind = reader.type
    if kind in (SchemaType.BYTES, SchemaType.NONE):
        return BytesArrays()
    if kind is SchemaType.STRING:
        return TextArrays()
    if kind in PLAIN_TYPES:
        return PlainArrays(kind)
    if kind is SchemaType.AVRO:
        return AvroArrays(reader, writers)
    if kind is SchemaType.JSON:
        return JsonArrays(reader)
    if kind is SchemaType.PROTOBUF_NATIVE:
        return ProtobufArrays(reader)
    if kind is SchemaType.KEY_VALUE:
        return KeyValueArrays(reader, writers, _codec)
    raise not_read(kind)
