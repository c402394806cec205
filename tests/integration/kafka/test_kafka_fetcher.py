"""The fetcher on a real broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NoSuchTopic
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.fetcher import READ_THROUGH, Fetcher
from pulsar_on_kafka.kafka.reading.sequential_reader import AscendingReader
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.steps import Unique, send, send_fast
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_a_partition_that_is_made_while_it_is_asked_for_is_found(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    send(client, topic, 3)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    fetcher = Fetcher(KafkaSettings(bootstrap).reader(fetch_queue_kbytes=1024))

    def end_of(partition: int) -> int | None:
        try:
            return fetcher.log_end(kafka_topic, partition, Deadline.after(5))
        except LayerError:
            return None

    try:
        batches = fetcher.read(kafka_topic, 0, 0, 3, Deadline.after(20))
        assert end_of(0) == 3
        assert end_of(1) is None
        admin.node.admin.grow_topic(kafka_topic, 2, Deadline.after(20))
        until(
            lambda: end_of(1) == 0, "the new partition to be seen", 15
        )  # librdkafka by itself looks every 30 s or later
        assert [record.offset() for batch in batches for record in batch] == [0, 1, 2]
    finally:
        fetcher.close()


def test_a_partition_that_was_made_a_moment_ago_is_known(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 1)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    fetcher = Fetcher(KafkaSettings(bootstrap).reader(fetch_queue_kbytes=1024))
    try:
        assert fetcher.watermarks(kafka_topic, 0, Deadline.after(20)) == (0, 0)
        for partitions, ask in ((2, fetcher.log_end), (5, fetcher.log_start), (9, fetcher.log_end)):
            admin.node.admin.grow_topic(kafka_topic, partitions, Deadline.after(20))
            assert ask(kafka_topic, partitions - 1, Deadline.after(20)) == 0
    finally:
        fetcher.close()


def test_either_end_of_a_log_is_told_alone(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic, soon = unique(), Deadline.after(20)
    send(client, topic, 3)
    where = admin.topic_stats(topic).kafka_topic, 0
    admin.node.admin.delete_records(where[0], {0: 2}, soon)
    fetcher = Fetcher(KafkaSettings(bootstrap).reader(fetch_queue_kbytes=1024))
    try:
        assert (fetcher.log_start(*where, soon), fetcher.log_end(*where, soon)) == fetcher.watermarks(*where, soon)
        assert fetcher.watermarks(*where, soon) == (2, 3)
        for ask in fetcher.log_start, fetcher.log_end:
            with pytest.raises(NoSuchTopic):
                ask(where[0], 1, Deadline.after(3))
    finally:
        fetcher.close()


def test_every_thread_reads_all_of_its_range(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    """Of some partitions, which all fetch with one handle; each works on some of its batches for a while."""
    topic, count = unique(), 4000
    admin.create_partitioned_topic(topic, 3)
    for partition in range(3):
        send_fast(client, f"{topic}-partition-{partition}", count)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    fetcher = Fetcher(KafkaSettings(bootstrap).reader(fetch_queue_kbytes=1024))

    def read(partition: int, start: int, end: int) -> list[int]:
        found: list[int] = []
        for batch in fetcher.read(kafka_topic, partition, start, end, Deadline.after(60)):
            found += [record.offset() for record in batch]
            assert fetcher.log_end(kafka_topic, (partition + 1) % 3, Deadline.after(60)) == count
        return found

    def play(number: int) -> None:
        choose = Random(number)
        for _ in range(10):
            partition, start = choose.randrange(3), choose.randrange(count)
            end = choose.randrange(start, count) + 1
            assert read(partition, start, end) == list(range(start, end))

    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(play, range(8)))
    finally:
        fetcher.close()


def test_offsets_that_mostly_ascend(client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique) -> None:
    """Also some behind what was read, of two partitions in turn, and of records that come later."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    for partition in range(2):
        send_fast(client, f"{topic}-partition-{partition}", READ_THROUGH + 500)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    settings = KafkaSettings(bootstrap)
    ahead = settings.tail(client_id="test", fetch_queue_kbytes=1024)
    reader = AscendingReader(
        AssignedReader(ahead, "test"), Fetcher(settings.reader(fetch_queue_kbytes=1024)), kafka_topic
    )

    def read(partition: int, *offsets: int) -> list[int]:
        batches = reader.read_at(kafka_topic, partition, offsets, Deadline.after(20))
        found = [record for batch in batches for record in batch]
        assert all(record.partition() == partition for record in found)
        return [record.offset() for record in found]

    end = READ_THROUGH + 500
    try:
        for offsets in ((3, 4, 7), (5, 20), (0, 21, READ_THROUGH + 100), (1, end - 1)):
            for partition in range(2):
                assert read(partition, *offsets) == list(offsets)
        assert read(0) == []
        send(client, f"{topic}-partition-0", 2)
        assert read(0, end, end + 1) == [end, end + 1]
        reader.leave(0)
        assert read(0, 2, end + 1) == [2, end + 1]
        assert read(1, 2, end - 1) == [2, end - 1]
    finally:
        reader.close()
