"""Key_Shared: each key's messages go to one consumer in order, whatever other consumers do, and none is forgotten."""

from __future__ import annotations

from itertools import count, islice, pairwise
from typing import Any

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import HashRangeConflict
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching import key_shared
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.partition import key_order
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import WaitingFor
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.record_headers import EVENT_TIME, ORDERING_KEY
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS, sticky_key_hash
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck
from tests.unit.broker.subscriptions.dispatching.served import Letters, Record, Served, records


def keys_of(half: int, number: int) -> list[bytes]:
    """Keys of one half of the slots."""
    found = (b"k%d" % i for i in count())
    return list(islice((key for key in found if sticky_key_hash(key) * 2 // SLOTS == half), number))


LOW, LOW_TOO, LOWEST = keys_of(0, 3)
HIGH, HIGH_TOO = keys_of(1, 2)
ONE = TxnId(0, 1)


def halves(low: int = 1000, high: int = 1000, dead_letters: Letters | None = None) -> tuple[Served, Endpoint, Endpoint]:
    """Two consumers with inboxes of this size, each of which gets one half of the keys."""
    served = Served(SubscriptionType.KEY_SHARED)
    return served, served.consumer("low", low, half=0, dead_letters=dead_letters), served.consumer("high", high, half=1)


def of_keys(*keys: bytes) -> list[Record]:
    return [Record(key) for key in keys]


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many messages of a lane are kept; the others are parked."""
    monkeypatch.setattr(key_order, "NEAR", 2)
    return 2


def test_each_key_goes_to_its_consumer_in_order() -> None:
    served, low, high = halves()
    served.publish(*of_keys(LOW, HIGH, LOW_TOO, HIGH, LOW))
    assert served.turn()
    assert (served.received(low), served.received(high)) == ([0, 2, 4], [1, 3])
    assert (low.unacked, high.unacked) == (3, 2)
    assert not served.turn()
    assert not served.dispatcher.has_undelivered()


def test_a_consumer_whose_ranges_are_taken_is_not_there() -> None:
    served, low, high = halves()
    with pytest.raises(HashRangeConflict):
        served.consumer("third", half=1)
    assert served.consumers == [low, high]


def test_the_ordering_key_counts_where_there_is_one() -> None:
    served, low, high = halves()
    plain = Record(LOW, headers={EVENT_TIME: b"1"})
    served.publish(
        Record(LOW, headers={ORDERING_KEY: HIGH}),
        plain,
        Record(LOW, headers={EVENT_TIME: b"1", ORDERING_KEY: HIGH}),
        Record(LOW),
    )
    served.turn()
    assert (served.received(low), served.received(high)) == ([1, 3], [0, 2])


def test_messages_without_a_key_are_spread() -> None:
    served, low, high = halves()
    served.publish(*records(100))
    served.turn()
    assert len(low.queue) in range(40, 60)
    assert served.received(low) + served.received(high) != [*range(100)]
    assert (low.unacked + high.unacked, len(served.owned[0].holders)) == (100, 100)


class Packed(Record):
    """As Kafka's records are that were looked over: their headers are bytes, or there are none."""

    packed: bytes | None = None

    def headers(self) -> Any:
        return self.packed


def test_a_record_whose_headers_name_no_ordering_key_goes_by_its_key() -> None:
    served, *_ = halves()
    packed = Packed(HIGH)
    packed.packed = b"some"
    served.write(Packed(LOW), packed, Record(LOW, headers={ORDERING_KEY: None}))
    keys = served.dispatcher._keys
    assert keys is not None
    slots = [keys.slot(record.at, record) for record in served.log[0].values()]
    assert slots == [sticky_key_hash(LOW), sticky_key_hash(HIGH), sticky_key_hash(LOW)]


def test_slots_of_keys_are_known_again_but_of_so_many_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "_MAX_CACHED_KEYS", 2)
    served, low, high = halves()
    longest, longer = b"x" * 100, b"y" * 101
    served.publish(*of_keys(longer, LOW, longest))
    served.turn()
    keys = served.dispatcher._keys
    assert keys is not None
    assert keys._slots == {LOW: sticky_key_hash(LOW), longest: sticky_key_hash(longest)}
    served.publish(*of_keys(HIGH, HIGH))
    served.turn()
    assert keys._slots == {HIGH: sticky_key_hash(HIGH)}
    assert len(low.queue) + len(high.queue) == 5


def test_a_consumer_that_hangs_stops_nobody_else(near: int) -> None:
    served, _, high = halves(low=1)
    served.publish(*of_keys(*[LOW, HIGH] * 10))
    served.turn()
    assert served.received(high) == [*range(1, 20, 2)]
    served.publish(*of_keys(*[LOW, HIGH] * 3))
    served.turn()
    assert served.received(high) == [21, 23, 25]
    keys = served.owned[0].keys
    assert keys is not None
    assert (keys.waiting, keys.parked) == (near - 1, 11)
    assert not served.dispatcher.has_undelivered(), "high takes more"
    assert not served.dispatcher.takes_any(), "low is full, for high is nothing here"


def test_who_is_waited_for_and_since_when_is_told(near: int) -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(LOW, LOW))
    served.turn()
    assert served.dispatcher.waiting(served.owned[0]) == ()
    served.publish(*of_keys(*[LOW, HIGH] * 6))
    served.turn()
    served.clock.seconds += 5
    served.publish(*of_keys(LOW))
    served.turn()
    assert served.dispatcher.waiting(served.owned[0]) == (WaitingFor("low", "", 7, 5.0),)
    low.resize(20)
    served.received(low, 0.0)
    assert served.dispatcher.waiting(served.owned[0]) == ()
    assert served.owned[0].keys is not None


def test_a_former_owner_of_keys_is_waited_for_until_it_is_done_with_them() -> None:
    served = Served(SubscriptionType.KEY_SHARED)
    first = served.consumer("first", 2)
    served.publish(*[Record(b"%d" % number) for number in range(40)] * 2)
    served.turn()
    second = served.consumer("second", 1000)
    served.turn()
    served.clock.seconds += 3
    told = served.dispatcher.waiting(served.owned[0])
    assert [(each.consumer, each.for_s) for each in told] == [("first", 3.0)]
    assert told[0].messages == 80 - 2 - second.unacked
    assert first.unacked == 2


def test_what_was_parked_comes_in_its_turn(near: int) -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(*[LOW, LOW_TOO] * 3, LOW))
    assert served.received(low, 0.0) == [0, 1]
    assert served.dispatcher.takes_any()
    assert served.received(low, 0.0) == [2, 3]
    assert served.received(low, 0.0) == [4, 5]
    assert served.received(low, 0.0) == [6]
    assert served.reads == [[2, 3, 4, 5, 6]]
    assert served.received(low, 0.0) == []
    keys = served.owned[0].keys
    assert keys is not None
    assert (keys.waiting, keys.waiting_bytes, keys.parked) == (0, 0, 0)


def test_what_was_parked_and_acknowledged_or_deleted_is_passed_over(near: int) -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(*[LOW] * 12))
    assert served.received(low, 0.0) == [0, 1]
    served.ack(4, 5, 9)
    del served.log[0][6]
    low.resize(20)
    assert served.received(low, 0.0) == [2, 3, 7, 8, 10, 11]
    assert served.owned[0].cursor.is_acknowledged(6)


def test_reading_what_was_parked_goes_on_behind_what_is_acknowledged(
    near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_shared, "_AT_ONCE", 3)
    served, low, _ = halves(low=2)
    served.publish(*of_keys(*[LOW] * 12))
    served.received(low, 0.0)
    served.ack(*range(4, 10))
    low.resize(20)
    served.reads.clear()
    assert served.received(low, 0.0) == [2, 3, 10, 11]
    assert served.reads == [[2, 3, 10], [11]]


def test_what_is_parked_waits_while_it_cannot_be_read(near: int) -> None:
    served, low, high = halves(low=2)
    served.publish(*of_keys(*[LOW] * 6))
    assert served.received(low, 0.0) == [0, 1]
    served.fails = True
    low.resize(20)
    assert served.received(low, 0.0) == []
    assert served.dispatcher.replay_failed
    served.publish(*of_keys(HIGH))
    assert served.received(high, 0.0) == [6]
    served.fails = False
    assert served.received(low, 0.0) == [2, 3, 4, 5]


def test_what_could_be_read_of_what_is_parked_comes_and_the_rest_waits(near: int) -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(*[LOW] * 8))
    assert served.received(low, 0.0) == [0, 1]
    low.resize(20)
    known = served.log[0]
    served.log[0] = {at: known[at] for at in (*range(6), 7)}
    assert served.received(low, 0.0) == [2, 3, 4, 5, 7], "6 is gone"


def test_what_a_transaction_holds_of_what_is_parked_comes_when_it_is_aborted(near: int) -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(*[LOW] * 8))
    assert served.received(low, 0.0) == [0, 1]
    of = served.owned[0]
    hold(served, 3, 5, 6)
    low.resize(20)
    assert served.received(low, 0.0) == [2, 4, 7]
    assert list(of.held.back) == [3, 5, 6]
    whole = of.held.holdings.release(ONE).whole
    served.dispatcher.redelivery.deliver_again(of, whole)
    assert served.received(low, 0.0) == [3, 5, 6]


def hold(served: Served, *offsets: int) -> None:
    ack = TxnAck(BitMap64(offsets))
    served.owned[0].held.holdings.hold(ONE, ack)
    served.owned[0].hold(ack)


def test_what_a_transaction_holds_does_not_go_out(near: int) -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(LOW, LOW, LOW, LOW))
    served.turn()
    hold(served, 1, 3)
    low.resize(10)
    low.queue.clear()
    assert served.received(low, 0.0) == [2]
    assert list(served.owned[0].held.back) == [1, 3]
    served.owned[0].held.holdings.release(ONE)
    served.owned[0].redeliveries.waiting.update((1, 3))
    assert served.received(low, 0.0) == [1, 3]


def test_what_a_transaction_holds_since_it_was_refused_does_not_go_out() -> None:
    served, low, _ = halves()
    served.publish(*of_keys(LOW, LOW, LOW))
    served.received(low, 0.0)
    served.refuse(low, 0, 1)
    served.dispatcher.redelivery.redeliver_due()
    hold(served, 1)
    assert served.received(low, 0.0) == [0]
    assert list(served.owned[0].held.back) == [1]


def test_reading_pauses_while_too_much_is_parked(near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "MAX_PARKED", 5)
    monkeypatch.setattr(key_shared, "_ADMIT_BATCH", 2)
    served, low, high = halves(low=1)
    served.publish(*of_keys(*[LOW] * 9), *of_keys(HIGH, LOW))
    served.turn()
    keys = served.owned[0].keys
    assert keys is not None
    assert (keys.waiting, keys.parked) == (near, 5)
    assert served.owned[0].buffered == 3
    assert not high.queue
    assert served.dispatcher.has_undelivered()
    assert served.received(low) == [0]
    assert served.received(low, 0.0) == [1]
    assert served.received(low, 0.0) == [2]
    assert served.received(low, 0.0) == [3]
    served.turn()
    assert served.received(high) == [9]


def test_nothing_more_is_admitted_while_nobody_wants_more() -> None:
    served, _, high = halves(low=1, high=1)
    served.publish(*of_keys(LOW, LOW, HIGH, HIGH))
    served.turn()
    assert served.owned[0].buffered == 0
    served.publish(*of_keys(LOW, HIGH))
    assert not served.turn()
    assert served.owned[0].buffered == 2
    assert served.dispatcher.has_undelivered()
    assert not served.dispatcher.takes_any()
    high.queue.clear()
    assert served.dispatcher.takes_any()
    high.unacked = high.max_unacked
    assert not served.dispatcher.takes_any()


def test_nobody_is_stuck_where_nothing_waits() -> None:
    served, low, high = halves(low=1, high=1)
    served.publish(*of_keys(LOW, HIGH))
    served.turn()
    assert (len(low.queue), len(high.queue)) == (1, 1)
    assert not served.dispatcher.has_undelivered()
    low.queue.clear()
    served.refuse(high, 1)
    served.turn(0.5)
    high.unacked = high.max_unacked
    low.unacked = low.max_unacked
    assert served.dispatcher.has_undelivered()


def test_what_was_refused_comes_before_what_is_new_of_its_keys() -> None:
    served, low, _ = halves(low=3)
    served.publish(*of_keys(LOW, LOW_TOO, LOW, LOW, LOW_TOO, LOWEST))
    assert served.received(low, 0.0) == [0, 1, 2]
    served.refuse(low, 2, 0, delay_s=1.0)
    assert served.received(low, 1.1) == [0, 2, 3]
    assert served.owned[0].redeliveries.counts == {0: 1, 2: 1}
    assert served.received(low, 0.0) == [4, 5]


def test_what_is_refused_and_cannot_be_read_waits_with_what_is_behind_it() -> None:
    served, low, high = halves(low=3)
    served.publish(*of_keys(LOW, LOW_TOO, LOW, LOW, LOW_TOO))
    assert served.received(low, 0.0) == [0, 1, 2]
    served.refuse(low, 0)
    served.fails = True
    assert served.received(low, 0.5) == [4], "of another key"
    served.publish(*of_keys(HIGH))
    assert served.received(high, 0.0) == [5]
    assert served.dispatcher.replay_failed
    served.fails = False
    assert served.received(low, 0.0) == [0, 3]


def test_what_is_refused_and_gone_counts_as_acknowledged() -> None:
    served, low, _ = halves()
    served.publish(*of_keys(LOW, LOW, LOW))
    served.received(low, 0.0)
    served.refuse(low, 0, 2)
    del served.log[0][0]
    assert served.received(low, 0.5) == [2]
    assert served.owned[0].cursor.next_unacked == 1


def test_payloads_that_take_too_much_room_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "_MAX_WAITING_BYTES", 50)
    served, low, _ = halves(low=1)
    served.publish(*of_keys(*[LOW] * 6))
    served.turn()
    keys = served.owned[0].keys
    assert keys is not None
    assert (keys.waiting, keys.waiting_bytes) == (5, 50)
    served.publish(*of_keys(LOW))
    served.turn()
    assert keys.waiting_bytes == 0
    low.resize(10)
    del served.log[0][3]
    assert served.received(low) == [0]
    assert served.received(low, 0.0) == [1, 2, 4, 5, 6]
    assert served.reads == [[1, 2, 3, 4, 5, 6]]


def test_what_was_acknowledged_while_it_waited_does_not_come() -> None:
    served, low, high = halves(low=1, high=2)
    served.publish(*of_keys(LOW, LOW, HIGH, LOW, LOW, HIGH))
    served.turn()
    served.ack(1, 3)
    low.resize(5)
    low.queue.clear()
    assert served.received(low, 0.0) == [4]
    assert low.unacked == 2
    assert served.received(high) == [2, 5]
    served.dispatcher.detach(low)
    third = served.consumer("third", half=0)
    assert served.received(third, 0.0) == [0, 4]


def test_what_a_transaction_holds_and_what_is_acknowledged_do_not_go_out_of_what_waited() -> None:
    served, low, _ = halves(low=1)
    served.publish(*of_keys(*[LOW] * 6))
    assert served.received(low, 0.0) == [0]
    served.ack(2)
    hold(served, 1, 4)
    low.resize(10)
    assert served.received(low, 0.0) == [3, 5]
    assert list(served.owned[0].held.back) == [1, 4]
    hold(served, 3)
    served.ack(0, 5)
    served.dispatcher.detach(low)
    other = served.consumer("other", half=0)
    served.turn()
    served.dispatcher.redelivery.deliver_again(served.owned[0], served.owned[0].held.holdings.release(ONE).whole)
    assert served.received(other, 0.0) == [1, 3, 4]


def test_what_a_consumer_held_is_there_for_others_as_soon_as_it_left() -> None:
    served = Served(SubscriptionType.KEY_SHARED)
    first, second = served.consumer("first"), served.consumer("second")
    served.publish(*of_keys(LOW, LOW_TOO, HIGH, HIGH_TOO))
    served.turn()
    assert first.queue
    assert second.queue
    second.queue.clear()
    assert not served.dispatcher.takes_any()
    served.dispatcher.detach(first)
    assert served.dispatcher.takes_any()


def test_what_a_consumer_held_goes_in_order_to_who_gets_its_keys() -> None:
    served, low, _ = halves(low=2)
    served.publish(*of_keys(LOW, LOW_TOO, LOW, LOW_TOO))
    served.turn()
    low.queue.popleft()
    served.refuse(low, 0, delay_s=60.0)
    served.dispatcher.detach(low)
    served.turn()
    other = served.consumer("other", half=0)
    assert served.received(other, 0.0) == [0, 1, 2, 3]
    assert served.owned[0].redeliveries.counts == {}


def test_a_consumer_that_comes_waits_for_who_has_messages_of_its_keys() -> None:
    served = Served(SubscriptionType.KEY_SHARED)
    first = served.consumer("first", 16)
    keys = [b"k%d" % i for i in range(32)]
    served.publish(*of_keys(*keys, *keys))
    assert served.received(first, 0.0) == [*range(16)]
    second = served.consumer("second")
    served.turn()
    got = served.received(second)
    assert got
    assert {served.log[0][offset].key() for offset in got}.isdisjoint(keys[:16])
    served.ack(*range(16))
    served.turn()
    later = served.received(second)
    assert {*later} <= {*range(32, 48)}
    assert later
    of_first = served.received(first)
    while more := served.received(first, 0.0):
        of_first += more
    assert sorted((*got, *later, *of_first)) == [*range(16, 64)]


def test_keys_stay_with_who_held_their_messages_under_a_former_owner() -> None:
    served, low, high = halves()
    low_held = {0: 1, 2: 1}
    served.write(*of_keys(LOW, HIGH, LOW))
    served.dispatcher.still_held(served.owned[0], high, low_held, {})
    served.read_on()
    served.publish(*of_keys(LOW))
    assert served.received(high, 0.0) == [1]
    assert served.received(low) == []
    served.ack(0)
    assert served.received(low, 0.0) == []
    served.ack(2)
    assert served.received(low, 0.0) == [3]


def test_what_many_held_under_a_former_owner_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "_AT_ONCE", 2)
    served, low, high = halves()
    served.write(*of_keys(*[LOW] * 5))
    served.dispatcher.still_held(served.owned[0], high, dict.fromkeys(range(5), 1), {})
    assert served.reads == [[0, 1], [2, 3], [4]]
    served.publish(*of_keys(LOW))
    served.ack(*range(4))
    assert served.received(low, 0.0) == []
    served.ack(4)
    assert served.received(low, 0.0) == [5]


def test_delayed_messages_come_at_their_time_while_another_consumer_hangs(
    near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD", 3)
    monkeypatch.setattr(key_shared, "_AT_ONCE", 2)
    served, _, high = halves(low=1)
    due_ms = served.clock.now_ms() + 1000
    served.publish(*of_keys(*[LOW] * 8), *[Record(HIGH, deliver_at_ms=due_ms) for _ in range(3)])
    assert served.received(high, 0.0) == []
    assert served.received(high, 1.1) == [8, 9]
    assert served.received(high, 0.0) == [10]


def test_due_messages_of_a_consumer_that_hangs_do_not_stop_those_of_others(
    near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD", 3)
    monkeypatch.setattr(key_shared, "_AT_ONCE", 2)
    served, low, high = halves(low=1)
    due_ms = served.clock.now_ms() + 1000
    served.publish(Record(LOW), *[Record(key, deliver_at_ms=due_ms) for key in (*[LOW] * 10, *[HIGH] * 3)])
    served.turn()
    served.turn(1.1)
    for _ in range(9):
        served.turn()
    assert served.received(high, 0.0) == [11, 12, 13]
    low.resize(20)
    assert served.received(low, 0.0) == [0, *range(1, 11)]


def test_due_messages_wait_while_keys_are_another_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD", 3)
    monkeypatch.setattr(key_shared, "_AT_ONCE", 2)
    served = Served(SubscriptionType.KEY_SHARED)
    served.consumer("first", 1)
    due_ms = served.clock.now_ms() + 1000
    served.publish(Record(LOW), *[Record(LOW, deliver_at_ms=due_ms) for _ in range(9)])
    served.turn()
    second = next(each for n in range(9) if owns(served, each := served.consumer(f"c{n}", 1000), LOW))
    for _ in range(9):
        served.turn(0.5)
    keys, delayed = served.owned[0].keys, served.owned[0].intake.delayed
    assert keys is not None
    assert delayed is not None
    assert (keys.stuck(), len(delayed)) == (4, 5)
    served.ack(0)
    found = [offset for _ in range(9) for offset in served.received(second, 0.0)]
    assert found == [*range(1, 10)]


def owns(served: Served, consumer: Endpoint, key: bytes) -> bool:
    keys = served.dispatcher._keys
    assert keys is not None
    return keys._ranges.table[sticky_key_hash(key)] is consumer


def test_no_more_delayed_messages_are_taken_in_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "MAX_DELAYED", 4)
    monkeypatch.setattr(key_shared, "_AT_ONCE", 2)
    served, low, high = halves(low=1)
    due_ms = served.clock.now_ms() + 1000
    served.publish(Record(LOW), *[Record(LOW, deliver_at_ms=due_ms) for _ in range(9)], Record(HIGH))
    served.turn()
    for _ in range(5):
        served.turn(1.1)
    keys, delayed = served.owned[0].keys, served.owned[0].intake.delayed
    assert keys is not None
    assert delayed is not None
    assert (keys.coming_again(), len(delayed)) == (4, 5)
    assert served.received(high) == [10]
    low.resize(20)
    for _ in range(5):
        served.turn()
    assert served.received(low) == [*range(10)]


def test_what_waits_for_another_consumer_is_bounded_by_consumer() -> None:
    served, _, _ = halves()
    keys = served.dispatcher._keys
    assert keys is not None
    assert keys._look_ahead() == 4_000


def test_a_partition_that_is_quiet_gives_nothing_and_takes_nothing_back() -> None:
    served, low, _ = halves()
    served.publish(*of_keys(LOW, LOW))
    served.received(low, 0.0)
    served.refuse(low, 0)
    served.owned[0].quiet = True
    assert served.received(low, 0.5) == []
    assert list(served.owned[0].redeliveries.waiting) == [0]
    served.dispatcher.detach(served.consumers[1])
    assert list(served.owned[0].redeliveries.waiting) == [0]
    served.owned[0].quiet = False
    assert served.received(low, 0.0) == [0]


def test_partitions_take_turns_to_be_first() -> None:
    served = Served(SubscriptionType.KEY_SHARED, partitions=2)
    only = served.consumer("only", 1)
    for number in (0, 1):
        served.publish(*records(3), partition=number)
    first: list[int] = []
    for _ in range(4):
        served.turn()
        first.append(only.queue.popleft().feed.slot.number)
    assert first == [1, 0, 1, 0]


def test_too_many_unacknowledged_messages_stop_what_is_new_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "NEAR", 1)
    served, low, high = halves(low=4)
    served.handle.policies = SubscriptionPolicies(max_unacked_on_subscription=4)
    served.publish(*of_keys(*[LOW] * 7))
    assert served.received(low, 0.0) == [0, 1, 2, 3]
    served.publish(*of_keys(HIGH))
    assert not served.turn()
    served.refuse(low, 1)
    assert served.received(low, 0.5) == [1]
    assert served.received(high) == []
    assert served.owned[0].buffered == 1
    assert served.dispatcher.has_undelivered()
    assert not served.dispatcher.takes_any()
    served.ack(0, 1, 2)
    assert served.received(low, 0.0) == [4, 5, 6]
    assert served.received(high) == []
    served.ack(4, 5, 6)
    served.turn()
    assert served.received(high) == [7]


def test_batch_entries_take_the_room_of_their_messages() -> None:
    served, low, _ = halves(low=5)
    served.publish(Record(LOW, batch=4), Record(LOW, batch=4), Record(LOW))
    assert served.received(low, 0.0) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert low.unacked == 8
    assert served.received(low, 0.0) == [2]
    served.publish(Record(LOW, batch=6), Record(LOW))
    assert served.received(low, 0.0) == [3] * 6
    assert served.received(low, 0.0) == [4]


def test_parked_batch_entries_take_no_memory_and_come_whole(near: int) -> None:
    served, low, _ = halves(low=1)
    served.publish(*[Record(LOW, batch=2) for _ in range(5)])
    assert served.received(low, 0.0) == [0, 0]
    assert sorted(served.owned[0].entries.batches) == [1]
    for offset in range(1, 5):
        assert served.received(low, 0.0) == [offset, offset]
    assert not served.owned[0].entries.batches


def test_where_deliveries_are_counted_what_comes_again_waits_for_a_save_with_what_is_behind_it() -> None:
    letters = Letters(1)
    served, low, high = halves(low=3, dead_letters=letters)
    served.publish(*of_keys(LOW, LOW_TOO, LOW, LOW, LOW_TOO))
    assert served.received(low, 0.0) == [], "nothing goes out before the first save"
    served.save()
    assert served.received(low, 0.0) == [0, 1, 2]
    served.refuse(low, 0, 2)
    low.resize(10)
    assert served.received(low, 0.5) == [4], "3 is behind them"
    served.publish(*of_keys(HIGH))
    assert served.received(high, 0.0) == [5]
    assert served.dispatcher.counting.requires_save()
    assert not served.dispatcher.has_undelivered(), "room would not help"
    assert not served.dispatcher.takes_any()
    served.save()
    low.resize(2)
    assert served.received(low, 0.0) == [0, 2]
    assert served.dispatcher.takes_any()
    assert served.received(low, 0.0) == [3]
    served.refuse(low, 0)
    assert served.received(low, 0.5) == []
    assert letters.stored == [0]


def test_what_is_parked_where_deliveries_are_counted_waits_for_the_save_that_says_so(near: int) -> None:
    served, low, _ = halves(low=2, dead_letters=Letters(3))
    served.publish(*of_keys(*[LOW] * 8))
    served.turn()
    served.save()
    assert served.received(low, 0.0) == [0, 1]
    served.save()
    low.resize(20)
    assert served.received(low, 0.0) == []
    assert served.dispatcher.counting.requires_save()
    served.save()
    assert served.received(low, 0.0) == [2, 3, 4, 5, 6, 7]


def test_after_a_crash_only_what_may_have_gone_out_is_suspected() -> None:
    """Of one slot all was parked from 4 on; of the other one anything may have been handed out."""
    served = Served(SubscriptionType.KEY_SHARED)
    served.write(*of_keys(*[LOW, HIGH] * 4))
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(8, floors={sticky_key_hash(LOW): 4})
    of = served.own(0, delays=True, cursor=cursor)
    low, high = served.consumer("low", half=0, dead_letters=Letters(1)), served.consumer("high", half=1)
    guard = of.guard
    assert guard is not None
    assert guard.suspects == 4
    served.read_on()
    seen: dict[str, list[int]] = {"low": [], "high": []}
    suspects: list[int] = []
    for _ in range(40):
        served.turn()
        out = {"low": served.received(low), "high": served.received(high)}
        suspects.append(guard.suspects)
        together = {*out["low"], *out["high"]}
        assert len(together) <= 1 or together.isdisjoint((0, 1, 2, 3, 5, 7)), "a suspect's last delivery is alone"
        for name, offsets in out.items():
            seen[name] += offsets
            served.ack(*offsets)
        served.save()
    assert seen == {"low": [0, 2, 4, 6], "high": [1, 3, 5, 7]}
    assert suspects[0] == 4
    assert any(later > before for before, later in pairwise(suspects)), f"5 and 7, once they were read: {suspects}"
    assert not guard.suspects
    assert of.cursor.next_unacked == 8


def test_what_came_back_and_waits_counts_as_delivered_when_the_partition_is_given_up() -> None:
    served, low, _ = halves(dead_letters=Letters(3))
    served.publish(*of_keys(LOW, LOW, LOW))
    served.save()
    assert served.received(low, 0.0) == [0, 1, 2]
    served.refuse(low, 1)
    low.unacked = low.max_unacked + 5
    served.turn(0.5)
    keys = served.owned[0].keys
    assert keys is not None
    assert list(keys.offsets_waiting()) == [1]
    served.dispatcher.counting.retire([0], orderly=True)
    served.owned[0].saves.begin()
    found = served.owned[0].cursor.deliveries
    assert found is not None
    assert (found.limit, found.counts) == (0, {(1, 0): BitMap64([0, 2]), (1, 1): BitMap64([1])})


def test_what_a_former_owner_had_refused_waits_for_what_was_not_read_yet_before_it() -> None:
    served = Served(SubscriptionType.KEY_SHARED)
    served.write(*of_keys(LOW, LOW_TOO, LOW))
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(0, counts={(1, 1): BitMap64([2])})
    served.own(0, delays=True, cursor=cursor)
    low = served.consumer("low", half=0, dead_letters=Letters(3))
    for _ in range(2):
        assert served.received(low, 0.0) == []
        served.save()
    served.read_on()
    assert served.received(low, 0.0) == [0, 1]
    served.save()
    assert served.received(low, 0.0) == [2]


def test_what_a_former_owner_had_refused_waits_for_what_is_parked_before_it(near: int) -> None:
    served = Served(SubscriptionType.KEY_SHARED)
    served.write(*of_keys(*[LOW] * 6))
    cursor = CursorState(0, 10)
    cursor.deliveries = Deliveries(0, counts={(2, 1): BitMap64([3])})
    of = served.own(0, delays=True, cursor=cursor)
    low = served.consumer("low", 1, half=0, dead_letters=Letters(3))
    served.read_on()
    received: list[int] = []
    for _ in range(20):
        received += served.received(low, 0.0)
        served.save()
    assert received == [*range(6)]
    assert of.guard is not None
    assert [of.guard.next_delivery(offset) for offset in range(6)] == [2, 2, 2, 4, 2, 2]


def still_held_and_refused() -> tuple[Served, Endpoint]:
    """`high` held message 2 of a key of `low` under a former owner, and refuses it before anything is read."""
    served, low, high = halves()
    served.write(*of_keys(*[LOW] * 4))
    served.dispatcher.still_held(served.owned[0], high, {2: 1}, {})
    return served, low


def test_what_was_still_held_and_is_refused_waits_for_what_was_not_read_yet_before_it() -> None:
    served, low = still_held_and_refused()
    served.refuse(served.consumers[1], 2)
    assert served.received(low, 0.0) == []
    served.owned[0].intake.accept([0], [served.log[0][0]])
    assert served.received(low, 0.0) == [0], "nothing of its key is in flight while it waits"
    served.read_on()
    assert served.received(low, 0.0) == [1, 2, 3]


def test_what_was_still_held_and_is_refused_waits_for_what_is_parked_before_it() -> None:
    served, low = still_held_and_refused()
    for offset in range(4):  # the first one waits for `high`, the others are parked
        served.owned[0].intake.accept([offset], [served.log[0][offset]])
        assert served.received(low, 0.0) == []
    served.refuse(served.consumers[1], 2)
    assert served.received(low, 0.0) == [0, 1, 2, 3]


def test_what_is_due_waits_for_nothing_that_is_parked(near: int) -> None:
    served, low, _ = halves(low=1)
    served.publish(*of_keys(*[LOW] * 5), Record(LOW, deliver_at_ms=served.clock.now_ms() + 1000), Record(LOW))
    assert served.received(low, 0.0) == [0]
    assert [served.received(low, 1.1) for _ in range(6)] == [[1], [5], [2], [3], [4], [6]]
