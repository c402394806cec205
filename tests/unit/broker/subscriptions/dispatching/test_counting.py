"""Deliveries are counted from take-over to giving up, and what was delivered often enough becomes a dead letter."""

from __future__ import annotations

import logging
from math import inf

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching import delivery_counts
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard, Departure
from pulsar_on_kafka.broker.subscriptions.partition.isolation import BESIDE
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries
from pulsar_on_kafka_mapping.state.cursors.lease_records import Nack
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck
from tests.unit.broker.subscriptions.dispatching.served import Letters, Record, Served, records


def counted(number: int, most: int = 1, capacity: int = 1000) -> tuple[Served, Endpoint, Letters]:
    """A consumer with a dead letter policy that received as many messages."""
    served, letters = Served(), Letters(most)
    consumer = served.consumer("first", capacity, dead_letters=letters)
    served.publish(*records(number))
    served.save()
    assert served.received(consumer, 0.0) == [*range(number)]
    return served, consumer, letters


def taken_over(deliveries: Deliveries, written: int = 5) -> Served:
    """A former owner saved this of the deliveries of as many messages, which nobody has acknowledged."""
    served = Served()
    cursor = CursorState(0, 10)
    cursor.deliveries = deliveries
    served.write(*records(written))
    served.own(0, delays=True, cursor=cursor)
    served.dispatcher.count_deliveries()
    return served


def guard_of(served: Served) -> DeliveryGuard:
    guard = served.owned[0].guard
    assert guard is not None
    return guard


def after_a_save(served: Served, consumer: Endpoint) -> list[int]:
    """What it receives once the deliveries that wait for it are on record."""
    assert served.received(consumer, 0.0) == []
    served.save()
    return served.received(consumer, 0.0)


def saved(served: Served) -> Deliveries:
    """What the next save holds of deliveries."""
    served.owned[0].saves.begin()
    found = served.owned[0].cursor.deliveries
    assert found is not None
    return found


# Dead letters ---------------------------------------------------------------------------------------------------------


def test_what_was_delivered_often_enough_becomes_a_dead_letter() -> None:
    served, consumer, letters = counted(3)
    served.refuse(consumer, 0, 2)
    assert served.received(consumer, 0.5) == [], "the save that counts it comes first"
    assert served.dispatcher.counting.requires_save()
    served.save()
    assert served.received(consumer, 0.0) == [0, 2]
    served.refuse(consumer, 0)
    assert served.received(consumer, 0.5) == []
    served.dispatcher.drain()
    assert letters.stored == [0]
    assert served.owned[0].cursor.is_acknowledged(0)
    assert (served.owned[0].redeliveries.counts, consumer.unacked) == ({2: 1}, 2)


def test_a_dead_letter_that_could_not_be_stored_is_tried_again_after_a_second() -> None:
    served, consumer, letters = counted(1, most=0)
    letters.fails = True
    served.refuse(consumer, 0)
    served.turn(0.5)
    letters.fails = False
    assert served.received(consumer, 0.9) == []
    assert letters.stored == []
    assert served.received(consumer, 0.3) == []
    assert letters.stored == [0]


def test_dead_letters_wait_for_those_that_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_counts, "_MAX_DEAD_LETTERS", 2)
    served, consumer, letters = counted(5, most=0)
    served.refuse(consumer, *range(5))
    served.turn(0.5)
    assert letters.stored == [0, 1]
    assert list(served.owned[0].redeliveries.waiting) == [2, 3, 4]
    assert served.dispatcher._dead_lettering.has(served.owned[0].holders[0])
    served.dispatcher.dispatch()
    assert letters.stored == [0, 1], "those are not known to be durable yet"
    served.turn()
    assert letters.stored == [0, 1, 2, 3]
    served.turn()
    assert letters.stored == [*range(5)]


def test_the_first_consumer_with_a_policy_dead_letters_for_all() -> None:
    served, consumer, letters = counted(2)
    other = Letters(0)
    served.consumer("second", dead_letters=other, priority=1)
    assert served.dispatcher._dead_lettering.max_redeliver_count() == 1
    assert not served.dispatcher._dead_lettering.has(served.owned[0].holders[0])
    consumer.close()
    assert served.dispatcher._dead_lettering.max_redeliver_count() == 0
    served.owned[0].redeliver([0], consumer)
    served.turn()
    assert (letters.stored, other.stored) == ([], [0])


def test_without_a_policy_here_the_highest_of_other_processes_counts() -> None:
    served = Served()
    assert served.dispatcher._dead_lettering.max_redeliver_count() is None
    served.consumer("here")
    assert served.dispatcher._dead_lettering.max_redeliver_count() is None
    served.remote("one", most=2)
    served.remote("two", most=5)
    served.remote("three")
    assert served.dispatcher._dead_lettering.max_redeliver_count() == 5
    served.consumer("too", dead_letters=Letters(1))
    assert served.dispatcher._dead_lettering.max_redeliver_count() == 1


def test_a_policy_that_comes_late_counts_what_was_delivered_before() -> None:
    served = Served()
    plain = served.consumer("plain")
    served.publish(*records(2))
    served.received(plain, 0.0)
    served.refuse(plain, 0)
    assert served.received(plain, 0.5) == [0]
    letters = Letters(1)
    served.consumer("with policy", dead_letters=letters, priority=1)
    served.save()
    served.refuse(plain, 0, 1)
    assert served.received(plain, 0.5) == []
    served.save()
    assert served.received(plain, 0.0) == [1]
    assert letters.stored == [0]


def test_counting_is_for_shared_subscriptions_with_a_policy_only() -> None:
    served = Served()
    served.consumer("plain")
    assert served.owned[0].guard is None
    assert served.owned[0].saves.includes_counts
    assert not served.dispatcher.counting.requires_save()
    assert served.dispatcher.counting.poll_limit(0.0) == inf


# Taking over ----------------------------------------------------------------------------------------------------------


def test_what_a_consumer_that_died_may_have_had_comes_one_by_one_at_the_last() -> None:
    served = taken_over(Deliveries(2), written=4)
    a = served.consumer("a", dead_letters=Letters(1))
    served.read_on()
    assert served.dispatcher.counting.poll_limit(0.0) < inf
    for offset in (0, 1):
        assert after_a_save(served, a) == [offset]
        assert after_a_save(served, a) == [], "one at a time"
        served.ack(offset)
    assert served.dispatcher.counting.poll_limit(0.0) == inf
    assert after_a_save(served, a) == [2, 3]


def test_the_member_polls_briefly_only_while_a_suspect_may_be_saved_or_settled_soon() -> None:
    served = taken_over(Deliveries(2))
    consumer = served.consumer("a", dead_letters=Letters(1))
    limit = served.dispatcher.counting.poll_limit
    assert limit(60.0) == 0.001, "no save permits a delivery yet"
    served.turn()
    served.save()
    assert limit(60.0) == 0.01
    assert served.received(consumer, 0.0) == [0]
    assert [limit(ago_s) for ago_s in (0.0, 0.9, 1.0, 60.0)] == [0.001, 0.001, 0.01, 0.01]
    served.ack(0)
    served.turn()
    assert limit(60.0) == 0.001, "the next one waits for a save"


def test_a_suspect_that_reading_finds_to_be_a_gap_holds_up_no_other() -> None:
    """Such as a transaction's marker, or a compacted entry: no save permits the delivery of an acknowledged one."""
    served = taken_over(Deliveries(3))
    consumer = served.consumer("a", dead_letters=Letters(1))
    del served.log[0][0]
    served.turn()
    served.read_on()
    assert (guard_of(served).suspects, list(served.owned[0].redeliveries.waiting)) == (2, [1, 2])
    for offset in (1, 2):
        assert after_a_save(served, consumer) == [offset]
        served.ack(offset)
    assert after_a_save(served, consumer) == [3, 4]


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
def test_what_kafka_has_deleted_waits_for_no_save(kind: SubscriptionType) -> None:
    served = Served(kind)
    consumer = served.consumer("a", dead_letters=Letters(1))
    served.publish(*records(4))
    served.turn()
    served.save()
    assert served.received(consumer, 0.0) == [0, 1, 2, 3]
    served.refuse(consumer, 0, 1, 2)
    served.turn(0.5)
    assert served.dispatcher.counting.requires_save()
    served.begin = 2
    assert served.owned[0].deleted_below(2) == 2
    served.save()
    assert served.received(consumer, 0.0) == [2]
    assert not served.dispatcher.counting.requires_save()


def test_nothing_that_was_read_ahead_is_kept_where_there_are_no_suspects_any_more() -> None:
    served = taken_over(Deliveries(5))
    consumer = served.consumer("a", dead_letters=Letters(1))
    for offset in (0, 1, 2):
        assert after_a_save(served, consumer) == [offset]
        served.ack(offset)
    assert sorted(served.dispatcher._reads._ahead[0]) == [3, 4]
    served.ack(3, 4)
    served.save()
    served.turn()
    assert served.dispatcher._reads._ahead == {}


def test_few_suspects_go_to_a_consumer_of_this_process_that_has_nothing_in_hand() -> None:
    served = taken_over(Deliveries(3))
    _, leased = served.remote("elsewhere")
    here = served.consumer("here", dead_letters=Letters(3))
    assert (after_a_save(served, here), leased) == ([0, 1, 2], [])


def test_a_refused_suspect_holds_up_no_other_until_its_time_comes() -> None:
    served = taken_over(Deliveries(3))
    here = served.consumer("here", dead_letters=Letters(1))
    for offset in (0, 1, 2):
        served.turn()
        served.save()
        assert served.received(here, 0.0) == [offset], "alone, as it is the last delivery"
        served.refuse(here, offset, delay_s=60.0)
    served.turn()
    assert (guard_of(served).suspects, served.put_off()) == (0, [0, 1, 2])


def test_what_lies_behind_the_suspects_flows_beside_them() -> None:
    """Nothing of it waits until the suspects, of which each is delivered after a save, are settled."""
    served = taken_over(Deliveries(50), written=500)
    _, leased = served.remote("elsewhere")
    here = served.consumer("here", dead_letters=Letters(3))
    served.read_on()
    served.turn()
    served.save()
    served.turn()
    held = {*(delivery.offset for delivery in here.queue), *leased}
    assert guard_of(served).suspects == 50
    assert len([offset for offset in held if offset >= 50]) > BESIDE, "in the other process no suspect is alone"


def beside_a_death(*, acknowledged: bool) -> tuple[Served, Endpoint]:
    """A consumer here refused 0, 1 and 2 for a minute; one of another process died with five others."""
    served, here, _ = counted(3)
    leaving, leased = served.remote("elsewhere")
    served.refuse(here, 0, 1, 2, delay_s=60.0)
    if acknowledged:
        served.ack(0, 1, 2)
    here.resize(1)  # its inbox takes none of what follows
    here.queue.append(Delivery(None, here.feed(served.slots[0]), 0, 0))  # type: ignore[arg-type]
    served.publish(*records(5))
    served.turn()
    assert leased == [3, 4, 5, 6, 7]
    here.queue.clear()
    here.resize(1000)
    served.dispatcher.detach(leaving, Departure.DIED)
    assert guard_of(served).suspects == 5
    return served, here


@pytest.mark.parametrize("acknowledged", [False, True], ids=["refused", "refused and then acknowledged"])
def test_what_waits_for_its_time_holds_up_no_suspect_nor_new_message_after_a_death(acknowledged: bool) -> None:
    """What a living consumer refused is not out, whether or not it was so when the suspects came, and is not counted
    twice."""
    served, here = beside_a_death(acknowledged=acknowledged)
    served.publish(*records(3))
    seen: list[int] = []
    for _ in range(30):
        seen += after_a_save(served, here) or served.received(here, 0.0)
        served.ack(*[offset for offset in seen if offset >= 3])
    assert sorted(seen) == [*range(3, 11)]
    assert served.dispatcher.counting.place(served.owned[0], "", new=True).out == 0


def test_where_there_are_no_suspects_what_comes_again_goes_to_whose_turn_it_is() -> None:
    served = Served()
    a, b = served.consumer("a", dead_letters=Letters(3)), served.consumer("b")
    served.publish(*records(21))
    assert after_a_save(served, a) == [*range(20)]
    assert served.received(b) == [20]
    served.refuse(b, 20)
    served.turn(0.5)
    served.save()
    assert served.received(a, 0.0) == [20], "though b has nothing in hand"


def test_a_suspect_that_becomes_a_dead_letter_is_none_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    served = taken_over(Deliveries(2, counts={(2, 0): BitMap64([0])}))
    letters = Letters(1)
    under_way: list[int] = []
    monkeypatch.setattr(letters, "publish_dead_letters", lambda them, kept: under_way.extend(e.offset for e in them))
    served.consumer("a", dead_letters=letters)
    assert guard_of(served).suspects == 2
    served.turn()
    assert under_way == [0]
    assert guard_of(served).suspects == 1, "though it is not known to be durable yet"


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
def test_what_was_not_due_when_its_consumer_died_is_no_suspect_and_waits_on(kind: SubscriptionType) -> None:
    served = Served(kind)
    due_ms = served.clock.now_ms() + 20_000
    served.write(Record(deliver_at_ms=due_ms), Record())
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(2)
    served.own(0, delays=True, cursor=cursor)
    a = served.consumer("a", dead_letters=Letters(3))
    served.read_on()
    seen = []
    for _ in range(4):
        seen += after_a_save(served, a) or served.received(a, 1.0)
    assert seen == [1]
    assert guard_of(served).suspects == 1
    served.ack(1)
    served.save()
    assert served.received(a, 14.0) == []
    served.turn(3.0)
    served.save()
    assert served.received(a, 0.0) == [0]


def test_what_was_reserved_beyond_the_logs_end_was_not_handed_out() -> None:
    assert guard_of(taken_over(Deliveries(100), written=3)).suspects == 3
    assert guard_of(taken_over(Deliveries(2), written=3)).suspects == 2
    served = Served()
    served.fails = True
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(50)
    served.own(0, cursor=cursor)
    served.dispatcher.count_deliveries()
    assert guard_of(served).suspects == 50, "nobody knows where the log ends"
    with pytest.raises(StoreError):
        served.dispatcher.log_end(0)


@pytest.mark.parametrize("later", [False, True], ids=["at the next take-over", "under this owner"])
def test_suspects_beyond_the_logs_end_are_forgotten_once_that_is_known(later: bool) -> None:
    """Each attempt to read them would wait for records, and the member would look each 10 ms."""
    served = Served()
    served.write(*records(3))
    served.fails = True
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(50, suspects=BitMap64([70]))
    served.own(0, cursor=cursor)
    served.dispatcher.count_deliveries()
    assert guard_of(served).suspects == 51
    counting = served.dispatcher.counting
    counting.report_suspects()
    served.fails = False
    if later:
        counting.report_suspects()
        assert guard_of(served).suspects == 51, "it is requested each ten seconds"
        served.clock.seconds += 10.0
        counting.report_suspects()
    else:
        cursor.deliveries = saved(served)
        served.own(0, cursor=cursor)
        served.dispatcher.count_deliveries()
    assert guard_of(served).suspects == 3
    owned = served.owned[0]
    assert (list(owned.redeliveries.waiting), list(owned.intake.passed_over)) == ([0, 1, 2], [0, 1, 2])


def test_the_logs_end_is_not_asked_for_where_all_below_the_limit_is_acknowledged() -> None:
    served = Served()
    served.fails = True
    cursor = CursorState(0, 10)
    cursor.acknowledge([0, 1])
    cursor.deliveries = Deliveries(2, suspects=BitMap64([1]))
    served.own(0, cursor=cursor)
    served.dispatcher.count_deliveries()
    assert guard_of(served).suspects == 0


def test_what_says_nothing_of_what_is_left_is_not_counted_on() -> None:
    served = Served()
    cursor = CursorState(0, 10)
    cursor.acknowledge([0, 1])
    cursor.deliveries = Deliveries(2)
    served.own(0, cursor=cursor)
    served.dispatcher.count_deliveries()
    assert served.owned[0].guard is None


def test_what_has_counts_and_what_was_put_off_goes_on_under_another_owner() -> None:
    served = Served()
    now_ms = served.clock.now_ms()
    later = {now_ms + 3000: BitMap64([3]), now_ms - 500: BitMap64([4])}
    served = taken_over(Deliveries(0, counts={(2, 2): BitMap64([1]), (1, 0): BitMap64([2])}, put_off=later))
    of = served.owned[0]
    assert of.redeliveries.counts == {1: 2}
    assert list(of.redeliveries.waiting) == [1, 2]
    assert served.put_off() == [3, 4]
    assert not of.chunks.in_order
    assert served.dispatcher.redelivery.next_due() == served.clock.seconds
    soon, later_ms = sorted(saved(served).put_off)
    assert soon == now_ms
    assert later_ms == pytest.approx(now_ms + 3000, abs=30)
    served.read_on()
    a = served.consumer("a", dead_letters=Letters(5))
    assert after_a_save(served, a) == [1, 2, 4, 0]
    assert served.put_off() == [3]
    served.turn(3.1)
    assert after_a_save(served, a) == [3]


def test_what_a_transaction_holds_is_no_suspect() -> None:
    served = Served()
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(3)
    served.write(*records(3))
    of = served.own(0, cursor=cursor)
    of.held.holdings.hold(TxnId(0, 1), TxnAck(BitMap64([1])))
    served.dispatcher.count_deliveries()
    assert guard_of(served).suspects == 2
    assert list(of.redeliveries.waiting) == [0, 1, 2]


def test_what_the_application_saw_is_known_under_another_owner_without_a_policy() -> None:
    served = Served()
    cursor = CursorState(0, 10)
    cursor.acknowledge([1])
    cursor.deliveries = Deliveries(0, counts={(0, 3): BitMap64([0, 1, 2]), (0, 1): BitMap64([3])})
    served.write(*records(5))
    of = served.own(0, cursor=cursor)
    of.redeliveries.counts[3] = 7
    served.dispatcher.count_deliveries()
    assert of.guard is None
    assert of.redeliveries.counts == {0: 3, 2: 3, 3: 7}
    assert cursor.deliveries is None
    a = served.consumer("a")
    served.read_on()
    served.turn()
    assert [(each.offset, each.redeliveries) for each in a.queue] == [(0, 3), (2, 3), (3, 7), (4, 0)]
    assert saved(served).counts == {(0, 3): BitMap64([0, 2]), (0, 7): BitMap64([3])}


def test_a_refusal_tells_that_a_suspect_kills_nobody() -> None:
    served = taken_over(Deliveries(3))
    a = served.consumer("a", dead_letters=Letters(3))
    assert after_a_save(served, a) == [0, 1, 2]
    served.refuse(a, 1, delay_s=60.0)
    assert guard_of(served).suspects == 2
    served.save()
    assert not served.owned[0].saves.dirty
    served.dispatcher.redelivery.redeliver_later(served.owned[0], {2: Nack(1, 2, 1000, 1)})
    assert guard_of(served).suspects == 1
    assert served.owned[0].saves.dirty, "that it is put off has to be saved"


def test_refusals_within_batches_tell_it_too() -> None:
    served = Served()
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(1)
    served.write(Record(batch=3))
    served.own(0, delays=True, cursor=cursor)
    a = served.consumer("a", dead_letters=Letters(3))
    assert after_a_save(served, a) == [0, 0, 0]
    assert guard_of(served).suspects == 1
    served.owned[0].slot.nacks_in_batch.append((served.clock.seconds, 60.0, 0, a, 1, 3))
    served.dispatcher.drain()
    assert guard_of(served).suspects == 0


def test_it_is_told_once_that_messages_come_slowly_and_when_that_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    served = taken_over(Deliveries(2))
    served.owned[0].quiet = True
    served.dispatcher.counting.report_suspects()
    assert not caplog.records, "others may still have them"
    served.owned[0].quiet = False
    for _ in range(2):
        served.dispatcher.counting.report_suspects()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    guard_of(served).settled([0, 1])
    for _ in range(2):
        served.dispatcher.counting.report_suspects()
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    served.owned[0].count_deliveries(None)
    served.dispatcher.counting.report_suspects()


def test_counting_ends_where_no_policy_is_left_and_nothing_that_was_counted() -> None:
    served = taken_over(Deliveries(1))
    served.dispatcher.counting.end_where_over()
    assert guard_of(served).suspects == 1
    a = served.consumer("a")
    assert after_a_save(served, a) == [0]
    served.ack(0)
    served.save()
    served.read_on()
    served.dispatcher.counting.end_where_over()
    assert served.owned[0].guard is None
    served.dispatcher.counting.end_where_over()
    served.consumer("b", dead_letters=Letters(1))
    served.dispatcher.counting.end_where_over()
    assert served.owned[0].guard is not None
    assert guard_of(served).suspects == 0, "what it counted before is no former owner's"


# Giving up ------------------------------------------------------------------------------------------------------------


def given_up(*, orderly: bool) -> Served:
    """0 and 1 were received, 2 is put off, 3 and 4 lie in the inbox, 5 is another process's, 6 comes again."""
    served = Served()
    a = served.consumer("a", dead_letters=Letters(3))
    served.publish(*records(7))
    served.save()
    served.turn()
    served.owned[0].redeliver([6], a)
    a.queue.pop()
    there, _ = served.remote("there")
    served.owned[0].in_flight.let_go([5])
    served.owned[0].in_flight.hold([5], there.feed(served.owned[0].slot))
    del a.queue[5]
    for _ in range(3):
        a.queue.popleft()
    served.refuse(a, 2, delay_s=3.0)
    served.dispatcher.counting.retire([7, 0], orderly=orderly)
    assert not a.queue
    return served


def test_after_an_orderly_end_what_was_received_counts_as_delivered_and_nobody_is_suspected() -> None:
    served = given_up(orderly=True)
    found = saved(served)
    assert (found.limit, list(found.suspects)) == (0, [5])
    assert found.counts == {(1, 0): BitMap64([0, 1]), (1, 1): BitMap64([6])}
    assert list(found.put_off.values()) == [BitMap64([2])]
    assert min(found.put_off) == pytest.approx(served.clock.now_ms() + 3000, abs=30)


def test_after_a_program_ended_without_closing_what_was_received_may_be_the_reason() -> None:
    served = given_up(orderly=False)
    found = saved(served)
    assert list(found.suspects) == [0, 1, 5]
    assert BitMap64([6]) in found.counts.values()
    assert list(found.put_off.values()) == [BitMap64([2])]


def test_what_goes_to_the_dead_letter_topic_is_nobodys_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    served, consumer, letters = counted(2, most=0)
    monkeypatch.setattr(letters, "publish_dead_letters", lambda letters, kept: None)
    served.refuse(consumer, 0)
    served.turn(0.5)
    served.dispatcher.counting.retire([0], orderly=False)
    assert list(saved(served).suspects) == [1]


def test_what_stays_with_its_consumer_is_held_elsewhere() -> None:
    served, consumer, _ = counted(2)
    served.owned[0].stays_out = True
    served.dispatcher.counting.retire([0], orderly=True)
    assert list(saved(served).suspects) == [0, 1]
    assert not consumer.queue


def test_where_nothing_is_counted_what_applications_saw_is_saved() -> None:
    served = Served()
    a = served.consumer("a")
    served.publish(*records(2))
    served.received(a, 0.0)
    served.refuse(a, 1)
    served.received(a, 0.5)
    served.save()
    before = served.owned[0].cursor.revision
    served.dispatcher.counting.retire([0], orderly=True)
    assert served.owned[0].cursor.revision > before
    assert saved(served).counts == {(0, 1): BitMap64([1])}


def test_a_consumer_that_leaves_lets_what_it_put_off_wait_where_deliveries_are_counted() -> None:
    served, consumer, _ = counted(3)
    other = served.consumer("other", dead_letters=Letters(1))
    served.refuse(consumer, 1, delay_s=2.0)
    served.dispatcher.detach(consumer, Departure.CLOSED)
    served.save()
    assert served.received(other, 0.0) == [0, 2]
    assert served.put_off() == [1]
    served.turn(2.1)
    served.save()
    assert served.received(other, 0.0) == [1]
