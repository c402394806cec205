"""Terminated topics on a real broker: producers end in every process, and what is there is received to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.client.test_void_records import a_paused_producer_writes
from tests.programs import a_program
from tests.steps import EARLIEST, SHARED, Process, Unique, nothing_comes, payloads, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka

_SENDS_UNTIL_IT_IS_TERMINATED = """
    client = pulsar.Client(sys.argv[1])
    producer = client.create_producer(sys.argv[2])
    sent = 0
    try:
        while True:
            producer.send(str(sent).encode())
            sent += 1
            if sent == 1:
                print("begun", flush=True)
    except pulsar.TopicTerminated:
        print(sent, flush=True)
"""


def test_a_producer_of_another_process_is_fenced_and_its_receipts_count(
    service_url: str, client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    with a_program(_SENDS_UNTIL_IT_IS_TERMINATED, service_url, topic) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        last = admin.terminate_topic(topic)
        sent = int(program.stdout.readline())
    found = receive(consumer, sent)
    assert payloads(found) == [str(number) for number in range(sent)]
    assert found[-1].message_id() == last[0]
    assert nothing_comes(consumer)


def test_what_is_sent_afterwards_is_refused_here_and_in_other_processes(
    client: pulsar.Client, admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    here, elsewhere = client.create_producer(topic), process().create_producer(topic, producer_name="named")
    first = [here.send(b"a"), elsewhere.send(b"b")]
    last = admin.terminate_topic(topic)
    assert set(last) == {0, 1}
    assert all(last[each.partition()] >= each for each in first)
    for producer in (here, elsewhere):
        with pytest.raises(pulsar.TopicTerminated):
            producer.send(b"late")
        producer.close()
    for mode in (pulsar.ProducerAccessMode.Shared, pulsar.ProducerAccessMode.ExclusiveWithFencing):
        with pytest.raises(pulsar.TopicTerminated):
            process().create_producer(topic, access_mode=mode)
    with pytest.raises(pulsar.TopicTerminated):
        admin.update_partitions(topic, 3)
    assert admin.terminate_topic(topic) == last


def test_readers_and_new_subscriptions_come_to_the_end(
    client: pulsar.Client, admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic = unique()
    ids = send(client, topic, 3)
    open_reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert admin.terminate_topic(topic)[0] == ids[-1]
    for reader in (open_reader, process().create_reader(topic, pulsar.MessageId.earliest)):
        read = []
        while reader.has_message_available():
            read.append(reader.read_next(60_000).data())
        assert read == [b"0", b"1", b"2"]
    consumer = process().subscribe(topic, "new", initial_position=EARLIEST)
    for message in receive(consumer, 3):
        consumer.acknowledge(message)
    assert nothing_comes(consumer)
    until(lambda: admin.topic_stats(topic).subscriptions["new"] == 0, "the backlog to be empty")
    consumer.seek(ids[0])
    assert payloads(receive(consumer, 2)) == ["1", "2"]
    admin.compact(topic)


def test_a_late_record_of_a_fenced_producer_is_void(
    service_url: str, client: pulsar.Client, admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    (first,) = send(client, topic, 1)
    assert admin.terminate_topic(topic) == {0: first}
    a_paused_producer_writes(service_url, topic, b"late", epoch=0)
    assert payloads(receive(consumer, 1)) == ["0"]
    assert nothing_comes(consumer)
    late = process()
    reader = late.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(60_000).data() == b"0"
    assert not reader.has_message_available()
    assert payloads(receive(late.subscribe(topic, "t", initial_position=EARLIEST), 1)) == ["0"]


@pytest.fixture
def transactional(service_url: str) -> Iterator[pulsar.Client]:
    with closing(pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)) as made:
        yield made


def test_a_transaction_that_is_open_commits_after_the_end(
    transactional: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = transactional.subscribe(topic, "s", initial_position=EARLIEST)
    txn = transactional.new_transaction(60_000)
    producer = transactional.create_producer(topic)
    producer.send(b"in it", txn=txn)
    admin.terminate_topic(topic)
    txn.commit()
    assert payloads(receive(consumer, 1)) == ["in it"]
    assert nothing_comes(consumer)


def test_an_empty_topic_and_a_topic_that_is_made_anew(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic)
    assert admin.terminate_topic(topic)[0].entry_id() == -1
    admin.delete_topic(topic)
    send(client, topic, 1)
    with pytest.raises(pulsar.TopicNotFound):
        admin.terminate_topic(unique())
    client.create_producer(f"non-persistent://public/default/{topic}")
    with pytest.raises(pulsar.NotAllowedError, match="not persistent"):
        admin.terminate_topic(f"non-persistent://public/default/{topic}")
