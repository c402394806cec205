"""Partitions of Exclusive and Failover subscriptions go to one consumer each, in order; what comes again is all."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching import dispatcher
from pulsar_on_kafka.broker.subscriptions.records.chunks import HeldMessages
from tests.unit.broker.subscriptions.dispatching.served import Served, records


def failover(partitions: int = 1) -> Served:
    return Served(SubscriptionType.FAILOVER, partitions)


def held(*offsets: int) -> HeldMessages:
    return HeldMessages(dict.fromkeys(offsets, 1), {})


def test_each_partition_has_one_active_consumer() -> None:
    served = failover(2)
    served.publish(*records(3))
    served.publish(*records(2), partition=1)
    assert not served.turn()
    b, a = served.consumer("b", 2), served.consumer("a", 2)
    assert served.seeks == [(0, 0)], "partition 0 goes from b to a"
    served.read_on()
    assert served.turn()
    assert [(each.feed.slot.number, each.offset) for each in a.queue] == [(0, 0), (0, 1)]
    assert [(each.feed.slot.number, each.offset) for each in b.queue] == [(1, 0), (1, 1)]
    assert (a.unacked, not served.owned[0].holders) == (0, True)
    assert not served.turn()


def test_another_active_consumer_gets_everything_unacknowledged() -> None:
    served = failover()
    a, b = served.consumer("a"), served.consumer("b")
    assert served.seeks == []
    served.publish(*records(4))
    assert served.received(a, 0.0) == [0, 1, 2, 3]
    served.ack(0)
    served.dispatcher.detach(a)
    assert served.seeks == [(0, 1)]
    served.read_on()
    assert served.received(b, 0.0) == [1, 2, 3]
    served.dispatcher.detach(b)
    assert served.owned[0].active is None
    assert len(served.seeks) == 1, "nobody is there to go back for"
    served.publish(*records(1))
    assert not served.turn()


def test_a_partition_whose_consumers_are_not_all_known_has_no_active_one() -> None:
    served = failover(2)
    served.owned[0].quiet = True
    a = served.consumer("a")
    assert [served.owned[number].active for number in (0, 1)] == [None, a.feed(served.owned[1].slot)]
    served.publish(*records(1), partition=0)
    served.owned[0].active = a.feed(served.owned[0].slot)
    assert not served.turn()


def test_a_refusal_has_everything_unacknowledged_come_again_in_order() -> None:
    served = failover()
    a = served.consumer("a", 4)
    served.publish(*records(6))
    assert served.received(a, 0.0) == [0, 1, 2, 3]
    served.ack(0)
    served.refuse(a, 2, delay_s=1.0)
    assert served.received(a, 0.9) == [4, 5]
    assert served.received(a, 0.2) == []
    assert served.seeks == [(0, 1)]
    served.read_on()
    assert served.received(a, 0.0) == [1, 2, 3, 4]


def test_a_refusal_of_what_did_not_go_out_yet_changes_nothing() -> None:
    served = failover()
    a = served.consumer("a")
    served.publish(*records(2))
    served.received(a, 0.0)
    served.refuse(a, 7)
    served.turn(1.0)
    assert served.seeks == []
    served.dispatcher.redelivery.deliver_again(served.owned[0], BitMap64([7]))
    assert served.seeks == []
    served.dispatcher.redelivery.deliver_again(served.owned[0], BitMap64())
    assert served.seeks == []
    served.dispatcher.redelivery.deliver_again(served.owned[0], BitMap64([1]))
    assert served.seeks == [(0, 0)]


def test_without_an_active_consumer_what_was_refused_has_all_come_again() -> None:
    served = failover()
    a = served.consumer("a")
    served.publish(*records(2))
    served.received(a, 0.0)
    served.refuse(a, 1)
    served.dispatcher.detach(a)
    served.turn(1.0)
    assert served.seeks == [(0, 0)]
    served.dispatcher.redelivery.deliver_again(served.owned[0], BitMap64([9]))
    assert served.seeks == [(0, 0), (0, 0)]


def test_what_is_late_has_all_come_again_unless_it_is_acknowledged() -> None:
    served = failover()
    a = served.consumer("a", ack_timeout_s=10.0)
    served.publish(*records(2))
    served.received(a, 0.0)
    served.turn()
    served.ack(0, 1)
    served.turn(12.0)
    assert served.seeks == []
    served.publish(*records(2))
    served.received(a, 0.0)
    served.turn()
    served.ack(2)
    served.turn(12.0)
    assert served.seeks == [(0, 3)]


def test_what_is_late_at_a_consumer_that_is_not_active_changes_nothing() -> None:
    served = failover()
    served.consumer("a")
    b = served.consumer("b", ack_timeout_s=10.0)
    served.publish(*records(2))
    served.turn()
    assert b.ack_timeouts is not None
    b.ack_timeouts.received.append((0, 1))
    served.turn()
    served.turn(12.0)
    assert served.seeks == []


def test_only_the_active_consumer_has_all_come_again_by_asking() -> None:
    served = failover(2)
    a, b = served.consumer("a"), served.consumer("b")
    served.publish(*records(2))
    served.turn()
    served.seeks.clear()
    served.dispatcher.redelivery.redeliver_all(b)
    assert served.seeks == [(1, 0)]
    assert len(a.queue) == 2
    served.dispatcher.redelivery.redeliver_all(a)
    assert served.seeks == [(1, 0), (0, 0)]
    assert not a.queue


def test_one_partitions_consumer_has_room_while_anothers_messages_are_at_hand() -> None:
    served = failover(2)
    a, b = served.consumer("a", 2), served.consumer("b", 2)
    served.publish(*records(4))
    served.turn()
    assert served.dispatcher.other_partition_flows(), "b's"
    assert not served.dispatcher.takes_any()
    assert served.dispatcher.has_undelivered()
    b.close()
    assert not served.dispatcher.other_partition_flows()
    a.queue.popleft()
    assert served.dispatcher.takes_any()
    served.publish(*records(1), partition=1)
    served.owned[1].active = None
    assert served.dispatcher.takes_any()
    assert not served.dispatcher.other_partition_flows()


def test_nobody_takes_anything_where_nothing_is_at_hand() -> None:
    served = failover()
    served.consumer("a")
    assert not served.dispatcher.takes_any()
    assert served.dispatcher.other_partition_flows()
    served.publish(*records(1))
    assert served.dispatcher.takes_any()
    assert not served.dispatcher.other_partition_flows()


def test_the_active_consumer_keeps_what_it_holds_when_the_owner_changes() -> None:
    served = failover()
    of = served.owned[0]
    of.quiet = True
    a, b = served.consumer("a"), served.consumer("b")
    of.quiet = False
    served.dispatcher.take_up(of, {a: held(0, 1)})
    assert of.active is a.feed(of.slot)
    assert of.kept_upto == 2
    assert of.slot.forgotten == 0
    served.publish(*records(4))
    assert served.received(a, 0.0) == [2, 3]
    served.refuse(a, 1)
    served.turn(1.0)
    assert served.seeks == [(0, 0)]
    assert of.kept_upto == 0
    assert not b.queue


@pytest.mark.parametrize("holders", [("b",), ("a", "b")])
def test_everything_comes_again_where_somebody_else_holds_some_when_the_owner_changes(holders: tuple[str, ...]) -> None:
    served = failover()
    of = served.owned[0]
    of.quiet = True
    consumers = {name: served.consumer(name) for name in ("a", "b")}
    of.quiet = False
    served.dispatcher.take_up(of, {consumers[name]: held(0, 1) for name in holders})
    assert of.slot.forgotten == 1
    served.publish(*records(3))
    assert served.received(consumers["a"], 0.0) == [0, 1, 2]


def test_nothing_comes_again_where_nobody_held_anything_when_the_owner_changes() -> None:
    served = failover()
    served.consumer("a")
    served.dispatcher.take_up(served.owned[0], {})
    assert served.owned[0].slot.forgotten == 0


def test_what_is_found_between_what_was_kept_has_all_come_again() -> None:
    served = failover()
    of = served.owned[0]
    of.quiet = True
    a = served.consumer("a")
    of.quiet = False
    served.dispatcher.take_up(of, {a: held(0, 2)})
    served.publish(*records(4))
    assert served.received(a, 0.0) == [], "nobody holds 1"
    assert served.seeks == [(0, 0)]
    served.read_on()
    assert served.received(a, 0.0) == [0, 1, 2, 3]


@pytest.mark.parametrize("case", ["kept", "refused", "too many", "nobody is active", "members have yet to answer"])
def test_the_active_consumer_keeps_what_it_was_handed_when_the_partition_is_given_up(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "DEFAULT_MAX_UNACKED", 4)
    served = failover()
    a = served.consumer("a")
    served.publish(*records(5 if case == "too many" else 4))
    served.turn()
    of = served.owned[0]
    if case == "refused":
        served.refuse(a, 0, delay_s=60.0)
    unanswered = case == "members have yet to answer"
    if unanswered or case == "nobody is active":
        of.active = None
    served.dispatcher.withdraw_in_order(of, unanswered=unanswered)
    kept = unanswered or case == "kept"
    assert of.quiet
    assert of.stays_out == kept
    served.dispatcher.forget(of)
    assert len(a.queue) == (4 if kept else 0)
    assert of.slot.forgotten == (not kept)
    assert of.read_position == 0
    assert not served.put_off()


def test_a_seek_goes_on_from_its_target() -> None:
    served = failover()
    a = served.consumer("a")
    served.publish(*records(5))
    served.turn()
    served.dispatcher.seek(served.owned[0], 3, None)
    assert served.seeks == [(0, 3)]
    assert served.received(a) == []
    served.read_on()
    assert served.received(a, 0.0) == [3, 4]


def test_one_free_place_is_enough() -> None:
    served = failover()
    a = served.consumer("a", 1)
    served.publish(*records(2))
    assert served.received(a, 0.0) == [0]
    assert served.received(a, 0.0) == [1]


def test_what_a_consumer_refused_before_it_left_has_come_again_already() -> None:
    served = failover()
    a = served.consumer("a")
    served.consumer("b")
    served.publish(*records(2))
    served.turn()
    served.dispatcher.detach(a)
    served.refuse(a, 1)
    served.read_on()
    served.turn(1.0)
    assert served.seeks == [(0, 0)], "b's, and no other"


def test_a_refusal_at_the_last_moment_does_not_outlive_the_partition() -> None:
    served = failover()
    a = served.consumer("a")
    served.publish(*records(2))
    served.turn()
    served.dispatcher.withdraw_in_order(served.owned[0])
    served.refuse(a, 1, delay_s=60.0)
    served.dispatcher.forget(served.owned[0])
    assert not served.put_off()
    assert len(a.queue) == 2


def test_a_closed_consumer_takes_nothing() -> None:
    served = failover()
    a = served.consumer("a")
    served.publish(*records(1))
    a.close()
    assert not served.dispatcher.takes_any()
    assert not served.turn()
