"""The `value` of messages becomes the columns of their schema, inside the JVM.

Three steps, each a projection of its own, since Spark merges projections unless that would do something costly twice:
parse once, check once, take the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.key_value import split
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import FAILFAST, MODES
from pulsar_on_kafka_spark.values.avro_writers import AvroWriters
from pulsar_on_kafka_spark.values.json_values import JsonCodec
from pulsar_on_kafka_spark.values.key_values import KeyValueCodec
from pulsar_on_kafka_spark.values.plain_values import PLAIN_TYPES, BytesCodec, PlainCodec, TextCodec
from pulsar_on_kafka_spark.values.protobuf_values import ProtobufCodec
from pulsar_on_kafka_spark.values.record_shapes import check_names_differ
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas
from pulsar_on_kafka_spark.values.value_codec import ValueCodec

DECODED: Final = "__pulsar_decoded"
"""Spark gives a record that it cannot read as one of nulls only. So the reader's record gets a field more, which no
writer has and whose default is true: null there means that the payload was not read."""


class AvroCodec(ValueCodec):
    """The codec reads each message by its writer's definition (`AvroWriters`)."""

    def __init__(self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo]) -> None:
        """Raises ValueError, TypeError: as `AvroWriters`."""
        self._writers = AvroWriters(reader, writers)
        own = self._writers.definition
        self._is_record = self._writers.is_record
        self._fields = [field["name"] for field in own["fields"]] if self._is_record else []
        self._may_be_null = own == "null" or (isinstance(own, list) and "null" in own)
        self._options = {"avroSchema": json.dumps(_marked(own) if self._is_record else own), "mode": "PERMISSIVE"}
        self.by_version = bool(self._writers.others)

    def parse(self, payload: Column, version: Column | None) -> Column:
        own = self._from_avro(payload, self._writers.own)
        if version is None:
            return own
        found: Column | None = None
        for definition, versions in self._writers.others.items():
            theirs = self._from_avro(payload, definition)
            named = version.isin(versions)
            found = F.when(named, theirs) if found is None else found.when(named, theirs)
        same = version.isNull()
        if self._writers.same:
            same = same | version.isin(self._writers.same)
        return F.when(same, own) if found is None else found.when(same, own)

    def failed(self, payload: Column, parsed: Column) -> Column:
        if self._is_record:
            return payload.isNotNull() & parsed[DECODED].isNull()
        if self._may_be_null:
            return F.lit(False)
        return payload.isNotNull() & parsed.isNull()

    def value(self, parsed: Column) -> Column:
        return parsed.dropFields(DECODED) if self._is_record else parsed

    def columns(self, parsed: Column) -> list[Column]:
        if not self._is_record:
            return super().columns(parsed)
        return [parsed.getField(name).alias(name) for name in self._fields]

    def _from_avro(self, payload: Column, writer: str) -> Column:
        return from_avro(payload, writer, self._options)


def _marked(record: dict[str, Any]) -> dict[str, Any]:
    fields: Sequence[Any] = record["fields"]
    return {**record, "fields": [*fields, {"name": DECODED, "type": "boolean", "default": True}]}


_PARSED: Final = "__pulsar_parsed"
_CHECKED: Final = "__pulsar_checked"


@dataclass(frozen=True, slots=True)
class RawColumns:
    """The columns of undecoded messages have these names. `value` and `key` are binary, `version` is a number."""

    value: str = "value"
    key: str = "__recordKey"
    topic: str = "__topic"
    partition: str = "__partition"
    offset: str = "__offset"
    version: str = "__schemaVersion"


def codec_of(schemas: TopicSchemas, record_key: Column) -> ValueCodec:
    """The codec of a topic's messages.

    Raises:
        NotReadable: its schema cannot be read here; `schema="bytes"` returns the payloads unchanged.
    """
    with readable_schema(schemas):
        return _codec(schemas.reader, schemas.writers, record_key)


@contextmanager
def readable_schema(schemas: TopicSchemas) -> Iterator[None]:
    """Raises NotReadable for an error of a definition, with the topic and the alternative."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise NotReadable(
            f"the {schemas.reader.type.name} schema of topic {schemas.topic} cannot be read: {error}; schema='bytes' "
            "gives the payloads as they are"
        ) from error


def _codec(reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo], record_key: Column) -> ValueCodec:
    kind = reader.type
    if kind in (SchemaType.BYTES, SchemaType.NONE):
        return BytesCodec()
    if kind is SchemaType.STRING:
        return TextCodec()
    if kind in PLAIN_TYPES:
        return PlainCodec(kind)
    if kind is SchemaType.AVRO:
        return AvroCodec(reader, writers)
    if kind is SchemaType.JSON:
        return JsonCodec(reader)
    if kind is SchemaType.PROTOBUF_NATIVE:
        return ProtobufCodec(reader)
    if kind is SchemaType.KEY_VALUE:
        return KeyValueCodec(reader, writers, record_key, lambda own, theirs: _codec(own, theirs, record_key))
    raise not_read(kind)


def not_read(kind: SchemaType) -> ValueError:
    """The error of a type whose values Spark cannot read."""
    if kind is SchemaType.PROTOBUF:
        return ValueError(
            "it has no field numbers; give schema=ProtobufNativeSchema(...).schema_info() of the same message"
        )
    return ValueError(f"values of type {kind.name} are not read by Spark")


def decoded(
    messages: DataFrame,
    schemas: TopicSchemas,
    *,
    mode: str = FAILFAST,
    raw: RawColumns | None = None,
    corrupt: str | None = None,
) -> DataFrame:
    """`messages` with the value's columns first, in place of its raw value; all other columns stay.

    A null payload gives nulls. Needs the columns of `raw` but for `version`, which is needed where `needs_version`, and
    `key`, where `needs_key`. `corrupt`: the name of a last column, with the payloads that are no value of the schema.

    Raises:
        InvalidReadOption: no such mode; or a column of the value has the name of one that stays.
        NotReadable: as `codec_of`. SparkNotReady: a jar is missing.
    """
    check_mode(mode)
    raw = raw or RawColumns()
    if str(messages.sparkSession.conf.get("spark.sql.caseSensitive")).lower() != "true":
        check_case(schemas)
    codec = codec_of(schemas, F.col(raw.key))
    payload = F.col(raw.value)
    version = F.col(raw.version) if codec.by_version else None
    others = [name for name in messages.columns if name != raw.value]
    parsed = messages.withColumn(_PARSED, codec.parse(payload, version))
    failed = codec.failed(payload, F.col(_PARSED))
    if mode == FAILFAST:
        wrong = F.raise_error(_complaint(schemas, raw, version))
        checked = F.when(failed, wrong).otherwise(F.col(_PARSED))
    else:
        checked = F.when(~failed, F.col(_PARSED))
    columns = codec.columns(F.col(_CHECKED))
    kept = [name for name in others if name not in (_PARSED, _CHECKED)]
    last = [] if corrupt is None else [F.when(failed, payload).alias(corrupt)]
    names = kept if corrupt is None else [*kept, corrupt]
    found = parsed.select(*kept, checked.alias(_CHECKED), *last).select(*columns, *names)
    check_names(found.columns, schemas.topic)
    return found


def check_mode(mode: str) -> None:
    """Raises InvalidReadOption: no such mode."""
    if mode not in MODES:
        raise InvalidReadOption(f"mode is {mode!r:.40}, expected {' or '.join(MODES)}")


def check_case(schemas: TopicSchemas) -> None:
    """Raises NotReadable where fields differ in case alone, for sessions that ignore the case of columns."""
    try:
        reader = schemas.reader
        parts = split(reader).values() if reader.type is SchemaType.KEY_VALUE else [reader]
        for info in parts:
            if info.type in (SchemaType.AVRO, SchemaType.JSON):
                check_names_differ(json.loads(info.schema))
    except ValueError as error:
        raise NotReadable(
            f"the {schemas.reader.type.name} schema of topic {schemas.topic} cannot be read: {error}"
        ) from error


def needs_version(schemas: TopicSchemas) -> bool:
    """Whether decoding uses the schema version in a record's headers. Raises the errors of `codec_of`."""
    return codec_of(schemas, F.lit(None)).by_version


def needs_key(schemas: TopicSchemas) -> bool:
    """Whether decoding uses a record's key."""
    return schemas.reader.type is SchemaType.KEY_VALUE


_NO_VERSION: Final = " of the schema (it names no version)"


def complaint(schemas: TopicSchemas, place: str, version: int | None, *, by_version: bool) -> str:
    """The error of a message that cannot be decoded.

    Args:
        place: its topic, partition and offset.
        version: the schema version that the message names, where decoding goes `by_version`.
    """
    before, after, ending = _sentence(schemas, by_version=by_version)
    named = "" if not by_version else _NO_VERSION if version is None else _of_version(str(version))
    return before + place + after + named + ending


def _sentence(schemas: TopicSchemas, *, by_version: bool) -> tuple[str, str, str]:
    """The text before the place, behind it, and behind the version that a message names."""
    after = f" cannot be decoded: its bytes are no {schemas.reader.type.name} value"
    if not by_version and schemas.version is not None:
        after += _of_version(str(schemas.version))
    return "the message at ", after, " (mode PERMISSIVE gives nulls instead)"


def _of_version(version: str) -> str:
    return f" of schema version {version}"


def _complaint(schemas: TopicSchemas, raw: RawColumns, version: Column | None) -> Column:
    before, after, ending = _sentence(schemas, by_version=version is not None)
    place = [F.col(raw.topic), F.lit(", partition "), F.col(raw.partition), F.lit(", offset "), F.col(raw.offset)]
    what = [F.lit(before), *(column.cast("string") for column in place), F.lit(after)]
    if version is not None:
        what.append(F.coalesce(F.concat(F.lit(_of_version("")), version.cast("string")), F.lit(_NO_VERSION)))
    return F.concat(*what, F.lit(ending))


def check_names(names: Sequence[str], topic: str) -> None:
    """Raises InvalidReadOption where a field of the value has the name of another column."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidReadOption(
            f"the schema of topic {topic} has fields with the names of other columns ({', '.join(twice)}): leave those "
            "columns out, or read with schema='bytes'"
        )
