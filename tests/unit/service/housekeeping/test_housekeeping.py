"""Housekeeping removes dead records from state topics, and keeps the others; on the state log in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed
from pulsar_on_kafka.base.processes import this_process
from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.orphaned_records import FoundSegments
from pulsar_on_kafka.broker.cursor.saved_cursor import AcceptedSave, Save, SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.removals import REQUESTS_ARRIVE_WITHIN_MS
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType, cursor_identity
from pulsar_on_kafka.broker.metadata.topic_records import TopicRecords
from pulsar_on_kafka.broker.metadata.topics import LastLife, Topic
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription, GroupMember
from pulsar_on_kafka.service.housekeeping.cursors import CursorHousekeeping
from pulsar_on_kafka.service.housekeeping.idle_groups import IdleGroups
from pulsar_on_kafka.service.housekeeping.past_incarnations import DeadLives, HeartbeatHousekeeping
from pulsar_on_kafka.service.housekeeping.rounds import DAY_MS, HousekeepingRounds
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CursorCheckpoint, encode_checkpoint
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    EpochBounds,
    EpochFence,
    ProducerHeartbeat,
    SequenceSnapshot,
    TakeOverBound,
    encode_bounds,
    encode_fence,
    encode_producer_heartbeat,
    encode_snapshot,
    encode_take_over,
)
from pulsar_on_kafka_mapping.state.state_keys import (
    CursorCheckpointKey,
    ProducerBoundsKey,
    ProducerKey,
    ProducerSequenceKey,
    ProducerSessionKey,
    TakeOverKey,
    decode_key,
    encode_key,
)
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS, CURSORS, PRODUCERS
from tests.clocks import PacedClock
from tests.memory_log import MemoryStateLog
from tests.waiting import never, until

NEVER = Deadline.never()
NAME = "persistent://public/default/orders"
PARTITION = CURSORS.partition_for(NAME)
CURSOR = CursorName(NAME, 0, "audit")


def a_topic(incarnation: int = 7) -> Topic:
    layout = LedgerLayout(incarnation, 100)
    return Topic(TopicName.parse(NAME), "public.default.orders", "abcdefghijklmnopqrstuv", 1, False, layout)


@dataclass
class Cluster:
    """One topic with one subscription on one partition, and what its group has."""

    clock: PacedClock = field(default_factory=PacedClock)
    life: LastLife | None = field(default_factory=lambda: LastLife(7, a_topic()))
    subscription: Subscription | None = field(
        default_factory=lambda: Subscription(a_topic(), "audit", SubscriptionType.SHARED, "g", 9, {})
    )
    commit: CommittedOffset | None = None
    members: tuple[GroupMember, ...] = ()
    dismissed: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = MemoryStateLog(self.clock)
        self.store = CursorStore(self.log)

    def last_life(self, name: TopicName, deadline: Deadline) -> LastLife | None:
        return self.life

    def find(self, *asked: object) -> Subscription | None:
        return self.subscription

    def committed(
        self, group_id: str, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> dict[int, CommittedOffset]:
        return {} if self.commit is None else {0: self.commit}

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription:
        return GroupDescription(group_id, "EMPTY", self.members)

    def dismiss_session(self, topic: str, session: str, deadline: Deadline) -> None:
        self.dismissed.append((topic, session))

    # What is written ----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> CursorIdentity:
        assert self.subscription is not None
        return cursor_identity(self.subscription, 0)

    def save(self, last: Save | None, session: bytes, number: int, *, acked: int = 9_000, commit: bool = True) -> Save:
        """One with segments: every third offset up to `acked` is a hole."""
        state = CursorState(0, self.identity.entries_per_ledger)
        state.acknowledge([offset for offset in range(1, acked) if offset % 3])
        lineage = self.identity.lineage(session, 1, number)
        found = self.store.prepare(self.identity, state, last.saved if last else SavedCursor(lineage), lineage, NEVER)
        if commit:
            self.commit = found.commit
        return found

    def checkpoint(self, commit: CommittedOffset, session: bytes, version: int, save: int) -> None:
        lineage = self.identity.lineage(session, version, save)
        self.store.write_checkpoints([AcceptedSave(self.identity, commit, lineage)], self.clock.now_ms(), NEVER)

    def segments(self) -> set[str]:
        """Sessions and saves that have records, as `session/save`."""
        view = LogView(self.log, CURSORS, PARTITION, lambda: FoundSegments(10**18), self.clock)
        names = view.query(lambda fold: fold.by_cursor.get(CURSOR, set()), NEVER)
        return {f"{bytes.fromhex(name.session)[0]}/{name.save}" for name in names}

    def checkpoints(self) -> list[CursorCheckpoint]:
        view = LogView(self.log, CURSOR_CHECKPOINTS, PARTITION, CheckpointFold, self.clock)
        return [*view.query(lambda fold: fold.all().get(CURSOR, {}), NEVER).values()]

    def housekeeping(self) -> CursorHousekeeping:
        return CursorHousekeeping(self.log, self.clock, self, self, self)


A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


def test_segments_of_a_save_that_was_never_committed_go_after_a_day() -> None:
    cluster = Cluster()
    last = cluster.save(None, A, 1)
    cluster.save(last, A, 2, acked=12_000, commit=False)  # its process was killed; B took over with what A had
    cluster.save(None, B, 0)
    cluster.checkpoint(last.commit, A, 1, 1)
    cluster.members = (GroupMember("m", "c", "h", ()),)
    housekeeping = cluster.housekeeping()
    assert housekeeping.run(PARTITION, NEVER) == 0
    cluster.clock.ms += DAY_MS + 1
    cluster.save(None, B, 5, commit=False)  # under way
    cluster.save(None, C, 0, commit=False)  # somebody takes over just now
    assert housekeeping.run(PARTITION, NEVER) > 0
    assert cluster.segments() == {"1/1", "2/0", "2/5", "3/0"}
    cluster.clock.ms += DAY_MS + 1
    cluster.checkpoint(CommittedOffset(0, ""), B, 1, 0)
    assert housekeeping.run(PARTITION, NEVER) > 0
    assert cluster.segments() == {"1/1", "2/0", "2/5"}
    assert housekeeping.run(PARTITION, NEVER) == 0
    cluster.members = ()  # its owner is gone, and nobody takes over
    assert housekeeping.run(PARTITION, NEVER) > 0
    assert cluster.segments() == {"1/1", "2/0"}


def test_of_topics_and_subscriptions_that_are_gone_nothing_is_left() -> None:
    for change in ("life", "subscription", "partitions"):
        cluster = Cluster()
        cluster.checkpoint(cluster.save(None, A, 1).commit, A, 1, 1)
        assert cluster.subscription is not None
        if change == "life":
            cluster.life = LastLife(7, None)
        else:
            cluster.subscription = replace(cluster.subscription, partitions=()) if change == "partitions" else None
        assert cluster.housekeeping().run(PARTITION, NEVER) == 0
        cluster.clock.ms += DAY_MS + 1
        assert cluster.housekeeping().run(PARTITION, NEVER) > 0
        cluster.subscription = Cluster().subscription
        assert (cluster.segments(), cluster.checkpoints()) == (set(), [])


def test_what_nobody_knows_of_or_cannot_be_read_stays(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.checkpoint(cluster.save(None, A, 1).commit, A, 1, 1)
    cluster.clock.ms += DAY_MS + 1
    cluster.life = None
    assert cluster.housekeeping().run(PARTITION, NEVER) == 0
    cluster.life = LastLife(7, a_topic())
    other = Cluster()
    cluster.commit = other.save(None, A, 1).commit
    end = cluster.log.end_offset(CURSORS, PARTITION, NEVER)
    for offset, record in cluster.log.read_at(CURSORS, PARTITION, range(end), NEVER).items():
        if offset == end - 1:  # the marker
            cluster.log.append(CURSORS, PARTITION, record.key, None, NEVER)
    cluster.log.compact(random.Random(3))
    housekeeping = cluster.housekeeping()
    assert housekeeping.run(PARTITION, NEVER) == housekeeping.run(PARTITION, NEVER) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "1/1" in cluster.segments()


def test_a_value_that_cannot_be_read_keeps_its_own_topic_alone() -> None:
    cluster = Cluster(life=LastLife(7, None))
    cluster.checkpoint(cluster.save(None, A, 1).commit, A, 1, 1)
    other = next(
        name for name in map("persistent://a/b/{}".format, range(99)) if CURSORS.partition_for(name) == PARTITION
    )
    bad = encode_key(CursorCheckpointKey(other, 0, "audit", "aa"))
    good = encode_key(CursorCheckpointKey(other, 0, "audit", "bb"))
    checkpoint = encode_checkpoint(CursorCheckpoint(1, 1, 5, "", 0))
    cluster.log.append_many(CURSOR_CHECKPOINTS, PARTITION, [(bad, b"unreadable"), (good, checkpoint)], NEVER)
    cluster.clock.ms += DAY_MS + 1
    assert cluster.housekeeping().run(PARTITION, NEVER) > 0
    assert cluster.segments() == set()
    cluster.log.append(CURSOR_CHECKPOINTS, PARTITION, bad, None, NEVER)  # as `pok doctor` does
    assert cluster.checkpoints() == []
    assert cluster.housekeeping().run(PARTITION, NEVER) == 1


def test_of_checkpoints_the_newest_of_this_life_stays() -> None:
    cluster = Cluster()
    one, two = cluster.save(None, A, 1).commit, cluster.save(None, B, 4).commit
    cluster.checkpoint(one, A, 1, 1)
    cluster.checkpoint(two, B, 2, 4)
    former = replace(cluster, subscription=Subscription(a_topic(), "audit", SubscriptionType.SHARED, "g", 3, {}))
    former.log, former.store = cluster.log, cluster.store
    former.checkpoint(former.save(None, C, 8).commit, C, 8, 8)
    cluster.clock.ms += DAY_MS + 1
    assert cluster.housekeeping().run(PARTITION, NEVER) > 0
    assert [(found.version, found.save) for found in cluster.checkpoints()] == [(2, 4)]
    assert cluster.segments() == {"2/4"}


def test_found_segments_are_bounded_and_the_next_call_goes_on() -> None:
    cluster = Cluster()
    cluster.save(None, A, 1)
    total = cluster.log.end_offset(CURSORS, PARTITION, NEVER)
    seen, start, calls = 0, 0, 0
    while start is not None:
        fold = FoundSegments(10**18, start, most=40)
        for batch in cluster.log.read(CURSORS, PARTITION, 0, total, NEVER):
            for record in batch:
                fold.apply(record)
        seen += sum(map(len, fold.by_cursor.values()))
        start, calls = fold.full_at, calls + 1  # type: ignore[assignment]
    assert (seen, calls) == (total, -(-total // 40))


# Idle groups --------------------------------------------------------------------------------------------------------


class ActiveTopics(Cluster):
    @property
    def records(self) -> TopicRecords:
        return cast("TopicRecords", self)

    def active(self, deadline: Deadline) -> list[TopicRecord]:
        return [TopicRecord(NAME, LifeState.ACTIVE, "public.default.orders", 0, 100, 7, "abcdefghijklmnopqrstuv")]

    def find(self, *asked: object) -> Topic:  # type: ignore[override]
        return a_topic()

    def list(self, topic: Topic, deadline: Deadline) -> list[Subscription]:
        return [] if self.subscription is None else [self.subscription]

    def idle(self) -> IdleGroups:
        return IdleGroups(self.log, self.clock, self, self, self)


def test_what_an_idle_group_has_is_copied_once() -> None:
    cluster = ActiveTopics()
    first = cluster.save(None, A, 1)
    cluster.checkpoint(first.commit, A, 1, 1)
    idle = cluster.idle()
    assert idle.run(PARTITION, NEVER) == 0
    last = cluster.save(first, A, 7, acked=10_000)
    cluster.members = (GroupMember("m", "c", "h", ()),)
    assert idle.run(PARTITION, NEVER) == 0
    cluster.members = ()
    assert (idle.run(PARTITION, NEVER), idle.run(PARTITION, NEVER)) == (1, 0)
    beside = Cluster()
    housekeeping = CursorHousekeeping(cluster.log, cluster.clock, beside, beside, cluster, kept_ms=-1)
    assert housekeeping.run(PARTITION, NEVER) > 0  # what the checkpoint before needed
    (newest,) = cluster.checkpoints()
    found = cluster.store.recover(
        cluster.identity, None, CommittedOffset(newest.kafka_offset, newest.metadata), 0, NEVER
    )
    cluster.store.load_all(cluster.identity, found, NEVER)
    assert len(found.state.deleted) == sum(offset % 3 > 0 for offset in range(1, 10_000))
    assert found.saved is not None
    assert found.saved.references() == last.saved.references()


def test_what_a_kafka_tool_set_is_copied_as_a_seek() -> None:
    cluster = ActiveTopics()
    cluster.checkpoint(cluster.save(None, A, 1).commit, A, 1, 1)
    idle = cluster.idle()
    for offset in (500, 20):
        cluster.commit = CommittedOffset(offset, "")
        assert (idle.run(PARTITION, NEVER), idle.run(PARTITION, NEVER)) == (1, 0)
        newest = max(cluster.checkpoints(), key=lambda found: (found.version, found.save))
        copy = CommittedOffset(newest.kafka_offset, newest.metadata)
        for commit in (cluster.commit, None):  # as long as Kafka has it, and when it was forgotten
            found = cluster.store.recover(cluster.identity, commit, copy, 0, NEVER)
            assert (found.state.next_unacked, len(found.state.deleted)) == (offset, 0)
            assert found.version == newest.version


# Signs of life ------------------------------------------------------------------------------------------------------


def test_signs_of_the_dead_go() -> None:
    cluster = Cluster()
    partition, now = PRODUCERS.partition_for(NAME), cluster.clock.now_ms()
    here = this_process()
    host, pid, _, machine = here.split(":")
    gone = f"{host}:{pid}:1:{machine}"  # this process id, begun at another time
    for session, process, deadline_ms in (
        ("dead", gone, now - REQUESTS_ARRIVE_WITHIN_MS - 1), ("died just now", gone, now + 10_000),
        ("living", here, now + 10_000), ("stopped", here, now - DAY_MS - 1),
        ("elsewhere", "host:1:1", now - DAY_MS + 1), ("forgotten", "host:1:1", now - DAY_MS - 1),
    ):  # fmt: skip
        key = encode_key(ProducerSessionKey(NAME, session))
        cluster.log.append(
            PRODUCERS, partition, key, encode_producer_heartbeat(ProducerHeartbeat(deadline_ms, process)), NEVER
        )
    housekeeping = HeartbeatHousekeeping(cluster.log, cluster.clock, cluster)
    assert (housekeeping.run(partition, NEVER), housekeeping.run(partition, NEVER)) == (3, 0)
    assert cluster.dismissed == [(NAME, "forgotten"), (NAME, "stopped")]
    end = cluster.log.end_offset(PRODUCERS, partition, NEVER)
    records = cluster.log.read_at(PRODUCERS, partition, range(end), NEVER).values()
    tombstoned = {getattr(decode_key(record.key), "session", "") for record in records if record.value is None}
    assert tombstoned == {"dead", "forgotten", "stopped"}


def test_of_lives_that_are_over_nothing_is_left_in_producers() -> None:
    for over, wanted in ((False, 4), (True, 8)):
        cluster = Cluster()
        partition = PRODUCERS.partition_for(NAME)
        for life in (6, 7):
            records: dict[ProducerKey | ProducerBoundsKey | ProducerSequenceKey | TakeOverKey, bytes] = {
                ProducerKey(NAME, 0, "p", life): encode_fence(EpochFence(life, 5)),
                ProducerBoundsKey(NAME, "p", life): encode_bounds(EpochBounds(life, (1,))),
                ProducerSequenceKey(NAME, 0, "p", life): encode_snapshot(SequenceSnapshot(life, 9, 10, final=True)),
                TakeOverKey(NAME, 0, "/p", life): encode_take_over(TakeOverBound(life, 5, exact=True)),
            }
            for key, value in records.items():
                cluster.log.append(PRODUCERS, partition, encode_key(key), value, NEVER)
        housekeeping = DeadLives(cluster.log, cluster.clock, cluster)
        assert housekeeping.run(partition, NEVER) == 0
        cluster.clock.ms += DAY_MS + 1
        cluster.life = None
        assert housekeeping.run(partition, NEVER) == 0
        cluster.life = LastLife(7, None if over else a_topic())
        assert (housekeeping.run(partition, NEVER), housekeeping.run(partition, NEVER)) == (wanted, 0)


# The thread ---------------------------------------------------------------------------------------------------------


class Counted:
    def __init__(self, name: str, *, fails: bool = False) -> None:
        self.name = name
        self.ran: list[int] = []
        self._fails = fails

    def run(self, partition: int, deadline: Deadline) -> int:
        self.ran.append(partition)
        if self._fails:
            raise ConnectFailed("away")
        return 2


def test_each_partition_is_tidied_some_time_after_it_came_and_then_again_and_again() -> None:
    good, bad = Counted("good"), Counted("bad", fails=True)
    owned = [3, 5]
    rounds = HousekeepingRounds([bad, good], lambda: owned, first_s=0.0, every_s=0.01, look_s=0.001)
    within = Deadline.after(30)
    until(lambda: good.ran.count(3) >= 3 and good.ran.count(5) >= 3, "the good duty to run for both")
    owned.remove(3)
    until(lambda: good.ran[-3:] == [5, 5, 5], "the good duty to run for one alone")
    rounds.close(within)
    assert not rounds.is_alive()
    assert rounds.written == {"good": 2 * len(good.ran), "bad": 0}
    seen = rounds.turns.seen()
    assert (seen.done, seen.failed) == (len(good.ran), len(bad.ran))
    late = Counted("late")
    waiting = HousekeepingRounds([late], lambda: [1], look_s=0.001)
    never(lambda: late.ran, "a duty before its time", 0.05)
    waiting.close(within)
