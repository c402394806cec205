"""One membership in a consumer group without librdkafka: the process's group client joins, its fetch client reads.

It has no thread and no connection of its own. Its owner makes one call at a time, in any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka.groups.dead_members import LocalPeers
from pulsar_on_kafka.kafka.groups.group_client import GroupClient, MembershipCallbacks
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks
from pulsar_on_kafka.kafka.groups.membership_machine import NO_MEMBER, MemberGeneration
from pulsar_on_kafka.kafka.reading.events import Event, Failed, Forbidden, Gone, KafkaPartition, Records
from pulsar_on_kafka.kafka.reading.fetch_client import FetchClient, WatchedPartition
from pulsar_on_kafka.kafka.reading.fetch_sessions import Fetched, FetchEvent
from pulsar_on_kafka.kafka.reading.record_batches import FetchedRecord, decode
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.wire.offset_messages import READ_COMMITTED

_log: Final = logging.getLogger(__name__)

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The limit of what is fetched of one partition and not handed out, except for one response."""
_REPLY_S: Final = 30.0
"""Above the time-outs of the group client's requests, each of which ends by itself."""
_LEAVE_S: Final = 5.0
_LOOK_S: Final = 0.1
_CORRUPT_RETRY_S: Final = 10.0


class _Partition:
    """One assigned partition. Memory: what is fetched and not handed out, within the watch's window."""

    __slots__ = ("arrived", "held_bytes", "is_paused", "is_queued", "retry", "watch", "where")

    watch: WatchedPartition

    def __init__(self, where: KafkaPartition, *, is_paused: bool) -> None:
        self.where = where
        self.is_paused = is_paused
        self.arrived: deque[Fetched] = deque()
        self.is_queued = False
        """It is among the partitions that `poll` takes from next."""
        self.held_bytes = 0
        """The bytes that the owner took by `poll` and that are not handed out."""
        self.retry: tuple[int, float] | None = None
        """The position of bytes that cannot be decoded, and the time at which they are fetched again."""

    @property
    def window_bytes(self) -> int:
        return 0 if self.is_paused or self.retry is not None else WINDOW_BYTES

    def drop(self) -> None:
        """Drops what was fetched."""
        while self.arrived:
            self.held_bytes += len(self.arrived.popleft().data)
        self.watch.hand_out(self.held_bytes)
        self.held_bytes = 0


class _Batch(NamedTuple):
    partition: _Partition
    generation: int
    records: list[FetchedRecord]


class WireMember(OfOneProcess):
    """A member of group `group_id` that reads one topic, or `only` one partition of it.

    With `only` the group assigns all partitions, and its other ones are ignored.

    A commit without a reply ends the membership, which joins anew (`membership_machine`): no copy of it can be late.

    Memory: 16 MiB for each assigned partition, and all of a process within the fetch client's budget.
    """

    ends_early: Final = True
    """Wakes and callbacks of the group end the wait of `poll`."""
    awaits_reply: Final = False
    """Replies to commits end the wait of `poll`."""

    def __init__(
        self,
        groups: GroupClient,
        reader: FetchClient,
        group_id: str,
        client_id: str,
        topic: str,
        callbacks: GroupCallbacks,
        only: int | None = None,
        local_peers: LocalPeers | None = None,
        topic_id: bytes | None = None,
        *,
        held_bytes: Callable[[int], int] = lambda partition: 0,
        when_news: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins to join. `topic_id`: see `FetchClient.watch`. `held_bytes`: the size of records of a partition that
        the owner still holds; they count as not handed out. `when_news`: called by any thread when `poll` has something
        to do."""
        self._reader = reader
        self._group_id = group_id
        self._topic = topic
        self._topic_id = topic_id
        self._callbacks = callbacks
        self._local_peers = local_peers
        self._held_bytes = held_bytes
        self._when_news = when_news
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """Calls of the group that the owner's thread makes."""
        self._ready: deque[_Partition | Failed] = deque()
        """Partitions with fetched bytes, and failures."""
        self._batches: Iterator[_Batch] = iter(())
        """The rest of the bytes that `poll` is decoding."""
        self._is_decoding = False
        self._rest: _Batch | None = None
        self._news = threading.Event()
        self._partitions: dict[int, _Partition] = {}
        self._undecoded: set[int] = set()
        """Partitions with bytes that cannot be decoded."""
        self._newest = NO_MEMBER
        """The generation of the last assignment since the last loss."""
        self._losses = 0
        """Losses of partitions that the owner does not know of yet."""
        self._saving: Future[None] | None = None
        """The last `commit_async`."""
        self._is_closing = False
        if local_peers is not None:
            local_peers.joining()
        self._member = groups.join(
            group_id,
            topic,
            MembershipCallbacks(self._when_assigned, self._when_revoked, self._when_lost, self._when_refused),
            client_id=client_id,
            only=only,
        )

    # The loop's thread --------------------------------------------------------------------------------------------

    def _tell(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        self.wake()

    def _when_assigned(self, partitions: tuple[int, ...], generation: MemberGeneration) -> None:
        self._newest = generation
        self._tell(lambda: self._assign(partitions))

    def _when_revoked(self, partitions: tuple[int, ...], generation: MemberGeneration) -> None:
        self._tell(lambda: self._revoke(partitions, generation))

    def _when_lost(self, partitions: tuple[int, ...]) -> None:
        self._losses += 1
        self._newest = NO_MEMBER
        self._tell(lambda: self._lose(partitions))

    def _when_refused(self, failure: errors.LayerError) -> None:
        where = KafkaPartition(self._topic, -1)
        if isinstance(failure, errors.NoSuchTopic):
            self._fail(Gone(where, failure))
        elif isinstance(failure, errors.NotAuthorized):
            self._fail(Forbidden(where, failure))
        else:
            self._fail(Failed(where, failure))

    def _fail(self, event: Failed) -> None:
        self._ready.append(event)
        self.wake()

    def _when_fetched(self, partition: _Partition, event: FetchEvent) -> None:
        if isinstance(event, Fetched):
            partition.arrived.append(event)
            if not partition.is_queued and not partition.is_paused:
                self._member.step_due()
                self._queue(partition)
                self.wake()
        elif isinstance(event.event, Failed):
            self._tell(partial(self._take_failure, partition, event.generation, event.event))

    def _queue(self, partition: _Partition) -> None:
        """Any thread. A partition that is queued twice is found empty the second time."""
        partition.is_queued = True
        self._ready.append(partition)

    # Events -------------------------------------------------------------------------------------------------------

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        """The next events, up to `limit` records and other events; callbacks of the group run in here, and end the
        wait."""
        self.step_ended()
        self._news.clear()
        self.serve_group(0.0)
        events = self._take(limit)
        if not events and timeout_s > 0 and self._news.wait(timeout_s):
            self.serve_group(0.0)
            events = self._take(limit)
        return events

    @property
    def has_events(self) -> bool:
        """`poll` would return something at once, perhaps."""
        return self._rest is not None or self._is_decoding or bool(self._ready)

    def wake(self) -> None:
        """End the wait of `poll`, or the next one. Any thread."""
        self._news.set()
        self._when_news()

    def step_ended(self) -> None:
        """The owner has done what it was woken for: as much is fetched as it holds less than before.

        One that has events and does not end a step for 300 s loses its partitions (`ClientMembership.step_due`). `poll`
        ends one, too.
        """
        for number, partition in self._partitions.items():
            if partition.held_bytes and (size := partition.held_bytes - self._held_bytes(number)) > 0:
                partition.held_bytes -= size
                partition.watch.hand_out(size)
        self._member.step_ended(is_due=self.has_events)

    def yield_partitions(self) -> None:
        self._member.yield_partitions()

    def serve_group(self, timeout_s: float) -> None:
        """Run the calls of the group that are waiting; without any, wait for one."""
        while True:
            try:
                call = self._calls.get(timeout=timeout_s) if timeout_s > 0 else self._calls.get_nowait()
            except Empty:
                return
            call()
            timeout_s = 0.0

    def _take(self, limit: int) -> list[Event]:
        self._retry_undecoded()
        events: list[Event] = []
        while limit > 0:
            batch, self._rest = self._rest or next(self._batches, None), None
            if batch is not None:
                partition, generation, records = batch
                if len(records) > limit:
                    self._rest = batch._replace(records=records[limit:])
                    records = records[:limit]
                limit -= len(records)
                if records and self._is_current(partition, generation):
                    events.append(Records(partition.where, records))
                continue
            self._is_decoding = False
            if not self._ready:
                break
            if isinstance(ready := self._ready.popleft(), Failed):
                events.append(ready)
                limit -= 1
            else:
                ready.is_queued = False
                if ready.arrived and not ready.is_paused:
                    self._batches = self._decoded(ready, ready.arrived.popleft())
                    self._is_decoding = True
                    if ready.arrived:
                        self._queue(ready)
        return events

    def _is_current(self, partition: _Partition, generation: int) -> bool:
        """Whether the partition is still assigned, and was not seeked since."""
        return self._partitions.get(partition.where.partition) is partition and generation == partition.watch.generation

    def _decoded(self, partition: _Partition, fetched: Fetched) -> Iterator[_Batch]:
        position, generation = fetched.position, fetched.generation
        try:
            if self._is_current(partition, generation):
                for batch in decode(fetched.where, fetched.data, position, fetched.aborted):
                    position = batch.position
                    yield _Batch(partition, generation, batch.records)
        except (errors.Corrupt, errors.NotSupportedYet) as failure:
            if self._is_current(partition, generation):
                _log.warning("group=%s %s, again in %g s", self._group_id, failure, _CORRUPT_RETRY_S)
                partition.retry = position, time.monotonic() + _CORRUPT_RETRY_S
                self._undecoded.add(fetched.where.partition)
                partition.watch.set_window(0)
        if self._is_current(partition, generation):
            partition.held_bytes += len(fetched.data)
        else:
            partition.watch.hand_out(len(fetched.data))

    def _retry_undecoded(self) -> None:
        for number in [*self._undecoded]:
            partition = self._partitions.get(number)
            if partition is None or partition.retry is None:
                self._undecoded.discard(number)
            elif partition.retry[1] <= time.monotonic():
                self.seek(number, partition.retry[0])

    def _take_failure(self, partition: _Partition, generation: int, event: Failed) -> None:
        if self._is_current(partition, generation):
            self._ready.append(event)

    # Assignments --------------------------------------------------------------------------------------------------

    def _assign(self, partitions: tuple[int, ...]) -> None:
        if self._is_closing:
            return
        if self._local_peers is not None:
            self._local_peers.changed()
        for number, position in self._callbacks.assigned(list(partitions)).items():
            where = KafkaPartition(self._topic, number)
            partition = _Partition(where, is_paused=not self._callbacks.begins(number))
            self._partitions[number] = partition
            partition.watch = self._reader.watch(
                where, position, partition.window_bytes, partial(self._when_fetched, partition), READ_COMMITTED,
                self._topic_id,
            )  # fmt: skip

    def _revoke(self, partitions: tuple[int, ...], generation: MemberGeneration) -> None:
        try:
            if not self._is_closing:
                self._callbacks.revoked(list(partitions))
        finally:
            self._forget(partitions)
            self._member.confirm_revoked(partitions, generation)

    def _lose(self, partitions: tuple[int, ...]) -> None:
        try:
            if not self._is_closing:
                self._callbacks.lost(list(partitions))
        finally:
            self._forget(partitions)
            self._losses -= 1

    def _forget(self, partitions: Collection[int]) -> None:
        for number in partitions:
            partition = self._partitions.pop(number, None)
            if partition is not None:
                partition.watch.forget()
                partition.drop()

    def close(self) -> None:
        """Leaves the group; `revoked` runs in here for assigned partitions. A second call does nothing."""
        if self._is_closing:
            return
        try:
            self.serve_group(0.0)
            if self._partitions:
                self._callbacks.revoked(sorted(self._partitions))
        finally:
            self._leave()

    def _leave(self) -> None:
        self._is_closing = True
        self._forget([*self._partitions])
        leaving = self._member.leave()
        deadline = Deadline.after(_LEAVE_S)
        while not leaving.done() and not deadline.passed():
            self.serve_group(min(_LOOK_S, deadline.remaining_s()))
        if self._local_peers is not None:
            self._local_peers.forget()

    # Offsets ------------------------------------------------------------------------------------------------------

    def committed(self, partitions: Sequence[int], timeout_s: float) -> dict[int, CommittedOffset]:
        """The group's commits, behind a commit that is under way; partitions without a commit are left out. Raises
        StoreError."""
        deadline = Deadline.after(timeout_s)
        self._await_commit(deadline)
        return self._member.committed(partitions, deadline.remaining_s()).result(_REPLY_S)

    def commit(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Commit and wait for the coordinator's reply.

        Raises:
            Fenced: this member has lost its place; nothing was committed.
            CommitOutcomeUnknown: no reply; read the committed offsets back.
        """
        self._await_commit(Deadline.after(_REPLY_S))
        sent = self._member.commit(commits, self._generation)
        try:
            sent.result(_REPLY_S)
        except FutureTimeoutError:
            raise errors.CommitOutcomeUnknown(f"commit of group {self._group_id}: no reply in time") from None

    def _await_commit(self, deadline: Deadline) -> None:
        """Waits for the end of the last `commit_async`, and raises none of its errors."""
        if self._saving is not None and not wait([self._saving], deadline.remaining_s()).done:
            raise errors.DeadlineExceeded(f"group {self._group_id}: a commit is still under way")

    @property
    def _generation(self) -> MemberGeneration:
        """The generation in which the owner holds its partitions. One that takes nothing from the owner counts at once:
        saves that were prepared before are saves of that generation, too."""
        return NO_MEMBER if self._losses else self._newest

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Send a commit; its outcome comes to `callbacks.committed` from a later poll. One at a time, one part only."""
        self._saving = self._member.commit(commits, self._generation)
        self._saving.add_done_callback(lambda done: self._tell(lambda: self._callbacks.committed(_failure(done))))

    def is_exposed(self, partition: int) -> bool:
        """False: no copy of an older commit can be late."""
        return False

    # Reading ------------------------------------------------------------------------------------------------------

    def known_end(self, partition: int) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""
        found = self._partitions.get(partition)
        return -1 if found is None else found.watch.known_end

    @property
    def notices_deletion(self) -> bool:
        """Whether an event reports that the topic was deleted, also if it was created again: fetches name the topic's
        id."""
        return bool(self._partitions)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader reports now."""
        return self._reader.watermarks(KafkaPartition(self._topic, partition), timeout_s)

    def seek(self, partition: int, offset: int) -> None:
        """Go on reading at `offset`; what was fetched ahead is dropped."""
        found = self._partitions[partition]
        found.drop()  # first: what comes behind the seek may be here at once
        found.watch.seek(offset)
        if found.retry is not None:
            found.retry = None
            found.watch.set_window(found.window_bytes)

    def pause(self, partitions: Sequence[int]) -> None:
        """Hand out, and fetch, nothing more of these. What was fetched waits for `resume`."""
        for found in filter(None, map(self._partitions.get, partitions)):
            found.is_paused = True
            found.watch.set_window(0)

    def resume(self, partitions: Sequence[int]) -> None:
        for found in filter(None, map(self._partitions.get, partitions)):
            found.is_paused = False
            found.watch.set_window(found.window_bytes)
            if found.arrived and not found.is_queued:
                self._queue(found)
                self.wake()


def _failure(done: Future[None]) -> errors.LayerError | None:
    failure = done.exception()
    if failure is None or isinstance(failure, errors.LayerError):
        return failure
    return errors.CommitOutcomeUnknown(f"a commit failed: {failure!r}")
