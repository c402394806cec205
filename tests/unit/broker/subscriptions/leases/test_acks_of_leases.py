"""A member's acknowledgements and refusals between `acknowledge` and the save that holds them."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.leases.acks import LeaseAcks, UnsavedReports
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import HeldBefore, LeasedPartition, LeasedPartitions
from pulsar_on_kafka.broker.subscriptions.leases.permits import LeasePermits
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, MemberId, Nack, Report
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck
from tests.simulation.leases import LIFE

MEMBER = MemberId("me", 1)
OWNER = b"1" * 16


def _slot(number: int = 0) -> PartitionAcks:
    return PartitionAcks("persistent://public/default/orders", number, -1, LedgerLayout(1, 10))


def _consumer(capacity: int = 10) -> Endpoint:
    return Endpoint("mine", capacity, delivery_type=Delivery)


def _report(number: int, *offsets: int, partition: int = 0) -> Report:
    return Report(LIFE, MEMBER, number, acks={partition: BitMap64(offsets)})


# Reports that are not known to be saved ---------------------------------------------------------------------------


def test_beyond_a_thousand_reports_the_newest_are_one_that_is_saved_when_all_are() -> None:
    reports = UnsavedReports()
    for number in range(1, 1004):
        reports.written(number, 10 * number, _report(number, number))
    reports.written(1004, 10_040, _report(1004, 1004, partition=3))
    assert reports.newest == 1004
    reports.saved(0, 0, 10_030)  # what stands at 10,030 is not in it
    assert reports.are_saved(999)
    assert not reports.are_saved(1000)
    assert not reports.are_saved(1003)
    assert set(reports.reported_from(0, 0).whole) == {1000, 1001, 1002, 1003}
    assert set(reports.reported_from(3, 0).whole) == {1004}
    assert set(reports.take([0]).whole) == {1000, 1001, 1002, 1003}
    assert not reports.are_saved(1004)
    reports.saved(3, 0, 10_041)
    assert reports.are_saved(1004)
    assert not reports


def test_what_an_owner_saved_and_did_not_hear_is_told_once_more_from_its_first_report_on() -> None:
    reports = UnsavedReports()
    for number in (1, 2, 3):
        reports.written(number, 10 * number, _report(number, number))
    reports.saved(0, 25, 40)  # it has heard what stands at 25 and behind
    assert not reports.are_saved(1)
    assert reports.has_unheard
    assert set(reports.reported_from(0, 0).whole) == set()
    since, again = reports.take_unheard(4)
    assert (since, {partition: set(acks.whole) for partition, acks in again.items()}) == (1, {0: {1, 2}})
    assert reports.take_unheard(4) == (4, {})


@pytest.mark.parametrize(("since", "upto", "left"), [(10, 21, False), (10, 20, True), (11, 21, True)])
def test_what_was_not_heard_is_saved_when_an_owner_says_that_it_holds_all_of_it(
    since: int, upto: int, left: bool
) -> None:
    reports = UnsavedReports()
    reports.written(1, 10, _report(1, 1))
    reports.written(2, 20, _report(2, 2))
    reports.saved(0, 25, 40)
    reports.saved(0, since, upto)
    assert reports.has_unheard is left


def test_acknowledgements_leave_of_an_entry_what_they_do_not_name() -> None:
    reports = UnsavedReports()
    reports.written(1, 10, Report(LIFE, MEMBER, 1, acks={0: BitMap64([4])}, batch_acks={0: {7: BatchAckSet(3, 0b001)}}))
    reports.written(2, 20, Report(LIFE, MEMBER, 2, batch_acks={0: {7: BatchAckSet(3, 0b010)}}))
    acks = reports.reported_from(0, 10)
    assert acks.left_of(LeasedEntry(4)) is None
    assert acks.left_of(LeasedEntry(5)) == LeasedEntry(5)
    assert acks.left_of(LeasedEntry(7, 2, 3)) == LeasedEntry(7, 2, 1, (3, 0b011))
    assert acks.left_of(LeasedEntry(7, 2, 2, (3, 0b100))) is None
    assert reports.reported_from(0, 20).left_of(LeasedEntry(7, 0, 3)) == LeasedEntry(7, 0, 2, (3, 0b010))


# What a consumer holds --------------------------------------------------------------------------------------------


def test_what_consumers_held_before_is_acknowledged_once_by_what_comes_behind_it() -> None:
    before = HeldBefore()
    before.add(BitMap64([1, 2, 5]), {8: (6, 7, 8), 12: (10, 12)})
    before.acknowledged([2])
    assert set(before.take(8)) == {1, 5, 6, 7, 8}
    assert set(before.take(8)) == set()
    before.acknowledged([12])
    assert set(before.take(99)) == set()


def test_a_refusal_waits_as_long_as_its_consumer_said_less_what_has_passed_since() -> None:
    holdings, mine = LeasedPartitions(), _consumer()
    acks, slot = LeaseAcks(holdings, {mine: 1}), _slot()
    leased = holdings.of(slot)
    leased.hold([LeasedEntry(1, redeliveries=4), LeasedEntry(2), LeasedEntry(3)], mine.feed(slot))
    slot.nacks += [(100.0, 5.0, 1, mine), (90.0, 5.0, 2, mine), (100.0, 5.0, 9, mine), (100.0, 0.0, 3, _consumer())]
    acks.drain(slot, 102.0)
    assert acks.refused(0, None) == {1: Nack(1, 1, 3000, 4), 2: Nack(1, 2, 0, 0)}
    assert (list(leased.in_flight.holders), leased.redeliveries, mine.unacked) == ([3], {}, 1)


def test_a_transaction_takes_what_its_acknowledgement_names_and_no_more() -> None:
    mine, slot = _consumer(), _slot()
    leased = LeasedPartition(slot)
    leased.hold([LeasedEntry(offset) for offset in (1, 2, 3, 6)], mine.feed(slot))
    leased.hold([LeasedEntry(4, 0, 3), LeasedEntry(5, 0, 2)], mine.feed(slot))
    ack = TxnAck(BitMap64([6, 8]), {4: BatchAckSet(3, 0b011), 5: BatchAckSet(2, 0b11)})
    leased.hold_for_transaction(ack)
    assert (sorted(leased.in_flight.holders), leased.in_flight.messages(), mine.unacked) == ([1, 2, 3, 4], 4, 4)
    leased.hold_for_transaction(TxnAck(cumulative=CumulativeAck(2, 3, 0b001)))
    assert (sorted(leased.in_flight.holders), mine.unacked) == ([2, 3, 4], 3)
    leased.hold_for_transaction(TxnAck(BitMap64([2]), cumulative=CumulativeAck(3)))
    assert (sorted(leased.in_flight.holders), mine.unacked) == ([4], 1)


# What owners may lease --------------------------------------------------------------------------------------------


def test_a_limit_is_all_that_was_leased_and_the_room_that_is_left() -> None:
    holdings, mine = LeasedPartitions(), _consumer(10)
    permits = LeasePermits([mine], holdings)
    assert not permits
    permits.open(OWNER)
    (said,) = permits.described(requesting=True)
    assert said.limits == {OWNER: 10}
    permits.count_leased(OWNER, said.number, 3)
    permits.count_leased(OWNER, said.number, 2)
    (said,) = permits.described(requesting=True)
    assert said.limits == {OWNER: 15}
    (said,) = permits.described(requesting=False)
    assert said.limits == {OWNER: 15}  # what was told is not taken back
    assert permits.is_next(OWNER, 1)
    assert not permits.is_next(OWNER, 3)
    assert permits.last_received() == {OWNER: 1}
    assert not permits.awaits(OWNER, 1, said.number)
    assert permits.awaits(OWNER, 2, said.number)
    assert not permits.awaits(OWNER, 2, said.number + 1)


def test_eight_owners_of_before_may_lease_what_they_were_promised() -> None:
    permits = LeasePermits([_consumer()], LeasedPartitions())
    owners = [bytes([number]) * 16 for number in range(10)]
    for owner in owners:
        permits.open(owner)
    permits.described(requesting=True)
    permits.close(b"unknown")
    for owner in owners[:9]:
        permits.close(owner)
    assert [owner in permits for owner in owners] == [False, *[True] * 9]
    assert permits
    permits.close(owners[9])
    assert not permits
    permits.open(owners[9])
    assert permits
    permits.close_all()
    assert not any(owner in permits for owner in owners)
