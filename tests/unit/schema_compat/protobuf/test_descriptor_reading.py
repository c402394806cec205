"""PROTOBUF_NATIVE definitions that are wrong, hostile or very large."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import read_protobuf_native
from tests.unit.schema_compat.protobuf.protobuf_files import F, definition, enum, file, found, message, native

ORDER = file(message("Order", F("x", 1)))
SET = FileDescriptorSet(file=[ORDER]).SerializeToString()


def text(**values: object) -> bytes:
    whole = {
        "fileDescriptorSet": base64.b64encode(SET).decode(),
        "rootMessageTypeName": "p.Order",
        "rootFileDescriptorName": "order.proto",
    }
    return json.dumps({name: value for name, value in {**whole, **values}.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "no JSON"),
        (b"[]", "a JSON object"),
        (text(fileDescriptorSet=...), "fileDescriptorSet must be a string"),
        (b"[" * 9_000 + b"]" * 9_000, "a JSON object, not an array of 1"),
        (text(rootMessageTypeName=3), "rootMessageTypeName must be a string"),
        (text(rootFileDescriptorName=""), "rootFileDescriptorName must be a string that is not empty"),
        (text(fileDescriptorSet="%%%"), "no base64"),
        (text(fileDescriptorSet="Zm9v\u00e4"), "no base64"),
        (text(fileDescriptorSet=base64.b64encode(SET[:-3]).decode()), "the file descriptor set is no protobuf"),
        (text(fileDescriptorSet=base64.b64encode(b"\xff" * 20).decode()), "the file descriptor set is no protobuf"),
        (
            text(fileDescriptorSet=base64.b64encode(b"\x0a\x03\x22\x7f\x00").decode()),
            "a file descriptor is no protobuf",
        ),
        (text(rootMessageTypeName="p.Offer"), "defines no message 'p.Offer'"),
        (text(rootMessageTypeName="Order"), "defines no message 'Order'"),
        (text(rootFileDescriptorName="offer.proto"), "'offer.proto', imported by the root, is not in"),
    ],
)
def test_what_is_no_definition_is_said(written: bytes, said: str) -> None:
    with pytest.raises(UnreadableSchema) as caught:
        read_protobuf_native(written)
    assert said in str(caught.value)


def test_a_definition_as_it_should_be() -> None:
    assert read_protobuf_native(text(more="ignored")).full_name == "p.Order"
    assert read_protobuf_native(text(rootMessageTypeName=".p.Order")).by_number[1].type.name == "int32"


def change(edit: Callable[[FileDescriptorProto], object], *others: FileDescriptorProto) -> SchemaInfo:
    made = file(message("Order", F("x", 1), F("y", 2, "message", of="p.Part")), message("Part"), enum("Color", A=0))
    edit(made)
    return native(made, *others)


def field_of(made: FileDescriptorProto, index: int = 0) -> FieldDescriptorProto:
    return made.message_type[0].field[index]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda made: made.dependency.append("q.proto"), "'q.proto', imported by 'order.proto', is not in"),
        (lambda made: made.dependency.append("order.proto"), "import each other in a circle, among order.proto"),
        (lambda made: setattr(made, "syntax", "proto4"), "syntax 'proto4'"),
        (lambda made: (setattr(made, "syntax", "editions"), setattr(made, "edition", 99_999)), "edition 99999"),
        (lambda made: setattr(field_of(made), "number", 0), "p.Order.x = 0"),
        (lambda made: setattr(field_of(made), "number", -1), "p.Order.x = -1"),
        (lambda made: setattr(field_of(made), "number", 1 << 29), "p.Order.x = 536870912"),
        (lambda made: setattr(field_of(made), "name", ""), "a field has a name"),
        (lambda made: setattr(field_of(made), "number", 2), "two fields of number 2"),
        (lambda made: setattr(field_of(made), "name", "y"), "or name 'y'"),
        (lambda made: field_of(made).ClearField("type"), "p.Order.x has the type 0"),
        (lambda made: setattr(field_of(made), "oneof_index", 0), "is in oneof 0, of which there are 0"),
        (lambda made: setattr(field_of(made), "oneof_index", -1), "is in oneof -1"),
        (lambda made: setattr(field_of(made, 1), "type_name", ".p.None"), "p.Order.y is of '.p.None'"),
        (lambda made: setattr(field_of(made, 1), "type_name", "None"), "p.Order.y is of 'None'"),
        (lambda made: setattr(field_of(made, 1), "type_name", ""), "p.Order.y is of ''"),
        (lambda made: setattr(field_of(made, 1), "type_name", ".p.Color"), "p.Order.y is of '.p.Color'"),
        (lambda made: setattr(field_of(made, 1), "type", 14), "p.Order.y is of '.p.Part'"),
        (lambda made: made.message_type.append(message("Order")), "p.Order is defined in"),
        (lambda made: made.message_type.append(message("")), "without a name"),
        (lambda made: made.enum_type.append(enum("Empty")), "p.Empty must have values"),
        (lambda made: made.enum_type[0].value.add(name="A", number=1), "p.Color must have values, of different names"),
    ],
)  # fmt: skip
def test_what_is_no_descriptor_is_said(edit: Callable[[FileDescriptorProto], object], said: str) -> None:
    with pytest.raises(UnreadableSchema) as caught:
        read_protobuf_native(change(edit).schema)
    assert said in str(caught.value)


def test_two_files_of_one_name() -> None:
    other = file(message("Offer"))
    with pytest.raises(UnreadableSchema, match=r"two files named 'order\.proto'"):
        read_protobuf_native(native(ORDER, other).schema)
    assert read_protobuf_native(native(ORDER, ORDER).schema).name == "Order"


def test_imports_in_a_circle() -> None:
    first = file(message("Order"), imports=["b.proto"])
    second, third = (
        file(message(f"M{name}"), name=f"{name}.proto", imports=[f"{to}.proto"]) for name, to in ("bc", "cb")
    )
    with pytest.raises(UnreadableSchema, match=r"circle, among b\.proto, c\.proto, order\.proto"):
        read_protobuf_native(native(first, second, third).schema)


def test_imports_of_imports_are_found_and_other_files_do_not_matter() -> None:
    first = file(message("Order", F("x", 1, "message", of="c.Part")), imports=["b.proto"])
    second = file(name="b.proto", package="b", imports=["c.proto"])
    third = file(message("Part", F("id", 1)), name="c.proto", package="c")
    broken = file(message("Lost", F("x", 1, "message", of="z.None")), name="z.proto", imports=["y.proto"])
    root = read_protobuf_native(native(first, second, third, broken).schema)
    assert root.by_name["x"].target is not None


def test_the_root_is_in_the_root_file() -> None:
    first = file(message("Order"), imports=["b.proto"])
    second = file(message("Part"), name="b.proto")
    with pytest.raises(UnreadableSchema, match=r"'order\.proto' defines no message 'p\.Part'"):
        read_protobuf_native(native(first, second, root="p.Part").schema)


def test_names_without_a_dot_are_looked_for_from_the_inside_out() -> None:
    made = file(
        message("Order", F("x", 1, "message"), F("y", 2, "message"), nested=[message("Part", F("inner", 1))]),
        message("Part", F("outer", 1)),
        message("Other"),
    )
    field_of(made).type_name, field_of(made, 1).type_name = "Part", "p.Other"
    root = read_protobuf_native(native(made).schema)
    assert [getattr(root.by_name[name].target, "full_name", None) for name in "xy"] == ["p.Order.Part", "p.Other"]


def test_a_field_without_a_type_takes_that_of_its_name() -> None:
    made = file(
        message("Order", F("x", 1, "message", of="p.Color"), F("y", 2, "message", of="p.Order")), enum("Color", A=0)
    )
    for one in made.message_type[0].field:
        one.ClearField("type")
    root = read_protobuf_native(native(made).schema)
    assert [root.by_name[name].type.name for name in "xy"] == ["enum", "message"]


def test_a_message_without_a_package() -> None:
    assert (
        read_protobuf_native(native(file(message("Order", F("x", 1)), package=""), root="Order").schema).name == "Order"
    )


def nested(depth: int) -> bytes:
    """The bytes of a file with a message within a message ..."""
    inner = b"\x0a\x01m"
    for _ in range(depth):
        inner = b"\x0a\x01m" + b"\x1a" + _varint(len(inner)) + inner
    whole = b"\x0a\x0border.proto" + b"\x22" + _varint(len(inner)) + inner
    return b"\x0a" + _varint(len(whole)) + whole


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_messages_nested_ten_thousand_deep_are_refused() -> None:
    assert read_protobuf_native(definition(nested(90), root="m").schema).name == "m"
    with pytest.raises(UnreadableSchema, match="nested deeper than 100"):
        read_protobuf_native(definition(nested(10_000), root="m").schema)


def test_ten_thousand_fields_are_compared() -> None:
    def wide(kind: str) -> SchemaInfo:
        messages = [
            message(f"M{index}", *(F(f"field_{number}", number, kind) for number in range(1, 201)))
            for index in range(50)
        ]
        root = message("Order", *(F(f"m{index}", index + 1, "message", of=f"p.M{index}") for index in range(50)))
        return native(file(root, *messages))

    assert len(found(wide("float"), wide("int32"))) == 10_000


def test_a_chain_of_messages_longer_than_the_recursion_limit() -> None:
    def chain(leaf: str) -> SchemaInfo:
        links = [message(f"M{index}", F("next", 1, "message", of=f"p.M{index + 1}")) for index in range(3_000)]
        return native(
            file(message("Order", F("next", 1, "message", of="p.M0")), *links, message("M3000", F("end", 1, leaf)))
        )

    assert found(chain("string"), chain("int32")) == [("TYPE_CHANGED", "Order" + ".next" * 3_001 + ".end")]


def test_an_unreadable_definition_is_an_incompatibility() -> None:
    broken = SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"{}")
    result = check_compatibility(broken, [native(ORDER)], CompatibilityStrategy.BACKWARD)
    assert [one.rule for one in result.incompatibilities] == ["SCHEMA_UNREADABLE"]
