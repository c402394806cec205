"""Readers: where they begin, what they see, and that they know exactly whether there is more."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint
from pulsar_on_kafka.metrics import MetricsCollector
from tests.steps import PATIENCE_MS, Unique, send
from tests.waiting import never, until

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest


def read_all(reader: pulsar.Reader) -> list[str]:
    """Everything there is, by `has_message_available` alone: no time-out decides."""
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(PATIENCE_MS).data().decode())
    return found


def test_ids_made_by_hand(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    third = send(client, topic, 5)[2]
    for made, expected in (
        (pulsar.MessageId(-1, third.ledger_id(), third.entry_id(), -1), "34"),
        (pulsar.MessageId.deserialize(third.serialize()), "34"),
        (pulsar.MessageId(-1, third.ledger_id(), -1, -1), "01234"),
        (pulsar.MessageId(-1, third.ledger_id(), 1000, -1), ""),
        (pulsar.MessageId(-1, third.ledger_id() + 1000, 0, -1), ""),
        # The first ledger of the cluster's first topic has the id 0.
        (pulsar.MessageId(-1, 0, 0, -1), "01234" if third.ledger_id() else "1234"),
    ):
        assert "".join(read_all(client.create_reader(topic, made))) == expected, str(made)


def test_seek_by_id_and_by_time(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    ids = send(client, topic, 5)
    reader = client.create_reader(topic, LATEST)
    for target, expected in (
        (EARLIEST, "01234"), (LATEST, ""), (ids[2], "34"), (0, "01234"), (int(time.time() * 1000) + 60_000, ""),
        (pulsar.MessageId.wrap(ids[1]), "234"),
    ):  # fmt: skip
        reader.seek(target)
        assert "".join(read_all(reader)) == expected
    inclusive = client.create_reader(topic, LATEST, start_message_id_inclusive=True)
    inclusive.seek(ids[3])
    assert read_all(inclusive) == ["3", "4"]
    inclusive.seek(LATEST)
    assert read_all(inclusive) == ["4"]


def test_nothing_from_before_a_seek_comes_after_it(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    ids = send(client, topic, 500)
    reader = client.create_reader(topic, EARLIEST, receiver_queue_size=7)
    for at in (400, 100, 250, 0):
        assert reader.has_message_available()
        reader.seek(ids[at])
        assert [reader.read_next(PATIENCE_MS).data().decode() for _ in range(20)] == [
            str(number) for number in range(at + 1, at + 21)
        ]


def test_a_partitioned_topic_is_read_whole_or_by_partition(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    ids = send(client, topic, 9)
    whole = client.create_reader(topic, EARLIEST)
    assert sorted(read_all(whole)) == sorted(str(number) for number in range(9))
    assert len(read_all(client.create_reader(topic, LATEST, start_message_id_inclusive=True))) == 3
    one = client.create_reader(f"{topic}-partition-1", EARLIEST)
    assert one.topic().endswith(f"{topic}-partition-1")
    assert read_all(one) == [str(number) for number in range(9) if ids[number].partition() == 1]
    whole.seek(0)
    assert len(read_all(whole)) == 9


def test_a_message_on_its_way_to_the_inbox_is_available(
    client: pulsar.Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Endpoint.deliver
    under_way = threading.Event()

    def slow(endpoint: Endpoint, deliveries: Sequence[Delivery]) -> None:
        under_way.set()
        never(lambda: endpoint.queue, "a message beside those on their way")  # time for the thread that asks
        deliver(endpoint, deliveries)

    topic = unique()
    send(client, topic, 1)
    monkeypatch.setattr(Endpoint, "deliver", slow)
    reader = client.create_reader(topic, EARLIEST)
    assert under_way.wait(PATIENCE_MS / 1000)
    assert read_all(reader) == ["0"]


def test_a_waiting_read_ends_with_close(client: pulsar.Client, unique: Unique) -> None:
    reader = client.create_reader(unique(), EARLIEST)
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            reader.read_next()
        except pulsar.exceptions.PulsarException as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: reader._inbox._waiting, "the read to wait")
    reader.close()
    waiting.join(60)
    assert isinstance(outcome[0], pulsar.exceptions.AlreadyClosed)


@pytest.mark.parametrize("queue", [0, 1, 1000])
def test_queue_sizes(client: pulsar.Client, unique: Unique, queue: int) -> None:
    topic = unique()
    send(client, topic, 50)
    reader = client.create_reader(topic, EARLIEST, receiver_queue_size=queue)
    assert read_all(reader) == [str(number) for number in range(50)]


def test_compacted_reading_folds_up_to_the_last_compaction(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    for key, value in (("a", b"1"), ("b", b"1"), ("a", b"2"), (None, b"no key"), ("c", b"1")):
        producer.send(value, partition_key=key)
    everything = ["1", "1", "2", "no key", "1"]
    assert read_all(client.create_reader(topic, EARLIEST, is_read_compacted=True)) == everything
    admin.compact(topic)
    producer.send(b"3", partition_key="a")
    producer.send(b"no key")
    folded = client.create_reader(topic, EARLIEST, is_read_compacted=True)
    assert read_all(folded) == ["1", "2", "1", "3", "no key"]
    folded.seek(EARLIEST)
    assert read_all(folded) == ["1", "2", "1", "3", "no key"]
    assert read_all(client.create_reader(topic, EARLIEST)) == [*everything, "3", "no key"]


def test_an_empty_message_removes_its_key_as_in_pulsar_5_if_the_policy_says_so(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    for key, value in (("a", b"1"), ("b", b"1"), ("a", b"")):
        producer.send(value, partition_key=key)
    admin.compact(topic)
    assert read_all(client.create_reader(topic, EARLIEST, is_read_compacted=True)) == ["1", ""]
    admin.set_policy(topic, "compaction_empty_payloads", "5")
    assert read_all(client.create_reader(topic, EARLIEST, is_read_compacted=True)) == ["1"]


def test_latest_inclusive_is_the_last_message_also_of_a_batch(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(5):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    reader = client.create_reader(topic, LATEST, start_message_id_inclusive=True)
    assert read_all(reader) == ["4"]
    reader.seek(EARLIEST)
    assert read_all(reader) == ["0", "1", "2", "3", "4"]
    reader.seek(LATEST)
    assert read_all(reader) == ["4"]


def test_a_reader_of_a_deleted_topic_ends_with_what_it_has_read(service_url: str, unique: Unique) -> None:
    soon = {"topic.metadata.refresh.interval.ms": "500", "topic.metadata.propagation.max.ms": "1000"}
    client = pulsar.Client(service_url, kafka_config=soon)
    topic = unique()
    reader = client.create_reader(topic, EARLIEST)
    send(client, topic, 1)
    until(reader.has_message_available, "the message")
    with AdminClient(service_url) as admin:
        admin.delete_topic(topic, force=True)
    until(lambda: not reader.is_connected(), "the reader to notice")
    assert reader.read_next(PATIENCE_MS).data() == b"0"
    with pytest.raises(pulsar.TopicNotFound):
        reader.read_next(PATIENCE_MS)
    found = {
        sample.name: sample.value
        for family in MetricsCollector().collect()
        for sample in family.samples
        if sample.labels.get("topic") == f"persistent://public/default/{topic}"
    }
    assert (found["pok_readers"], found["pok_stopped_readers"]) == (1, 1)
    assert "pok_reader_behind_entries" not in found
    client.close()
