"""Deduplication on a real broker: repeated ids, reopened names, policies that change, processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER
from tests.clocks import WRONG_CLOCKS
from tests.programs import a_program
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive
from tests.waiting import until

NO_ID = (-1, -1)

pytestmark = pytest.mark.kafka


@pytest.fixture
def namespace(admin: AdminClient, unique: Unique) -> str:
    """A namespace with the policy."""
    name = f"public/{unique()}"
    admin.create_namespace(name)
    admin.set_policy(name, "deduplication", True)
    return name


@pytest.fixture
def topic(namespace: str) -> str:
    return f"persistent://{namespace}/t"


def stored(client: pulsar.Client, topic: str) -> list[str]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(15_000).data().decode())
    reader.close()
    return found


def place(message_id: Any) -> tuple[int, int]:
    return message_id.ledger_id(), message_id.entry_id()


KINDS = [{}, {"batching_enabled": True, "batching_max_publish_delay_ms": 2}]


KINDS_IN_TRANSACTIONS = [*KINDS, {"chunking_enabled": True}]


@pytest.mark.parametrize("kind", KINDS_IN_TRANSACTIONS, ids=["single", "batching", "chunking"])
def test_the_ids_of_an_aborted_transaction_are_free_again(service_url: str, topic: str, kind: dict[str, Any]) -> None:
    client = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    large = b"2" * (6 * 1024 * 1024 if "chunking_enabled" in kind else 10)
    try:
        producer = client.create_producer(topic, producer_name="p", **kind)
        first, second = client.new_transaction(), client.new_transaction()
        for sequence, payload in ((1, b"1"), (2, large), (3, b"3")):
            assert place(producer.send(payload, sequence_id=sequence, txn=first)) != NO_ID
        assert place(producer.send(b"repeated", sequence_id=2, txn=first)) == NO_ID, "its own"
        for other in (second, None):
            with pytest.raises(pulsar.TransactionConflict, match=r"send again when it has ended"):
                producer.send(b"too early", sequence_id=2, txn=other)
        second.abort()
        first.abort()
        assert stored(client, topic) == []
        third = client.new_transaction()
        for sequence, payload in ((1, b"1"), (2, large), (3, b"3")):
            assert place(producer.send(payload, sequence_id=sequence, txn=third)) != NO_ID
        third.commit()
        assert place(producer.send(b"repeated", sequence_id=3)) == NO_ID
        left = client.new_transaction()
        assert place(producer.send(b"4", sequence_id=4, txn=left)) != NO_ID
        producer.close()
        producer = client.create_producer(topic, producer_name="p", **kind)
        assert producer.last_sequence_id() == 3
        with pytest.raises(pulsar.TransactionConflict):
            producer.send(b"4", sequence_id=4)
        left.abort()
        assert place(producer.send(b"4", sequence_id=4)) != NO_ID
        producer.close()
        producer = client.create_producer(topic, producer_name="p", **kind)
        assert producer.last_sequence_id() == 4
        assert place(producer.send(b"repeated", sequence_id=4)) == NO_ID
        # Also below what was stored since, and to the next holder of the name.
        for sequences in ((5, 6), (5,)):
            aborted = client.new_transaction()
            for sequence in sequences:
                assert place(producer.send(b"%d" % sequence, sequence_id=sequence, txn=aborted)) != NO_ID
            aborted.abort()
        assert place(producer.send(b"7", sequence_id=7)) != NO_ID
        assert place(producer.send(b"5", sequence_id=5)) != NO_ID
        producer.close()
        producer = client.create_producer(topic, producer_name="p", **kind)
        assert place(producer.send(b"6", sequence_id=6)) != NO_ID
        for sequence in (5, 6, 7):
            assert place(producer.send(b"repeated", sequence_id=sequence)) == NO_ID
        assert stored(client, topic) == ["1", large.decode(), "3", "4", "7", "5", "6"]
    finally:
        client.close()


@WRONG_CLOCKS
@pytest.mark.parametrize("kind", KINDS, ids=["single", "batching"])
def test_a_name_goes_on_where_it_was(client: pulsar.Client, topic: str, kind: dict[str, Any]) -> None:
    first = client.create_producer(topic, producer_name="p", **kind)
    for number in range(3):
        first.send(str(number).encode())
    first.close()
    second = client.create_producer(topic, producer_name="p", **kind)
    assert second.last_sequence_id() == 2
    second.send(b"3")
    assert second.last_sequence_id() == 3
    second.close()
    again = client.create_producer(topic, producer_name="p", initial_sequence_id=1, **kind)
    assert again.last_sequence_id() == 1
    again.send(b"again 2")
    again.send(b"again 3")
    again.send(b"4")
    again.close()
    other = client.create_producer(topic, producer_name="other", **kind)
    assert other.last_sequence_id() == -1
    other.send(b"other 0")
    assert stored(client, topic) == ["0", "1", "2", "3", "4", "other 0"]


def test_messages_of_a_batch_are_judged_one_by_one(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(
        topic, producer_name="p", batching_enabled=True, batching_max_publish_delay_ms=10_000
    )
    answers: list[tuple[int, bool]] = []

    def send_batch(*sequences: int) -> None:
        for sequence in sequences:
            producer.send_async(
                str(sequence).encode(),
                lambda result, message_id, at=sequence: answers.append((at, place(message_id) != NO_ID)),  # type: ignore[misc]
                sequence_id=sequence,
            )
        producer.flush()

    send_batch(0, 1, 2)
    send_batch(1, 2, 3)
    send_batch(7, 7, 6, 9)
    assert sorted(answers) == sorted(
        [
            (0, True),
            (1, True),
            (2, True),
            (1, False),
            (2, False),
            (3, True),
            (7, True),
            (7, False),
            (6, False),
            (9, True),
        ]
    )
    producer.close()
    assert stored(client, topic) == ["0", "1", "2", "3", "7", "9"]
    assert client.create_producer(topic, producer_name="p").last_sequence_id() == 9


def test_a_chunked_message_counts_once(client: pulsar.Client, topic: str) -> None:
    def large(letter: bytes) -> bytes:
        return letter * 6_000_000

    producer = client.create_producer(topic, producer_name="p", chunking_enabled=True)
    for content, sequence, new in ((large(b"a"), 5, True), (large(b"a"), 5, False), (b"b", 5, False), (b"c", 6, True)):
        message_id = producer.send(content, sequence_id=sequence)
        assert (place(message_id) != NO_ID) is new, sequence
        assert producer.last_sequence_id() == sequence
    producer.send(large(b"d"), sequence_id=7)
    assert producer.last_sequence_id() == 7
    producer.close()
    again = client.create_producer(topic, producer_name="p", chunking_enabled=True)
    assert again.last_sequence_id() == 7
    again.send(large(b"d"), sequence_id=7)
    again.send(large(b"e"))
    assert [text[0] for text in stored(client, topic)] == ["a", "c", "d", "e"]


def test_many_threads_of_one_producer_lose_nothing(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="p", block_if_queue_full=True)
    threads = [
        threading.Thread(target=lambda: [producer.send_async(b"x", None) for _ in range(2_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    assert producer.last_sequence_id() == 7_999
    assert len(stored(client, topic)) == 8_000


def test_a_policy_that_changes_is_followed_by_running_producers(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    namespace = f"public/{unique()}"
    admin.create_namespace(namespace)
    topic = f"persistent://{namespace}/t"
    single = client.create_producer(topic, producer_name="single")
    batching = client.create_producer(topic, producer_name="batching", batching_enabled=True)

    def repeats(producer: pulsar.Producer) -> bool:
        return place(producer.send(b"1", sequence_id=1)) == NO_ID

    for producer in (single, batching):
        assert not repeats(producer)
        assert not repeats(producer)
    admin.set_policy(topic, "deduplication", True)
    for producer in (single, batching):
        until(lambda: repeats(producer), "the policy to be followed")  # noqa: B023
        producer.send(b"2")  # ids go on being given
    admin.set_policy(topic, "deduplication", False)
    for producer in (single, batching):
        until(lambda: not repeats(producer), "the policy to be followed")  # noqa: B023
    single.close()
    assert client.create_producer(topic, producer_name="single").last_sequence_id() == -1
    admin.set_policy(namespace, "deduplication", True)
    admin.remove_policy(topic, "deduplication")
    until(lambda: repeats(batching), "the namespace's policy to be followed")


def test_policies_of_namespaces_and_topics(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    namespace = f"public/{unique()}"
    topic = f"persistent://{namespace}/t"
    with pytest.raises(pulsar.TopicNotFound):
        admin.set_policy(namespace, "deduplication", True)
    admin.create_namespace(namespace)
    with pytest.raises(pulsar.TopicNotFound):
        admin.get_policy(topic, "deduplication")
    admin.create_topic(topic)
    assert (admin.get_policy(namespace, "deduplication"), admin.policies(topic)) == (None, {})
    admin.set_policy(namespace, "deduplication", True)
    admin.set_policy(namespace, "deduplication", True)
    assert admin.get_policy(topic, "deduplication") is None
    assert admin.get_policy(topic, "deduplication", applied_value=True) is True
    admin.set_policy(topic, "deduplication", False)
    assert admin.policies(topic) == {"deduplication": False}
    assert admin.get_policy(topic, "deduplication", applied_value=True) is False
    admin.remove_policy(topic, "deduplication")
    admin.remove_policy(topic, "deduplication")
    assert admin.get_policy(topic, "deduplication") is None
    for wrong in ("deduplicaton", "retention"):
        with pytest.raises(pulsar.InvalidConfiguration, match=wrong):
            admin.set_policy(namespace, wrong, True)
    with pytest.raises(pulsar.InvalidConfiguration, match="takes true or false"):
        admin.set_policy(namespace, "deduplication", "on")
    with pytest.raises(pulsar.InvalidConfiguration, match="names a partition"):
        admin.set_policy(f"{topic}-partition-0", "deduplication", True)
    with pytest.raises(pulsar.InvalidConfiguration, match="own state"):
        admin.set_policy("pulsar/system", "deduplication", True)
    admin.delete_topic(topic)
    admin.create_topic(topic)
    assert admin.policies(topic) == {}
    admin.delete_topic(topic)
    admin.delete_namespace(namespace)
    admin.create_namespace(namespace)
    assert admin.policies(namespace) == {}


def test_partitions_are_counted_each_for_itself_also_when_the_policy_comes_and_the_topic_grows(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    to = [0]
    options: dict[str, Any] = {
        "message_routing_mode": pulsar.PartitionsRoutingMode.CustomPartition,
        "message_router": lambda message, partitions: to[0],
    }

    def sends(producer: pulsar.Producer, *places: int) -> list[int]:
        for to[0] in places:
            producer.send(b"x")
        return [_last_id(admin, topic, partition) for partition in sorted(set(places))]

    for batching in (False, True):
        name = f"p{batching}"
        producer = client.create_producer(topic, producer_name=name, batching_enabled=batching, **options)
        assert sends(producer, 0, 0, 0, 1) == [2, 0]
        assert producer.last_sequence_id() == 2
        admin.set_policy(topic, "deduplication", True)

        def repeats(producer: pulsar.Producer = producer) -> bool:
            to[0] = 0
            return place(producer.send(b"x", sequence_id=2)) == NO_ID

        until(repeats, "the policy to be followed")
        assert sends(producer, 0, 1, 1) == [3, 2]
        producer.close()
        producer = client.create_producer(topic, producer_name=name, batching_enabled=batching, **options)
        assert producer.last_sequence_id() == 3
        assert sends(producer, 1, 0) == [4, 3]
        producer.close()
        admin.remove_policy(topic, "deduplication")


def _last_id(admin: AdminClient, topic: str, partition: int) -> int:
    """The sequence id of the last record of a partition."""
    node, deadline = admin.node, Deadline.after(30)
    kafka = kafka_topic(TopicName.parse(topic))
    end = node.admin.end_offsets(kafka, [partition], deadline)[partition]
    (record,) = [each for batch in node.fetcher.read(kafka, partition, end - 1, end, deadline) for each in batch]
    header = dict(headers_of(record) or ())[PRODUCER]
    assert header is not None
    return int(header.partition(b":")[0])


# Processes ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys
import pulsar_on_kafka as pulsar
url, topic, begin, batching = sys.argv[1:5]
client = pulsar.Client(url)
producer = client.create_producer(topic, producer_name="p", block_if_queue_full=True, max_pending_messages=500,
                                  batching_enabled=batching == "1")
last = producer.last_sequence_id()
print("opened", last, flush=True)
answered = last
def heard(result, message_id):
    global answered
    answered += 1
    if answered % 50 == 0:
        print(answered, flush=True)
for number in range(last + 1, 1_000_000):
    producer.send_async(str(number).encode(), heard, sequence_id=number)
"""


@pytest.fixture
def programs() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: str) -> subprocess.Popen[str]:
        running.append(a_program(text, *arguments))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.kills
@pytest.mark.parametrize("batching", ["0", "1"], ids=["single", "batching"])
def test_a_producer_that_is_killed_again_and_again_neither_loses_nor_repeats(
    client: pulsar.Client, topic: str, service_url: str, programs: Callable[..., subprocess.Popen[str]], batching: str
) -> None:
    known = -1
    for _ in range(4):
        process = programs(PROGRAM, service_url, topic, "0", batching)
        assert process.stdout is not None
        opened = process.stdout.readline().split()
        assert opened[0] == "opened"
        assert int(opened[1]) >= known, "a stored message was not found"
        for line in process.stdout:
            known = int(line)
            if known >= int(opened[1]) + 400:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    last = client.create_producer(topic, producer_name="p").last_sequence_id()
    assert last >= known
    assert stored(client, topic) == [str(number) for number in range(last + 1)]


@pytest.mark.kills
def test_a_name_that_is_held_in_another_process_is_refused_and_taken_over_after_its_death(
    client: pulsar.Client, topic: str, service_url: str, programs: Callable[..., subprocess.Popen[str]]
) -> None:
    holder = programs(
        """
        import sys
        import pulsar_on_kafka as pulsar
        client = pulsar.Client(sys.argv[1])
        producer = client.create_producer(sys.argv[2], producer_name="p")
        for number in range(10):
            producer.send(str(number).encode())
        print("sent", flush=True)
        sys.stdin.read()
        """,
        service_url, topic,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "sent\n"
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="p")
    holder.kill()
    holder.wait()
    producer = client.create_producer(topic, producer_name="p")
    assert producer.last_sequence_id() == 9
    assert place(producer.send(b"again 9", sequence_id=9)) == NO_ID
    producer.send(b"10")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(consumer, 11)) == [str(number) for number in range(11)]
    assert nothing_comes(consumer)


def test_a_send_whose_outcome_is_unknown_is_looked_for_before_it_is_repeated(own_broker: EmbeddedBroker) -> None:
    with ExitStack() as stack:
        url = f"kafka://{own_broker.bootstrap}"
        admin = stack.enter_context(AdminClient(url))
        client = pulsar.Client(url)
        stack.callback(client.close)
        admin.create_topic("orders")
        admin.set_policy("orders", "deduplication", True)
        producer = client.create_producer("orders", producer_name="p", send_timeout_millis=1_500)
        producer.send(b"0", sequence_id=0)
        own_broker.pause()
        with pytest.raises(pulsar.Timeout):
            producer.send(b"1", sequence_id=1)
        own_broker.resume()
        for sequence in (1, 1, 2):
            until(lambda: _is_answered(producer, sequence), "the broker to answer again")  # noqa: B023
        assert producer.last_sequence_id() == 2
        assert stored(client, "persistent://public/default/orders") == ["0", "1", "2"]


def _is_answered(producer: pulsar.Producer, sequence: int) -> bool:
    try:
        producer.send(str(sequence).encode(), sequence_id=sequence)
    except (pulsar.Timeout, pulsar.ConnectError):
        return False
    return True


@pytest.mark.kills
def test_a_paused_holder_is_refused_when_it_runs_again(
    client: pulsar.Client, topic: str, service_url: str, programs: Callable[..., subprocess.Popen[str]]
) -> None:
    paused = programs(
        """
        import sys
        import pulsar_on_kafka as pulsar
        client = pulsar.Client(sys.argv[1])
        producer = client.create_producer(sys.argv[2], producer_name="p")
        producer.send(b"0")
        print("sent", flush=True)
        sys.stdin.readline()
        try:
            producer.send(b"late")
            print("stored", flush=True)
        except pulsar.ProducerFenced:
            print("refused", flush=True)
        """,
        service_url, topic,
    )  # fmt: skip
    assert paused.stdout is not None
    assert paused.stdin is not None
    assert paused.stdout.readline() == "sent\n"
    os.kill(paused.pid, signal.SIGSTOP)
    producer = until(lambda: _opened(client, topic), "the name to be free")
    assert producer.last_sequence_id() == 0
    producer.send(b"1")
    paused.stdin.write("go\n")
    paused.stdin.flush()
    os.kill(paused.pid, signal.SIGCONT)
    assert paused.stdout.readline() == "refused\n"
    producer.send(b"2")
    assert stored(client, topic) == ["0", "1", "2"]


def _opened(client: pulsar.Client, topic: str) -> pulsar.Producer | None:
    try:
        return client.create_producer(topic, producer_name="p")
    except pulsar.ProducerBusy:
        return None


def test_each_partition_for_itself(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    admin.create_partitioned_topic(topic, 2)
    options: dict[str, Any] = {
        "producer_name": "p",
        "message_routing_mode": pulsar.PartitionsRoutingMode.CustomPartition,
        "message_router": lambda message, _: int(message.properties()["to"]),
    }
    producer = client.create_producer(topic, **options)
    found = [
        (sequence, to, place(producer.send(b"x", {"to": str(to)}, sequence_id=sequence)) != NO_ID)
        for sequence, to in ((4, 0), (4, 0), (3, 1), (3, 1), (3, 0), (4, 1))
    ]
    assert found == [(4, 0, True), (4, 0, False), (3, 1, True), (3, 1, False), (3, 0, False), (4, 1, True)]
    admin.update_partitions(topic, 3)
    until(lambda: _sends_to(producer, 2), "the producer to use the third partition")
    producer.close()
    again = client.create_producer(topic, **options)
    assert again.last_sequence_id() == 4
    assert [place(again.send(b"x", {"to": str(to)}, sequence_id=4)) for to in range(3)] == [NO_ID] * 3


def _sends_to(producer: pulsar.Producer, partition: int) -> bool:
    try:
        producer.send(b"x", {"to": str(partition)}, sequence_id=4)
    except pulsar.UnknownError:
        return False
    return True
