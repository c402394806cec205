"""Ids of schemas for Confluent's clients."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.confluent_ids import (
    MAX_ID,
    SchemaPlace,
    header_value,
    place_of_id,
    schema_guid,
    schema_id,
)
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS

LAST_OFFSET = MAX_ID // 16 - 1


def test_guids_never_change() -> None:
    """They are in records."""
    assert schema_guid("AVRO", "00" * 32) == UUID("4390f5fa-5d44-8ffb-82cf-f6409fab10c3")
    assert schema_guid("JSON", "00" * 32) == UUID("2ae74eb4-6462-8630-b00e-46ed0ee60da1")


def test_a_guid_is_a_uuid_of_version_8() -> None:
    found = schema_guid("AVRO", "ab" * 32)
    assert (found.version, found.variant) == (8, "specified in RFC 4122")


def test_ids_never_change() -> None:
    assert [schema_id(SchemaPlace(*place)) for place in ((0, 0), (0, 0, True), (7, 3), (1, 100, True))] == [
        1, 2, 63, 1604,
    ]  # fmt: skip


@given(st.integers(0, SCHEMAS.partitions - 1), st.integers(0, LAST_OFFSET), st.booleans())
def test_an_id_is_the_place_of_the_record(partition: int, offset: int, of_key: bool) -> None:
    place = SchemaPlace(partition, offset, of_key)
    assert place_of_id(schema_id(place)) == place


def test_what_is_no_id_and_no_place_of_one() -> None:
    with pytest.raises(MappingError, match="offset 134217728, expected"):
        schema_id(SchemaPlace(0, 2**27))
    with pytest.raises(MappingError, match="partition is 8"):
        schema_id(SchemaPlace(8, 0))
    for number in (0, -1, 2**31):
        with pytest.raises(MappingError, match=f"schema id is {number}, expected 1 to"):
            place_of_id(number)


@pytest.mark.parametrize("path", [None, [0], [1], [0, 0], [300, 2]])
def test_confluents_client_reads_the_header(path: list[int] | None) -> None:
    serde = pytest.importorskip("confluent_kafka.schema_registry.common.serde")
    guid = schema_guid("PROTOBUF_NATIVE", "12" * 32)
    found = serde.SchemaId("PROTOBUF" if path else "AVRO")
    assert found.from_bytes(io.BytesIO(header_value(guid, path))).read() == b""
    assert (found.guid, found.message_indexes) == (guid, path)
    assert found.guid_to_bytes() == header_value(guid, path)
