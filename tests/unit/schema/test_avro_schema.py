"""AvroSchema beside the versions of other writers, and of a definition alone."""

from __future__ import annotations

import json
from typing import Any

import pulsar.schema
import pytest
from fastavro import schema as fastavro_schema
from fastavro.read import SchemaResolutionError

from pulsar_on_kafka.schema import Array, AvroSchema, CustomEnum, Integer, JsonSchema, Long, Record, String
from pulsar_on_kafka.schema.avro import WRITERS
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from tests.unit.schema.record_pairs import Color


class Old(Record):
    number = Integer(required=True)
    dropped = String()


class New(Record):
    number = Long(required=True)
    added = String(default="none", required=True, required_default=True)


def test_an_older_version_is_read_by_the_newer_schema() -> None:
    old, new = AvroSchema(Old), AvroSchema(New)
    data = old.encode(Old(number=5, dropped="x"))
    assert new.decode_as_written(data, old.schema_info()) == New(number=5, added="none")
    official = pulsar.schema.AvroSchema(None, New.schema())
    assert official._decode_bytes(data, Old.schema()) == {"number": 5, "added": "none"}
    assert new.decode_as_written(new.encode(New(number=6)), new.schema_info()) == New(number=6, added="none")


def test_what_cannot_be_resolved_says_so() -> None:
    old, new = AvroSchema(Old), AvroSchema(New)
    with pytest.raises(SchemaResolutionError):
        old.decode_as_written(new.encode(New(number=6)), new.schema_info())


@pytest.mark.parametrize(
    ("writer", "error"),
    [(JsonSchema(Old).schema_info(), TypeError), (SchemaInfo(SchemaType.AVRO, b"{"), ValueError),
     (SchemaInfo(SchemaType.AVRO, b'{"type": "nothing"}'), fastavro_schema.UnknownType)],
    ids=["json", "broken", "unknown"],
)  # fmt: skip
def test_a_writer_that_is_no_avro(writer: SchemaInfo, error: type[Exception]) -> None:
    with pytest.raises(error):
        AvroSchema(New).decode_as_written(b"\x00", writer)


def test_each_writer_is_compiled_once_and_the_number_kept_is_bounded() -> None:
    new = AvroSchema(New)
    for _ in range(2):
        for number in range(2 * WRITERS):
            fields = [{"name": "number", "type": "int"}, {"name": f"f{number}", "type": "null"}]
            definition = json.dumps({"type": "record", "name": "W", "fields": fields})
            writer = SchemaInfo(SchemaType.AVRO, definition.encode())
            assert new.decode_as_written(b"\x0a", writer) == New(number=5, added="none")
            assert new.decode_as_written(b"\x0a", writer) == New(number=5, added="none")
    kept: Any = new._writer
    assert kept.cache_info().hits == 4 * WRITERS
    assert kept.cache_info().currsize == WRITERS


def test_a_definition_alone_takes_and_gives_dicts() -> None:
    definition = {"type": "record", "name": "D", "fields": [{"name": "n", "type": "int"}]}
    ours, theirs = AvroSchema(None, definition), pulsar.schema.AvroSchema(None, dict(definition))
    assert ours.schema_info().schema == theirs.schema_info().schema().encode()
    assert ours.encode({"n": 3}) == theirs.encode({"n": 3})
    assert ours.decode(theirs.encode({"n": 3})) == {"n": 3}
    assert "__fastavro_parsed__" not in definition
    wrongs: list[Any] = [[], "x", New(number=1)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="takes a dict"):
            ours.encode(wrong)


def test_one_of_class_and_definition_is_wanted() -> None:
    with pytest.raises(AssertionError, match="record_cls or schema_definition"):
        AvroSchema(None)


def test_a_definition_that_avro_cannot_read_is_refused_at_once() -> None:
    class Enums(Record):
        colors = Array(CustomEnum(Color))

    with pytest.raises(fastavro_schema.UnknownType):
        AvroSchema(Enums)


def test_truncated_bytes_are_an_error() -> None:
    with pytest.raises((EOFError, ValueError, IndexError)):
        AvroSchema(Old).decode(AvroSchema(Old).encode(Old(number=5, dropped="long"))[:-2])
