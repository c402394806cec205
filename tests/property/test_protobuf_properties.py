"""Protobuf verdicts beside protobuf itself: what is called compatible is read without error and loses nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError, Message

from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import FIELD_AWARE, read_protobuf_native
from tests.property.protobuf_generator import Files, descriptor_set, is_map, message_class
from tests.unit.schema_compat.protobuf.protobuf_files import definition

PAIRS = 120
_ENUM = FieldDescriptorProto.TYPE_ENUM
_UNSIGNED_BITS = {FieldDescriptorProto.TYPE_UINT32: 32, FieldDescriptorProto.TYPE_UINT64: 64}


def rules(old: Any, new: Any) -> list[str]:
    reader, writer = (FIELD_AWARE.parse(definition(descriptor_set(one), "p.A", "x.proto")) for one in (new, old))
    return [f"{one.rule} {one.path}" for one in FIELD_AWARE.differences(reader, writer)]


def scalar(value: Any, written: FieldDescriptor, read: FieldDescriptor) -> Any:
    """What the reader should have for a written value: types of one group share their small values."""
    if written.type == FieldDescriptorProto.TYPE_STRING and read.type == FieldDescriptorProto.TYPE_BYTES:
        return value.encode()
    if read.type in _UNSIGNED_BITS:
        return value % (1 << _UNSIGNED_BITS[read.type])  # a negative enum value
    return bool(value) if read.type == FieldDescriptorProto.TYPE_BOOL else value


def assert_kept(written: Message, read: Message) -> None:
    """Each field that both have holds what was written; a closed enum that was a number is not looked at."""
    for field in written.DESCRIPTOR.fields:
        other = read.DESCRIPTOR.fields_by_number.get(field.number)
        if other is None or (other.type == _ENUM and field.type != _ENUM):
            continue
        before, after = getattr(written, field.name), getattr(read, other.name)
        if is_map(field):
            assert_map_kept(before, after, field, other)
        elif field.is_repeated:
            assert len(before) == len(after)
            for one, same in zip(before, after, strict=True):
                assert_value_kept(one, same, field, other)
        elif not field.has_presence or written.HasField(field.name):
            assert_value_kept(before, after, field, other)


def assert_value_kept(before: Any, after: Any, field: FieldDescriptor, other: FieldDescriptor) -> None:
    if field.message_type is not None:
        assert_kept(before, after)
    else:
        assert scalar(before, field, other) == after, f"{field.full_name} as {other.full_name}"


def assert_map_kept(before: Any, after: Any, field: FieldDescriptor, other: FieldDescriptor) -> None:
    keys, values = (
        (field.message_type.fields_by_name[name], other.message_type.fields_by_name[name]) for name in ("key", "value")
    )
    if values[1].type == _ENUM and values[0].type != _ENUM:
        return
    for key, value in before.items():
        assert_value_kept(value, after[scalar(key, *keys)], *values)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_compatible_is_read_and_loses_nothing(seed: int) -> None:
    files = Files(seed)
    compatible = 0
    for _ in range(PAIRS):
        old = files.file()
        new = files.change(old)
        if rules(old, new):
            continue
        compatible += 1
        writer, reader = message_class(old), message_class(new)
        for _ in range(10):
            written = files.fill(writer())
            if not written.IsInitialized():
                continue  # a required field below the depth to which messages are filled
            data = written.SerializeToString()
            read = reader.FromString(data)
            assert read.IsInitialized()
            assert_kept(written, read)
    assert compatible > PAIRS / 8


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_compatible_with_itself(seed: int) -> None:
    files = Files(100 + seed)
    for _ in range(PAIRS):
        made = files.file()
        assert rules(made, made) == []


@pytest.mark.parametrize("seed", range(8))
def test_broken_descriptors_are_refused_clearly(seed: int) -> None:
    rng, files = random.Random(seed), Files(200 + seed)
    for _ in range(PAIRS):
        data = bytearray(descriptor_set(files.file()))
        for _ in range(rng.randint(1, 3)):
            match rng.randint(0, 2):
                case 0:
                    data[rng.randrange(len(data))] = rng.randrange(256)
                case 1:
                    del data[rng.randrange(len(data)) :]
                case _:
                    at = rng.randrange(len(data) + 1)
                    data[at:at] = rng.randbytes(rng.randint(1, 8))
            if not data:
                break
        schema = definition(bytes(data), "p.A", "x.proto")
        try:
            root = read_protobuf_native(schema.schema)
        except UnreadableSchema:
            continue
        assert list(FIELD_AWARE.differences(root, root)) == []


@pytest.mark.parametrize("seed", range(4))
def test_changes_that_lose_something_are_refused(seed: int) -> None:
    """The other way round: where protobuf fails on a written message, the verdict has said so."""
    files = Files(300 + seed)
    failed = 0
    for _ in range(PAIRS * 5):
        old = files.file()
        new = files.change(old)
        written = files.fill(message_class(old)())
        if not written.IsInitialized():
            continue
        try:
            assert_kept(written, message_class(new).FromString(written.SerializeToString()))
        except (DecodeError, AssertionError, KeyError, AttributeError, TypeError):
            failed += 1
            assert rules(old, new) != []
    assert failed > 3
