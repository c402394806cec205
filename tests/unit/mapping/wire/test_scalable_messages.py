"""Commands and fields of Pulsar 5 have the numbers of its protocol."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.wire.commands import Type, command, message_class, parsed
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, decode_metadata, encode_metadata
from pulsar_on_kafka_mapping.wire.stored_entries import metadata_of, record_of

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("kind", "fields", "data"),
    [
        (
            Type.SCALABLE_TOPIC_LOOKUP,
            {"session_id": 5, "topic": "t", "create_if_missing": True},
            b"\x08\x46\xb2\x04\x07\x08\x05\x12\x01t\x18\x01",
        ),
        (
            Type.SCALABLE_TOPIC_UPDATE,
            {"session_id": 5, "dag": {"epoch": 1, "segments": [{
                "segment_id": 0, "hash_start": 0, "hash_end": 9, "state": 0, "created_at_epoch": 0, "created_at_ms": 0,
                "legacy_topic_name": "p",
            }], "segment_brokers": [{"segment_id": 0, "broker_url": "u"}]}, "resolved_topic_name": "r"},
            (b"\x08\x47\xba\x04\x21\x08\x05\x12\x1a\x08\x01\x12\x0f\x08\x00\x10\x00\x18\x09\x20\x008\x00H\x00\x5a\x01p"
            b"\x1a\x05\x08\x00\x12\x01u\x2a\x01r"),
        ),
        (Type.SCALABLE_TOPIC_CLOSE, {"session_id": 5}, b"\x08\x48\xc2\x04\x02\x08\x05"),
        (
            Type.SCALABLE_TOPIC_SUBSCRIBE,
            {"request_id": 1, "topic": "t", "subscription": "s", "consumer_name": "c", "consumer_id": 2,
             "consumer_type": 1},
            b"\x08\x49\xca\x04\x0f\x08\x01\x12\x01t\x1a\x01s\x22\x01c\x28\x02\x30\x01",
        ),
        (
            Type.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
            {"request_id": 1, "assignment": {"layout_epoch": 3, "segments": [{
                "segment_id": 0, "hash_start": 0, "hash_end": 9, "segment_topic": "p",
                "bucket_ranges": [{"start": 1, "end": 2}],
            }]}},
            (b"\x08\x4a\xd2\x04\x17\x08\x01\x22\x13\x08\x03\x12\x0f\x08\x00\x10\x00\x18\x09\x22\x01p\x2a\x04\x08\x01"
            b"\x10\x02"),
        ),
        (
            Type.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
            {"consumer_id": 2, "assignment": {"layout_epoch": 3}},
            b"\x08\x4b\xda\x04\x06\x08\x02\x12\x02\x08\x03",
        ),
        (
            Type.WATCH_SCALABLE_TOPICS,
            {"watch_id": 1, "namespace": "n", "property_filters": [{"key": "k", "value": "v"}], "current_hash": "h"},
            b"\x08\x4c\xe2\x04\x10\x08\x01\x12\x01n\x1a\x06\x0a\x01k\x12\x01v\x22\x01h",
        ),
        (
            Type.WATCH_SCALABLE_TOPICS_UPDATE,
            {"watch_id": 1, "diff": {"added": ["a"], "removed": ["r"]}},
            b"\x08\x4d\xea\x04\x0a\x08\x01\x1a\x06\x0a\x01a\x12\x01r",
        ),
        (Type.WATCH_SCALABLE_TOPICS_CLOSE, {"watch_id": 1}, b"\x08\x4e\xf2\x04\x02\x08\x01"),
        (Type.WATCH_TC_ASSIGNMENTS, {"watch_id": 1}, b"\x08\x4f\xfa\x04\x02\x08\x01"),
        (
            Type.WATCH_TC_ASSIGNMENTS_UPDATE,
            {"watch_id": 1, "snapshot": {"parallelism": 16, "assignments": [{"tc_id": 0, "broker_service_url": "u"}]}},
            b"\x08\x50\x82\x05\x0d\x08\x01\x12\x09\x08\x10\x12\x05\x08\x00\x12\x01u",
        ),
        (Type.WATCH_TC_ASSIGNMENTS_CLOSE, {"watch_id": 1}, b"\x08\x51\x8a\x05\x02\x08\x01"),
        (Type.SCALABLE_TOPIC_UNSUBSCRIBE, {"request_id": 1, "consumer_id": 2}, b"\x08\x52\x92\x05\x04\x08\x01\x10\x02"),
    ],
)  # fmt: skip
def test_a_command_has_these_bytes(kind: Type, fields: dict[str, object], data: bytes) -> None:
    assert command(kind, **fields) == data
    found, message = parsed(data)
    assert found is kind
    assert message == message_class(kind.message)(**fields)


def test_fields_of_pulsar_5_in_older_messages() -> None:
    flags = {"supports_scalable_topics": True, "supports_tc_metadata_discovery": True}
    assert message_class("FeatureFlags")(**flags).SerializeToString() == b"\x40\x01\x48\x01"
    made = message_class("KeySharedMeta")(keySharedMode=1, entryBucketDispatch=True)
    assert made.SerializeToString() == b"\x08\x01\x28\x01"
    for name, number in [
        ("TcClientConnectRequest", 3), ("NewTxn", 4), ("AddPartitionToTxn", 5), ("AddSubscriptionToTxn", 5),
        ("EndTxn", 5),
    ]:  # fmt: skip
        assert message_class(name).DESCRIPTOR.fields_by_name["scalable"].number == number


STAMPED = PulsarMetadata(
    producer_name="p", sequence_id=5, publish_time_ms=NOW_MS, schema_id=b"\x01\x02", entry_hash_min=0,
    entry_hash_max=65_535,
)  # fmt: skip


def test_stamps_and_schema_ids_are_metadata() -> None:
    data = encode_metadata(STAMPED)
    assert data.endswith(b"\x82\x02\x02\x01\x02\x88\x02\x00\x90\x02\xff\xff\x03")
    assert decode_metadata(data) == STAMPED


def test_stamps_and_schema_ids_are_kept_with_the_record() -> None:
    found = metadata_of(record_of(STAMPED, b"payload", epoch=0, now_ms=NOW_MS))
    assert (found.schema_id, found.entry_hash_min, found.entry_hash_max) == (b"\x01\x02", 0, 65_535)
