"""A subscription served as a whole and partition by partition, as its record says."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.metadata.subscriptions.partition_subscriptions import (
    claimed,
    missing,
    other_seats,
    removed,
    seat_group,
    seat_of,
    serves,
    spread,
    taken,
)
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    Claim,
    LifeState,
    PartitionSeat,
    SubscriptionRecord,
    decode_subscription,
    encode_subscription,
)

CLAIM = Claim("session", "client", 5, "name", "process")


def _record(**changes: object) -> SubscriptionRecord:
    return SubscriptionRecord("t", "s", LifeState.ACTIVE, "Shared", {"0": 5, "1": 6}, **changes)  # type: ignore[arg-type]


def test_groups_of_seats() -> None:
    assert [seat_group("t", "s", seat) for seat in (None, 0, 12)] == ["t/s", "t/s/0", "t/s/12"]


def test_a_partition_is_taken_beside_others_and_the_whole_loses_its_claim() -> None:
    whole = taken(_record(), None, "Exclusive", CLAIM)
    one = taken(whole, 1, "Failover", None)
    both = taken(one, 0, "Exclusive", CLAIM)
    assert (whole.by_partition, one.by_partition, one.claim) == (False, True, None)
    assert both.seats == {"0": PartitionSeat("Exclusive", CLAIM), "1": PartitionSeat("Failover")}
    assert (other_seats(both, 1), other_seats(both, None)) == ([None], [0, 1])
    assert [serves(both, seat) for seat in (None, 0, 7)] == [False, True, True]
    again = taken(both, None, "Shared", None)
    assert (again.by_partition, again.type, again.seats["0"].claim) == (False, "Shared", None)
    assert other_seats(again, None) == [0, 1]


def test_a_subscription_that_was_never_served_by_partition_has_nobody_else_to_look_at() -> None:
    assert other_seats(_record(), None) == []
    assert seat_of(_record(), 1) is None


def test_claims_come_and_go_by_seat() -> None:
    record = taken(_record(), 1, "Exclusive", CLAIM)
    assert claimed(record, 1, None).seats["1"] == PartitionSeat("Exclusive")
    assert claimed(record, 2, CLAIM) == record
    assert claimed(record, None, CLAIM).claim == CLAIM


def test_it_spreads_from_one_partition_to_the_others() -> None:
    record = _record(partitions=(1,))
    assert missing(record, 1, [1]) == []
    assert missing(record, 2, [2]) == [2]
    assert missing(record, None, range(3)) == [0, 2]
    two = spread(record, 2, {2: 9})
    assert (two.partitions, two.start_offsets["2"]) == ((1, 2), 9)
    whole = spread(two, None, {0: 4})
    assert (whole.partitions, whole.start_offsets) == (None, {"0": 4, "1": 6, "2": 9})
    assert missing(whole, None, range(9)) == []


def test_removing_it_from_a_partition_ends_that_life() -> None:
    once = removed(taken(_record(), 1, "Exclusive", CLAIM), 1, range(3))
    assert (once.partitions, once.start_offsets) == ((0, 2), {"0": 5})
    assert once.seats["1"] == PartitionSeat("Exclusive", None, 1)
    assert taken(spread(once, 1, {1: 8}), 1, "Shared", None).seats["1"] == PartitionSeat("Shared", None, 1)
    assert removed(removed(once, 0, ()), 2, ()).partitions == ()


def test_records_are_read_as_they_were_written() -> None:
    record = taken(_record(partitions=(0, 1), claim=CLAIM), 1, "Exclusive", CLAIM)
    assert decode_subscription(encode_subscription(record)) == record
    assert decode_subscription(b'{"v":1,"topic":"t","subscription":"s","state":"ACTIVE","type":"Shared"}').seats == {}


@pytest.mark.parametrize("field", ['"seats":{"1":5}', '"seats":[]', '"seats":{"1":{"x":1}}', '"partitions":5',
                                   '"seats":{"1":{"type":"Shared","claim":{"x":1}}}'])  # fmt: skip
def test_what_cannot_be_read_is_corrupt(field: str) -> None:
    with pytest.raises(CorruptRecord):
        decode_subscription(
            b'{"v":1,"topic":"t","subscription":"s","state":"ACTIVE","type":"Shared",' + field.encode() + b"}"
        )
