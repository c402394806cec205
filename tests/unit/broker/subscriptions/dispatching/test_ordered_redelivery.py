"""Ordered redelivery: later messages of a key wait for a refused one, in memory."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.partition.refused_keys import RefusedKeys
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from tests.unit.broker.subscriptions.dispatching.served import Letters, Record, Served

A, B = b"a", b"b"


def ordered(
    kind: SubscriptionType = SubscriptionType.KEY_SHARED, letters: Letters | None = None, **options: float
) -> tuple[Served, Endpoint]:
    served = Served(kind)
    consumer = served.consumer("one", dead_letters=letters, **options)  # type: ignore[arg-type]
    consumer.keep_redelivery_order()
    served.dispatcher.ordered.attach()
    return served, consumer


def refuse(served: Served, consumer: Endpoint, offset: int, delay_s: float = 0.0) -> None:
    """As an application does: its thread notes the refusal first."""
    assert consumer.refused_here is not None
    consumer.refused_here.refuse(0, offset)
    served.slots[0].nacks.append((served.clock.seconds, delay_s, offset, consumer))


def take(consumer: Endpoint) -> list[int]:
    found = []
    while (delivery := consumer.take_now()) is not None:
        found.append(delivery.offset)
    return found


def test_prefetched_messages_of_the_key_are_not_received_once_the_application_has_refused_one() -> None:
    served, consumer = ordered()
    served.publish(Record(A), Record(A), Record(B), Record(A))
    served.turn()
    first = consumer.take_now()
    assert first is not None
    refuse(served, consumer, 0, 10.0)
    assert take(consumer) == [2]  # though the member has not heard of it
    served.publish(Record(A), Record(B))
    served.turn()
    assert take(consumer) == [5]
    served.turn(after_s=10.1)
    assert take(consumer) == [0]
    assert take(consumer) == []
    served.ack(0)
    served.turn()
    assert take(consumer) == [1, 3, 4]
    assert served.owned[0].redeliveries.counts == {}  # what was taken back was not refused


def test_of_several_refused_messages_each_waits_for_the_one_before() -> None:
    served, consumer = ordered()
    served.publish(Record(A), Record(A), Record(A))
    served.turn()
    assert take(consumer) == [0, 1, 2]
    refuse(served, consumer, 1)
    refuse(served, consumer, 0)
    for offset in (0, 1):
        served.turn()
        assert take(consumer) == [offset]
        served.ack(offset)
    served.ack(2)
    served.publish(Record(A))
    served.turn()
    assert take(consumer) == [3]


def test_an_ack_timeout_is_a_refusal() -> None:
    served, consumer = ordered(ack_timeout_s=10.0)
    served.publish(Record(A))
    served.turn()
    assert take(consumer) == [0]
    served.turn(after_s=1.0)
    served.publish(Record(A), Record(B))
    served.turn(after_s=12.0)
    assert take(consumer) == [0, 2]


def test_messages_of_a_consumer_that_leaves_come_one_by_one_in_each_key() -> None:
    served, consumer = ordered()
    other = served.consumer("two")
    assert other.ordered_redelivery  # it follows the first one
    served.publish(*(Record(A) for _ in range(3)))
    served.turn()
    holder, successor = (consumer, other) if consumer.queue else (other, consumer)
    assert take(holder) == [0, 1, 2]
    served.dispatcher.detach(holder)
    served.turn()
    assert take(successor) == [0]
    served.ack(0)
    served.turn()
    assert take(successor) == [1, 2]


def test_a_dead_letter_lets_the_key_go_on() -> None:
    letters = Letters(1)
    served, consumer = ordered(letters=letters)
    served.dispatcher.count_deliveries()
    served.publish(Record(A), Record(A))
    served.save()
    received: list[int] = []
    for _ in range(6):
        served.turn()
        while (delivery := consumer.take_now()) is not None:
            received.append(delivery.offset)
            if delivery.offset == 0:
                refuse(served, consumer, 0)
        served.save()
    assert (letters.stored, received) == ([0], [0, 0, 1])


@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER])
def test_the_whole_partition_waits_where_one_consumer_gets_it(kind: SubscriptionType) -> None:
    served, consumer = ordered(kind)
    served.publish(Record(A), Record(B), Record(B))
    served.turn()
    first = consumer.take_now()
    assert first is not None
    refuse(served, consumer, 0, 5.0)
    assert take(consumer) == []
    served.publish(Record(B))
    served.turn()
    assert take(consumer) == []
    served.turn(after_s=5.1)
    served.read_on()
    served.turn()
    assert take(consumer) == [0]
    served.slots[0].ack_upto(0)
    served.turn()
    assert take(consumer) == [1, 2, 3]


def test_refused_messages_that_are_acknowledged_before_their_time_hold_nothing_back() -> None:
    served, consumer = ordered(SubscriptionType.EXCLUSIVE)
    served.publish(Record(A), Record(B))
    served.turn()
    first = consumer.take_now()
    assert first is not None
    refuse(served, consumer, 0, 3600.0)
    served.turn()
    served.ack(0)
    served.turn()
    served.read_on()
    served.turn()
    assert take(consumer) == [1]


def test_the_slot_that_waits_longest_is_known() -> None:
    refused = RefusedKeys()
    assert refused.oldest() is None
    refused.add(7, 1, 10.0)
    refused.add(5, 2, 11.0)
    refused.add(3, 1, 12.0)
    assert refused.oldest() == (3, 10.0)
    assert (refused.limit(1), refused.limit(2), refused.limit(3)) == (3, 5, None)
    assert refused.settled([3]) == {1}
    assert refused.limit(1) == 7
    assert refused.settled([7, 5, 99]) == {1, 2}
    assert not refused
