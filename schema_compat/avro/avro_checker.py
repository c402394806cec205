"""The checker of Avro text parses definitions, keeps the small ones, and compares a reader's with a writer's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pulsar_on_kafka.schema_compat.avro.avro_parsing import parse_avro
from pulsar_on_kafka.schema_compat.avro.avro_types import AvroType
from pulsar_on_kafka.schema_compat.avro.difference_report import differences
from pulsar_on_kafka.schema_compat.base.schema_model import Difference, SchemaInfo

_KEPT_BYTES: Final = 32_768


@dataclass(frozen=True, eq=False, slots=True)
class AvroSchema:
    """A definition defines a type."""

    text: bytes
    type: AvroType


class AvroChecker:
    """The checker judges definitions that are Avro text: AVRO, PROTOBUF and most of JSON."""

    def parse(self, schema: SchemaInfo) -> AvroSchema:
        parse = _parse_small if len(schema.schema) <= _KEPT_BYTES else _parse
        return parse(schema.schema)

    def differences(self, reader: AvroSchema, writer: AvroSchema) -> list[Difference]:
        return [] if reader.text == writer.text else differences(reader.type, writer.type)


def _parse(text: bytes) -> AvroSchema:
    return AvroSchema(text, parse_avro(text))


# A registry asks about the same versions again and again.
_parse_small = lru_cache(maxsize=64)(_parse)

AVRO_CHECKER = AvroChecker()
