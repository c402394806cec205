"""This process's one membership in a subscription: the thread that reads, dispatches, acknowledges and saves.

All state below belongs to that thread. Other threads append acknowledgements to the partitions' slots, take messages
out of endpoints, and hand commands over; a command's Future is settled by the thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Generic, TypeVar

from layer import errors
from layer.clock import Clock
from layer.cursor.store import CursorIdentity, CursorStore, Recovered, Save, Saved, new_session
from layer.deadline import Deadline
from layer.dispatch.delivery import PartitionSlot
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.negative_acks import NegativeAcks
from layer.dispatch.partition import OwnedPartition
from layer.dispatch.strategy import RoundRobin, SubscriptionType, active_consumer
from layer.kafka.fetcher import Fetcher
from layer.kafka.group import (
    GroupCallbacks,
    GroupConsumer,
    is_not_authorized,
    is_offset_out_of_range,
    is_topic_gone,
    split_commits,
)
from layer.kafka.records import CommittedOffset

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_BATCH: Final = 1000
_POLL_S: Final = 0.01
_IDLE_POLL_S: Final = 0.05
_IDLE_AFTER_S: Final = 5.0
_STARVED_WAIT_S: Final = 0.02
_PAUSE_AFTER_S: Final = 1.0
_MAX_BUFFERED_BYTES: Final = 16 * 1024 * 1024
_REPLAY_TIMEOUT_S: Final = 2.0
_CHECKPOINT_EVERY_S: Final = 60.0
_STORE_TIMEOUT_S: Final = 10.0
_RETRY_OPEN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class SubscriptionHandle:
    """What a member must know of its subscription; `identity` and `start_offset` are asked per partition."""

    topic: str
    subscription: str
    kafka_topic: str
    type: SubscriptionType
    slot: Callable[[int], PartitionSlot]
    slots: Callable[[], Sequence[PartitionSlot]]
    """Every slot made so far, of owned partitions and others."""
    identity: Callable[[int], CursorIdentity]
    start_offset: Callable[[int], int]
    checkpoint: Callable[[int, Deadline], CommittedOffset | None]
    verify: Callable[[Deadline], None]
    """Raises SubscriptionBusy when this process may not serve the subscription (any more)."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.subscription}"


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One owned partition at one moment. Offsets are Kafka's; `holes` counts individually deleted positions."""

    partition: int
    mark_delete: int
    read_position: int
    individually_deleted: int
    in_flight: int
    waiting_for_redelivery: int
    buffered: int
    stopped: str | None


class _Command(Generic[_T]):
    """A wish of another thread's, and where its outcome goes."""

    __slots__ = ("_action", "_future")

    def __init__(self, future: Future[_T], action: Callable[[], _T]) -> None:
        self._future = future
        self._action = action

    def execute(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            self._future.set_result(self._action())
        except Exception as error:  # the caller gets it
            self._future.set_exception(error)

    def refuse(self, reason: Exception) -> None:
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(reason)


class SubscriptionMember:
    """Serves every consumer that this process has on one subscription.

    Memory: librdkafka's fetch queue, beyond it 16 MiB and one fetched batch for each partition, and one offset for each
    unacknowledged message of a shared subscription.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        config: dict[str, Any],
        store: CursorStore,
        fetcher: Fetcher,
        clock: Clock,
        *,
        ack_persist_interval_s: float,
    ) -> None:
        self._handle = handle
        self._config = config
        self._store = store
        self._fetcher = fetcher
        self._clock = clock
        self._persist_every_s = ack_persist_interval_s
        self._session = new_session()
        self._endpoints: list[Endpoint] = []
        self._owned: dict[int, OwnedPartition] = {}
        self._unopened: dict[int, float] = {}
        self._commands: deque[_Command[Any]] = deque()
        self._wake = threading.Event()
        self._waiting_for_wake = False
        self._nacks = NegativeAcks()
        self._round_robin = RoundRobin()
        self._in_flight_saves: dict[int, Save] | None = None
        self._unknown_saves: dict[int, Save] | None = None
        self._last_save_s = 0.0
        self._last_activity_s = 0.0
        self._losses = 0
        self._starved_since_s: float | None = None
        self._paused: set[int] = set()
        self._replay_failed = False
        self._stopping = False
        self._ended = False
        self._consumer: GroupConsumer | None = None
        self._ready = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"pok-member {handle}", daemon=True)

    # Any thread ---------------------------------------------------------------------------------------------------

    @property
    def type(self) -> SubscriptionType:
        return self._handle.type

    def start(self) -> None:
        self._thread.start()

    def slot(self, partition: int) -> PartitionSlot:
        return self._handle.slot(partition)

    def attach(self, endpoint: Endpoint) -> None:
        """Add a consumer."""
        endpoint.wake_member = self.wake
        self.run(lambda: self._attach(endpoint)).result()

    def detach(self, endpoint: Endpoint, deadline: Deadline) -> None:
        """Remove a consumer; what it did not acknowledge is delivered again."""
        if self._ended:
            endpoint.close()
            return
        self._result(self.run(lambda: self._detach(endpoint)), deadline, "the consumer to be detached")

    def wake(self) -> None:
        """End the member's wait for room in an inbox."""
        if self._waiting_for_wake:
            self._wake.set()

    def run(self, command: Callable[[], _T]) -> Future[_T]:
        """Have `command` run by the member's thread."""
        future: Future[_T] = Future()
        self._commands.append(_Command(future, command))
        self._wake.set()
        if self._ended:
            self._refuse_commands()
        return future

    def negative_acknowledge(self, slot: PartitionSlot, offset: int, endpoint: Endpoint, delay_s: float) -> None:
        """Have one message delivered again after `delay_s`. On Exclusive and Failover everything unacknowledged comes
        again, as the official client does."""
        due = self._clock.monotonic() + delay_s
        self.run(lambda: self._nacks.add(due, slot.number, offset, endpoint))

    def redeliver_unacknowledged(self, endpoint: Endpoint) -> None:
        """Deliver again, now, what this consumer has not acknowledged."""
        self.run(lambda: self._redeliver_all(endpoint))

    def save(self, deadline: Deadline) -> int:
        """Return when everything acknowledged before this call is durable, or known to be lost.

        Gives how often, up to now, this process had to give a partition up with acknowledgements that were not saved:
        when that number has grown since the caller last saw it, some of its acknowledgements were not kept.

        Raises:
            StoreError: they could not be saved.
        """
        future = self.run(self._save_now)
        return self._result(future, deadline, "acknowledgements to be durable")

    def seek(self, offsets: Mapping[int, int], deadline: Deadline) -> None:
        """Set the cursors of these partitions to these offsets, durably, and go on from there.

        Raises:
            SubscriptionBusy: another process owns one of them.
        """
        self._result(self.run(lambda: self._seek(offsets)), deadline, "the seek")

    def wait_until_assigned(self, deadline: Deadline) -> None:
        """Return once Kafka has answered with an assignment (which may be empty).

        Raises:
            DeadlineExceeded: it has not in time.
        """
        if not self._ready.wait(deadline.remaining_s()):
            raise errors.DeadlineExceeded(f"subscription {self._handle} got no assignment in time")
        if self.failure is not None:
            raise self.failure

    def is_assigned(self) -> bool:
        return self._ready.is_set() and self.failure is None

    def stats(self, deadline: Deadline) -> list[PartitionStats]:
        return self._result(self.run(self._stats), deadline, "statistics")

    def losses(self) -> int:
        """See `save`."""
        return self._losses

    def owned_partitions(self) -> list[int]:
        return sorted(self._owned)

    def stop(self, deadline: Deadline) -> None:
        """Save, leave the group, end the thread."""

        def stop() -> None:
            self._stopping = True

        self.run(stop)
        self._thread.join(deadline.remaining_s())
        if self._thread.is_alive():
            raise errors.DeadlineExceeded(f"subscription {self._handle} did not close in time")

    @staticmethod
    def _result(future: Future[_T], deadline: Deadline, what: str) -> _T:
        try:
            return future.result(deadline.remaining_s())
        except FutureTimeoutError as late:
            future.cancel()
            raise errors.DeadlineExceeded(f"time ran out while waiting for {what}") from late

    # The member's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            callbacks = GroupCallbacks(self._on_assigned, self._on_revoked, self._on_lost, self._on_committed)
            self._consumer = GroupConsumer(self._config, self._handle.kafka_topic, callbacks)
            while not self._stopping:
                self._step(self._consumer)
            self._shut_down(self._consumer)
        except Exception as error:
            _log.exception("subscription=%s stopped serving", self._handle)
            self.failure = error
            for endpoint in self._endpoints:
                endpoint.fail(error)
            self._abandon()
        finally:
            self._ended = True
            self._ready.set()
            self._refuse_commands()

    def _abandon(self) -> None:
        if self._consumer is not None:
            self._owned.clear()
            try:
                self._consumer.close()
            except Exception:
                _log.exception("subscription=%s could not leave its group", self._handle)

    def _refuse_commands(self) -> None:
        """Nobody serves the subscription any more: every command waiting, and every later one, fails."""
        while self._commands:
            try:
                command = self._commands.popleft()
            except IndexError:  # another thread was quicker
                return
            command.refuse(self.failure or errors.Closed(f"subscription {self._handle} was closed"))

    def _step(self, consumer: GroupConsumer) -> None:
        while self._commands:
            self._commands.popleft().execute()
        self._drain()
        self._redeliver_due()
        handed = self._dispatch()
        now = self._clock.monotonic()
        if now - self._last_save_s >= self._persist_every_s:
            self._last_save_s = now
            self._save_in_background(consumer)
            self._open_late(consumer, now)
        if self._has_undelivered() and not handed:
            self._wait_for_room(consumer, now)
            return
        self._starved_since_s = None
        self._resume_drained(consumer)
        busy = handed or now - self._last_activity_s < _IDLE_AFTER_S
        batch = consumer.poll_batch(_BATCH, 0.0 if self._has_undelivered() else self._poll_timeout(now, busy))
        if batch:
            self._last_activity_s = now
            self._accept(consumer, batch)

    def _poll_timeout(self, now: float, busy: bool) -> float:
        timeout = _POLL_S if busy else _IDLE_POLL_S
        next_due = self._nacks.next_due()
        return timeout if next_due is None else min(timeout, max(0.0, next_due - now))

    def _has_undelivered(self) -> bool:
        return any(owned.buffered or owned.replay for owned in self._owned.values())

    def _wait_for_room(self, consumer: GroupConsumer, now: float) -> None:
        """No inbox takes what is at hand: wait for one to drain, and stop reading when that takes long."""
        if self._starved_since_s is None:
            self._starved_since_s = now
        self._waiting_for_wake = True
        for endpoint in self._endpoints:
            endpoint.starved = True
        # A receiver that drained its inbox before it could see the flag is seen here instead.
        if not self._commands and (self._replay_failed or not self._takes_any()):
            self._wake.wait(_STARVED_WAIT_S)
        self._wake.clear()
        self._waiting_for_wake = False
        for endpoint in self._endpoints:
            endpoint.starved = False
        if now - self._starved_since_s > _PAUSE_AFTER_S:
            # pause() throws away what librdkafka fetched ahead, so it is not used for a short wait
            self._pause(consumer, [number for number in self._owned if number not in self._paused])
            self._accept(consumer, consumer.poll_batch(_BATCH, 0.0))
        elif self._other_partition_flows():
            self._accept(consumer, consumer.poll_batch(_BATCH, 0.0))
        elif self._in_flight_saves is not None:
            self._accept(consumer, consumer.poll_batch(1, 0.0))  # its answer comes out of polling, too

    def _takes_any(self) -> bool:
        """Some inbox is half empty or better and has messages waiting here for it."""
        if self._handle.type.is_shared:
            return any(e.has_room_again() and e.shared_permits() > 0 for e in self._endpoints)
        return any(
            owned.buffered and owned.active is not None and owned.active.endpoint.has_room_again()
            for owned in self._owned.values()
        )

    def _other_partition_flows(self) -> bool:
        """Some consumer has room while the messages at hand are for another one (Failover inside a process)."""
        return not self._handle.type.is_shared and any(
            owned.active is not None and not owned.buffered and owned.active.endpoint.permits() > 0
            for owned in self._owned.values()
        )

    def _pause(self, consumer: GroupConsumer, partitions: list[int]) -> None:
        if partitions:
            consumer.pause(partitions)
            self._paused.update(partitions)

    def _resume_drained(self, consumer: GroupConsumer) -> None:
        if not self._paused:
            return
        drained = [n for n in self._paused if n in self._owned and not self._owned[n].buffered]
        if drained:
            self._paused.difference_update(drained)
            consumer.resume(drained)

    # Records ------------------------------------------------------------------------------------------------------

    def _accept(self, consumer: GroupConsumer, batch: list[Any]) -> None:
        if not batch:
            return
        kind = type(batch[0])
        for partition, group in groupby(batch, kind.partition):
            records = list(group)
            owned = self._owned.get(partition)
            if any(map(kind.error, records)):
                failed = [record for record in records if record.error() is not None]
                records = [record for record in records if record.error() is None]
                for event in failed:
                    self._on_error(consumer, partition, event.error())
            if owned is None or owned.stopped is not None or not records:
                continue
            owned.accept(list(map(kind.offset, records)), records)
            if owned.buffered_bytes > _MAX_BUFFERED_BYTES and partition not in self._paused:
                self._pause(consumer, [partition])

    def _on_error(self, consumer: GroupConsumer, partition: int | None, error: Any) -> None:
        owned = self._owned.get(partition) if partition is not None else None
        if owned is not None and is_offset_out_of_range(error):
            self._leave_the_gap(consumer, owned)
        elif is_topic_gone(error):
            raise errors.NoSuchTopic(f"topic {self._handle.topic} is gone: {error.str()}")
        elif error.fatal():
            raise errors.StoreError(f"subscription {self._handle}: {error.str()}")
        elif is_not_authorized(error):
            raise errors.NotAuthorized(f"subscription {self._handle}: {error.str()}")
        else:
            _log.warning("subscription=%s partition=%s %s", self._handle, partition, error.str())

    def _leave_the_gap(self, consumer: GroupConsumer, owned: OwnedPartition) -> None:
        """The read position is outside of the log: below its start go on at the start, beyond its end stop."""
        low, high = consumer.watermarks(owned.slot.number, _STORE_TIMEOUT_S)
        if owned.read_position < low:
            _log.warning(
                "cursor=%s Kafka deleted offsets %d to %d before they were acknowledged", owned.identity,
                owned.read_position, low - 1,
            )  # fmt: skip
            owned.cursor.acknowledge_cumulative(low - 1)
            owned.read_position = max(owned.read_position, low)
            consumer.seek(owned.slot.number, owned.read_position)
        elif owned.read_position > high:
            owned.stopped = (
                f"the cursor stands at offset {owned.read_position}, but the log ends at {high}: the cluster lost data"
            )
            _log.error("cursor=%s stopped: %s", owned.identity, owned.stopped)

    # Dispatch -----------------------------------------------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Hand out what inboxes take; True when anything was."""
        if not self._endpoints:
            return False
        if self._handle.type.is_shared:
            return self._dispatch_shared()
        handed = False
        for owned in self._owned.values():
            if owned.buffered and owned.active is not None:
                handed = self._dispatch_to_active(owned) or handed
        return handed

    def _dispatch_to_active(self, owned: OwnedPartition) -> bool:
        feed = owned.active
        assert feed is not None  # noqa: S101 - the caller looked
        handed = False
        while owned.buffered and (permits := feed.endpoint.permits()) > 0:
            offsets, records = owned.take(permits)
            if offsets:
                make = feed.endpoint.delivery_type
                feed.endpoint.deliver([make(r, feed, o, 0) for r, o in zip(records, offsets, strict=True)])
                handed = True
        return handed

    def _dispatch_shared(self) -> bool:
        handed = False
        for owned in self._owned.values():
            if owned.replay:
                handed = self._dispatch_replays(owned) or handed
            while owned.buffered:
                turn = self._round_robin.next(self._endpoints)
                if turn is None:
                    return handed
                endpoint, permits = turn
                offsets, records = owned.take(permits)
                if not offsets:
                    continue
                feed = endpoint.feed(owned.slot)
                owned.handed_out(offsets, feed)
                make = endpoint.delivery_type
                endpoint.deliver([make(r, feed, o, 0) for r, o in zip(records, offsets, strict=True)])
                handed = True
        return handed

    def _dispatch_replays(self, owned: OwnedPartition) -> bool:
        """Read again from Kafka what is to be delivered again, lowest first, as much as inboxes take."""
        room = sum(max(0, endpoint.shared_permits()) for endpoint in self._endpoints)
        wanted = owned.next_replays(min(room, _BATCH))
        if not wanted:
            return False
        records: dict[int, Any] = {}
        try:
            for batch in self._fetcher.read_at(
                self._handle.kafka_topic, owned.slot.number, wanted, Deadline.after(_REPLAY_TIMEOUT_S)
            ):
                records.update((record.offset(), record) for record in batch)
        except errors.OffsetOutOfRange:
            low, _ = self._fetcher.watermarks(
                self._handle.kafka_topic, owned.slot.number, Deadline.after(_STORE_TIMEOUT_S)
            )
            owned.cursor.acknowledge_cumulative(low - 1)
            owned.replayed([offset for offset in wanted if offset < low])
            return True
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot read messages again yet: %s", owned.identity, failure)
            last_read = max(records, default=-1)
            wanted = [offset for offset in wanted if offset <= last_read]  # what came before goes out nevertheless
        self._replay_failed = not wanted
        missing = [offset for offset in wanted if offset not in records]
        if missing:  # compacted or deleted by Kafka since
            owned.cursor.acknowledge(missing)
        owned.replayed(wanted)
        pending = [offset for offset in wanted if offset in records]
        while pending:
            turn = self._round_robin.next(self._endpoints)
            if turn is None:
                owned.replay.update(pending)
                break
            endpoint, permits = turn
            part, pending = pending[:permits], pending[permits:]
            feed = endpoint.feed(owned.slot)
            owned.handed_out(part, feed)
            endpoint.deliver([endpoint.delivery_type(records[o], feed, o, owned.redeliveries.get(o, 0)) for o in part])
        return bool(wanted)

    # Acknowledgements and redelivery ------------------------------------------------------------------------------

    def _drain(self) -> None:
        for owned in self._owned.values():
            slot = owned.slot
            if slot.acks or slot.cumulative:
                owned.drain_acknowledgements(lambda owned=owned: self._log_end(owned))  # type: ignore[misc]

    def _log_end(self, owned: OwnedPartition) -> int:
        if self._consumer is None:
            return owned.read_position
        return self._consumer.watermarks(owned.slot.number, _STORE_TIMEOUT_S)[1]

    def _redeliver_due(self) -> None:
        rewound: set[int] = set()
        for partition, offset, endpoint in self._nacks.due(self._clock):
            owned = self._owned.get(partition)
            if owned is None or endpoint.closed:
                continue
            if self._handle.type.is_shared:
                if not owned.cursor.is_acknowledged(offset):
                    owned.redeliver(offset)
            elif partition not in rewound and offset < owned.read_position:  # even if it is acknowledged, as in Pulsar
                rewound.add(partition)
                self._rewind(owned)

    def _redeliver_all(self, endpoint: Endpoint) -> None:
        for owned in self._owned.values():
            feed = endpoint.feed(owned.slot)
            if self._handle.type.is_shared:
                endpoint.discard(owned.slot)
                for offset in owned.held_by(feed):
                    owned.redeliver(offset)
            elif owned.active is feed:
                self._rewind(owned)

    def _rewind(self, owned: OwnedPartition) -> None:
        """Deliver everything unacknowledged of a partition again, in order."""
        for endpoint in self._endpoints:
            endpoint.discard(owned.slot)
        position = owned.rewind()
        if self._consumer is not None:
            self._consumer.seek(owned.slot.number, position)

    # Consumers ----------------------------------------------------------------------------------------------------

    def _attach(self, endpoint: Endpoint) -> None:
        if self.failure is not None:
            raise self.failure
        self._endpoints.append(endpoint)
        self._choose_active()

    def _detach(self, endpoint: Endpoint) -> None:
        self._drain()
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
        endpoint.close()
        for owned in self._owned.values():
            if self._handle.type.is_shared:
                owned.give_back(endpoint.feed(owned.slot))
        self._choose_active()

    def _choose_active(self) -> None:
        if self._handle.type.is_shared:
            return
        for owned in self._owned.values():
            chosen = active_consumer(self._endpoints, owned.slot.number)
            feed = chosen.feed(owned.slot) if chosen is not None else None
            if feed is owned.active:
                continue
            had_one = owned.active is not None
            owned.active = feed
            if had_one and feed is not None:
                self._rewind(owned)

    def _seek(self, offsets: Mapping[int, int]) -> None:
        consumer = self._consumer
        elsewhere = sorted(set(offsets) - set(self._owned))
        if consumer is None or elsewhere:
            raise errors.SubscriptionBusy(
                f"subscription {self._handle}: partitions {elsewhere} are not served by this process now"
            )
        self._drain()
        for number, target in offsets.items():
            owned = self._owned[number]
            for endpoint in self._endpoints:
                endpoint.discard(owned.slot)
            position = owned.seek(target)
            owned.stopped = None
            consumer.seek(number, position)
        self._save_now()

    def _stats(self) -> list[PartitionStats]:
        self._drain()
        return [
            PartitionStats(
                number,
                owned.cursor.mark_delete,
                owned.read_position,
                len(owned.cursor.deleted),
                len(owned.in_flight),
                len(owned.replay),
                owned.buffered,
                owned.stopped,
            )
            for number, owned in sorted(self._owned.items())
        ]

    # Ownership ----------------------------------------------------------------------------------------------------

    def _on_assigned(self, partitions: list[int]) -> Mapping[int, int]:
        starts: dict[int, int] = {}
        try:
            opened = self._open(partitions)
        except errors.StoreError as failure:
            _log.warning("subscription=%s cannot open its cursors yet: %s", self._handle, failure)
            now = self._clock.monotonic()
            self._unopened.update(dict.fromkeys(partitions, now))
            opened = {}
        for number in partitions:
            owned = opened.get(number)
            starts[number] = owned.read_position if owned is not None else 0
        self._ready.set()
        return starts

    def _open_late(self, consumer: GroupConsumer, now: float) -> None:
        """Try again to open partitions whose state could not be read when they were assigned."""
        due = [number for number, since in self._unopened.items() if now - since >= _RETRY_OPEN_S]
        if not due:
            return
        try:
            for number, owned in self._open(due).items():
                del self._unopened[number]
                consumer.seek(number, owned.read_position)
        except errors.StoreError as failure:
            _log.warning("subscription=%s still cannot open its cursors: %s", self._handle, failure)
            self._unopened.update(dict.fromkeys(due, now))

    def _open(self, partitions: list[int]) -> dict[int, OwnedPartition]:
        """Recover the cursors and take them over: one commit that names our session and the next version."""
        consumer = self._consumer
        if consumer is None or not partitions:
            return {}
        deadline = Deadline.after(_STORE_TIMEOUT_S)
        self._handle.verify(deadline)
        committed = consumer.committed(partitions, _STORE_TIMEOUT_S)
        opened: dict[int, OwnedPartition] = {}
        saves: dict[int, Save] = {}
        previous: dict[int, Recovered] = {}
        for number in partitions:
            identity = self._handle.identity(number)
            commit = committed.get(number)
            checkpoint = None if commit is not None else self._handle.checkpoint(number, deadline)
            found = self._store.recover(identity, commit, checkpoint, self._handle.start_offset(number), deadline)
            version = found.saved.lineage.version + 1 if found.saved is not None else 1
            lineage = identity.lineage(self._session, version, 0)
            saves[number] = self._store.prepare(identity, found.state, found.saved or Saved(lineage), lineage, deadline)
            owned = OwnedPartition(self._handle.slot(number), identity, found.state, found.saved or Saved(lineage))
            opened[number] = owned
            previous[number] = found
        consumer.commit({number: save.commit for number, save in saves.items()})
        for number, owned in opened.items():
            self._owned[number] = owned
            before = previous[number].saved
            if before is not None and before.lineage.session != self._session:
                owned.previous_session = before.lineage.session
            self._accepted(owned, saves[number], deadline)
            _log.info(
                "cursor=%s version=%d recovered from=%s next=%d individually_deleted=%d", owned.identity,
                owned.saved.lineage.version, previous[number].source, owned.cursor.next_unacked,
                len(owned.cursor.deleted),
            )  # fmt: skip
        self._choose_active()
        return opened

    def _on_revoked(self, partitions: list[int]) -> None:
        leaving = [number for number in partitions if number in self._owned]
        self._drain()
        try:
            self._settle_in_flight()
            self._save(leaving)
            self._checkpoint(leaving, forced=True)
        except errors.StoreError as failure:
            _log.warning("subscription=%s could not save while handing over: %s", self._handle, failure)
        self._drop(leaving)

    def _settle_in_flight(self) -> list[int]:
        """Learn the outcome of the save under way from what the group has: its callback cannot come just now.

        A save may build only on one whose outcome is known: its marker names the segments that the other one wrote.
        Gives the partitions that it was not accepted for.
        """
        saves, self._in_flight_saves = self._in_flight_saves or self._unknown_saves, None
        self._unknown_saves = None
        if saves is not None and self._consumer is not None:
            try:
                return self._settle_unknown(self._consumer, saves)
            except errors.StoreError:
                self._unknown_saves = saves
                raise
        return []

    def _on_lost(self, partitions: list[int]) -> None:
        _log.warning("subscription=%s lost partitions %s", self._handle, partitions)
        self._in_flight_saves = None
        self._unknown_saves = None
        self._drop(partitions)

    def _drop(self, partitions: list[int]) -> None:
        for number in partitions:
            self._unopened.pop(number, None)
            self._paused.discard(number)
            owned = self._owned.pop(number, None)
            if owned is None:
                continue
            for endpoint in self._endpoints:
                endpoint.discard(owned.slot)
            if owned.dirty or owned.slot.forget_acknowledgements():
                self._losses += 1
            owned.rewind()

    # Saving -------------------------------------------------------------------------------------------------------

    def _prepare(self, partitions: list[int]) -> dict[int, Save]:
        deadline = Deadline.after(_STORE_TIMEOUT_S)
        saves: dict[int, Save] = {}
        for number in partitions:
            owned = self._owned.get(number)
            if owned is None or not owned.dirty:
                continue
            lineage = owned.identity.lineage(self._session, owned.saved.lineage.version, owned.next_save)
            owned.next_save += 1
            try:
                saves[number] = self._store.prepare(owned.identity, owned.cursor, owned.saved, lineage, deadline)
            except errors.StoreError:
                self._all_refused(saves)  # the segments of the others are not to be taken for saved
                raise
        return saves

    def _save_now(self) -> int:
        consumer = self._consumer
        patience = Deadline.after(_STORE_TIMEOUT_S)
        self._drain()
        while consumer is not None:
            if self._in_flight_saves is None:
                try:
                    self._settle_in_flight()
                    self._save(sorted(self._owned))
                    break
                except errors.Fenced:  # a rebalance: polling tells which partitions are ours after it
                    if patience.passed():
                        raise
            self._accept(consumer, consumer.poll_batch(_BATCH, _POLL_S))
            self._drain()
        for slot in self._handle.slots():
            if slot.number not in self._owned and slot.forget_acknowledgements():
                self._losses += 1
        return self._losses

    def _save(self, partitions: list[int]) -> None:
        """Save these partitions and wait until that is durable."""
        consumer = self._consumer
        saves = self._prepare(partitions)
        if saves and consumer is not None:
            self._commit(consumer, saves)

    def _commit(self, consumer: GroupConsumer, saves: dict[int, Save]) -> None:
        try:
            consumer.commit({number: save.commit for number, save in saves.items()})
        except errors.CommitOutcomeUnknown:
            self._unknown_saves = saves
            if self._settle_in_flight():
                raise
        except errors.StoreError:
            self._all_refused(saves)
            raise
        else:
            self._all_accepted(saves)

    def _save_in_background(self, consumer: GroupConsumer) -> None:
        if self._in_flight_saves is not None:
            return
        try:
            self._settle_in_flight()
            saves = self._prepare(sorted(self._owned))
        except errors.StoreError as failure:
            _log.warning("subscription=%s could not write cursor segments: %s", self._handle, failure)
            return
        commits = {number: save.commit for number, save in saves.items()}
        try:
            if len(split_commits(commits)) > 1:  # more than Kafka takes at once: one after the other
                self._commit(consumer, saves)
            elif saves:
                self._in_flight_saves = saves
                consumer.commit_async(commits)
        except errors.StoreError as failure:
            if self._in_flight_saves is not None:
                self._in_flight_saves = None
                self._all_refused(saves)
            _log.warning("subscription=%s could not save: %s", self._handle, failure)
        self._checkpoint(sorted(self._owned), forced=False)

    def _on_committed(self, failure: errors.LayerError | None) -> None:
        saves, self._in_flight_saves = self._in_flight_saves, None
        if saves is None:
            return
        if failure is None:
            self._all_accepted(saves)
            return
        _log.warning("subscription=%s save failed: %s", self._handle, failure)
        if isinstance(failure, errors.CommitOutcomeUnknown):
            self._unknown_saves = saves
        else:
            self._all_refused(saves)

    def _settle_unknown(self, consumer: GroupConsumer, saves: Mapping[int, Save]) -> list[int]:
        """Read back what the group has: a save is accepted when its metadata stands there. Gives the others."""
        committed = consumer.committed(sorted(saves), _STORE_TIMEOUT_S)
        kept = {number: save for number, save in saves.items() if committed.get(number) == save.commit}
        missing = {number: save for number, save in saves.items() if number not in kept}
        self._all_accepted(kept)
        self._all_refused(missing)
        return sorted(missing)

    def _all_accepted(self, saves: Mapping[int, Save]) -> None:
        deadline = Deadline.after(_STORE_TIMEOUT_S)
        for number, save in saves.items():
            owned = self._owned.get(number)
            if owned is not None:
                self._accepted(owned, save, deadline)

    def _all_refused(self, saves: Mapping[int, Save]) -> None:
        for number, save in saves.items():
            owned = self._owned.get(number)
            if owned is not None:
                owned.save_refused(save)

    def _accepted(self, owned: OwnedPartition, save: Save, deadline: Deadline) -> None:
        segments, markers = owned.save_accepted(save)
        try:
            self._store.clean(owned.identity, segments, markers, deadline)
        except errors.StoreError as failure:
            _log.warning("cursor=%s could not clean up: %s", owned.identity, failure)

    def _checkpoint(self, partitions: list[int], *, forced: bool) -> None:
        now = self._clock.monotonic()
        deadline = Deadline.after(_STORE_TIMEOUT_S)
        for number in partitions:
            owned = self._owned.get(number)
            if owned is None or not owned.checkpoint_dirty:
                continue
            if not forced and now - owned.last_checkpoint_s < _CHECKPOINT_EVERY_S:
                continue
            owned.last_checkpoint_s = now
            owned.checkpoint_dirty = False
            if owned.last_commit is None:
                continue
            try:
                self._store.write_checkpoint(
                    owned.identity, owned.last_commit, owned.saved.lineage, self._clock.now_ms(), deadline
                )
                self._store.clean(owned.identity, *owned.checkpoint_written(), deadline)
                if owned.previous_session is not None:
                    self._store.drop_checkpoint(owned.identity, owned.previous_session, deadline)
                    owned.previous_session = None
            except errors.StoreError as failure:
                owned.checkpoint_dirty = True
                _log.warning("cursor=%s could not write a checkpoint: %s", owned.identity, failure)

    def _shut_down(self, consumer: GroupConsumer) -> None:
        for endpoint in list(self._endpoints):
            self._detach(endpoint)
        try:
            self._save_now()
        except errors.StoreError as failure:
            _log.warning("subscription=%s could not save while closing: %s", self._handle, failure)
        consumer.close()
