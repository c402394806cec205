"""A consumer that drains takes no more messages, and leaves when its application has settled what it received."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka import asyncio as pulsar_asyncio
from pulsar_on_kafka.admin import AdminClient
from tests.integration.subscriptions.test_leases import join, known_to_owner
from tests.programs import a_program
from tests.seeds import first_of
from tests.steps import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    PATIENCE_MS,
    SHARED,
    Process,
    Unique,
    counted,
    nothing_comes,
    payloads,
    receive,
    send,
)
from tests.waiting import until

pytestmark = pytest.mark.kafka

DRAIN_MS = 120_000
"""A time-out that no test reaches."""


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def begin_to_close(aside: ThreadPoolExecutor, consumer: pulsar.Consumer) -> Future[None]:
    closed = aside.submit(lambda: consumer.close(drain_timeout_ms=DRAIN_MS))
    until(lambda: consumer._draining, "the drain to begin")
    return closed


def until_closed(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    """The messages that the consumer receives until it begins to drain."""
    found: list[pulsar.Message] = []
    while True:
        try:
            found.append(consumer.receive(PATIENCE_MS))
        except pulsar.AlreadyClosed:
            return found


def numbers(first: int, end: int) -> list[tuple[str, int]]:
    return [(str(number), 0) for number in range(first, end)]


def send_keys(client: pulsar.Client, topic: str, count: int) -> None:
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send(str(number).encode(), partition_key=str(number))
    producer.close()


def backlog(admin: AdminClient, topic: str) -> int:
    return admin.subscription_stats(topic, "s").backlog


@pytest.mark.parametrize(
    "case", first_of(2, [(SHARED, "owner"), (KEY_SHARED, "other"), (SHARED, "other"), (KEY_SHARED, "owner")], 0)
)
def test_others_get_the_inbox_at_once_and_nothing_comes_twice(
    process: Process, unique: Unique, admin: AdminClient, aside: ThreadPoolExecutor,
    case: tuple[pulsar.ConsumerType, str],
) -> None:  # fmt: skip
    kind, drains = case
    topic = unique()
    consumers = [join(process, topic, kind), join(process, topic, kind)]
    until(lambda: known_to_owner(consumers) == 2, "the owner to know both")
    owner, other = sorted(consumers, key=lambda each: not each._member.owned_partitions())
    draining, staying = (owner, other) if drains == "owner" else (other, owner)
    send_keys(process(), topic, 100)
    held = receive(draining, 5)
    kept = receive(staying, 5)
    closed = begin_to_close(aside, draining)
    held += until_closed(draining)
    rest = receive(staying, 100 - len(held) - len(kept))  # while the other one holds its messages
    assert not closed.done()
    assert sorted(counted([*held, *kept, *rest])) == sorted(numbers(0, 100))
    for message in held[1:]:
        draining.acknowledge(message)
    draining.acknowledge(held[0], wait=True)
    closed.result(60)
    for message in [*kept, *rest]:
        staying.acknowledge(message)
    staying.flush()
    assert nothing_comes(staying)
    assert backlog(admin, topic) == 0


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_in_order_the_next_consumer_begins_with_what_was_not_received(
    process: Process, unique: Unique, admin: AdminClient, aside: ThreadPoolExecutor, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    first = join(process, topic, kind, consumer_name="a")
    second = join(process, topic, kind, consumer_name="b") if kind is FAILOVER else None
    send(process(), topic, 20)
    held = receive(first, 5)
    closed = begin_to_close(aside, first)
    for message in held:
        first.acknowledge(message)
    closed.result(60)
    second = join(process, topic, kind, consumer_name="b") if second is None else second
    assert counted(receive(second, 15)) == numbers(5, 20)


def test_an_active_consumer_of_a_partition_elsewhere_drains(
    process: Process, unique: Unique, admin: AdminClient, aside: ThreadPoolExecutor
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 1)
    owner = join(process, topic, FAILOVER, consumer_name="b")
    active = join(process, topic, FAILOVER, consumer_name="a")
    send(process(), topic, 20)
    held = receive(active, 5)
    assert owner._member.owned_partitions() == [0]
    closed = begin_to_close(aside, active)
    for message in held:
        active.acknowledge(message)
    closed.result(60)
    assert counted(receive(owner, 15)) == numbers(5, 20)


def test_what_is_not_acknowledged_in_time_goes_to_others(process: Process, unique: Unique) -> None:
    topic = unique()
    consumers = [join(process, topic), join(process, topic)]
    until(lambda: known_to_owner(consumers) == 2, "the owner to know both")
    draining, staying = consumers
    send(process(), topic, 40)
    held = receive(draining, 2)
    draining.acknowledge(held[0])
    draining.close(drain_timeout_ms=100)
    got = payloads(receive(staying, 39))
    assert sorted(got, key=int) == sorted({str(number) for number in range(40)} - {held[0].data().decode()}, key=int)
    assert nothing_comes(staying)
    with pytest.raises(pulsar.AlreadyClosed):
        draining.acknowledge(held[1])


def test_a_refused_message_ends_the_drain(process: Process, unique: Unique, aside: ThreadPoolExecutor) -> None:
    topic = unique()
    consumer = join(process, topic, negative_ack_redelivery_delay_ms=PATIENCE_MS)
    producer = process().create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(6):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    send(process(), topic, 4, start=6)
    messages = receive(consumer, 3)  # of a batch entry, which stays where it is
    closed = begin_to_close(aside, consumer)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])
    assert not closed.done()
    consumer.acknowledge(messages[2])
    closed.result(60)
    assert sorted(payloads(receive(join(process, topic), 8)), key=int) == ["1", *map(str, range(3, 10))]


def test_a_listener_ends_the_message_in_hand(process: Process, unique: Unique, aside: ThreadPoolExecutor) -> None:
    topic = unique()
    begun, work = threading.Event(), threading.Event()
    done: list[str] = []

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        consumer.acknowledge(message)  # before the work: the drain waits for the call all the same
        begun.set()
        assert work.wait(60)
        done.append(message.data().decode())

    consumer = join(process, topic, message_listener=listen)
    send(process(), topic, 5)
    assert begun.wait(60)
    closed = begin_to_close(aside, consumer)
    rest = join(process, topic)
    assert payloads(receive(rest, 4)) == ["1", "2", "3", "4"]
    assert not closed.done()
    work.set()
    closed.result(60)
    assert done == ["0"]


def test_topics_of_one_consumer_drain_together(
    service_url: str, process: Process, unique: Unique, aside: ThreadPoolExecutor
) -> None:
    topics = [unique(), unique()]
    client = pulsar.Client(service_url)
    consumer = client.subscribe(topics, "s", SHARED, initial_position=EARLIEST)
    for topic in topics:
        send(client, topic, 10)
    held = receive(consumer, 3)
    closed = aside.submit(lambda: client.close(drain_timeout_ms=DRAIN_MS))
    held += until_closed(consumer)
    for message in held:
        consumer.acknowledge(message)
    closed.result(60)
    rest = process().subscribe(topics, "s", SHARED)
    assert len(receive(rest, 20 - len(held))) == 20 - len(held)
    assert nothing_comes(rest)


def test_tasks_of_a_loop_end_what_they_received(service_url: str, process: Process, unique: Unique) -> None:
    topic = unique()

    async def play() -> int:
        client = pulsar_asyncio.Client(service_url)
        consumer = await client.subscribe(topic, "s", consumer_type=SHARED, initial_position=EARLIEST)
        send(process(), topic, 10)
        held = [await consumer.receive() for _ in range(3)]
        waiting = asyncio.create_task(consumer.receive())
        waiting.cancel()
        closing = asyncio.create_task(consumer.close(drain_timeout_ms=DRAIN_MS))
        while True:
            try:
                held.append(await consumer.receive())
            except pulsar_asyncio.PulsarException as ended:
                assert ended.error() is pulsar.Result.AlreadyClosed  # noqa: PT017 - the last one of several calls
                break
        for message in held:
            assert not closing.done()
            await consumer.acknowledge(message)
        await closing
        await client.close()
        return len(held)

    held = asyncio.run(play())
    rest = join(process, topic)
    assert payloads(receive(rest, 10 - held)) == [str(number) for number in range(held, 10)]
    assert nothing_comes(rest)


HOLDER = """
    client = pulsar.Client(sys.argv[1])
    client.close_on_signals(drain_timeout_ms=120_000)
    consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.{kind},
                                initial_position=pulsar.InitialPosition.Earliest)
    print("ready", flush=True)
    messages = [consumer.receive(), consumer.receive()]
    print("holds", flush=True)
    sys.stdin.readline()
    for message in messages:
        consumer.acknowledge(message)
    try:
        consumer.receive()
    except pulsar.AlreadyClosed:
        signal.pause()
"""


@pytest.mark.parametrize("kind", first_of(1, [KEY_SHARED, SHARED], 0))
def test_others_get_the_partitions_of_a_process_that_drains_for_long(
    client: pulsar.Client, service_url: str, unique: Unique, admin: AdminClient, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    staying = client.subscribe(topic, "s", kind, initial_position=EARLIEST)
    draining = a_program(HOLDER.format(kind=kind.name), service_url, topic)
    assert draining.stdout is not None
    assert draining.stdin is not None
    assert draining.stdout.readline() == "ready\n"
    until(lambda: len(staying._member.owned_partitions()) == 1, "the other process to own a partition")
    send_keys(client, topic, 40)
    assert draining.stdout.readline() == "holds\n"
    draining.send_signal(signal.SIGTERM)
    got = receive(staying, 38)  # while the other one holds its messages
    assert draining.poll() is None
    draining.stdin.write("\n")
    _, err = draining.communicate(timeout=120)
    assert draining.returncode == -signal.SIGTERM, err
    assert {count for _, count in counted(got)} == {0}
    assert len(set(payloads(got))) == 38
    for message in got:
        staying.acknowledge(message)
    staying.flush()
    assert nothing_comes(staying)
    assert backlog(admin, topic) == 0


WORKER = """
    import time
    client = pulsar.Client(sys.argv[1])
    client.close_on_signals(drain_timeout_ms=120_000)
    consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.{kind}, receiver_queue_size=50,
                                initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(sys.argv[2] + "-done")
    print("ready", flush=True)
    try:
        while True:
            message = consumer.receive()
            time.sleep(0.01)  # the work
            producer.send(message.data(), properties={{"redeliveries": str(message.redelivery_count())}})
            consumer.acknowledge(message)
    except pulsar.AlreadyClosed:
        print("drained", flush=True)
        signal.pause()
"""


MESSAGES = 300


@pytest.mark.parametrize("case", first_of(1, [("KeyShared", 3), ("Shared", 1), ("Shared", 3)], 0))
def test_a_rolling_restart_handles_each_message_once(
    client: pulsar.Client, service_url: str, unique: Unique, admin: AdminClient, case: tuple[str, int]
) -> None:
    kind, partitions = case
    topic = unique()
    admin.create_partitioned_topic(topic, partitions)
    admin.create_topic(f"{topic}-done")
    admin.create_subscription(topic, "s", from_earliest=True)
    done = client.create_reader(f"{topic}-done", pulsar.MessageId.earliest)
    workers = []

    def start() -> None:
        workers.append(a_program(WORKER.format(kind=kind), service_url, topic))
        assert workers[-1].stdout is not None
        assert workers[-1].stdout.readline() == "ready\n"

    producer = client.create_producer(topic)
    for number in range(MESSAGES):
        producer.send_async(str(number).encode(), None, partition_key=str(number))
    producer.flush()
    start()
    start()
    got: list[tuple[str, str]] = []
    try:
        for old in list(workers):
            got += [_done(done) for _ in range(20)]
            start()
            workers.remove(old)
            old.send_signal(signal.SIGTERM)
            out, err = old.communicate(timeout=120)
            assert (old.returncode, out) == (-signal.SIGTERM, "drained\n"), err
        got += [_done(done) for _ in range(MESSAGES - len(got))]
        until(lambda: backlog(admin, topic) == 0, "all acknowledgements to be saved")
    finally:
        for each in workers:
            each.kill()
            each.communicate()
    assert sorted(got) == sorted((str(number), "0") for number in range(MESSAGES))
    assert not done.has_message_available()


def _done(reader: pulsar.Reader) -> tuple[str, str]:
    message = reader.read_next(PATIENCE_MS)
    return message.data().decode(), message.properties()["redeliveries"]


@pytest.mark.parametrize(("given", "named"), [("1s", "str"), (-1, "-1"), (86_400_001, "86400001")])
def test_a_wrong_time_out_is_refused(process: Process, unique: Unique, given: object, named: str) -> None:
    consumer = join(process, unique())
    with pytest.raises((ValueError, pulsar.InvalidConfiguration), match=named):
        consumer.close(drain_timeout_ms=given)  # type: ignore[arg-type]
    consumer.close(drain_timeout_ms=0)
