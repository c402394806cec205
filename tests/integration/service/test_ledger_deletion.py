"""Retention and deletion of ledgers on a real broker: what goes, what stays, and what is never believed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import (
    DEAD_LETTERS,
    EVENTS,
    RETRIES,
    PendingDeleteLedger,
    deletion_group,
    event_schema,
)
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import LedgerPlace
from pulsar_on_kafka.broker.metadata.topics import DATA_TOPIC_CONFIGS
from pulsar_on_kafka.service.running import LedgerDeletion
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS
from tests.clocks import WRONG_CLOCKS
from tests.integration.command_line import CommandLine
from tests.steps import EARLIEST, Unique
from tests.waiting import until
from tests.watched_rounds import WatchedMaintenance

pytestmark = pytest.mark.kafka

SIZE = 10
PATIENCE_S = 60.0
HOUR_MS = 3_600_000


class Deleting:
    """A process that keeps lists and deletes, and what a test asks of it."""

    def __init__(self, client: pulsar.Client, admin: AdminClient) -> None:
        self._admin = admin
        self.deletion = LedgerDeletion(client, admin.node, visible_after_s=0.1, retry_s=0.2)
        self.worker = self.deletion.work()
        self.maintenance = WatchedMaintenance(
            admin.node,
            every_s=0.3,
            retirement=self.deletion.retirement,
            open_trimming=self.deletion.open_trimming,
            topic_deletion=self.deletion.topics,
        )

    def starts_at(self, topic: str, *offsets: int) -> None:
        """Wait until the partitions' logs start there."""
        until(
            lambda: self.starts(topic) == list(offsets),
            lambda: f"{topic} at {offsets}, not {self.starts(topic)}: {self.counts()}, {self._admin.list_deletions()}",
        )

    def starts(self, topic: str) -> list[int]:
        return list(self._admin.topic_stats(topic).start_offsets.values())

    def counts(self) -> dict[str, int]:
        return self.worker.counts()

    def rounds(self, number: int = 2) -> None:
        for _ in range(number):
            assert self.maintenance.wait_for_round(Deadline.after(PATIENCE_S))

    def close(self) -> None:
        self.maintenance.close(Deadline.after(PATIENCE_S))
        self.deletion.close(Deadline.after(PATIENCE_S))


@pytest.fixture
def deleting(client: pulsar.Client, admin: AdminClient) -> Iterator[Deleting]:
    made = Deleting(client, admin)
    yield made
    made.close()


def _send(client: pulsar.Client, topic: str, count: int, txn: pulsar.Transaction | None = None) -> None:
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send_async(str(number).encode(), None, txn=txn)
    producer.flush()
    producer.close()


def _topic(client: pulsar.Client, admin: AdminClient, name: str, entries: int, *subscriptions: str) -> str:
    admin.create_topic(name, entries_per_ledger=SIZE)
    for subscription in subscriptions:
        admin.create_subscription(name, subscription, from_earliest=True)
    _send(client, name, entries)
    return name


@pytest.mark.long
def test_what_is_old_goes_from_the_ledger_that_is_written_to(
    client: pulsar.Client, admin: AdminClient, deleting: Deleting, bootstrap: str, unique: Unique
) -> None:
    """A quiet topic keeps what was acknowledged no longer than Pulsar, whatever a ledger's range of offsets is."""
    quiet, kept, busy = unique("quiet"), unique("kept"), unique("busy")
    raw = Producer({"bootstrap.servers": bootstrap})
    for topic in (quiet, kept):
        admin.create_topic(topic)
        admin.create_subscription(topic, "s", from_earliest=True)
        for number in range(20):
            old_ms = int(1000 * time.time()) - 5 * HOUR_MS
            raw.produce(kafka_topic(TopicName.parse(topic)), b"%d" % number, partition=0, timestamp=old_ms)
        assert raw.flush(PATIENCE_S) == 0
        _send(client, topic, 3)
    admin.set_policy(kept, "retention_time_in_minutes", 600)
    _send(client, busy, 25)
    admin.create_subscription(busy, "s", from_earliest=True)
    admin.set_policy(busy, "managed_ledger_max_entries_per_ledger", 10)
    admin.set_policy(quiet, "managed_ledger_max_ledger_rollover_time_minutes", 3)
    admin.clear_backlog(kept, "s")
    admin.skip(quiet, "s", 15)

    deleting.starts_at(quiet, 15)
    admin.clear_backlog(quiet, "s")
    deleting.starts_at(quiet, 20)  # the rest would lie in a ledger that is open
    assert [one.entries for one in admin.list_ledgers(quiet)] == [3]
    admin.skip(busy, "s", 23)
    deleting.starts_at(busy, 20)
    late = client.subscribe(busy, "late", initial_position=EARLIEST)
    assert [message.message_id().entry_id() for message in (late.receive(30_000), late.receive(30_000))] == [20, 21]
    deleting.rounds()
    assert deleting.starts(kept) == [0]


@pytest.mark.long
def test_a_topic_of_which_all_went_goes_on(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    """A list that is written while messages come is looked at again a quarter of an hour later: so they come before."""
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    admin.set_policy(topic, "managed_ledger_max_entries_per_ledger", 1)
    _send(client, topic, 5)
    for _ in range(5):
        last = consumer.receive(30_000)
        consumer.acknowledge(last)
    with closing(Deleting(client, admin)) as deleting:
        deleting.starts_at(topic, 5)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert not reader.has_message_available()
        assert admin.subscription_stats(topic, "s").backlog == 0
        _send(client, topic, 1)
        assert reader.read_next(30_000).message_id().entry_id() == 5
        assert consumer.receive(30_000).message_id().entry_id() == 5
        assert client.subscribe(topic, "late", initial_position=EARLIEST).receive(30_000).message_id().entry_id() == 5


def test_what_every_subscription_acknowledged_goes_and_what_anybody_needs_stays(
    client: pulsar.Client, admin: AdminClient, deleting: Deleting, service_url: str, unique: Unique
) -> None:
    acknowledged = _topic(client, admin, unique("acknowledged"), 45, "fast", "slow")
    unread = _topic(client, admin, unique("unread"), 25)
    kept = _topic(client, admin, unique("kept"), 45, "s")
    admin.set_policy(kept, "retention_time_in_minutes", 60)
    small = _topic(client, admin, unique("small"), 45, "s")
    CommandLine(service_url, "topics")("policy", "set", small, "retention_size_in_mb", "1")
    compacted = _topic(client, admin, unique("compacted"), 45, "s")
    admin.compact(compacted)
    holed = _topic(client, admin, unique("open-transaction"), 15, "s")
    with_transactions = pulsar.Client(service_url, enable_transaction=True)
    txn = with_transactions.new_transaction(600_000)
    producer = with_transactions.create_producer(holed)
    producer.send(b"open", txn=txn)
    for _ in range(24):
        producer.send(b"plain")
    for topic in (kept, small, compacted, holed):
        admin.clear_backlog(topic, "s")
    admin.clear_backlog(acknowledged, "fast")
    admin.skip(acknowledged, "slow", 27)

    deleting.starts_at(acknowledged, 20)
    deleting.starts_at(unread, 20)  # no subscription, no retention: nobody wants it
    deleting.starts_at(holed, 10)  # the transaction's first message is the one at 15
    late = client.subscribe(acknowledged, "late", initial_position=EARLIEST)
    assert late.receive(30_000).message_id().entry_id() == 0
    assert unpack_ledger_id(admin.list_ledgers(acknowledged)[0].ledger_id).ledger_index == 2

    txn.commit()
    with_transactions.close()
    admin.clear_backlog(holed, "s")
    deleting.starts_at(holed, 40)
    deleting.rounds()
    assert [deleting.starts(topic) for topic in (kept, small, compacted)] == [[0]] * 3
    until(lambda: admin.list_deletions().count == 0, lambda: f"no deletion to be left: {admin.list_deletions()}")
    refused = CommandLine(service_url, "topics").refused("policy", "set", small, "retention_time_in_minutes", "0")
    assert "remove retention_size_in_mb first" in refused


@WRONG_CLOCKS
@pytest.mark.long
def test_retention_by_time_counts_the_age_of_messages_and_kafka_keeps_what_is_bound(
    bootstrap: str, client: pulsar.Client, admin: AdminClient, deleting: Deleting, unique: Unique
) -> None:
    namespace = f"kept/{unique()}"
    admin.create_namespace(namespace)
    admin.set_policy(namespace, "retention_time_in_minutes", 30)
    topic, bound = f"persistent://{namespace}/aged", f"persistent://{namespace}/bound"
    admin.create_partitioned_topic(topic, 2, entries_per_ledger=SIZE)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    configs = admin.node.admin.topic_configs(kafka_topic, Deadline.after(PATIENCE_S))
    assert {name: configs[name] for name in DATA_TOPIC_CONFIGS} == DATA_TOPIC_CONFIGS
    outside = unique("outside")
    admin.node.admin.create_topic(outside, 1, {}, Deadline.after(PATIENCE_S))
    admin.bind_topic(bound, outside)
    admin.set_policy(bound, "retention_time_in_minutes", 0)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for number in range(45):
        producer.produce(kafka_topic, b"x", partition=0, timestamp=now_ms - (2 * HOUR_MS if number < 23 else 0))
        producer.produce(kafka_topic, b"x", partition=1, timestamp=now_ms)
    for _ in range(50_001):
        producer.produce(outside, b"x")
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    deleting.starts_at(topic, 20, 0)
    admin.set_policy(topic, "retention_time_in_minutes", 0)
    deleting.starts_at(topic, 40, 40)
    deleting.rounds()
    assert deleting.starts(bound) == [0]
    # What somebody deletes with Kafka's tools a cursor passes over.
    admin.create_subscription(bound, "s", from_earliest=True)
    admin.node.admin.delete_records(outside, {0: 49_990}, Deadline.after(PATIENCE_S))
    consumer = client.subscribe(bound, "s")
    assert consumer.receive(30_000).message_id().entry_id() == 49_990


@pytest.mark.long
def test_forged_events_delete_nothing_and_lie_among_the_dead_letters(
    client: pulsar.Client, admin: AdminClient, deleting: Deleting, service_url: str, unique: Unique
) -> None:
    topic = _topic(client, admin, unique("wanted"), 35, "s")
    other = _topic(client, admin, unique("other"), 35, "s")
    gone = _topic(client, admin, unique("gone"), 35, "s")
    old = admin.list_ledgers(gone)[0].ledger_id
    for _ in range(2):  # what was asked for in the life before the present one is done
        admin.delete_topic(gone, force=True)
        _topic(client, admin, gone, 35, "s")
    for name in (topic, other, gone):
        admin.set_policy(name, "retention_time_in_minutes", -1)
        admin.set_policy(name, "retention_size_in_mb", -1)
        admin.clear_backlog(name, "s")  # last: what is acknowledged and not retained yet, a round may ask to delete
    assert deleting.maintenance.wait_for_round(Deadline.after(PATIENCE_S))
    # Those of the first life of `gone`, if there was time to ask for any, lie among the dead letters then.
    until(lambda: admin.list_deletions().count == 0, lambda: f"no deletion to be left: {admin.list_deletions()}")
    full = [f"persistent://public/default/{name}" for name in (topic, other, gone)]
    live = admin.list_ledgers(topic)[0].ledger_id
    forged = {
        "another topic's": (full[1], 0, live),
        "live": (full[0], 0, live),
        "future": (full[0], 0, admin.list_ledgers(topic)[-1].ledger_id + 5),
        "open": (full[0], 0, admin.list_ledgers(topic)[-1].ledger_id),
        "another partition's": (full[0], 3, live),
        "of an old incarnation": (full[2], 0, old),
        "of no topic": (f"{full[0]}-never", 0, live),
        "negative": (full[0], -1, -1),
        "no name": ("persistent://a", 0, live),
        "a partition's name": (f"{full[0]}-partition-0", 0, live),
    }
    before, dead_before = deleting.counts(), admin.dead_deletions(0).count
    asked = client.create_producer(EVENTS, schema=event_schema())
    for name, partition, ledger_id in forged.values():
        asked.send(PendingDeleteLedger(topic=name, partition=partition, ledger_id=ledger_id))
    garbage = client.create_producer(EVENTS)
    for payload in (b"", b"garbage", b"\xff" * 40):
        garbage.send(payload)

    dead = len(forged) + 3

    def dead_letters() -> int:
        return admin.dead_deletions(0).count - dead_before

    until(lambda: dead_letters() == dead, lambda: f"the dead letters: {admin.dead_deletions()}")
    counts = deleting.counts()
    assert counts["REFUSE"] - before["REFUSE"] == dead - 1
    assert counts["WAIT"] - before["WAIT"] == 11, "the live one is tried ten times more"
    assert counts["DELETE"] == before["DELETE"]
    assert [deleting.starts(name) for name in (topic, other, gone)] == [[0]] * 3
    until(lambda: admin.list_deletions().count == 0, lambda: f"no deletion to be left: {admin.list_deletions()}")

    pok = CommandLine(service_url, "ledgers")
    listed = pok.json("deletions", "dlq", "--limit", "1000")["first"]
    reasons = {each["ledger_id"]: each["reason"] for each in listed}
    assert "is not closed" in reasons[forged["future"][2]]
    assert "is of life" in reasons[old]
    for name in (topic, other, gone):
        admin.remove_policy(name, "retention_time_in_minutes")
        admin.remove_policy(name, "retention_size_in_mb")
    deleting.starts_at(topic, 30)
    replayed = pok.json("deletions", "replay", "--yes")["replayed"]
    assert replayed == dead_before + dead
    # The live ledger was deleted meanwhile, so that event is done; the others come back.
    until(
        lambda: admin.dead_deletions(0).count == replayed - 1,
        lambda: f"{replayed}: {deleting.counts()}, {admin.dead_deletions()}, {admin.list_deletions()}",
    )
    assert "requested" in pok("deletions", "list").stdout
    for name in (EVENTS, RETRIES, DEAD_LETTERS):
        assert len(admin.list_partitions(name)) == 4


@pytest.mark.long
def test_what_is_off_its_list_is_not_deleted_while_somebody_needs_it(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    """A seek back, and a copy to another cluster, between the two phases; the worker trusts its own list."""
    copied, sought = (_topic(client, admin, unique(name), 45, "s", "pulsar.repl.eu") for name in ("copied", "sought"))
    deletion = LedgerDeletion(client, admin.node, visible_after_s=0.1, retry_s=0.2)
    maintenance = WatchedMaintenance(admin.node, every_s=0.3, retirement=deletion.retirement)

    def first_listed(topic: str) -> int:
        """Without what is DELETING."""
        view = LogView(admin.node.log, LEDGERS, LEDGERS.partition_for(full[topic]),
                       lambda: LedgerLists(LEDGERS.partition_for(full[topic])), admin.node.clock)  # fmt: skip
        life = admin.node.topics.last_life(TopicName.parse(topic), Deadline.after(PATIENCE_S))
        assert life is not None
        place = LedgerPlace(full[topic], life.incarnation, 0)
        listed = view.query(lambda lists: lists.ledgers(place), Deadline.after(PATIENCE_S))
        return listed[0].first if listed else 0

    full = {topic: f"persistent://public/default/{topic}" for topic in (copied, sought)}
    try:
        for topic in (copied, sought):
            admin.clear_backlog(topic, "s")
            admin.skip(topic, "pulsar.repl.eu", 25)
        until(
            lambda: [first_listed(topic) for topic in (copied, sought)] == [20, 20],
            "the first ledgers to be unlisted",
        )
        admin.reset_cursor(sought, "s", timestamp_ms=1)
        worker = deletion.work()
        until(lambda: worker.counts()["WAIT"] >= 2, lambda: f"two deletions to wait: {worker.counts()}")
        assert list(admin.topic_stats(sought).start_offsets.values()) == [0]
        consumer = client.subscribe(sought, "s")
        assert [int(consumer.receive(30_000).data()) for _ in range(45)] == list(range(45))
        consumer.close()
        until(lambda: admin.topic_stats(copied).start_offsets[0] == 20, "what is copied to be deleted")
        admin.clear_backlog(sought, "s")
        until(lambda: admin.topic_stats(sought).start_offsets[0] == 20, "what is sought to be deleted")
        for topic in (copied, sought):
            admin.clear_backlog(topic, "pulsar.repl.eu")
        until(
            lambda: [admin.topic_stats(topic).start_offsets[0] for topic in (copied, sought)] == [40, 40],
            "both topics to lose their second ledgers",
        )
        until(lambda: admin.list_deletions().count == 0, lambda: f"no deletion to be left: {admin.list_deletions()}")
    finally:
        maintenance.close(Deadline.after(PATIENCE_S))
        deletion.close(Deadline.after(PATIENCE_S))


@pytest.mark.long
def test_a_topic_goes_ledger_by_ledger_and_its_name_is_free_at_once(
    client: pulsar.Client, admin: AdminClient, deleting: Deleting, unique: Unique
) -> None:
    topic, again, used = unique("goes"), unique("again"), _topic(client, admin, unique("used"), 25, "s")
    for name in (topic, again):
        admin.create_partitioned_topic(name, 2, entries_per_ledger=SIZE)
        admin.set_policy(name, "retention_time_in_minutes", -1)
        admin.set_policy(name, "retention_size_in_mb", -1)
    kafka_topics = [admin.topic_stats(name).kafka_topic for name in (topic, again, used)]

    def there(*names: str) -> list[str]:
        return sorted(admin.node.admin.describe_topics(names, Deadline.after(PATIENCE_S)))

    producer = client.create_producer(topic)
    for _ in range(64):
        producer.send(b"x")
    with pytest.raises(pulsar.exceptions.NotAllowedError, match="active producers"):
        admin.delete_topic(topic)
    producer.close()
    ledgers = len(admin.list_ledgers(topic))
    assert ledgers == 8

    def handled() -> int:
        return deleting.counts()["DELETE"] + deleting.counts()["DONE"]

    dead_before, deleted_before, handled_before = (
        admin.dead_deletions(0).count, deleting.counts()["DELETE"], handled(),
    )  # fmt: skip
    former = admin.list_ledgers(again)[0].ledger_id
    group = deletion_group(Instance())
    until(
        lambda: admin.node.admin.describe_group(group, Deadline.after(PATIENCE_S)).members != (),
        "the group to have a member",
    )

    admin.delete_topic(topic)
    with pytest.raises(pulsar.exceptions.TopicNotFound):
        admin.topic_stats(topic)
    until(lambda: not there(kafka_topics[0]), "the first Kafka topic to go")
    life = admin.node.topics.last_life(TopicName.parse(topic), Deadline.after(PATIENCE_S))
    assert life is not None
    # A ledger's deletion deletes what is before it: events of the others may find nothing left.
    until(lambda: handled() - handled_before == ledgers, "every ledger's event to be handled")
    assert deleting.counts()["DELETE"] > deleted_before

    admin.delete_topic(again)
    _topic(client, admin, again, 5, "s")
    with_schema = client.create_producer(EVENTS, schema=event_schema())
    full = f"persistent://public/default/{again}"
    done_before = deleting.counts()["DONE"]
    with_schema.send(PendingDeleteLedger(topic=full, partition=1, ledger_id=former))
    with_schema.close()
    until(lambda: deleting.counts()["DONE"] > done_before, "one more deletion to be done")
    assert admin.topic_stats(again).entries == 5

    consumer = client.subscribe(used, "s")
    assert consumer.receive(30_000).data() == b"0"
    # Closing the consumers takes time, in which a maintainer may request the ledgers' deletion as well.
    deleting.maintenance.close(Deadline.after(PATIENCE_S))
    asked_for = deleting.counts()["DELETE"]
    admin.delete_topic(used, force=True)
    until(lambda: not there(kafka_topics[2]), "the third Kafka topic to go")
    assert deleting.counts()["DELETE"] == asked_for, "who is connected would not hear of it otherwise"
    consumer.close()
    until(lambda: admin.list_deletions().count == 0, lambda: f"no deletion to be left: {admin.list_deletions()}")
    assert admin.dead_deletions(0).count == dead_before


@pytest.mark.long
def test_a_topic_whose_deletion_was_cut_short_is_deleted_by_whoever_comes(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    def cut_short(name: str, *, kafka_topic_gone: bool) -> str:
        """Leave a deletion as a process does that died after its first record, or before its last."""
        _topic(client, admin, name, 25, "s")
        deadline = Deadline.after(PATIENCE_S)
        topics = admin.node.topics
        (record,) = (each for each in topics.records.active(deadline) if each.name.endswith(name))
        topics.records.set_state(record, LifeState.DELETING, deadline)
        if kafka_topic_gone:
            admin.node.admin.delete_topic(record.kafka_topic, deadline)
        return record.kafka_topic

    made_anew = unique("anew")
    cut_short(made_anew, kafka_topic_gone=False)
    with pytest.raises(pulsar.exceptions.TopicNotFound):
        admin.topic_stats(made_anew)
    _topic(client, admin, made_anew, 5, "s")
    assert admin.topic_stats(made_anew).entries == 5

    left = {cut_short(unique(f"left{gone}"), kafka_topic_gone=gone) for gone in (False, True)}
    deleting = Deleting(client, admin)

    def there() -> list[str]:
        return sorted(admin.node.admin.describe_topics(sorted(left), Deadline.after(PATIENCE_S)))

    try:
        until(lambda: not there(), "the Kafka topics to go")
    finally:
        deleting.close()
    assert admin.topic_stats(made_anew).entries == 5
