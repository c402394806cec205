"""The catalogue of state topics, and their keys."""

from __future__ import annotations

import tracemalloc

import pytest

from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.state.instances import Instance
from pulsar_on_kafka.mapping.state.state_keys import (
    CursorSegmentKey,
    CursorTakeoverKey,
    LedgerKey,
    NamespaceKey,
    TopicKey,
    decode_key,
    encode_key,
)
from pulsar_on_kafka.mapping.state.state_topics import (
    ALL,
    CURSORS,
    DELIVERIES,
    TOPICS,
    TRANSACTION_LOG,
    TRANSACTION_REQUESTS,
    Cleanup,
    StateTopic,
)


def test_a_state_topic_lies_in_pulsar_system() -> None:
    assert str(TRANSACTION_LOG.topic_name) == "persistent://pulsar/system/__transaction_log"
    assert Instance().state_topic(TRANSACTION_LOG) == "pulsar.system.__transaction_log"


def test_the_numbers_of_partitions_never_change() -> None:
    assert {topic.name: topic.partitions for topic in ALL} == {
        "topics": 8,
        "namespaces": 8,
        "subscriptions": 8,
        "schemas": 8,
        "cursors": 16,
        "cursor_checkpoints": 16,
        "ledgers": 16,
        "deliveries": 64,
        "producers": 16,
        "transaction_coordinator_assign": 16,
        "transaction_requests": 16,
        "__transaction_log": 16,
        "__transaction_buffer_snapshot": 16,
        "__transaction_pending_ack": 16,
        "tenants": 1,
        "subscription_progress": 16,
    }


@pytest.mark.parametrize("topic", ALL, ids=lambda topic: topic.name)
def test_a_state_topic_is_made_as_it_is_cleaned(topic: StateTopic) -> None:
    assert topic.configs["cleanup.policy"] == topic.cleanup.value


def test_all_state_topics_but_two_are_compacted() -> None:
    assert [topic for topic in ALL if topic.cleanup is Cleanup.DELETE] == [DELIVERIES, TRANSACTION_REQUESTS]


def test_retention_is_three_days_for_deliveries_and_one_for_requests() -> None:
    assert DELIVERIES.configs["retention.ms"] == "259200000"
    assert TRANSACTION_REQUESTS.configs["retention.ms"] == "86400000"


def test_a_topics_state_is_where_the_crc32_of_its_name_says() -> None:
    name = "persistent://public/default/orders"
    assert TOPICS.partition_for(name) == 0xB135B9DC % 8
    assert CURSORS.partition_for(name) == 0xB135B9DC % 16


def test_a_coordinator_has_its_own_partition() -> None:
    assert TRANSACTION_LOG.partition_of_coordinator(5) == 5


@pytest.mark.parametrize("coordinator", [-1, 1024])
def test_there_are_as_many_coordinators_as_there_may_be_partitions(coordinator: int) -> None:
    assert TRANSACTION_LOG.partition_of_coordinator(16) == 16, "there may be more than at first"
    with pytest.raises(MappingError, match="0 to 1023"):
        TRANSACTION_LOG.partition_of_coordinator(coordinator)


def test_topics_and_coordinators_are_not_mixed_up() -> None:
    with pytest.raises(MappingError, match="expected a coordinator id"):
        TRANSACTION_LOG.partition_for("persistent://public/default/orders")
    with pytest.raises(MappingError, match="expected a topic's name"):
        CURSORS.partition_of_coordinator(0)


def test_a_key_is_compact_json_with_its_tag_first() -> None:
    assert encode_key(TopicKey("persistent://a/b/ü", 3, "ff")) == '["t","persistent://a/b/ü",3,"ff"]'.encode()


def test_a_marker_is_segment_minus_one() -> None:
    key = CursorSegmentKey("t", 0, "s", "ab", 4, -1)
    assert decode_key(encode_key(key)) == key


def test_keys_of_two_kinds_are_never_equal() -> None:
    assert encode_key(TopicKey("a/b", 1, "x")) != encode_key(NamespaceKey("a/b", 1, "x"))
    assert TopicKey("a/b", 1, "x") != NamespaceKey("a/b", 1, "x")


def test_two_owners_that_claim_one_version_have_two_keys() -> None:
    claims = {encode_key(CursorTakeoverKey("t", 0, "s", session, 2)) for session in ("aa", "bb")}
    assert len(claims) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'"t"',
        b"\xff",
        b'["zz",1]',
        b'["l",5]',
        b'["l","5","s",1]',
        b'["l",true,"s",1]',
        b'["l",5.0,"s",1]',
        b'["l", 5,"s",1]',
        b'["l",5,"s",1]\n',
        b'["l",5,"\\u0073",1]',
        b'["l",-0,"s",1]',
        b'[["l"],5,"s",1]',
        b'["l",5,"s",1,1]',
    ],
)
def test_a_key_that_is_not_canonical_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_key(data)


@pytest.mark.parametrize("key", [LedgerKey(2**64, "s", 0), LedgerKey(1, "\ud800", 0)])
def test_what_json_cannot_hold_is_refused(key: LedgerKey) -> None:
    with pytest.raises(MappingError):
        encode_key(key)


def test_a_key_that_is_kept_takes_no_more_than_it_needs() -> None:
    tracemalloc.start()
    try:
        kept = [encode_key(LedgerKey(number, "s", 1)) for number in range(1000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < 200
