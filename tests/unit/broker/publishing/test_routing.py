"""Which partition a message with a key goes to."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.publishing.routing import Routing
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash, partition_for_key


def routing(hashing: KeyHash, told: list[KeyHash], *, partitions: int = 5, fixed: int | None = None) -> Routing:
    return Routing(
        partitions, partitioned=partitions > 1, to_one=False, router=None, fixed=fixed, hashing=hashing,
        first_keyed=told.append,
    )  # fmt: skip


@pytest.mark.parametrize("hashing", list(KeyHash))
def test_its_hash_chooses_and_the_first_keyed_message_is_told(hashing: KeyHash) -> None:
    told: list[KeyHash] = []
    made = routing(hashing, told)
    made.spread(None)
    assert not told
    keys = [b"key-%d" % number for number in range(50)]
    assert [made.spread(key) for key in keys] == [partition_for_key(key, 5, hashing) for key in keys]
    assert told == [hashing]


def test_a_topic_that_has_grown_has_other_partitions_for_keys() -> None:
    made = routing(KeyHash.JAVA_STRING, [])
    made.partitions = 11
    assert made.spread(b"abc") == partition_for_key(b"abc", 11, KeyHash.JAVA_STRING)


@pytest.mark.parametrize(("hashing", "hashed"), [(KeyHash.JAVA_STRING, b"/wA="), (KeyHash.CRC32, b"\xff\x00")])
def test_a_key_of_bytes_is_routed_as_the_client_of_that_hash_does(hashing: KeyHash, hashed: bytes) -> None:
    assert routing(hashing, [], partitions=97).spread_bytes(b"\xff\x00") == partition_for_key(hashed, 97, hashing)


def test_nothing_is_told_where_no_key_chooses() -> None:
    told: list[KeyHash] = []
    assert routing(KeyHash.CRC32, told, partitions=1).spread(b"k") == 0
    assert routing(KeyHash.CRC32, told, fixed=3).spread(b"k") == 3
    assert not told
