"""Leftovers of `kill -9` in state topics go, and nothing else does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.cursor.orphaned_records import FoundSegments, SegmentName
from pulsar_on_kafka.broker.metadata.producers.heartbeats import LIFE_MS
from pulsar_on_kafka.broker.metadata.removals import REQUESTS_ARRIVE_WITHIN_MS
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.service.housekeeping.cursors import CursorHousekeeping
from pulsar_on_kafka.service.housekeeping.idle_groups import IdleGroups
from pulsar_on_kafka.service.housekeeping.past_incarnations import HeartbeatHousekeeping
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import SegmentRef
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.chaos.stage import Stage, Stand
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]

MESSAGES = 8_000
HOLEY = {"residues": (0, 1, 2, 3, 4), "shuffle": 500, "persist_ms": 20, "flush_every": 200, "pace_ms": 0.3}
LEAVE_SEGMENTS = ("pages", "marker", "commit")
"""Where a killed process leaves segments that no commit names (see `tests.chaos.cuts`)."""


def _written(node: Node, topic: TopicName, subscription: str) -> set[SegmentName]:
    """What is on record of the cursor."""
    view = LogView(node.log, CURSORS, CURSORS.partition_for(str(topic)), lambda: FoundSegments(10**18), node.clock)
    cursor = CursorName(str(topic), 0, subscription)
    return view.query(lambda fold: set(fold.by_cursor.get(cursor, ())), Deadline.after(PATIENCE_S))


def _opened(node: Node, topic: TopicName, name: str) -> Subscription:
    deadline = Deadline.after(PATIENCE_S)
    opened = node.topics.find(topic, deadline)
    assert opened is not None
    found = node.subscriptions.find(opened, name, deadline)
    assert found is not None
    return found


def _saved(node: Node, subscription: Subscription) -> tuple[CommittedOffset, CommittedOffset | None]:
    """What the group has committed, and the newest copy of it."""
    deadline = Deadline.after(PATIENCE_S)
    commit = node.admin.committed(subscription.whole_group, subscription.topic.kafka_topic, [0], deadline)[0]
    return commit, node.checkpoints.newest(cursor_identity(subscription, 0), deadline)


def _needed(node: Node, topic: TopicName, name: str) -> set[SegmentName]:
    """What the next owner reads, and what it would read if Kafka had forgotten the group."""
    deadline = Deadline.after(PATIENCE_S)
    found = _opened(node, topic, name)
    identity = cursor_identity(found, 0)
    commit, copy = _saved(node, found)
    names: set[SegmentName] = set()
    for kept in (
        node.store.recover(identity, commit, None, 0, deadline),
        node.store.recover(identity, None, copy, 0, deadline),
    ):
        for ref in kept.saved.references() if kept.saved is not None else ():
            parts = [ref.segment] if isinstance(ref, SegmentRef) else range(-1, -2 - ref.pages, -1)
            names.update(SegmentName(ref.session.hex(), ref.save, part) for part in parts)
    return names


def test_what_killed_consumers_wrote_for_saves_that_never_were_is_removed(stage: Callable[..., Stage]) -> None:
    on = stage(1, entries_per_ledger=50)
    on.publish(MESSAGES).wait(PATIENCE_S)
    stands: dict[str, Stand] = {point: on.subscription("Shared", point) for point in LEAVE_SEGMENTS}
    doomed = [stand.worker(**HOLEY, cut=(point, "SIGKILL")) for point, stand in stands.items()]
    for worker in doomed:
        worker.try_to_subscribe()
    for worker in doomed:
        worker.until_cut("SIGKILL")
    node, topic = on.admin.node, TopicName.parse(on.topic)
    for point in stands:
        assert _written(node, topic, point) - _needed(node, topic, point), point
    partition, services = CURSORS.partition_for(str(topic)), (node.log, node.clock, node.topics, node.subscriptions)
    idle = IdleGroups(*services, node.admin)
    housekeeping = CursorHousekeeping(*services, node.admin, kept_ms=0)

    def nothing_else_is_left() -> bool:
        """Once Kafka has noticed that the members are gone."""
        idle.run(partition, Deadline.after(PATIENCE_S))
        housekeeping.run(partition, Deadline.after(PATIENCE_S))
        return all(_written(node, topic, point) == _needed(node, topic, point) for point in stands)

    def what_idle_groups_have_is_copied() -> bool:
        saved = [_saved(node, _opened(node, topic, point)) for point in stands]
        return all(copy == commit for commit, copy in saved)

    until(lambda: nothing_else_is_left() and what_idle_groups_have_is_copied(), "nothing else is left")
    for point, stand in stands.items():
        subscription = _opened(node, topic, point)
        node.admin.delete_group(subscription.group, Deadline.after(PATIENCE_S))  # as Kafka forgets it after some days
        assert node.admin.committed(
            subscription.whole_group, subscription.topic.kafka_topic, [0], Deadline.after(PATIENCE_S)
        ) == {}  # fmt: skip
        found = stand.verdict()
        assert not found.broken, point
        assert found.remaining < MESSAGES, point


_PRODUCES = """
import sys
import pulsar_on_kafka
client = pulsar_on_kafka.Client(sys.argv[1])
producer = client.create_producer(sys.argv[2])
producer.send(b"one")
print("sent", flush=True)
sys.stdin.read()
"""


class _AnHourLater:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic

    def now_ms(self) -> int:
        return self._clock.now_ms() + REQUESTS_ARRIVE_WITHIN_MS + LIFE_MS


def test_signs_of_life_of_killed_producers_go(stage: Callable[..., Stage]) -> None:
    on = stage(1)
    node, topic = on.admin.node, TopicName.parse(on.topic)
    own = on.client.create_producer(on.topic)
    own.send(b"mine")
    with subprocess.Popen(
        [sys.executable, "-c", _PRODUCES, on.url, on.topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"sent\n"
        process.send_signal(signal.SIGKILL)
    partition = CURSORS.partition_for(str(topic))
    within = Deadline.after(PATIENCE_S)
    of_late = HeartbeatHousekeeping(node.log, node.clock, node.producers)
    assert of_late.run(partition, within) == 0, "a record of the dead one may still arrive"
    housekeeping = HeartbeatHousekeeping(node.log, _AnHourLater(node.clock), node.producers)
    assert housekeeping.run(partition, within) >= 1
    assert housekeeping.run(partition, within) == 0
    assert len(node.producers.heartbeats.publishers(str(topic), within)) == 1
    own.send(b"still here")
    own.close()
