"""Several topics' inboxes as one: turns, bounds, waiting."""

from __future__ import annotations

import random
import threading

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, NoSuchTopic
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionAcks
from pulsar_on_kafka.client.consumer.merged_inbox import TURN, MergedInbox
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.waiting import until


def topic(name: str, capacity: int = 1000) -> Endpoint:
    return Endpoint(name, capacity, delivery_type=Delivery)


def put(endpoint: Endpoint, *offsets: int) -> None:
    feed = endpoint.feed(PartitionAcks(endpoint.name, 0, -1, LedgerLayout(1)))
    endpoint.deliver([Delivery(None, feed, offset, 0) for offset in offsets])  # type: ignore[arg-type]


def taken(inbox: MergedInbox) -> list[tuple[str, int]]:
    found = []
    while (message := inbox.take_now()) is not None:
        found.append((message.feed.endpoint.name, message.offset))
    return found


def test_topics_take_turns() -> None:
    inbox = MergedInbox("c", 1000, 1000)
    a, b = topic("a"), topic("b")
    inbox.add(a)
    inbox.add(b)
    put(a, *range(TURN + 5))
    put(b, *range(3))
    expected = (
        [("a", n) for n in range(TURN)] + [("b", n) for n in range(3)] + [("a", n) for n in range(TURN, TURN + 5)]
    )
    assert taken(inbox) == expected


def test_what_was_there_before_counts() -> None:
    inbox = MergedInbox("c", 10, 10)
    a = topic("a")
    put(a, 1, 2)
    inbox.add(a)
    assert taken(inbox) == [("a", 1), ("a", 2)]


def test_the_total_is_shared_out() -> None:
    inbox = MergedInbox("c", 100, 120)
    endpoints = [topic(str(number)) for number in range(3)]
    for endpoint in endpoints:
        inbox.add(endpoint)
    assert [endpoint.capacity for endpoint in endpoints] == [40, 40, 40]
    assert inbox.share(1) == 100
    assert inbox.share(500) == 1


def test_a_message_put_back_is_the_next_one() -> None:
    inbox = MergedInbox("c", 10, 10)
    a, b = topic("a"), topic("b")
    inbox.add(a)
    inbox.add(b)
    put(a, 1)
    put(b, 7)
    first = inbox.popleft()
    inbox.appendleft(first)
    assert taken(inbox) == [("a", 1), ("b", 7)]


def test_a_topic_that_is_removed_gives_nothing_more() -> None:
    inbox = MergedInbox("c", 10, 10)
    a, b = topic("a"), topic("b")
    inbox.add(a)
    inbox.add(b)
    put(a, 1)
    put(b, 7)
    inbox.remove(a)
    put(a, 2)
    assert taken(inbox) == [("b", 7)]


def test_one_failed_topic_keeps_nobody_from_the_others() -> None:
    inbox = MergedInbox("c", 10, 10)
    a, b = topic("a"), topic("b")
    inbox.add(a)
    inbox.add(b)
    a.fail(NoSuchTopic("a is gone"))
    put(b, 7)
    assert taken(inbox) == [("b", 7)]
    with pytest.raises(DeadlineExceeded):
        inbox.take(Deadline.after(0.01))
    b.fail(NoSuchTopic("b is gone"))
    with pytest.raises(NoSuchTopic):
        inbox.take(Deadline.after(5))
    assert isinstance(inbox.failure, NoSuchTopic)


def test_a_topic_that_is_gone_is_no_failure_where_topics_come_and_go() -> None:
    inbox = MergedInbox("c", 10, 10, topics_come_and_go=True)
    a, again = topic("a"), topic("a")
    inbox.add(a)
    a.fail(NoSuchTopic("topic a was deleted and made anew"))
    with pytest.raises(DeadlineExceeded):
        inbox.take(Deadline.after(0.01))
    inbox.remove(a)
    inbox.add(again)
    put(again, 1)
    assert taken(inbox) == [("a", 1)]
    again.fail(Closed("something else"))
    with pytest.raises(Closed):
        inbox.take(Deadline.after(0.01))


def test_a_waiting_receiver_is_woken_by_any_topic_and_by_close() -> None:
    inbox = MergedInbox("c", 10, 10)
    endpoints = [topic("a"), topic("b")]
    for endpoint in endpoints:
        inbox.add(endpoint)
    seen: list[object] = []

    def receive() -> None:
        try:
            while True:
                seen.append(inbox.take(Deadline.after(10)).offset)
        except Closed as closed:
            seen.append(closed)

    receiver = threading.Thread(target=receive)
    receiver.start()
    for number in range(50):
        put(endpoints[number % 2], number)
    until(lambda: len(seen) == 50, "all messages")
    inbox.close()
    receiver.join(10)
    assert sorted(seen[:50]) == list(range(50))  # type: ignore[type-var]
    assert isinstance(seen[50], Closed)


def test_a_discard_that_keeps_messages_does_not_lose_them() -> None:
    inbox = MergedInbox("c", 10, 10)
    a = topic("a")
    inbox.add(a)
    put(a, 1, 2)
    waiting, a.queue = a.queue, type(a.queue)()
    assert inbox.take_now() is None  # the member's thread is discarding just now
    a.queue = waiting
    a.discard(PartitionAcks("another", 1, 1, LedgerLayout(1)))
    assert taken(inbox) == [("a", 1), ("a", 2)]


def test_random_histories_keep_each_topics_order_and_lose_nothing() -> None:
    chance = random.Random(3)
    for _ in range(300):
        inbox = MergedInbox("c", 1000, 5000)
        endpoints = [topic(str(number)) for number in range(chance.randrange(1, 5))]
        for endpoint in endpoints:
            inbox.add(endpoint)
        sent: dict[str, list[int]] = {endpoint.name: [] for endpoint in endpoints}
        received: dict[str, list[int]] = {endpoint.name: [] for endpoint in endpoints}
        for offset in range(chance.randrange(120)):
            endpoint = chance.choice(endpoints)
            put(endpoint, offset)
            sent[endpoint.name].append(offset)
            for _ in range(chance.randrange(3)):
                message = inbox.take_now()
                if message is not None and chance.random() < 0.2:
                    inbox.appendleft(message)
                elif message is not None:
                    received[message.feed.endpoint.name].append(message.offset)
        for name, offset in taken(inbox):
            received[name].append(offset)
        assert received == sent
