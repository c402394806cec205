"""Acknowledgements are saved: in the group commit, in segments, in checkpoints, and after admin's hand."""

from __future__ import annotations

import contextlib
import random

import pytest
from confluent_kafka import Consumer, TopicPartition

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.groups import membership as group
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.cursors.cursor_state import decode_commit_metadata
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.integration.kafkas_tools import reset_offsets
from tests.steps import EARLIEST, SHARED, Unique, nothing_comes, payloads, receive, receive_rest, send, send_fast
from tests.waiting import until

MANY = 200_000


def full_name(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def commit_of(admin: AdminClient, topic: str, subscription: str) -> CommittedOffset:
    stats = admin.subscription_stats(topic, subscription)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    return admin.node.admin.committed(stats.group, kafka_topic, [0], Deadline.after(20))[0]


def records_of_cursor(bootstrap: str, topic: str) -> list[tuple[CursorSegmentKey, bool]]:
    """(key, is a tombstone) of everything about `topic` in the cursors topic, read with a plain consumer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looking", "enable.auto.commit": False})
    if (
        Instance().state_topic(CURSORS) not in consumer.list_topics(timeout=20).topics
    ):  # it comes into being with the first segment
        consumer.close()
        return []
    where = TopicPartition(Instance().state_topic(CURSORS), CURSORS.partition_for(full_name(topic)))
    _, end = consumer.get_watermark_offsets(where, timeout=20)
    where.offset = 0
    consumer.assign([where])
    found: list[tuple[CursorSegmentKey, bool]] = []
    position = 0
    deadline = Deadline.after(60)
    while position < end:
        deadline.check("the cursors topic to be read")
        for record in consumer.consume(1000, 0.2):
            assert record.error() is None, record.error()
            position = (record.offset() or 0) + 1
            key = decode_key(record.key() or b"")
            if isinstance(key, CursorSegmentKey) and key.topic == full_name(topic):
                found.append((key, record.value() is None))
    consumer.close()
    return found


def live(records: list[tuple[CursorSegmentKey, bool]]) -> set[CursorSegmentKey]:
    newest = dict(records)
    return {key for key, gone in newest.items() if not gone}


def test_individual_acks_survive_close_and_reopen(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 20)
    for message in receive(consumer, 20):
        if int(message.data()) % 3:
            consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(again, 7)) == [str(n) for n in range(0, 20, 3)]
    assert nothing_comes(again)


def test_flush_and_wait_make_acks_durable(service_url: str, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    slow = pulsar.Client(service_url, ack_persist_interval_ms=60_000)
    consumer = slow.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(slow, topic, 4)
    messages = receive(consumer, 4)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    assert admin.subscription_stats(topic, "s").backlog == 4
    consumer.flush()
    assert admin.subscription_stats(topic, "s").backlog == 2
    consumer.acknowledge(messages[1], wait=True)
    stats = admin.subscription_stats(topic, "s").partitions[0]
    assert (stats.mark_delete, stats.backlog, stats.individually_deleted) == (2, 1, 0)
    slow.close()


def test_more_than_one_commit_takes_is_saved_in_several(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refuses commits above 1 MB whole: 300 partitions full of holes make more than that."""
    monkeypatch.setattr(group, "MAX_COMMIT_BYTES", 700)
    topic = unique()
    admin.create_partitioned_topic(topic, 6)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 60)
    for message in receive(consumer, 60):
        if int(message.data()) >= 12:
            consumer.acknowledge(message)
    until(lambda: admin.subscription_stats(topic, "s").backlog == 12, "a save in the background")


def test_few_holes_ride_in_the_commit(
    client: pulsar.Client, bootstrap: str, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 10)
    for message in receive(consumer, 10)[1::2]:
        consumer.acknowledge(message)
    consumer.flush()
    commit = commit_of(admin, topic, "s")
    metadata = decode_commit_metadata(commit.metadata)
    assert commit.kafka_offset == 0
    assert metadata is not None
    assert metadata.holes is not None
    assert list(metadata.holes.acked) == [1, 3, 5, 7, 9]
    assert records_of_cursor(bootstrap, topic) == []


@pytest.mark.long
@pytest.mark.timeout(170)
@pytest.mark.parametrize("entries_per_ledger", [50_000, 500])
def test_holes_beyond_the_metadata_go_to_segments_and_come_back(
    client: pulsar.Client, bootstrap: str, admin: AdminClient, unique: Unique, entries_per_ledger: int
) -> None:
    """40,000 of 200,000 at random do not compress: six times what a commit may say. (50,000 unacknowledged a consumer
    is Pulsar's limit, and ours.)"""
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=entries_per_ledger)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=20_000)
    send_fast(client, topic, MANY)
    rng = random.Random(5)
    kept = {number for number in range(MANY) if rng.random() < 0.2} | {0}
    for count in range(1, MANY + 1):
        message = consumer.receive(20_000)
        if int(message.data()) not in kept:
            consumer.acknowledge(message)
        if count % 50_000 == 0:
            consumer.flush(60_000)
    metadata = decode_commit_metadata(commit_of(admin, topic, "s").metadata)
    assert metadata is not None
    assert metadata.marker_offset is not None
    stats = admin.subscription_stats(topic, "s").partitions[0]
    assert (stats.backlog, stats.saved_in, stats.mark_delete) == (len(kept), "segments", -1)
    consumer.close()

    written = records_of_cursor(bootstrap, topic)
    ledgers = MANY // entries_per_ledger
    assert len([key for key in live(written) if key.segment >= 0]) == ledgers
    assert len([key for key in live(written) if key.segment == -1]) == 1
    assert any(gone for _, gone in written)

    consumer = client.subscribe(topic, "s", SHARED, receiver_queue_size=20_000)
    left = []
    for _ in range(len(kept)):
        message = consumer.receive(20_000)
        left.append(int(message.data()))
        if left[-1] < MANY - 1000:
            consumer.acknowledge(message)
    assert left == sorted(kept)
    assert nothing_comes(consumer)
    consumer.flush(60_000)
    metadata = decode_commit_metadata(commit_of(admin, topic, "s").metadata)
    assert metadata is not None
    assert metadata.marker_offset is None
    consumer.close()
    assert live(records_of_cursor(bootstrap, topic)) == set()
    last = client.subscribe(topic, "s", SHARED)
    assert [int(text) for text in payloads(receive_rest(last))] == [n for n in sorted(kept) if n >= MANY - 1000]
    last.unsubscribe()
    assert live(records_of_cursor(bootstrap, topic)) == set()


@pytest.mark.long
@pytest.mark.timeout(170)
def test_holes_that_are_out_of_memory_count_as_ever(
    service_url: str, admin: AdminClient, unique: Unique, bootstrap: str
) -> None:
    """100,000 entries in 4,000 ledgers take more than the 1 MiB that is allowed."""
    topic, count = unique(), 100_000
    admin.create_topic(topic, entries_per_ledger=25)
    small = pulsar.Client(
        service_url, kafka_config={"client.id": "has little memory"}, cursor_memory_limit_bytes=1 << 20
    )
    with contextlib.closing(small) as client:
        consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=20_000)
        send_fast(client, topic, count)
        held = []
        for number in range(count):
            message = consumer.receive(20_000)
            if number % 3:
                consumer.acknowledge(message)
            else:
                held.append(message.message_id())
        (member,) = client._session.node().memberships.members().values()

        def in_memory() -> int:
            consumer.flush(60_000)
            return member.stats(Deadline.after(20))[0].ledgers_in_memory

        until(lambda: in_memory() < 3_800, "ledgers to leave memory")
        assert member.stats(Deadline.after(20))[0].holes == len(held) - 1  # the last one has nothing above it
        random.Random(3).shuffle(held)
        for message_id in held[1:]:
            consumer.acknowledge(message_id)
        consumer.flush(60_000)
        assert admin.subscription_stats(topic, "s").partitions[0].backlog == 1
        consumer.close()
        again = client.subscribe(topic, "s", SHARED)
        assert [message.message_id() for message in receive(again, 1)] == held[:1]
        assert nothing_comes(again)
        again.acknowledge(held[0])
        again.close()
        assert live(records_of_cursor(bootstrap, topic)) == set()


@pytest.mark.timeout(170)
def test_what_cannot_be_written_to_segments_rides_in_the_commit_as_far_as_it_fits(
    client: pulsar.Client, admin: AdminClient, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, count = unique(), 60_000
    admin.create_topic(topic)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=20_000)
    send_fast(client, topic, count)
    rng = random.Random(5)
    kept = {number for number in range(count) if rng.random() < 0.3} | {0}

    def acknowledge(start: int, end: int) -> None:
        for _ in range(start, end):
            message = consumer.receive(20_000)
            if int(message.data()) not in kept:
                consumer.acknowledge(message)

    acknowledge(0, 30_000)
    consumer.flush(60_000)
    durable = admin.subscription_stats(topic, "s").partitions[0].backlog
    limit_cursors_topic(admin, "1000")
    try:
        acknowledge(30_000, count)
        with pytest.raises(pulsar.PulsarException):
            consumer.flush(60_000)
        consumer.close()
        after = admin.subscription_stats(topic, "s").partitions[0].backlog
        assert len(kept) < after < durable
        assert "cannot be written" in caplog.text
    finally:
        limit_cursors_topic(admin, CURSORS.configs["max.message.bytes"])
    again = client.subscribe(topic, "s", SHARED, receiver_queue_size=20_000)
    left = [int(text) for text in payloads(receive(again, after))]
    assert left == sorted(left)
    assert kept <= set(left)
    assert {number for number in left if number < 30_000} == {number for number in kept if number < 30_000}
    again.close()


def limit_cursors_topic(admin: AdminClient, largest: str) -> None:
    """Set the largest record that the state topic of cursors takes, and wait until the broker goes by it."""
    admin.node.admin.set_topic_configs(
        Instance().state_topic(CURSORS), {"max.message.bytes": largest}, Deadline.after(20)
    )


def test_unsubscribe_leaves_no_segments(
    client: pulsar.Client, bootstrap: str, admin: AdminClient, unique: Unique
) -> None:
    topic = _with_many_holes(client, admin, unique)
    assert live(records_of_cursor(bootstrap, topic)) != set()
    admin.unsubscribe(topic, "s")
    assert live(records_of_cursor(bootstrap, topic)) == set()
    assert admin.list_subscriptions(topic) == []


def test_deleting_a_topic_leaves_no_segments(
    client: pulsar.Client, bootstrap: str, admin: AdminClient, unique: Unique
) -> None:
    topic = _with_many_holes(client, admin, unique)
    assert live(records_of_cursor(bootstrap, topic)) != set()
    admin.delete_topic(topic, force=True)
    assert live(records_of_cursor(bootstrap, topic)) == set()


def test_the_next_life_of_a_topic_cleans_up_after_the_former_one(
    client: pulsar.Client, bootstrap: str, admin: AdminClient, unique: Unique
) -> None:
    """The Kafka topic goes behind our back, and with it the group's offsets; the checkpoint is left."""
    topic = _with_many_holes(client, admin, unique)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    admin.node.admin.delete_topic(kafka_topic, Deadline.after(60))
    until(lambda: admin.node.admin.create_topic(kafka_topic, 1, {}, Deadline.after(60)), "the topic to be made again")
    assert live(records_of_cursor(bootstrap, topic)) != set()
    send(client, topic, 3)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    assert payloads(receive(consumer, 3)) == ["0", "1", "2"]
    until(lambda: not live(records_of_cursor(bootstrap, topic)), "the former life's records to be removed")


def test_a_forgotten_group_is_taken_from_its_checkpoint(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 10)
    for message in receive(consumer, 10)[1::2]:
        consumer.acknowledge(message)
    consumer.close()
    group = admin.subscription_stats(topic, "s").group
    assert admin.node.admin.delete_group(group, Deadline.after(20))
    assert admin.subscription_stats(topic, "s").partitions[0].saved_in == "checkpoint"
    again = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(again, 5)) == ["0", "2", "4", "6", "8"]
    assert nothing_comes(again)


def test_a_forgotten_group_with_segments_is_taken_from_its_checkpoint(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = _with_many_holes(client, admin, unique)
    group = admin.subscription_stats(topic, "s").group
    assert admin.node.admin.delete_group(group, Deadline.after(20))
    again = client.subscribe(topic, "s", SHARED, receiver_queue_size=10_000)
    assert payloads(receive(again, 10)) == [str(n) for n in range(0, 20, 2)]
    assert admin.subscription_stats(topic, "s").backlog == 5000


def test_a_forgotten_group_without_a_checkpoint_starts_where_it_was_created(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    send(client, topic, 3)
    admin.create_subscription(topic, "s")
    send(client, topic, 2, start=3)
    assert payloads(receive(client.subscribe(topic, "s", initial_position=EARLIEST), 2)) == ["3", "4"]


def test_a_topic_made_again_is_another_one(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    ids = send(client, topic, 5)
    for message in receive(consumer, 5):
        consumer.acknowledge(message)
    consumer.close()
    with pytest.raises(pulsar.NotAllowedError, match="s"):
        admin.delete_topic(topic)
    admin.delete_topic(topic, force=True)
    assert full_name(topic) not in admin.list_topics()
    fresh = send(client, topic, 3)
    assert fresh[0].entry_id() == 0
    assert fresh[0].ledger_id() != ids[0].ledger_id()
    assert admin.list_subscriptions(topic) == []
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(consumer, 3)) == ["0", "1", "2"]
    for call in (consumer.acknowledge, consumer.seek, consumer.negative_acknowledge):
        with pytest.raises(pulsar.InvalidMessage):
            call(ids[0])
    consumer.acknowledge(fresh[1])
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 2


def test_a_kafka_topic_made_again_behind_our_back_is_another_one(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    ids = send(client, topic, 5)
    consumer.acknowledge_cumulative(receive(consumer, 5)[3])
    consumer.close()
    kafka_topic = admin.topic_stats(topic).kafka_topic
    admin.node.admin.delete_topic(kafka_topic, Deadline.after(20))
    while not admin.node.admin.create_topic(kafka_topic, 1, {}, Deadline.after(20)):
        pass
    fresh = send(client, topic, 2)
    assert fresh[0].ledger_id() != ids[0].ledger_id()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(consumer, 2)) == ["0", "1"]


def test_a_reset_with_kafkas_tools_is_a_seek(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 10)
    for message in receive(consumer, 10):
        if int(message.data()) != 2:
            consumer.acknowledge(message)
    consumer.close()
    stats = admin.topic_stats(topic)
    group = admin.subscription_stats(topic, "s").group
    reset_offsets(admin.node.settings.bootstrap, group, stats.kafka_topic, {0: CommittedOffset(6, "")})
    again = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(again, 4)) == ["6", "7", "8", "9"]
    assert nothing_comes(again)


def test_admin_reset_skip_clear(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    ids = send(client, topic, 10)
    for message in receive(consumer, 10):
        if int(message.data()) in (1, 3):
            consumer.acknowledge(message)
    consumer.close()
    assert admin.skip(topic, "s", 3) == 3  # 0, 2 and 4: what is acknowledged does not count
    consumer = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(consumer, 5)) == ["5", "6", "7", "8", "9"]
    consumer.close()
    admin.clear_backlog(topic, "s")
    assert admin.subscription_stats(topic, "s").backlog == 0
    admin.reset_cursor(topic, "s", message_id=ids[4])
    left = payloads(receive_rest(client.subscribe(topic, "s", SHARED)))
    assert left in (["4", "5", "6", "7", "8", "9"], ["5", "6", "7", "8", "9"])


def test_admin_unsubscribe(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    send(client, topic, 2)
    consumer.acknowledge(receive(consumer, 2)[0])
    with pytest.raises(pulsar.ConsumerBusy):
        admin.unsubscribe(topic, "s")
    consumer.close()
    admin.unsubscribe(topic, "s")
    with pytest.raises(pulsar.SubscriptionNotFound, match="s"):
        admin.unsubscribe(topic, "s")
    again = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(again, 2)) == ["0", "1"]


def test_a_partition_added_later_is_read_from_its_beginning(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 1)
    client.subscribe(topic, "s").close()
    admin.update_partitions(topic, 3)
    send(client, topic, 6)
    consumer = client.subscribe(topic, "s")
    assert sorted(payloads(receive(consumer, 6))) == [str(n) for n in range(6)]


def test_below_the_log_start_goes_on_at_the_log_start(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    client.subscribe(topic, "s", initial_position=EARLIEST).close()
    send(client, topic, 10)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    admin.node.admin.delete_records(kafka_topic, {0: 6}, Deadline.after(20))
    consumer = client.subscribe(topic, "s")
    assert payloads(receive(consumer, 4)) == ["6", "7", "8", "9"]
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 4


def test_what_kafka_deletes_under_a_running_consumer_is_passed_over(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    send(client, topic, 3)
    receive(consumer, 3)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    admin.node.admin.delete_records(kafka_topic, {0: 3}, Deadline.after(20))
    consumer.redeliver_unacknowledged_messages()
    send(client, topic, 2, start=3)
    assert payloads(receive(consumer, 2)) == ["3", "4"]
    shared = client.subscribe(topic, "shared", SHARED, initial_position=EARLIEST)
    receive(shared, 2)
    admin.node.admin.delete_records(kafka_topic, {0: 4}, Deadline.after(20))
    shared.redeliver_unacknowledged_messages()
    assert payloads(receive_rest(shared, least=1)) == ["4"]


def _with_many_holes(client: pulsar.Client, admin: AdminClient, unique: Unique) -> str:
    """A topic of 10,000 messages in ledgers of two; every second one is acknowledged on `s`, nobody is connected."""
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=2)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=10_000)
    send_fast(client, topic, 10_000)
    for message in receive(consumer, 10_000)[1::2]:
        consumer.acknowledge(message)
    consumer.close()
    return topic
