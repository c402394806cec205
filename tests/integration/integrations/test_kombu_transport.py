"""kombu's programs on a real broker: queues, exchanges, acknowledgements, delays, priorities, loops and forks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from queue import Empty
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue, binding
from kombu.asynchronous.hub import Hub
from kombu.exceptions import ChannelError, OperationalError

import pulsar_on_kafka.integrations.celery  # noqa: F401 - registers the scheme
from pulsar_on_kafka.exceptions import ConnectError
from tests.waiting import PATIENCE_S, never, until

Connect = Callable[..., Connection]


@pytest.fixture
def connect(service_url: str) -> Iterator[Connect]:
    """Opens connections to the shared broker; each `apart` has clients of its own, as another process has."""
    opened: list[Connection] = []

    def new(*, apart: bool = False, **options: Any) -> Connection:
        if apart:
            options["client"] = {"stats_interval_in_seconds": 600 + len(opened)}
        connection = Connection(service_url.replace("kafka", "pulsar-on-kafka", 1), transport_options=options)
        opened.append(connection)
        return connection.ensure_connection(max_retries=1)

    yield new
    for connection in opened:
        connection.release()


class Received:
    """The messages of one consumer, in their order."""

    def __init__(self, connection: Connection, *queues: Queue, prefetch_count: int = 0) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(connection.channel(), list(queues), on_message=self.messages.append)
        if prefetch_count:
            self.consumer.qos(prefetch_count=prefetch_count)
        self.consumer.consume()

    def bodies(self) -> list[Any]:
        return [message.decode() for message in self.messages]

    def drain(self, timeout_s: float = 0.05) -> None:
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=timeout_s)

    def wait(self, count: int) -> list[Any]:
        until(lambda: self.drain() or len(self.messages) >= count, lambda: f"{count} messages, not {self.bodies()}")
        return self.bodies()

    def nothing_comes(self) -> None:
        before = len(self.messages)
        never(lambda: self.drain() or len(self.messages) > before, "a message")


def send(connection: Connection, queue: Queue, *bodies: Any, **options: Any) -> None:
    producer = Producer(connection.default_channel)
    for body in bodies:
        producer.publish(body, exchange=queue.exchange or "", routing_key=queue.routing_key, declare=[queue], **options)


@pytest.fixture
def queue(unique: Callable[..., str]) -> Queue:
    name = unique("kombu")
    return Queue(name, Exchange(name), routing_key=name)


def test_messages_are_acknowledged_one_by_one(connect: Connect, queue: Queue) -> None:
    send(connect(), queue, 1, 2, 3)
    first = connect(apart=True)
    received = Received(first, queue)
    received.wait(3)
    received.messages[1].ack()
    first.release()

    again = Received(connect(), queue)
    assert sorted(again.wait(2)) == [1, 3]
    again.nothing_comes()


def test_a_rejected_message_is_redelivered_or_dropped(connect: Connect, queue: Queue) -> None:
    connection = connect()
    send(connection, queue, "keep", "drop")
    received = Received(connection, queue)
    received.wait(2)
    for message in list(received.messages):
        message.reject(requeue=message.decode() == "keep")
    assert received.wait(3)[2] == "keep"
    assert [message.delivery_info["redelivered"] for message in received.messages] == [False, False, True]
    received.nothing_comes()


def test_a_message_of_too_many_redeliveries_is_a_dead_letter(connect: Connect, queue: Queue, client: Any) -> None:
    connection = connect(max_redeliver_count=1, dead_letter_topic=f"{queue.name}-dead")
    dead = client.subscribe(f"{queue.name}-dead", "look")
    send(connection, queue, "poison")
    received = Received(connection, queue)
    for count in (1, 2):
        received.wait(count)
        received.messages[-1].requeue()
    assert dead.receive(int(PATIENCE_S * 1000)).data() == b"poison"
    received.nothing_comes()


def test_no_more_than_the_prefetch_count_is_unacknowledged(connect: Connect, queue: Queue) -> None:
    connection = connect()
    send(connection, queue, *range(4))
    received = Received(connection, queue, prefetch_count=2)
    received.wait(2)
    received.nothing_comes()
    received.messages[0].ack()
    assert len(received.wait(3)) == 3
    received.consumer.qos(prefetch_count=3)
    assert sorted(received.wait(4)) == [0, 1, 2, 3]


def test_consumers_of_one_partition_share_the_queue(connect: Connect, queue: Queue) -> None:
    connection = connect()
    both = [Received(connect(apart=True), queue, prefetch_count=1) for _ in range(2)]
    send(connection, queue, *range(4))

    def one_each() -> bool:
        for received in both:
            received.drain()
        return all(received.messages for received in both)

    until(one_each, "a message at each consumer")


def test_a_busy_worker_holds_no_more_than_its_inbox(connect: Connect, queue: Queue) -> None:
    send(connect(), queue, *range(4))
    busy = Received(connect(apart=True, receiver_queue_size=1), queue, prefetch_count=1)
    busy.wait(1)
    other = Received(connect(apart=True, receiver_queue_size=1), queue)
    other.wait(2)  # one is in progress, one in the inbox
    assert not {*busy.bodies()} & {*other.bodies()}


def test_a_message_with_an_eta_comes_at_that_time(connect: Connect, queue: Queue) -> None:
    connection = connect()
    received = Received(connection, queue)
    at = datetime.now(timezone.utc) + timedelta(seconds=1)
    send(connection, queue, "later", headers={"eta": at.isoformat()})
    send(connection, queue, "now")
    assert received.wait(2) == ["now", "later"]
    assert datetime.now(timezone.utc) >= at


def test_urgent_messages_come_first(connect: Connect, unique: Callable[..., str]) -> None:
    connection, name = connect(), unique("kombu")
    queue = Queue(name, routing_key=name, max_priority=10)
    for priority in (3, 0, 9, 6, 1):
        send(connection, queue, priority, priority=priority)
    taken = []
    for _ in range(5):
        message = until(lambda: connection.default_channel.basic_get(name), "a message")
        taken.append(message.decode())
        message.ack()
    assert taken == [9, 6, 3, 0, 1]


def test_a_message_is_dropped_after_its_time_to_live(connect: Connect, queue: Queue) -> None:
    connection = connect()
    send(connection, queue, "short", expiration=0.001)
    send(connection, queue, "long")
    received = Received(connection, queue)
    assert received.wait(1) == ["long"]
    received.nothing_comes()


def test_a_queue_is_counted_purged_and_deleted(connect: Connect, queue: Queue) -> None:
    channel = connect().default_channel
    bound = queue(channel)
    with pytest.raises(ChannelError, match="404"):
        bound.queue_declare(passive=True)
    assert bound.declare() == queue.name
    send(connect(), queue, 1, 2, 3)
    assert bound.queue_declare(passive=True).message_count == 3
    assert bound.purge() == 3
    until(lambda: bound.queue_declare(passive=True).message_count == 0, "an empty queue")
    bound.delete()
    with pytest.raises(ChannelError, match="404"):
        bound.queue_declare(passive=True)


def test_a_synchronous_get_finds_messages_and_their_end(connect: Connect, queue: Queue) -> None:
    connection = connect()
    send(connection, queue, 1)
    channel = connection.default_channel
    message = until(lambda: channel.basic_get(queue.name), "the message")
    message.ack()
    assert channel.basic_get(queue.name) is None


def test_a_fanout_reaches_every_queue(connect: Connect, unique: Callable[..., str]) -> None:
    exchange = Exchange(unique("fanout"), type="fanout")
    durable = Queue(unique("durable"), exchange)
    ending = [Queue(unique("ending"), exchange, auto_delete=True) for _ in range(2)]
    both = [Received(connect(apart=True), each) for each in ending]
    durable(connect().default_channel).declare()

    publisher = connect(apart=True)
    Producer(publisher.default_channel, exchange).publish("to all")
    assert [each.wait(1) for each in both] == [["to all"]] * 2
    assert Received(connect(), durable).wait(1) == ["to all"]


def test_a_topic_exchange_reaches_ending_queues_by_their_pattern(connect: Connect, unique: Callable[..., str]) -> None:
    exchange = Exchange(unique("events"), type="topic")
    worker = Received(connect(apart=True), Queue(unique("e"), exchange, routing_key="worker.*", auto_delete=True))
    everything = Received(connect(apart=True), Queue(unique("e"), exchange, routing_key="#", exclusive=True))
    producer = Producer(connect().default_channel, exchange)
    for key in ("worker.online", "task.sent"):
        producer.publish(key, routing_key=key, delivery_mode=1)
    assert sorted(everything.wait(2)) == ["task.sent", "worker.online"]
    assert worker.wait(1) == ["worker.online"]


def test_a_queue_with_several_keys_gets_the_messages_of_each(connect: Connect, unique: Callable[..., str]) -> None:
    exchange = Exchange(unique("levels"), type="direct")
    keys = [binding(exchange, routing_key=key) for key in ("error", "warning")]
    received = Received(connect(apart=True), Queue(unique("log"), bindings=keys, auto_delete=True))
    producer = Producer(connect().default_channel, exchange)
    for number in range(4):
        for key in ("error", "info", "warning"):
            producer.publish(f"{key} {number}", routing_key=key)
    expected = sorted(f"{key} {number}" for key in ("error", "warning") for number in range(4))
    assert sorted(received.wait(8)) == expected
    received.consumer.cancel()
    again = Received(received.connection, Queue(received.consumer.queues[0].name, bindings=keys, auto_delete=True))
    producer.publish("error again", routing_key="error")
    assert again.wait(1) == ["error again"]


def test_a_durable_binding_is_seen_by_other_processes(connect: Connect, unique: Callable[..., str]) -> None:
    exchange = Exchange(unique("orders"), type="topic")
    queue = Queue(unique("eu"), exchange, routing_key="order.eu.#")
    publisher = Producer(connect(apart=True).default_channel, exchange)
    publisher.publish("nobody's", routing_key="order.eu.1")
    queue(connect().default_channel).declare()
    publisher.publish("ours", routing_key="order.eu.2")
    assert Received(connect(), queue).wait(1) == ["ours"]


def test_replies_reach_a_queue_without_an_exchange(connect: Connect, unique: Callable[..., str], admin: Any) -> None:
    name = unique("reply")
    client = connect(apart=True)
    received = Received(client, Queue(name, routing_key=name, exclusive=True, auto_delete=True))
    producer = Producer(connect().default_channel)
    producer.publish("reply", routing_key=name)
    assert received.wait(1) == ["reply"]
    client.release()
    assert f"persistent://public/default/{name}" not in admin.list_topics()
    producer.publish("too late", routing_key=name)  # dropped, and no topic is made for it
    assert f"persistent://public/default/{name}" not in admin.list_topics()


def test_a_get_of_a_queue_that_ends_makes_no_durable_one(
    connect: Connect, unique: Callable[..., str], admin: Any
) -> None:
    name = unique("reply")
    queue = Queue(name, routing_key=name, auto_delete=True)(connect().default_channel)
    queue.declare()
    assert queue.get() is None
    assert admin.list_subscriptions(name) != ["kombu"]
    Producer(connect(apart=True).default_channel).publish("reply", routing_key=name)
    assert until(queue.get, "the reply").decode() == "reply"


def test_a_closed_channel_returns_its_messages(connect: Connect, queue: Queue) -> None:
    send(connect(), queue, "in progress")
    first = Received(connect(apart=True), queue)
    first.wait(1)
    first.consumer.channel.close()
    assert Received(connect(), queue).wait(1) == ["in progress"]


def test_an_exchange_is_deleted_with_its_topic(connect: Connect, unique: Callable[..., str], admin: Any) -> None:
    exchange = Exchange(unique("fanout"), type="fanout")
    channel = connect().default_channel
    bound = exchange(channel)
    queue = Queue(unique("q"), exchange, auto_delete=True)(channel)
    queue.declare()
    bound.delete(if_unused=True)
    assert f"persistent://public/default/kombu.exchange.{exchange.name}" in admin.list_topics()
    queue.delete()
    bound.delete()
    assert f"persistent://public/default/kombu.exchange.{exchange.name}" not in admin.list_topics()


def test_a_queue_in_use_is_not_deleted_as_unused(connect: Connect, queue: Queue) -> None:
    received = Received(connect(apart=True), queue)
    bound = queue(connect().default_channel)
    bound.declare()
    until(lambda: bound.channel.cluster.has_consumers(queue.name), "the consumer in its group")
    bound.delete(if_unused=True)
    bound.queue_declare(passive=True)
    received.connection.release()
    until(lambda: bound.delete(if_unused=True) or not bound.channel._has_queue(queue.name), "an unused queue to go")


def test_a_cancelled_consumer_hands_its_inbox_over(connect: Connect, queue: Queue) -> None:
    send(connect(), queue, *range(6))
    first = Received(connect(apart=True), queue, prefetch_count=2)
    first.wait(2)
    first.consumer.cancel()
    second = Received(connect(apart=True), queue)
    second.wait(4)
    for message in first.messages:
        message.ack()  # still counts
    first.connection.release()
    second.nothing_comes()
    assert sorted(first.bodies() + second.bodies()) == list(range(6))


def test_the_event_loop_is_woken_by_messages_and_acknowledgements(connect: Connect, queue: Queue) -> None:
    connection, hub = connect(), Hub()
    received = Received(connection, queue, prefetch_count=1)
    connection.register_with_event_loop(hub)
    send(connect(), queue, *range(3))
    try:
        for count in range(1, 4):
            while len(received.messages) < count:  # pytest's time-out is the deadline
                hub.run_once()
            received.messages[-1].ack()
    finally:
        hub.close()
    assert received.bodies() == [0, 1, 2]


def test_a_refused_connection_is_a_connection_error() -> None:
    connection = Connection("pulsar-on-kafka://localhost:1", connect_timeout=1)
    assert ConnectError in connection.connection_errors
    with pytest.raises(OperationalError):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_a_forked_child_publishes_and_leaves_the_parent_s_connection(connect: Connect, queue: Queue) -> None:
    connection = connect()
    received = Received(connection, queue)
    child = os.fork()
    if not child:
        try:
            connection.collect()
            send(Connection(connection.as_uri(include_password=True)), queue, "of the child")
        finally:
            os._exit(0)
    assert received.wait(1) == ["of the child"]
    os.waitpid(child, 0)
    received.messages[0].ack()
    send(connection, queue, "of the parent")
    assert received.wait(2)[1] == "of the parent"


def test_a_connection_outlives_a_restart_of_the_broker(own_broker: Any, unique: Callable[..., str]) -> None:
    queue = Queue(unique("kombu"), routing_key="restart")
    with Connection(f"pulsar-on-kafka://{own_broker.bootstrap}") as connection:
        received = Received(connection, queue)
        bound = queue(connection.default_channel)
        bound.declare()
        Producer(connection.default_channel).publish("before", routing_key=queue.name)
        received.wait(1)
        own_broker.restart()
        received.messages[0].ack()
        Producer(connection.default_channel).publish("after", routing_key=queue.name)
        assert received.wait(2)[1] == "after"


def test_an_undeclared_queue_drops_messages(connect: Connect, unique: Callable[..., str]) -> None:
    channel = connect().default_channel
    Producer(channel).publish("lost", routing_key=(name := unique("nowhere")))
    with pytest.raises(Empty):
        channel._get(name)
