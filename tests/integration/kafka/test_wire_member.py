"""A membership without librdkafka reads, saves and hands over as one of librdkafka does, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.group_client import GroupClient
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.wire_member import WINDOW_BYTES, WireMember
from pulsar_on_kafka.kafka.reading.events import Event, Gone, OutOfRange, Records
from pulsar_on_kafka.kafka.reading.fetch_client import FetchClient
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.client import WireClient
from tests.waiting import patience, until

pytestmark = pytest.mark.kafka

PARTITIONS = 4
COUNT = 200


class Membership(Protocol):
    """The calls of `WireMember` and `GroupConsumer` that an owner makes."""

    def poll(self, limit: int, timeout_s: float) -> list[Event]: ...
    def commit(self, commits: dict[int, CommittedOffset]) -> None: ...
    def commit_async(self, commits: dict[int, CommittedOffset]) -> None: ...
    def committed(self, partitions: list[int], timeout_s: float) -> dict[int, CommittedOffset]: ...
    def close(self) -> None: ...


class Owner:
    """Keeps the place of each partition, saves it when it gives one up, and continues at saved ones."""

    def __init__(self, begins: Callable[[int], bool] = lambda partition: True) -> None:
        self.callbacks = GroupCallbacks(self._assigned, self._revoked, self._lost, self._committed, begins)
        self.places: dict[int, int] = {}
        self.saved: dict[int, int] = {}
        self.offsets: dict[int, list[int]] = {}
        self.assignments = 0
        self.outcomes: list[errors.LayerError | None] = []
        self.lost: list[int] = []
        self.failures: list[Event] = []
        self.member: Membership

    def _assigned(self, partitions: list[int]) -> dict[int, int]:
        self.assignments += 1
        found = self.member.committed(partitions, 30.0) if partitions else {}
        starts = {each: found[each].kafka_offset if each in found else 0 for each in partitions}
        self.places |= starts
        self.saved |= starts
        return starts

    def _revoked(self, partitions: list[int]) -> None:
        if leaving := [each for each in partitions if self.places.get(each) != self.saved.get(each)]:
            self.save(leaving)
        for each in partitions:
            self.places.pop(each, None)

    def _lost(self, partitions: list[int]) -> None:
        self.lost += partitions
        for each in partitions:
            self.places.pop(each, None)

    def _committed(self, failure: errors.LayerError | None) -> None:
        self.outcomes.append(failure)

    def save(self, partitions: list[int]) -> None:
        self.member.commit(self.commits(partitions))
        self.saved |= {each: self.places[each] for each in partitions}

    def is_saved(self) -> bool:
        """A commit while the group has no new generation yet is refused, and repeated."""
        with suppress(errors.Fenced):
            self.save([*self.places])
            return True
        self.poll(1)
        return False

    def commits(self, partitions: list[int]) -> dict[int, CommittedOffset]:
        return {each: CommittedOffset(self.places[each], f"pok1:place {each}") for each in partitions}

    def poll(self, limit: int = 1000) -> int:
        """The number of records; each one follows the one before in its partition."""
        count = 0
        for event in self.member.poll(limit, 0.1):
            if isinstance(event, Records):
                for record in event.records:
                    assert record.offset() == self.places[record.partition()]
                    assert record.value() == b"%d" % record.offset()
                    self.places[record.partition()] += 1
                    self.offsets.setdefault(record.partition(), []).append(record.offset())
                    count += 1
            else:
                self.failures.append(event)
        return count

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(lambda: self.poll() >= 0 and bool(condition()), what)

    @property
    def read(self) -> int:
        return sum(map(len, self.offsets.values()))


class Clients:
    """The clients that all memberships of the test's process share."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.wire = WireClient({"bootstrap.servers": bootstrap, "client.id": "test"})
        self.groups = GroupClient(self.wire)
        self.reader = FetchClient(self.wire)
        self.members: list[Any] = []

    def join(self, owner: Owner, group: str, topic: str, only: int | None = None, **options: Any) -> WireMember:
        owner.member = member = WireMember(
            self.groups, self.reader, group, "a-client", topic, owner.callbacks, only, **options
        )
        self.members.append(member)
        return member

    def join_by_librdkafka(self, owner: Owner, group: str, topic: str) -> GroupConsumer:
        config = KafkaSettings(self.bootstrap).group_member(
            group_id=group, client_id="librdkafka", fetch_queue_kbytes=1024, partitioned=True
        )
        owner.member = member = GroupConsumer(config, topic, owner.callbacks)
        self.members.append(member)
        return member

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.groups.close(patience())
        self.reader.close(patience())
        self.wire.close(patience())


@pytest.fixture
def clients(bootstrap: str) -> Iterator[Clients]:
    made = Clients(bootstrap)
    yield made
    made.close()


@pytest.fixture
def topic(bootstrap: str, unique: Callable[[str], str]) -> str:
    """A topic of four partitions, each with records whose values are their offsets."""
    name = unique("wire-member")
    create(bootstrap, name, PARTITIONS)
    fill(bootstrap, name, COUNT)
    return name


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def fill(bootstrap: str, topic: str, count: int, first: int = 0, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for partition in range(partitions):
        for offset in range(first, first + count):
            producer.produce(topic, b"%d" % offset, partition=partition)
    assert producer.flush(60) == 0


def test_it_reads_everything_in_order_and_commits(clients: Clients, topic: str, bootstrap: str) -> None:
    owner = Owner()
    clients.join(owner, f"group-{topic}", topic)
    owner.until(lambda: owner.read == PARTITIONS * COUNT, "all records")
    fill(bootstrap, topic, 10, COUNT)
    owner.until(lambda: owner.read == PARTITIONS * (COUNT + 10), "later records")
    commits = owner.commits([*range(PARTITIONS)])
    owner.member.commit(commits)
    admin = KafkaAdmin(KafkaSettings(bootstrap).common())
    try:
        found = admin.committed(f"group-{topic}", topic, [*range(PARTITIONS)], Deadline.after(30))
    finally:
        admin.close()
    assert found == commits == owner.member.committed([*range(PARTITIONS)], 30.0)


def test_a_background_commit_is_read_behind_itself(clients: Clients, topic: str) -> None:
    """Whoever reads the group's offsets after a commit in the background sees that commit."""
    owner = Owner()
    clients.join(owner, f"group-{topic}", topic)
    owner.until(lambda: owner.read == PARTITIONS * COUNT, "all records")
    for offset in range(1, 51):
        sent = {0: CommittedOffset(offset, "pok1:")}
        owner.member.commit_async(sent)
        assert owner.member.committed([0], 30.0) == sent
    owner.until(lambda: owner.outcomes == [None] * 50, "50 outcomes")


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_poll_returns_no_more_than_it_is_asked_for(clients: Clients, topic: str, limit: int) -> None:
    owner = Owner()
    clients.join(owner, f"group-{topic}", topic)
    until(lambda: owner.poll(limit) <= limit and owner.read >= 50, "50 records")


def test_only_one_partition_is_served(clients: Clients, topic: str) -> None:
    owner = Owner()
    clients.join(owner, f"group-{topic}", topic, only=2)
    owner.until(lambda: owner.read == COUNT, "the partition's records")
    assert [*owner.offsets] == [2]


def test_a_seek_drops_what_was_fetched(clients: Clients, topic: str) -> None:
    owner = Owner()
    member = clients.join(owner, f"group-{topic}", topic)
    until(lambda: owner.poll(3) >= 0 and owner.read >= 3, "the first records")
    for partition, offset in ((0, 150), (1, 0), (2, 199), (3, 77)):
        owner.places[partition] = offset
        owner.offsets[partition] = []
        member.seek(partition, offset)
    expected = {0: 50, 1: COUNT, 2: 1, 3: COUNT - 77}
    owner.until(lambda: {p: len(each) for p, each in owner.offsets.items()} == expected, "the rest of each partition")


def test_a_paused_partition_returns_nothing_and_loses_nothing(clients: Clients, topic: str) -> None:
    owner = Owner()
    member = clients.join(owner, f"group-{topic}", topic)
    until(lambda: owner.poll(1) >= 0 and 0 in owner.offsets, "a record of partition 0")
    member.pause([0])
    while owner.poll(1000):  # the rest of a batch that was being decoded
        pass
    before = len(owner.offsets[0])
    owner.until(lambda: owner.read - len(owner.offsets[0]) == 3 * COUNT, "the other partitions' records")
    assert len(owner.offsets[0]) == before
    member.resume([0])
    owner.until(lambda: owner.read == PARTITIONS * COUNT, "all records")


def test_a_partition_that_does_not_begin_is_not_fetched(clients: Clients, topic: str) -> None:
    """Nothing is fetched that no consumer has asked for."""
    owner = Owner(begins=lambda partition: partition != 1)
    member = clients.join(owner, f"group-{topic}", topic)
    owner.until(lambda: owner.read == 3 * COUNT, "the records of the partitions that begin")
    assert 1 not in owner.offsets
    assert member.known_end(1) == -1
    assert member.watermarks(1, 30.0) == (0, COUNT)
    member.resume([1])
    owner.until(lambda: owner.read == PARTITIONS * COUNT, "all records")
    assert member.known_end(1) == COUNT


def test_records_that_the_owner_holds_count_as_fetched(
    clients: Clients, bootstrap: str, unique: Callable[[str], str]
) -> None:
    """An owner that takes records and keeps them gets its window, one response more, and no byte beyond."""
    name = unique("wire-window")
    create(bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 200_000})
    size, count = 50_000, 2 * WINDOW_BYTES // 50_000
    for _ in range(count):
        producer.produce(name, bytes(size), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    held = 0
    member = WireMember(
        clients.groups,
        clients.reader,
        f"group-{name}",
        "a-client",
        name,
        GroupCallbacks(lambda given: dict.fromkeys(given, 0), print, print, print),
        held_bytes=lambda partition: held,
    )
    clients.members.append(member)
    offsets: list[int] = []

    def take() -> int:
        nonlocal held
        records = [record for event in member.poll(1000, 0.5) if isinstance(event, Records) for record in event.records]
        offsets.extend(record.offset() for record in records)
        held += sum(map(len, records))
        return len(records)

    until(lambda: take() >= 0 and held >= 0.8 * WINDOW_BYTES, lambda: f"a full window, {held} bytes came")
    until(lambda: take() == 0, "the last response")
    assert held <= WINDOW_BYTES + 2 * 1024 * 1024
    assert clients.reader.held_bytes >= 0.8 * WINDOW_BYTES
    while len(offsets) < count:
        held = 0
        until(lambda: take() > 0, f"more records, {len(offsets)} of {count} came")
    assert offsets == [*range(count)]


def test_what_the_owner_saved_is_where_the_next_one_begins(clients: Clients, topic: str, bootstrap: str) -> None:
    """Two owners, then one: every record is read once, in order, in each partition."""
    one, two = Owner(), Owner()
    first = clients.join(one, f"group-{topic}", topic)
    until(lambda: one.poll(5) >= 0 and one.read >= 50, "50 records")
    clients.join(two, f"group-{topic}", topic)
    until(lambda: one.poll(1) + two.poll(1) >= 0 and len(one.places) == len(two.places) == 2, "two partitions each")
    until(one.is_saved, "the places to be saved")
    first.close()
    fill(bootstrap, topic, 10, COUNT)
    two.until(lambda: one.read + two.read == PARTITIONS * (COUNT + 10), "all records")
    for partition in range(PARTITIONS):
        assert one.offsets.get(partition, []) + two.offsets.get(partition, []) == [*range(COUNT + 10)]


@pytest.mark.parametrize("first_is_ours", [True, False])
def test_it_takes_turns_with_a_member_of_librdkafka(clients: Clients, topic: str, first_is_ours: bool) -> None:
    one, two = Owner(), Owner()
    joins: list[Callable[[Owner, str, str], Membership]]
    joins = [clients.join, clients.join_by_librdkafka] if first_is_ours else [clients.join_by_librdkafka, clients.join]
    first = joins[0](one, f"group-{topic}", topic)
    until(lambda: one.poll(5) >= 0 and one.read >= 50, "50 records")
    joins[1](two, f"group-{topic}", topic)
    until(lambda: one.poll(1) + two.poll(1) >= 0 and len(one.places) == len(two.places) == 2, "two partitions each")
    until(one.is_saved, "the places to be saved")
    first.close()
    two.until(lambda: one.read + two.read == PARTITIONS * COUNT, "all records")
    for partition in range(PARTITIONS):
        assert one.offsets.get(partition, []) + two.offsets.get(partition, []) == [*range(COUNT)]


def test_deleted_records_are_reported_and_a_seek_continues(clients: Clients, topic: str, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 100)]).values():
        deleted.result(60)
    owner = Owner()
    member = clients.join(owner, f"group-{topic}", topic, only=0)
    owner.until(lambda: owner.failures, "the failure")
    (failure,) = owner.failures
    assert isinstance(failure, OutOfRange)
    assert failure.offset == 0
    owner.places[0] = 100
    member.seek(0, 100)
    owner.until(lambda: owner.read == 100, "the rest")


def test_a_deleted_topic_is_gone(clients: Clients, topic: str, bootstrap: str) -> None:
    owner = Owner()
    clients.join(owner, f"group-{topic}", topic)
    owner.until(lambda: owner.read == PARTITIONS * COUNT, "all records")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    owner.until(lambda: any(isinstance(each, Gone) for each in owner.failures), "the topic to be gone")
    with pytest.raises(errors.NoSuchTopic):  # the owner saves, which Kafka refuses
        owner.member.close()


def test_a_closed_member_leaves_at_once(clients: Clients, topic: str) -> None:
    one, two = Owner(), Owner()
    first = clients.join(one, f"group-{topic}", topic)
    one.until(lambda: len(one.places) == PARTITIONS, "all partitions")
    first.close()
    clients.join(two, f"group-{topic}", topic)
    two.until(lambda: len(two.places) == PARTITIONS, "all partitions")
    assert two.assignments == 1
    first.close()
