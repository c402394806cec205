"""Files of definitions, as people have them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pulsar_on_kafka.cli.schemas import files as schema_files
from pulsar_on_kafka.cli.schemas.files import read_schema
from pulsar_on_kafka.cli.shared.output import CommandFailed
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType, check_readable


def descriptor_set(*messages: str, nested: str | None = None) -> bytes:
    file = FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    for name in messages:
        message = file.message_type.add(name=name)
        message.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
        if nested:
            message.nested_type.add(name=nested)
    return bytes(FileDescriptorSet(file=[file]).SerializeToString())


def written(tmp_path: Path, content: bytes | Any) -> Path:
    path = tmp_path / "definition"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_a_definition_whose_type_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, b' "int" \n')
    found = read_schema(path, SchemaType.AVRO, "Order", {"a": "b"}, None)
    assert found == SchemaInfo(SchemaType.AVRO, b' "int" \n', "Order", {"a": "b"})


def test_the_file_that_pulsar_admin_uploads(tmp_path: Path) -> None:
    path = written(tmp_path, {"type": "avro", "schema": '"int"', "properties": {"a": "1", "b": "2"}})
    found = read_schema(path, None, "", {"b": "3"}, None)
    assert found == SchemaInfo(SchemaType.AVRO, b'"int"', "", {"a": "1", "b": "3"})


def test_what_get_shows_can_be_uploaded(tmp_path: Path) -> None:
    binary = base64.b64encode(b"\x00\xff").decode()
    shown = {
        "version": 3,
        "type": "KEY_VALUE",
        "name": "kv",
        "schema_base64": binary,
        "properties": {},
        "user": "ann",
        "timestamp_ms": 1,
        "sha256": "00",
    }
    found = read_schema(written(tmp_path, shown), None, "", {}, None)
    assert found == SchemaInfo(SchemaType.KEY_VALUE, b"\x00\xff", "kv")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is no JSON object with type, schema and properties"),
        (b'"int"', "--type names a definition's type"),
        ({"type": "AVRO"}, "expected either schema, a text, or schema_base64"),
        ({"type": "AVRO", "schema": {"type": "int"}}, "expected either schema, a text, or schema_base64"),
        ({"type": "AVRO", "schema": "", "schema_base64": ""}, "expected either schema"),
        ({"type": "AVRO", "schema_base64": "?"}, "no base64"),
        ({"type": "HOLOGRAM", "schema": ""}, "type is 'HOLOGRAM', expected one of BYTES"),
        ({"type": "AUTO_CONSUME", "schema": ""}, "type is 'AUTO_CONSUME', expected one of"),
        ({"type": ["AVRO"], "schema": ""}, "type is"),
        ({"type": "AVRO", "schema": "", "properties": {"a": 1}}, "properties must be an object of texts"),
        ({"type": "AVRO", "schema": "", "shcema": ""}, "has shcema; expected type, schema and properties"),
        ({"type": "AVRO", "schema": "", "name": 1}, "name must be a text"),
        ({"type": "AVRO", "schema": "\ud800"}, "no Unicode text"),
        (b"[" * 100_000, "is no JSON object"),
    ],
)
def test_files_that_are_no_schema_are_refused_in_one_line(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        read_schema(written(tmp_path, content), None, "", {}, None)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="No such file"):
        read_schema(tmp_path / "nothing", SchemaType.AVRO, "", {}, None)
    monkeypatch.setattr(schema_files, "_MAX_FILE_BYTES", 10)
    with pytest.raises(CommandFailed, match="more than 10 bytes"):
        read_schema(written(tmp_path, b"x" * 11), SchemaType.AVRO, "", {}, None)


def test_a_descriptor_set_with_one_message(tmp_path: Path) -> None:
    path = written(tmp_path, descriptor_set("Order", nested="Line"))
    found = read_schema(path, SchemaType.PROTOBUF_NATIVE, "", {}, None)
    assert json.loads(found.schema)["rootMessageTypeName"] == "shop.Order"
    assert json.loads(found.schema)["rootFileDescriptorName"] == "orders.proto"
    check_readable(found)
    inner = read_schema(path, SchemaType.PROTOBUF_NATIVE, "", {}, "shop.Order.Line")
    assert json.loads(inner.schema)["rootMessageTypeName"] == "shop.Order.Line"
    check_readable(inner)


@pytest.mark.parametrize(
    ("content", "message", "said"),
    [
        (
            descriptor_set("Order", "Refund"),
            None,
            "the message must be named: it has shop.Order, shop.Refund",
        ),
        (descriptor_set("Order"), "shop.Refund", "has no message 'shop.Refund': it has shop.Order"),
        (descriptor_set(), None, "it has none"),
        (descriptor_set(*(f"M{number}" for number in range(9))), None, "shop.M4 and 4 more"),
        (descriptor_set("Order")[:-3], None, "is no protobuf"),
        (b"\xff" * 100, None, "is no protobuf"),
    ],
)
def test_descriptor_sets_that_do_not_say_what_is_meant(
    tmp_path: Path, content: bytes, message: str | None, said: str
) -> None:
    with pytest.raises(CommandFailed, match="--message names the one that is meant") as refused:
        read_schema(written(tmp_path, content), SchemaType.PROTOBUF_NATIVE, "", {}, message)
    assert said in str(refused.value)


def test_a_message_is_named_for_descriptor_sets_only(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="--message is for descriptor sets"):
        read_schema(written(tmp_path, b'"int"'), SchemaType.AVRO, "", {}, "shop.Order")
