"""A replicator session, from joining the group of its subscription until a failure or a request to end.

One thread does everything except the delivery reports: it reads the assigned partitions, hands readable records to the
producer of the other cluster, and saves the progress. A take-over of a partition has three steps before the first copy.
First a commit of the group names the owner and the next version (from then on a former owner cannot save). Then the
target's snapshot is written under this epoch, with a fence where the former owner may still write. One more commit
follows, which the group refuses if another process took the partition over meanwhile. So the next owner finds that
snapshot, and fences.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import member_client_id, membership_ended
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import Target
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.readers import buffer_access, data_partition
from pulsar_on_kafka.broker.node.services import FETCH_QUEUE_KBYTES
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer, split_commits
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, OutOfRange, Records, inside
from pulsar_on_kafka.service.replication.copying import Copying, SchemasThere
from pulsar_on_kafka.service.replication.partition_copier import ANSWER_S, Lane, PlaceSaves, ReplicationCursor
from pulsar_on_kafka.service.replication.replicator_rate import ReplicatorRate

_log: Final = logging.getLogger(__name__)

MAX_RECORDS: Final = 20_000
MAX_BYTES: Final = 32 * 1024 * 1024
"""The limit of bytes under way to the other cluster for one replicator, exceeded by one batch of the group at most."""
_BATCH: Final = 1_000
_POLL_S: Final = 0.05
_ROOM_S: Final = 0.5
_REPORT_S: Final = 0.01
_STORE_S: Final = 10.0
_TARGET_S: Final = 60.0
_DRAIN_S: Final = 5.0
_SAVE_EVERY_S: Final = 1.0
_SNAPSHOT_EVERY_S: Final = 5.0


@dataclass(slots=True)
class ReplicationCounts:
    """The counts of one replicator, over all its sessions in this process. They only go up, but for `under_way` and
    `behind`."""

    records: int = 0
    bytes: int = 0
    failures: int = 0
    under_way: int = 0
    behind: int = 0
    """Records up to the log's end, as Kafka last reported it, of the partitions that this process copies."""


class ReplicatorSession:
    """A session, run in the caller's thread. Memory: librdkafka's fetch queue (16 MiB), `MAX_BYTES`, and see `Lane`."""

    def __init__(
        self,
        node: Node,
        subscription: Subscription,
        target: Target,
        origin: str,
        cluster: str,
        ended: Callable[[], bool],
        counts: ReplicationCounts,
        member: str,
    ) -> None:
        """`origin` is this cluster's name, `cluster` the other one's; `member` begins the client id."""
        self._node = node
        self._subscription = subscription
        self._target = target
        self._origin = origin
        self._cluster = cluster
        self._ended = ended
        self._counts = counts
        self._name = f"{subscription.topic.name}/{subscription.name}"
        self._client_id = member_client_id(member, secrets.token_hex(16))
        self._lanes: dict[int, Lane] = {}
        self._schemas = SchemasThere(node, target.node, subscription.topic.name)
        self._looking = TransactionWaits(
            f"replicator={self._name}", buffer_access(node, subscription.topic), node.clock
        )
        self._saves = PlaceSaves(node.clock)
        self._incarnations = (
            IncarnationCheck(node.incarnations, subscription.topic),
            IncarnationCheck(target.node.incarnations, target.topic),
        )
        """The checks of the topic's incarnation here and there."""
        self._rate = ReplicatorRate(node.clock, lambda partition: self._consumer.watermarks(partition, _STORE_S)[1])
        self._paused = False
        self._save_due_s = self._snapshot_due_s = 0.0
        self._base = (counts.records, counts.bytes)
        self._left = (0, 0)
        """Records and bytes copied by lanes that were given up."""

    def run(self) -> None:
        """Copies until `ended` or a failure.

        Raises:
            LayerError: copying cannot continue; a new session may.
        """
        topic = self._subscription.topic
        config = self._node.settings.group_member(
            group_id=self._subscription.group,
            client_id=self._client_id,
            fetch_queue_kbytes=FETCH_QUEUE_KBYTES,
            partitioned=topic.partitioned,
        )
        callbacks = GroupCallbacks(self._on_assigned, self._on_revoked, self._on_lost, self._on_committed)
        local_peers = self._node.departures.local_peers(self._subscription.group, self._client_id)
        self._consumer = GroupConsumer(config, topic.kafka_topic, callbacks, local_peers=local_peers)
        try:
            self._follow_rate()
            while not self._ended():
                self._step()
        finally:
            try:
                self._consumer.close()
            finally:
                membership_ended(self._client_id)
                self._leave(self._lanes)  # partitions that the group did not revoke
                self._lanes.clear()
                self._count()

    def _step(self) -> None:
        for lane in self._lanes.values():
            if lane.copies.failure is not None:
                raise translate(lane.copies.failure, f"copying {self._name}[{lane.partition}] to {self._cluster}")
        self._begin_lanes()
        self._read_released()
        if self._is_full() and not self._paused:
            self._wait_for_room()
        timeout_s = _POLL_S
        if self._looking:
            timeout_s = min(timeout_s, self._looking.in_s())
        events = self._consumer.poll(_BATCH, timeout_s)
        self._check_incarnations(reading=bool(events))
        came = 0
        for event in events:
            match event:
                case Records((_, partition), records):
                    came += len(records)
                    self._accept(partition, records)
                case OutOfRange((_, partition)) if partition in self._lanes:
                    self._leave_gap(self._lanes[partition])
                case EndOfLog():
                    pass
                case Failed():
                    event.raise_or_log(_log, f"replicator={self._name}")
        if events:
            self._serve_producer()
        if self._looking and self._looking.is_due(came):
            self._look_again()
        self._save_if_due()

    def _check_incarnations(self, *, reading: bool) -> None:
        for incarnation in self._incarnations:
            if reading:
                incarnation.before_delivery()
            else:
                incarnation.while_idle()

    # Copying ------------------------------------------------------------------------------------------------------

    def _accept(self, partition: int, records: list[Any]) -> None:
        lane = self._lanes.get(partition)
        if lane is None or lane.copying is None:
            return
        if records[0].offset() < lane.read_position:  # fetched before a seek took effect
            records = [record for record in records if record.offset() >= lane.read_position]
            if not records:
                return
        if partition in self._rate.held:  # fetched before the pause took effect
            return
        allowed = self._rate.take(partition, records)
        if len(allowed) < len(records):
            self._consumer.pause([partition])
            if not allowed:
                return
            records = allowed
        lane.send(lane.readable.of(partition, records), self._target.producer())
        lane.read_position = records[-1].offset() + 1
        if partition in lane.readable.committed:
            self._looking.came(partition, lane.readable.committed[partition], self._look_again)

    def _look_again(self) -> None:
        committed = {p: each for lane in self._lanes.values() for p, each in lane.readable.committed.items()}
        if self._looking.look_again(committed, self._release):
            self._looking.put_late_on_record(committed.values())
        self._serve_producer()

    def _release(self, partition: int) -> None:
        lane = self._lanes[partition]
        if lane.copying is not None:
            lane.send(lane.readable.release(partition), self._target.producer())

    def _leave_gap(self, lane: Lane) -> None:
        self._incarnations[0].now(Deadline.after(_STORE_S))
        log = self._consumer.watermarks(lane.partition, _STORE_S)
        who = f"replicator {self._name}[{lane.partition}]"
        lane.read_position = inside(log, lane.read_position, who)
        _log.warning("%s continues at offset %d, the log's start is %d", who, lane.read_position, log[0])
        self._consumer.seek(lane.partition, lane.read_position)

    def _follow_rate(self) -> None:
        topic = self._subscription.topic.name
        try:
            self._rate.follow(self._node.replicator_rate(topic, Deadline.after(_STORE_S)))
        except errors.LayerError as failure:  # read again with the next save
            _log.info("replicator=%s does not know its rate: %s", self._name, failure)

    def _read_released(self) -> None:
        """Read the partitions again that the rate held back."""
        self._read([self._lanes[partition] for partition in self._rate.released() if partition in self._lanes])

    # Back-pressure ------------------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        lanes = self._lanes.values()
        waits_for_transactions = any(each.full for lane in lanes for each in lane.readable.committed.values())
        return (
            waits_for_transactions
            or sum(lane.copies.records for lane in lanes) >= MAX_RECORDS
            or sum(lane.copies.bytes for lane in lanes) >= MAX_BYTES
        )

    def _wait_for_room(self) -> None:
        """Waits up to half a second for room; then reading pauses, which discards prefetched records, but serves the
        group."""
        deadline = Deadline.after(_ROOM_S)
        producer = self._target.producer()
        while self._is_full() and not deadline.passed() and not self._ended():
            producer.wait_for_reports(_REPORT_S)
            if any(lane.copies.failure is not None for lane in self._lanes.values()):
                return
        if self._is_full():
            self._consumer.pause([p for p, lane in self._lanes.items() if lane.copying is not None])
            self._paused = True

    def _serve_producer(self) -> None:
        producer = self._target.producer()
        if producer.asleep:
            producer.wake()
        producer.poll_inline(0)
        if self._paused and not self._is_full():
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        self._read([lane for lane in self._lanes.values() if lane.copying is not None])

    def _read(self, lanes: list[Lane]) -> None:
        """Read these lanes on from their positions, unless reading is paused or the rate holds them back."""
        reading = [lane for lane in lanes if not self._paused and lane.partition not in self._rate.held]
        if reading:
            self._consumer.resume([lane.partition for lane in reading])
        for lane in reading:
            self._consumer.seek(lane.partition, lane.read_position)

    # Taking over, and handing over --------------------------------------------------------------------------------

    def _on_assigned(self, partitions: list[int]) -> Mapping[int, int]:
        deadline = Deadline.after(_STORE_S)
        committed = self._consumer.committed(partitions, _STORE_S)
        opened: dict[int, Lane] = {}
        for partition in partitions:
            identity = cursor_identity(self._subscription, partition)
            commit = committed.get(partition)
            checkpoint = None if commit is not None else self._node.checkpoints.newest(identity, deadline)
            start = self._subscription.start_offset(partition)
            found = self._node.store.recover(identity, commit, checkpoint, start, deadline)
            opened[partition] = Lane(
                partition,
                ReplicationCursor(identity, found),
                self._target.topic.kafka_topic,
                lambda p: self._node.producers.fences(self._subscription.topic, p, Deadline.after(_STORE_S)),
                lambda p: ReadCommitted(data_partition(self._subscription.topic, p), self._node.clock.monotonic_ms),
            )
        self._commit(opened, deadline)
        self._lanes.update(opened)
        return {partition: lane.cursor.next_offset for partition, lane in opened.items()}

    def _begin_lanes(self) -> None:
        waiting = {p: lane for p, lane in self._lanes.items() if lane.copying is None}
        if not waiting:
            return
        self._consumer.pause(list(waiting))
        self._target.node.producers.more_than_plain(self._target.topic, Deadline.after(_TARGET_S))
        life = self._subscription.topic.layout.incarnation
        found = {
            partition: self._target.take_over(partition, lane.cursor.epoch, Deadline.after(_TARGET_S))
            for partition, lane in waiting.items()
        }
        self._commit(waiting, Deadline.after(_STORE_S))
        for partition, lane in waiting.items():
            copying = Copying(
                self._origin, self._cluster, partition, life, lane.cursor.epoch, self._schemas.version, self._met
            )
            position = lane.begin(copying, found[partition])
            self._consumer.resume([partition])
            self._consumer.seek(partition, position)
            _log.info("replicator=%s[%d] copies from offset %d on", self._name, partition, position)

    def _met(self, *, chunk: bool, raw: bool) -> None:
        deadline = Deadline.after(_TARGET_S)
        self._target.node.producers.more_than_plain(self._target.topic, deadline, chunks=chunk, raw=raw)

    def _on_revoked(self, partitions: list[int]) -> None:
        """Let what is under way arrive, for five seconds; then save for the next owner."""
        leaving = {p: lane for p in partitions if (lane := self._lanes.pop(p, None)) is not None}
        ready = {p: lane for p, lane in leaving.items() if lane.copying is not None}
        deadline = Deadline.after(_DRAIN_S)
        producer = self._target.producer() if ready else None
        while producer is not None and not deadline.passed() and any(_is_busy(lane) for lane in ready.values()):
            producer.wake()
            producer.wait_for_reports(_REPORT_S)
        self._leave(leaving)
        try:
            for lane in ready.values():
                lane.save_last_snapshot(self._target, Deadline.after(_STORE_S))
            self._commit(ready, Deadline.after(_STORE_S))
        except errors.LayerError as failure:
            _log.info("replicator=%s could not save while handing over: %s", self._name, failure)

    def _on_lost(self, partitions: list[int]) -> None:
        self._leave({p: lane for p in partitions if (lane := self._lanes.pop(p, None)) is not None})

    def _leave(self, lanes: Mapping[int, Lane]) -> None:
        self._saves.forget(lanes)
        for partition, lane in lanes.items():
            self._rate.forget(partition)
            self._looking.forget(partition)
            self._left = (self._left[0] + lane.copies.copied_records, self._left[1] + lane.copies.copied_bytes)

    # Saving -------------------------------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        now_s = self._node.clock.monotonic()
        if now_s < self._save_due_s:
            return
        self._save_due_s = now_s + _SAVE_EVERY_S
        self._follow_rate()
        self._count()
        self._serve_producer()
        self._commit_what_moved()
        if now_s >= self._snapshot_due_s:
            self._snapshot_due_s = now_s + _SNAPSHOT_EVERY_S
            self._save_snapshots()

    def _commit_what_moved(self) -> None:
        if self._saves.is_unanswered():
            _log.warning("replicator=%s saves its place again: no answer for %.0f s", self._name, ANSWER_S)
        moved = self._saves.due(
            {p: lane.done_upto().highest + 1 for p, lane in self._lanes.items() if lane.copying is not None}
        )
        if not moved:
            return
        deadline = Deadline.after(_STORE_S)
        self._target.check_open(deadline)
        commits = {p: self._lanes[p].cursor.prepare(self._node.store, place, deadline) for p, place in moved.items()}
        if len(split_commits(commits)) > 1:
            self._consumer.commit(commits)
            self._saves.kept(moved)
        else:
            self._saves.sent(moved)
            self._consumer.commit_async(commits)

    def _save_snapshots(self) -> None:
        for partition, lane in self._lanes.items():
            if lane.copying is None:
                continue
            try:
                lane.save_snapshot(self._target, Deadline.after(_STORE_S))
            except errors.LayerError as failure:
                _log.info("replicator=%s[%d] could not note how far it is: %s", self._name, partition, failure)
                return

    def _on_committed(self, failure: errors.LayerError | None) -> None:
        self._saves.answered(accepted=failure is None)
        if failure is not None:
            _log.info("replicator=%s its place was not saved: %s", self._name, failure)

    def _commit(self, lanes: Mapping[int, Lane], deadline: Deadline) -> None:
        """Save these places, and wait until the group has them. Raises StoreError, TopicIsTerminated."""
        if lanes:
            self._target.check_open(deadline)
            self._consumer.commit(
                {
                    p: lane.cursor.prepare(
                        self._node.store, 0 if lane.copying is None else lane.done_upto().highest + 1, deadline
                    )
                    for p, lane in lanes.items()
                }
            )
            self._saves.kept({p: lane.cursor.next_offset for p, lane in lanes.items()})

    def _count(self) -> None:
        lanes = self._lanes.values()
        self._counts.records = self._base[0] + self._left[0] + sum(lane.copies.copied_records for lane in lanes)
        self._counts.bytes = self._base[1] + self._left[1] + sum(lane.copies.copied_bytes for lane in lanes)
        self._counts.under_way = sum(lane.copies.records for lane in lanes)
        self._counts.behind = sum(
            max(0, self._consumer.known_end(p) - (lane.done_upto().highest + 1)) for p, lane in self._lanes.items()
        )


def _is_busy(lane: Lane) -> bool:
    return lane.copies.records > 0 and lane.copies.failure is None
