"""`pok schemas extract`: a Python class in, the definition that a client would register out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar.schema
import pytest
from google.protobuf import struct_pb2
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.schema import ProtobufSchema

MODULE = """
from pulsar_on_kafka.schema import AvroSchema, Integer, KeyValueSchema, Record, StringSchema
import pulsar.schema

class Order(Record):
    total = Integer()

class Outer:
    class Inner(Record):
        n = Integer(required=True)

class Official(pulsar.schema.Record):
    total = pulsar.schema.Integer()

class Colors(Record):
    from enum import Enum
    from pulsar_on_kafka.schema import Array, CustomEnum
    many = Array(CustomEnum(Enum("Color", "RED")))

DEFINED = AvroSchema(None, {"type": "record", "name": "D", "fields": []})
PAIR = KeyValueSchema(StringSchema(), StringSchema())
NUMBER = 5
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "extracted_model.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "extracted_broken.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = sys.path[:]
    yield
    sys.modules.pop("extracted_model", None)
    assert sys.path == before


def extract(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["schemas", "extract", *arguments])
    return done.exit_code, done.stdout, done.stderr


class Order(pulsar.schema.Record):
    total = pulsar.schema.Integer()


def test_a_record_class_is_what_the_official_client_sends() -> None:
    official = pulsar.schema.AvroSchema(Order).schema_info().schema()
    assert extract("extracted_model:Order") == (0, official + "\n", "")
    assert extract("extracted_model:Order", "--type", "json") == (0, official + "\n", "")
    theirs = official.replace("Order", "Official")
    assert extract("extracted_model:Official") == (0, theirs + "\n", "")


def test_a_message_class_has_two_types() -> None:
    native = pulsar.schema.ProtobufNativeSchema(struct_pb2.Struct).schema_info().schema()
    assert extract("google.protobuf.struct_pb2:Struct") == (0, native + "\n", "")
    status, out, _ = extract("google.protobuf.struct_pb2:Struct", "--type", "protobuf", "--json")
    info = ProtobufSchema(struct_pb2.Struct).schema_info()
    assert status == 0
    assert json.loads(out) == {
        "type": "PROTOBUF", "schema": info.schema.decode(), "properties": info.properties, "name": "PROTOBUF"
    }  # fmt: skip


def test_nested_names_and_schema_objects_are_found() -> None:
    assert '"name": "n"' in extract("extracted_model:Outer.Inner")[1]
    assert '"name": "D"' in extract("extracted_model:DEFINED")[1]
    assert extract("extracted_model:DEFINED", "--type", "json")[2].endswith("is a schema of type AVRO, not JSON\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["extracted_model"], "not of the form MODULE:CLASS"), ([":Order"], "not of the form MODULE:CLASS"),
     (["nowhere:Order"], "module nowhere cannot be imported: ModuleNotFoundError"),
     (["extracted_broken:Order"], "module extracted_broken cannot be imported: ZeroDivisionError: division by zero"),
     (["extracted_model:Nothing"], "the module extracted_model has no attribute 'Nothing'"),
     (["extracted_model:Outer.Wrong"], "the class Outer has no attribute 'Wrong'"),
     (["extracted_model:NUMBER"], "is the int 5; expected a Record class"),
     (["extracted_model:Outer"], "is the class Outer; expected a Record class"),
     (["extracted_model:Order", "--type", "protobuf"], "can be of type AVRO or JSON, not PROTOBUF"),
     (["google.protobuf.struct_pb2:Struct", "--type", "avro"], "PROTOBUF_NATIVE or PROTOBUF, not AVRO"),
     (["extracted_model:Colors"], "has no AVRO definition: UnknownType"),
     (["extracted_model:PAIR"], "extract its key's and its value's classes each")],
)  # fmt: skip
def test_what_cannot_be_extracted_is_one_line(arguments: list[str], said: str) -> None:
    status, out, err = extract(*arguments)
    assert (status, out) == (1, "")
    assert said in err
    assert err.startswith("pok: ")
    assert err.count("\n") == 1


def test_a_type_that_is_none_is_a_usage_error() -> None:
    assert extract("extracted_model:Order", "--type", "avrro")[0] == 2
