"""Messages of a Shared subscription go to its consumers in turns, come again when they are refused or late, and go back
when a consumer leaves."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import Departure
from pulsar_on_kafka_mapping.records.record_headers import CHUNK
from pulsar_on_kafka_mapping.state.cursors.lease_records import Nack
from tests.unit.broker.subscriptions.dispatching.served import Letters, Record, Served, records


def test_consumers_take_turns_of_twenty() -> None:
    served = Served()
    a, b = served.consumer("a"), served.consumer("b")
    served.publish(*records(50))
    assert served.turn()
    assert served.received(a) == [*range(20), *range(40, 50)]
    assert served.received(b) == [*range(20, 40)]
    assert (a.unacked, b.unacked) == (30, 20)
    assert not served.turn()
    assert not served.dispatcher.has_undelivered()


def test_messages_wait_for_room() -> None:
    served = Served()
    served.publish(*records(10))
    assert not served.turn()
    assert served.dispatcher.has_undelivered()
    a = served.consumer("a", 4)
    assert served.turn()
    assert len(a.queue) == 4
    assert served.dispatcher.has_undelivered()
    assert not served.dispatcher.takes_any()
    assert not served.turn()
    a.queue.popleft()
    assert not served.dispatcher.takes_any()
    a.queue.popleft()
    assert served.dispatcher.takes_any()
    a.unacked = a.max_unacked
    assert not served.dispatcher.takes_any()
    assert not served.dispatcher.other_partition_flows()


def test_a_redelivery_read_that_fails_does_not_stop_other_partitions() -> None:
    served = Served(partitions=2)
    a = served.consumer("a", 4)
    served.publish(*records(1))
    assert served.received(a, 0.0) == [0]
    served.refuse(a, 0)
    assert not served.dispatcher.other_partition_flows()
    served.fails = True
    assert not served.turn(0.5)
    assert served.dispatcher.has_undelivered()
    assert served.dispatcher.other_partition_flows(), "what partition 1 has is read on"
    served.publish(*records(4), partition=1)
    assert served.turn()
    assert not served.dispatcher.other_partition_flows(), "nothing has room"


def test_a_partition_that_is_quiet_gives_nothing() -> None:
    served = Served(partitions=2)
    a = served.consumer("a")
    served.publish(*records(2))
    served.publish(*records(3), partition=1)
    served.owned[0].quiet = True
    assert served.turn()
    assert [message.feed.slot.number for message in a.queue] == [1, 1, 1]


def test_what_is_refused_comes_again_at_its_time_to_anybody() -> None:
    served = Served()
    a = served.consumer("a", 3)
    served.publish(*records(3))
    assert served.received(a, 0.0) == [0, 1, 2]
    b = served.consumer("b", priority=1)
    served.refuse(a, 1, delay_s=2.0)
    due_s = served.dispatcher.redelivery.next_due()
    assert due_s == pytest.approx(served.clock.seconds + 2.0, abs=0.03)
    assert served.received(a, 1.9) == []
    a.unacked = a.max_unacked + 5
    served.turn(0.2)
    assert [(message.offset, message.redeliveries) for message in b.queue] == [(1, 1)]
    assert served.dispatcher.redelivery.next_due() is None
    assert served.owned[0].holders[1].endpoint is b


def test_only_the_holder_of_a_message_refuses_it() -> None:
    served = Served()
    a, b = served.consumer("a"), served.consumer("b")
    served.publish(*records(1))
    assert served.received(a, 0.0) == [0]
    served.refuse(b, 0)
    assert served.put_off() == []
    assert served.received(a, 1.0) == []
    assert served.received(b, 1.0) == []
    served.dispatcher.detach(a)
    assert served.received(b, 0.0) == [0]
    served.refuse(a, 0)  # said before it was closed, and read late
    assert served.received(b, 1.0) == []
    served.refuse(b, 0)
    assert served.received(b, 1.0) == [0]
    served.ack(0)
    served.refuse(b, 0)
    assert served.put_off() == []


def test_what_was_refused_and_acknowledged_does_not_come() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(*records(3))
    served.received(a, 0.0)
    served.refuse(a, 0, 1, delay_s=1.0)
    served.ack(1)
    assert served.received(a, 2.0) == [0]
    assert served.owned[0].cursor.is_acknowledged(1)


def test_what_comes_again_comes_lowest_first_and_before_what_is_new() -> None:
    served = Served()
    a = served.consumer("a", 5)
    served.publish(*records(8))
    assert served.received(a, 0.0) == [0, 1, 2, 3, 4]
    served.refuse(a, 3, 1)
    assert served.received(a, 0.5) == [1, 3, 5, 6, 7]


def test_what_comes_again_is_read_as_far_as_there_is_room() -> None:
    served = Served()
    a = served.consumer("a", 4)
    served.publish(*records(4))
    served.received(a, 0.0)
    served.refuse(a, 0, 1, 2, 3)
    a.resize(2)
    assert served.received(a, 0.5) == [0, 1]
    assert served.reads == [[0, 1]]
    assert list(served.owned[0].redeliveries.waiting) == [2, 3]
    assert served.received(a, 0.5) == [2, 3]


def test_batch_entries_that_found_no_room_wait_on() -> None:
    served = Served()
    a = served.consumer("a", 100)
    served.publish(Record(batch=6), Record(batch=6), Record())
    assert served.received(a, 0.0) == [*[0] * 6, *[1] * 6, 2]
    served.dispatcher.redelivery.redeliver_all(a)
    a.resize(3)
    assert served.received(a, 0.0) == [0] * 6
    assert list(served.owned[0].redeliveries.waiting) == [1, 2]
    assert served.received(a, 0.0) == [1] * 6
    assert served.received(a, 0.0) == [2]


def test_what_cannot_be_read_again_is_tried_again() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(*records(2))
    served.received(a, 0.0)
    served.refuse(a, 0)
    served.fails = True
    assert not served.turn(0.5)
    assert served.dispatcher.replay_failed
    assert served.dispatcher.has_undelivered()
    served.fails = False
    assert served.received(a, 0.0) == [0]
    assert not served.dispatcher.replay_failed


def test_what_kafka_has_deleted_counts_as_acknowledged() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(*records(3))
    served.received(a, 0.0)
    served.refuse(a, 1)
    del served.log[0][1]
    assert served.turn(0.5)
    assert not a.queue
    assert served.owned[0].cursor.is_acknowledged(1)
    assert not served.owned[0].redeliveries.waiting
    assert not served.dispatcher.replay_failed


def test_what_is_not_acknowledged_in_time_comes_again() -> None:
    served = Served(partitions=2)
    a = served.consumer("a", ack_timeout_s=10.0)
    served.publish(*records(4))
    served.turn()
    for _ in range(3):
        a.queue.popleft()
    served.turn()
    assert served.dispatcher.redelivery.next_due() == served.clock.seconds + 1.0, "the fourth may be received"
    fourth = [a.queue.popleft()]
    due_s = served.dispatcher.redelivery.next_due()
    assert due_s == served.clock.seconds + 1.0, "its receipt is yet to be timed"
    assert a.ack_timeouts is not None
    a.ack_timeouts.received.clear()
    assert served.dispatcher.redelivery.next_due() == pytest.approx(served.clock.seconds + 10.0, abs=1.1)
    a.queue.extend(fourth)
    served.refuse(a, 1, delay_s=30.0)  # it is refused: it comes at that time alone
    served.ack(0)
    a.queue.clear()
    assert served.received(a, 12.0) == [2]
    served.turn()
    assert served.received(a, 12.0) == [2], "again late"
    served.ack(2)
    assert served.received(a, 7.0) == [1]


def test_late_messages_of_other_processes_partitions_are_told_to_these() -> None:
    served = Served()
    a = served.consumer("a", ack_timeout_s=10.0)
    assert a.ack_timeouts is not None
    a.ack_timeouts.received.append((7, 3))
    served.turn()
    served.turn(12.0)
    assert served.late_elsewhere == [(7, [3])]


def test_a_consumer_that_asks_for_all_again_gets_what_it_put_off_too() -> None:
    served = Served()
    a, b = served.consumer("a", 3), served.consumer("b", 3)
    served.publish(*records(6))
    served.turn()
    assert served.received(b) == [3, 4, 5]
    a.queue.popleft()
    served.refuse(a, 0, delay_s=60.0)
    served.dispatcher.redelivery.redeliver_all(a)
    assert not a.queue
    b.unacked = b.max_unacked
    served.turn()
    assert [(each.offset, each.redeliveries) for each in a.queue] == [(0, 1), (1, 1), (2, 1)]
    assert not served.put_off()


def test_what_a_consumer_held_goes_to_others_when_it_leaves() -> None:
    served = Served()
    a = served.consumer("a", 2)
    served.publish(*records(3))
    served.turn()
    a.queue.popleft()
    served.refuse(a, 0, delay_s=60.0)
    b = served.consumer("b")
    served.dispatcher.detach(a)
    assert a.closed
    assert served.consumers == [b]
    served.turn()
    assert [(each.offset, each.redeliveries) for each in b.queue] == [(0, 0), (1, 0), (2, 0)]
    assert not served.put_off()


def test_what_a_consumer_of_another_process_put_off_waits_on_when_it_leaves() -> None:
    served = Served()
    there, leased = served.remote("there")
    served.publish(*records(3))
    served.turn()
    assert leased == [0, 1, 2]
    served.dispatcher.redelivery.refused(served.owned[0], served.clock.seconds, 5.0, 1, there)
    here = served.consumer("here")
    served.dispatcher.detach(there, Departure.LOST)
    assert served.received(here, 0.0) == [0, 2]
    assert served.received(here, 5.1) == [1]


def test_too_many_unacknowledged_messages_stop_what_is_new_until_half_is_done() -> None:
    served = Served(partitions=2)
    served.handle.policies = SubscriptionPolicies(max_unacked_on_subscription=8)
    a = served.consumer("a", 8)
    served.publish(*records(8))
    served.publish(*records(4), partition=1)
    assert served.received(a, 0.0) == [*range(8)]
    served.refuse(a, 0)
    assert served.received(a, 0.5) == [0]
    served.ack(0, 1, 2, 3)
    assert not served.turn()
    served.ack(4)
    assert served.received(a, 0.0) == [0, 1, 2, 3]


def test_a_seek_gives_up_all_that_was_handed_out() -> None:
    served = Served(partitions=2)
    a = served.consumer("a", ack_timeout_s=10.0)
    served.publish(*records(6))
    served.publish(*records(1), partition=1)
    served.turn()
    for _ in range(3):
        a.queue.popleft()
    served.refuse(a, 0, delay_s=1.0)
    served.ack(2)
    served.turn()
    served.owned[0].intake.stopped = "it cannot be read"
    served.dispatcher.seek(served.owned[0], 1, None)
    assert served.seeks == [(0, 1)]
    assert served.owned[0].slot.forgotten == 1
    assert served.owned[0].intake.stopped is None
    assert [each.feed.slot.number for each in a.queue] == [1]
    a.queue.clear()
    assert served.received(a, 2.0) == []
    served.read_on()
    assert served.received(a, 0.0) == [1, 2, 3, 4, 5], "acknowledged or not"
    assert not served.put_off()


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE])
def test_acknowledgements_that_are_not_drained_yet_acknowledge_nothing_behind_a_seek(kind: SubscriptionType) -> None:
    served = Served(kind)
    a = served.consumer("a")
    served.publish(*records(6))
    served.turn()
    slot = served.owned[0].slot
    slot.ack(3)
    slot.cumulative.append(2)
    slot.ack_in_batch((4, 0, 2))
    slot.ack_sets.append((5, BatchAckSet(2, 1)))
    served.dispatcher.seek(served.owned[0], 0, None)
    served.read_on()
    served.turn()
    assert served.received(a, 0.0) == [0, 1, 2, 3, 4, 5]
    assert served.owned[0].cursor.next_unacked == 0


def test_everything_up_to_an_offset_is_acknowledged_but_nothing_beyond_the_log() -> None:
    served = Served()
    a = served.consumer("a", 2)
    served.publish(*records(6))
    served.turn()
    served.dispatcher.acknowledge_up_to(served.owned[0], 3)
    assert (a.unacked, served.seeks, served.received(a)) == (0, [], [0, 1])
    assert served.received(a, 0.0) == [4, 5]
    served.dispatcher.acknowledge_up_to(served.owned[0], 6)
    assert served.owned[0].cursor.next_unacked == 6, "nothing is at 6 yet"
    served.seeks.clear()
    served.write(*records(2))
    served.dispatcher.acknowledge_up_to(served.owned[0], 50)
    assert served.owned[0].cursor.next_unacked == 8
    assert served.seeks == [(0, 8)]
    served.fails = True
    with pytest.raises(StoreError):
        served.dispatcher.acknowledge_up_to(served.owned[0], 50)


def test_ledgers_are_acknowledged_but_nothing_beyond_the_log() -> None:
    served = Served()
    served.publish(*records(15))
    of = served.owned[0]
    assert served.dispatcher.acknowledge_ledgers(of, of_offsets(BitMap64([0, 1, 12, 17]), {}, 10)) == 3
    assert list(of.cursor.unacknowledged(0, 20)) == [*range(2, 12), 13, 14, 15, 16, 17, 18, 19]
    served.fails = True  # the log's end is asked for only where something may lie beyond it
    assert served.dispatcher.acknowledge_ledgers(of, of_offsets(BitMap64([3]), {}, 10)) == 1
    with pytest.raises(StoreError):
        served.dispatcher.acknowledge_ledgers(of, of_offsets(BitMap64([13]), {}, 10))


def test_delayed_messages_come_at_their_time() -> None:
    served = Served()
    a = served.consumer("a")
    now_ms = served.clock.now_ms()
    served.publish(Record(deliver_at_ms=now_ms + 3000), Record(), Record(deliver_at_ms=now_ms + 120_000))
    assert served.received(a, 0.0) == [1]
    due_s = served.dispatcher.redelivery.next_due()
    assert due_s == pytest.approx(served.clock.seconds + 3.0, abs=0.2)
    assert served.received(a, 2.8) == []
    assert served.received(a, 0.3) == [0]
    assert served.owned[0].redeliveries.counts == {}
    assert served.received(a, 110.0) == []
    assert served.received(a, 8.0) == [2]


def test_delayed_messages_are_due_now_while_there_is_no_room_for_them() -> None:
    served = Served()
    served.publish(Record(deliver_at_ms=served.clock.now_ms() + 1000))
    served.turn(2.0)
    assert served.dispatcher.redelivery.next_due() == served.clock.seconds
    assert served.dispatcher.has_undelivered()


def test_a_partition_that_is_given_up_leaves_consumers_what_they_received_and_did_not_refuse() -> None:
    served = Served()
    a = served.consumer("a")
    there, leased = served.remote("there", 1)
    served.publish(*records(21), *records(1))
    served.turn()
    assert leased == [20]
    for _ in range(3):
        a.queue.popleft()
    served.refuse(a, 1, delay_s=5.0)
    served.dispatcher.withdraw(served.owned[0])
    assert served.owned[0].quiet
    assert not a.queue
    assert {offset: feed.endpoint for offset, feed in served.owned[0].holders.items()} == {0: a, 2: a, 20: there}
    assert not served.turn()


def test_what_a_partition_that_is_not_ours_any_more_left_here_is_forgotten() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(*records(3))
    served.turn()
    slot = served.owned[0].slot
    served.refuse(a, 0, delay_s=1.0)
    slot.nacks.append((served.clock.seconds, 1.0, 1, a))
    slot.nacks_in_batch.append((served.clock.seconds, 1.0, 1, a, 0, 2))
    served.dispatcher.forget(served.owned[0])
    assert not a.queue
    assert not slot.nacks
    assert not slot.nacks_in_batch
    assert not served.owned[0].holders
    assert served.owned[0].read_position == 0
    assert not served.put_off()


def test_what_was_refused_under_a_former_owner_comes_at_its_time_and_counts_once() -> None:
    served = Served()
    of = served.owned[0]
    of.redeliveries.counts[2] = 4
    of.redeliveries.waiting.update((1, 2))
    of.intake.passed_over.update(BitMap64([2]))
    said = {1: Nack(1, 1, 3000, 1), 2: Nack(1, 2, 3000, 3), 3: Nack(1, 3, 3000, 0)}
    served.dispatcher.redelivery.redeliver_later(of, said)
    served.dispatcher.redelivery.redeliver_later(of, {1: Nack(1, 1, 0, 1)})
    assert list(of.redeliveries.waiting) == [2]
    assert of.redeliveries.counts == {1: 1, 2: 4}
    a = served.consumer("a")
    served.publish(*records(5))
    assert served.received(a, 0.0) == [2, 0, 4]
    served.turn(3.1)
    assert [(each.offset, each.redeliveries) for each in a.queue] == [(1, 2), (3, 1)]


def test_what_consumers_held_under_a_former_owner_stays_theirs() -> None:
    served = Served()
    a = served.consumer("a")
    served.dispatcher.still_held(served.owned[0], a, {1: 1, 2: 3}, {})
    served.publish(*records(2), Record(batch=3), *records(1))
    assert a.unacked == 4
    assert served.received(a, 0.0) == [0, 3]
    served.refuse(a, 1, 2)
    assert served.received(a, 0.5) == [1, 2, 2, 2]


def test_refusals_within_batches_come_again_to_their_consumer() -> None:
    served = Served()
    a, b = served.consumer("a"), served.consumer("b")
    served.publish(Record(batch=4))
    assert served.received(a, 0.0) == [0] * 4
    served.owned[0].slot.nacks_in_batch.append((served.clock.seconds, 1.0, 0, a, 2, 4))
    served.dispatcher.drain()
    assert served.dispatcher.redelivery.next_due() == served.clock.seconds + 1.0
    assert served.received(a, 1.0) == [0]
    assert served.received(b, 1.0) == []


def test_refusals_within_batches_are_forgotten_when_everything_comes_again() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(Record(batch=4))
    served.received(a, 0.0)
    served.owned[0].slot.nacks_in_batch.append((served.clock.seconds, 1.0, 0, a, 2, 4))
    served.dispatcher.drain()
    served.dispatcher.redelivery.redeliver_all(a)
    assert served.received(a, 0.0) == [0] * 4
    assert served.received(a, 2.0) == []


def test_a_record_is_read_again_for_who_needs_it() -> None:
    served = Served()
    served.publish(*records(3))
    assert served.dispatcher.record(0, 2) is served.log[0][2]
    assert served.dispatcher.record(0, 9) is None


def test_what_a_transaction_let_go_of_comes_again() -> None:
    served = Served()
    a = served.consumer("a", 3)
    served.publish(*records(6))
    served.received(a, 0.0)
    of = served.owned[0]
    of.in_flight.let_go([1])
    of.held.back.add(1)
    served.dispatcher.redelivery.deliver_again(of, BitMap64())
    assert served.received(a, 0.0) == [3, 4, 5]
    served.dispatcher.redelivery.deliver_again(of, BitMap64([1]))
    served.turn()
    assert [(each.offset, each.redeliveries) for each in a.queue] == [(1, 1)]


def test_a_chunked_message_that_stays_incomplete_is_given_up() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(Record(headers={CHUNK: b"0:2:20:u"}), Record())
    assert served.received(a, 0.0) == [1]
    assert served.received(a, 59.0) == []
    assert served.owned[0].cursor.next_unacked == 0
    served.publish(Record(headers={CHUNK: b"1:2:20:v"}))
    assert served.received(a, 2.0) == []
    assert served.owned[0].cursor.is_acknowledged(0)


def test_chunks_wait_for_others_that_a_former_owner_put_off_where_deliveries_are_counted() -> None:
    served = Served()
    a = served.consumer("a", dead_letters=Letters(3))
    served.publish(Record(headers={CHUNK: b"0:2:20:u"}), Record())
    served.dispatcher.redelivery.redeliver_later(served.owned[0], {1: Nack(1, 1, 100_000)})
    served.save()
    served.turn(61.0)
    assert served.owned[0].cursor.next_unacked == 0
    for _ in range(3):
        served.save()
        served.turn(50.0)
    assert served.received(a) == [1]
    assert served.owned[0].cursor.next_unacked == 1


def test_a_chunked_message_that_is_late_comes_whole() -> None:
    served = Served()
    a = served.consumer("a", ack_timeout_s=10.0)
    served.publish(Record(headers={CHUNK: b"0:2:20:u"}), Record(headers={CHUNK: b"1:2:20:u"}))
    assert served.received(a, 0.0) == [1]
    served.turn()
    assert served.received(a, 12.0) == [1]
    assert served.reads == [[0, 1]]
    served.ack(1)
    assert served.owned[0].cursor.next_unacked == 2


@pytest.mark.parametrize("stays_out", [True, False])
def test_reading_ahead_ends_with_the_partition(stays_out: bool) -> None:
    served = Served()
    of = served.owned[0]
    assert of.intake.delayed is not None
    served.write(*records(2))
    served.slow(0.02)
    for offset in (0, 1):
        of.intake.delayed.set_aside(offset, served.clock.now_ms() + 9000)
    served.turn()
    assert served.dispatcher.redelivery.next_due() == served.clock.seconds, "it is under way"
    of.stays_out = stays_out
    served.dispatcher.forget(of)
    assert served.dispatcher.redelivery.next_due() is None


def test_what_was_held_before_stops_nothing_below_the_limit() -> None:
    served = Served()
    served.handle.policies = SubscriptionPolicies(max_unacked_on_subscription=8)
    a = served.consumer("a")
    served.dispatcher.still_held(served.owned[0], a, dict.fromkeys(range(5), 1), {})
    served.publish(*records(7))
    assert served.received(a, 0.0) == [5, 6]


def test_everybody_forgets_what_was_refused_of_a_partition_that_came_anew() -> None:
    served = Served(partitions=2)
    a = served.consumer("a")
    for partition in (0, 1):
        served.publish(*records(2), partition=partition)
    served.turn()
    for partition in (0, 1):
        served.refuse(a, 1, delay_s=60.0, partition=partition)
    served.dispatcher.seek(served.owned[0], 0, None)
    assert (served.put_off(0), served.put_off(1)) == ([], [1])
