"""Subscriptions and assignments, as members of several clients write them."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.kafka.groups.consumer_protocol import (
    NO_GENERATION,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from pulsar_on_kafka_mapping.errors import CorruptRecord
from tests.seeds import examples

PARTITIONS = st.sets(st.integers(0, 2**31 - 1), max_size=20)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def partitions(topic: str, *numbers: int) -> bytes:
    return struct.pack(">i", 1) + text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


# Read from a group with confluent-kafka 2.16: after a second generation, and before the first.
OF_LIBRDKAFKA = (
    struct.pack(">hi", 3, 1) + text("t")
    + blob(partitions("t", 2, 3) + struct.pack(">i", 2)) + partitions("t", 2, 3) + struct.pack(">ih", 2, 0)
)  # fmt: skip
ASSIGNED_BY_LIBRDKAFKA = (
    b"\0\0" + partitions("t", 1, 0) + blob(struct.pack(">ii", 0, 2))
)  # fmt: skip
OF_LIBRDKAFKA_AT_FIRST = struct.pack(">hi", 3, 1) + text("t") + blob(b"") + struct.pack(">iih", 0, -1, 0)


@given(st.text(max_size=30), PARTITIONS, st.integers(-1, 2**31 - 1))
@settings(max_examples=examples(200), deadline=None)
def test_a_subscription_is_read_as_it_was_written(topic: str, owned: set[int], generation: int) -> None:
    read = decode_subscription(encode_subscription(topic, owned, generation))
    assert read == MemberSubscription((topic,), tuple((topic, each) for each in sorted(owned)), generation)


@given(st.text(max_size=30), PARTITIONS)
@settings(max_examples=examples(200), deadline=None)
def test_an_assignment_is_read_as_it_was_written(topic: str, given_partitions: set[int]) -> None:
    read = decode_assignment(encode_assignment(topic, given_partitions))
    assert read == tuple((topic, each) for each in sorted(given_partitions))


def test_the_subscriptions_that_librdkafka_writes() -> None:
    assert decode_subscription(OF_LIBRDKAFKA) == MemberSubscription(("t",), (("t", 2), ("t", 3)), 2)
    assert decode_subscription(OF_LIBRDKAFKA_AT_FIRST) == MemberSubscription(("t",), (), NO_GENERATION)
    without_rack = encode_subscription("t", (), NO_GENERATION)
    assert without_rack == OF_LIBRDKAFKA_AT_FIRST[:-2] + b"\xff\xff"
    assert decode_assignment(ASSIGNED_BY_LIBRDKAFKA) == (("t", 1), ("t", 0))


def test_version_1_has_its_generation_in_the_user_data() -> None:
    for user_data in (struct.pack(">i", 7), partitions("t", 0) + struct.pack(">i", 7)):
        metadata = struct.pack(">hi", 1, 1) + text("t") + blob(user_data) + partitions("t", 0)
        assert decode_subscription(metadata) == MemberSubscription(("t",), (("t", 0),), 7)
    for user_data in (b"", b"\x00", b"\x00\x00\x00\x01\x00\xff"):
        metadata = struct.pack(">hi", 1, 1) + text("t") + blob(user_data) + struct.pack(">i", 0)
        assert decode_subscription(metadata) == MemberSubscription(("t",), (), NO_GENERATION)


def test_version_0_owns_nothing_and_a_later_version_has_the_fields_of_version_3() -> None:
    assert decode_subscription(struct.pack(">hi", 0, 1) + text("t") + struct.pack(">i", -1)) == (
        ("t",),
        (),
        NO_GENERATION,
        False,
    )
    later = struct.pack(">h", 9) + OF_LIBRDKAFKA[2:] + b"and more"
    assert decode_subscription(later) == decode_subscription(OF_LIBRDKAFKA)


@given(st.binary(max_size=60))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_are_read_or_refused_by_their_size(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with suppress(CorruptRecord):
            decode(data)


def test_a_cut_off_subscription_is_refused() -> None:
    for end in range(len(OF_LIBRDKAFKA) - 2):  # the last field, the rack, is not read
        with pytest.raises(CorruptRecord, match="a member's subscription"):
            decode_subscription(OF_LIBRDKAFKA[:end])


def test_a_huge_count_is_refused_by_the_bytes_that_follow() -> None:
    with pytest.raises(CorruptRecord, match="a member's subscription announces 2147483647 items"):
        decode_subscription(struct.pack(">hi", 3, 2**31 - 1) + text(""))
    with pytest.raises(CorruptRecord, match="a member's assignment announces 2147483647 items"):
        decode_assignment(struct.pack(">hi", 0, 1) + text("") + struct.pack(">i", 2**31 - 1))


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == ()
