"""The types of commands name fields that their messages have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from google.protobuf.descriptor import FieldDescriptor

from pulsar_on_kafka_mapping.wire import command_types
from pulsar_on_kafka_mapping.wire.commands import message_class

SPECIAL = {
    "MessageIdField": ["MessageIdData"],
    "ConsumerCommand": ["CloseConsumer", "ConsumerStats", "GetLastMessageId", "Unsubscribe", "Seek"],
    "RedeliverCommand": ["RedeliverUnacknowledgedMessages"],
    "TcClientConnectCommand": ["TcClientConnectRequest"],
    "TxnCommand": ["AddPartitionToTxn", "AddSubscriptionToTxn", "EndTxn"],
}
TYPES = [
    value for value in vars(command_types).values()
    if isinstance(value, type) and value.__module__ == command_types.__name__ and value is not command_types.Command
]  # fmt: skip
KINDS = {
    str: FieldDescriptor.CPPTYPE_STRING,
    bytes: FieldDescriptor.CPPTYPE_STRING,
    bool: FieldDescriptor.CPPTYPE_BOOL,
}
INTEGERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)


def messages(name: str) -> list[str]:
    return SPECIAL.get(name, [name.removesuffix("Command").removesuffix("Field")])


@pytest.mark.parametrize("described", TYPES, ids=lambda each: each.__name__)
def test_each_field_is_one_of_the_message_s(described: type) -> None:
    for message in messages(described.__name__):
        fields = message_class(message).DESCRIPTOR.fields_by_name
        for name, kind in get_type_hints(described).items():
            _check(fields[name], kind)


def _check(found: Any, kind: Any) -> None:
    repeated = get_origin(kind) is Sequence
    assert found.is_repeated == repeated, found.full_name
    kind = get_args(kind)[0] if repeated else kind
    if kind is int:
        assert found.cpp_type in (*INTEGERS, FieldDescriptor.CPPTYPE_INT64), found.full_name
    elif kind in KINDS:
        assert found.cpp_type == KINDS[kind], found.full_name
    else:
        assert found.message_type.name in messages(kind.__name__), found.full_name
