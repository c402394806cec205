"""Schemas by which topics are read, on the registry in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.values.topic_schemas import AS_BYTES, topic_schemas

TOPIC = TopicName.parse("orders")
NATIVE = SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"{}", "Order")


def registry_of(info: SchemaInfo | None) -> Any:
    stored = None if info is None else SimpleNamespace(info=info, version=SchemaVersion(0))
    return cast("Any", SimpleNamespace(latest=lambda *_: stored))


def test_a_protobuf_topic_is_read_by_the_native_schema_of_its_message() -> None:
    older = registry_of(SchemaInfo(SchemaType.PROTOBUF, b"{}", "Order"))
    assert topic_schemas(older, TOPIC, NATIVE, Deadline.never()).reader == NATIVE
    for others in (SchemaType.AVRO, SchemaType.JSON, SchemaType.STRING):
        with pytest.raises(InvalidReadOption, match=f"that of topic .*orders of type {others.name}"):
            topic_schemas(registry_of(SchemaInfo(others, b"{}", "Order")), TOPIC, NATIVE, Deadline.never())
    assert topic_schemas(registry_of(None), TOPIC, NATIVE, Deadline.never()).reader == NATIVE
    assert topic_schemas(older, TOPIC, "bytes", Deadline.never()).reader == AS_BYTES
