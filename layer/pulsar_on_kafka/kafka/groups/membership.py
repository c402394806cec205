"""One membership in a consumer group. Driven by exactly one thread: two on one Consumer starve each other. Another
thread may only `wake` it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import ErrorEvents, translate
from pulsar_on_kafka.kafka.groups.dead_members import LocalPeers
from pulsar_on_kafka.kafka.groups.resent_commits import ResentCommits
from pulsar_on_kafka.kafka.poll_wake import PollWake
from pulsar_on_kafka.kafka.reading.assigned_reader import known_end, watermarks
from pulsar_on_kafka.kafka.reading.events import Event, KafkaPartition, events_of
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.rights import Right, on_group, on_topic

_log = logging.getLogger(__name__)

MAX_COMMIT_BYTES: Final = 512 * 1024
"""One commit's records must fit one batch of the offsets topic (1 MB by default), or it is refused whole."""

ANSWER_S: Final = 20.0
"""The time-out of a commit's reply. After a coordinator's broker stopped and returned, librdkafka (2.16) may never
return the reply: `rd_kafka_commit_queue` was seen waiting for minutes although the broker was back."""

_COMMIT_RECORD_OVERHEAD: Final = 200


@dataclass(frozen=True, slots=True)
class GroupCallbacks:
    """Calls by which a membership reports to its owner, always inside of `poll`, `serve_group` or `close`.

    `assigned` gives the offset to start at for each partition; `revoked` may still commit, `lost` may not.
    """

    assigned: Callable[[list[int]], Mapping[int, int]]
    revoked: Callable[[list[int]], None]
    lost: Callable[[list[int]], None]
    committed: Callable[[errors.LayerError | None], None]
    """The outcome of the last `commit_async`."""
    begins: Callable[[int], bool] = lambda partition: True
    """Whether to fetch an assigned partition at once; otherwise it is paused until `resume`."""


@dataclass(frozen=True, slots=True)
class _SentCommit:
    commits: dict[int, CommittedOffset]
    sent_s: float


class GroupConsumer(OfOneProcess):
    """A member of group `group_id` that reads one topic, or `only` one partition of it.

    With `only` the group assigns all partitions, and its other ones are ignored.

    When a commit gets no reply within 20 seconds the membership is lost, and `poll` begins another one: the commit may
    be sent late, so the same membership must not commit anything newer. Kafka refuses the late commit once its member
    has left.

    Memory: librdkafka's fetch queue, bounded by `queued.max.messages.kbytes` of the configuration.
    """

    def __init__(
        self,
        config: dict[str, Any],
        topic: str,
        callbacks: GroupCallbacks,
        only: int | None = None,
        local_peers: LocalPeers | None = None,
        *,
        reserved: bool = False,
    ) -> None:
        """`reserved`: see `handles.opened`. Raises TooManyHandles."""
        self._local_peers = local_peers
        self._topic = topic
        self._only = only
        self._callbacks = callbacks
        self._under_way: dict[int, CommittedOffset] = {}
        """The last `commit_async`, until it is answered."""
        self._sent_s = 0.0
        self._not_answered = False
        """Whether a caller waited in vain for a commit."""
        self._unheard: list[_SentCommit] = []
        """Commits of a callback: their answers come out of a later poll."""
        self._resent = ResentCommits(int(config["retry.backoff.ms"]))
        self._unheard_since_s = 0.0
        """The end of that callback."""
        self._rebalancing = False
        """Inside of `assigned` or `revoked`."""
        self._left = False
        """Whether this membership ended with an outstanding reply."""
        self._config = config
        self._group_id = str(config["group.id"])
        self._kept: list[Any] = []
        """Records that came while the group was served, for the next `poll`."""
        self._handle = self._join(reserved=reserved)
        self._wake = PollWake(self._handle)

    def _join(self, *, reserved: bool) -> Consumer:
        if self._local_peers is not None:
            self._local_peers.joining()
        config = {**self._config, "on_commit": self._on_commit, "error_cb": ErrorEvents("group member")}
        handle = handles.opened(lambda: Consumer(config), reserved=reserved)
        handle.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        return handle

    def _on_assign(self, handle: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._is_current(handle):
            return
        if self._local_peers is not None:
            self._local_peers.changed()
        self._resent.new_generation()
        self._wake.wake()
        with self._in_callback():
            starts = self._callbacks.assigned([where.partition for where in self._served(partitions)])
        self._handle.incremental_assign(
            [TopicPartition(self._topic, partition, offset) for partition, offset in starts.items()]
        )
        paused = [partition for partition in starts if not self._callbacks.begins(partition)]
        if paused:  # here: a fetch would begin before the poll returns
            self.pause(paused)

    def _on_revoke(self, handle: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._is_current(handle):
            handle.incremental_unassign(partitions)
            return
        self._wake.wake()
        served = self._served(partitions)
        try:
            with self._in_callback():
                self._callbacks.revoked([where.partition for where in served])
        finally:
            self._unassign(served)

    def _on_lost(self, handle: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._is_current(handle):
            handle.incremental_unassign(partitions)
            return
        self._wake.wake()
        served = self._served(partitions)
        try:
            self._callbacks.lost([where.partition for where in served])
        finally:
            self._unassign(served)

    def _is_current(self, handle: Consumer) -> bool:
        """Whether the handle is current: not of an abandoned membership, which ends in another thread."""
        return handle is self._handle and not self._left

    @contextmanager
    def _in_callback(self) -> Iterator[None]:
        self._rebalancing = True
        try:
            yield
        finally:
            self._rebalancing = False
            self._unheard_since_s = time.monotonic()

    def _unassign(self, partitions: list[TopicPartition]) -> None:
        """None of them is paused when it comes back: librdkafka would remember that, and never fetch it again."""
        self._drop_kept({where.partition for where in partitions})
        self._handle.resume(partitions)
        self._handle.incremental_unassign(partitions)

    def _served(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return partitions if self._only is None else [where for where in partitions if where.partition == self._only]

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        failure = error or next((where.error for where in partitions if where.error is not None), None)
        commits = {where.partition: CommittedOffset(where.offset, where.metadata or "") for where in partitions}
        outcome = None if failure is None else self._commit_error(failure)
        for sent in [sent for sent in self._unheard if sent.commits == commits]:
            self._unheard.remove(sent)
            self._note_answer(commits, sent.sent_s, outcome)
        if commits == self._under_way:  # not of an earlier one, which the caller did not wait for
            self._under_way = {}
            self._note_answer(commits, self._sent_s, outcome)
            self._wake.wake()
            self._callbacks.committed(outcome)

    def _note_answer(self, partitions: Iterable[int], sent_s: float, outcome: Exception | None) -> None:
        known = not isinstance(outcome, errors.CommitOutcomeUnknown)
        self._resent.answered(partitions, time.monotonic() - sent_s, known=known)

    def is_exposed(self, partition: int) -> bool:
        """A copy of an older commit of the partition may still overwrite the newest one (`ResentCommits`)."""
        return self._resent.is_exposed(partition) or any(partition in sent.commits for sent in self._unheard)

    def _commit_error(self, error: KafkaError) -> errors.LayerError:
        if error.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TRANSPORT):
            return errors.CommitOutcomeUnknown(f"commit of group {self._group_id}: {error.str()}")
        if (
            error.code() == KafkaError.GROUP_ID_NOT_FOUND
        ):  # refused, as any other commit: the heartbeat reports the loss to the member
            return errors.StoreError(f"commit of group {self._group_id}: {error.str()} ({error.name()})")
        return translate(error, f"commit of group {self._group_id}", *self._needed())

    def _needed(self, _topic: str = "") -> tuple[Right, Right]:
        return on_topic("Read", self._topic), on_group("Read", self._group_id)

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        """The next events, up to `limit` records and other events; callbacks of the group run in here, and end the wait
        if `ends_early`."""
        self._rejoin_if_owed()
        batch, self._kept = self._kept, []
        batch = batch or self._handle.consume(1, timeout_s)
        if batch and limit > 1:
            batch += self._handle.consume(limit - 1, 0)
        return events_of(batch, self._topic, self._needed)

    def yield_partitions(self) -> None:
        """Does nothing, because librdkafka writes the member's subscription."""

    def serve_group(self, timeout_s: float) -> None:
        """Run callbacks of the group for this time, or until `wake`; records that come meanwhile wait for `poll`."""
        self._rejoin_if_owed()
        self._kept += self._handle.consume(1, timeout_s)

    def wake(self) -> None:
        """End the wait of `poll`, or the next one. Any thread."""
        self._wake.wake()

    @property
    def ends_early(self) -> bool:
        """Whether wakes and callbacks of the group end the wait of `poll`; otherwise only records do."""
        return self._wake.works

    @property
    def awaits_reply(self) -> bool:
        """The reply to a commit is outstanding: it comes by `poll`."""
        return bool(self._under_way or self._unheard)

    def _rejoin_if_owed(self) -> None:
        if self._is_owed():
            _log.warning("group=%s a commit was not answered for %g s: joining anew", self._group_id, ANSWER_S)
            former = self._handle
            self._lose(former)
            former_wake = self._wake
            self._handle = self._join(reserved=True)  # the former one is there until it has left
            self._wake = PollWake(self._handle)
            former_wake.close()
            _leave(former)

    def _is_owed(self) -> bool:
        now_s = time.monotonic()
        late = bool(self._under_way) and now_s - self._sent_s >= ANSWER_S
        unheard = bool(self._unheard) and not self._rebalancing and now_s - self._unheard_since_s >= ANSWER_S
        self._not_answered = self._not_answered or late or unheard
        return self._not_answered

    def _refuse_if_owed(self) -> None:
        if self._is_owed():
            raise errors.CommitOutcomeUnknown(f"group {self._group_id}: an earlier commit is not answered")

    def _lose(self, former: Consumer) -> None:
        self._callbacks.lost([where.partition for where in self._served(former.assignment())])
        self._under_way, self._unheard, self._not_answered = {}, [], False
        self._kept.clear()
        self._resent.new_generation()  # of another member

    def member_id(self) -> str:
        """'' until the group was joined."""
        return str(self._handle.memberid() or "")

    def committed(self, partitions: Sequence[int], timeout_s: float) -> dict[int, CommittedOffset]:
        """The group's commits; partitions without a commit are left out."""
        self._refuse_if_owed()
        try:
            found = self._handle.committed([TopicPartition(self._topic, p) for p in partitions], timeout=timeout_s)
        except KafkaException as failure:
            raise translate(failure, f"reading the offsets of group {self._group_id}", *self._needed()) from failure
        for where in found:
            if where.error is not None:
                raise translate(
                    where.error,
                    f"reading the offset of group {self._group_id}, partition {where.partition}",
                    *self._needed(),
                )
        return {w.partition: CommittedOffset(w.offset, w.metadata or "") for w in found if w.offset >= 0}

    def commit(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Commit and wait for the coordinator's answer, 20 seconds for each part.

        In a callback of the group it is sent, and counts when it is read back: see `_commit_in_callback`.

        Raises:
            Fenced: this member has lost its place; nothing was committed.
            CommitOutcomeUnknown: no answer; read the committed offsets back.
        """
        self._refuse_if_owed()
        if self._rebalancing:
            self._commit_in_callback(commits)
            return
        for part in split_commits(commits):
            sent_s, outcome = time.monotonic(), None
            try:
                for where in self._commit_and_wait(part):
                    if where.error is not None:
                        raise self._commit_error(where.error)
            except errors.LayerError as failure:
                outcome = failure
                raise
            finally:
                self._note_answer(part, sent_s, outcome)

    def _commit_and_wait(self, commits: Mapping[int, CommittedOffset]) -> Sequence[TopicPartition]:
        """Commits in a thread that is abandoned if no reply arrives: librdkafka takes no time limit."""
        answered: Future[Sequence[TopicPartition]] = Future()
        offsets = self._offsets(commits)

        def commit() -> None:
            try:
                answered.set_result(self._commit_here(offsets))
            except Exception as failure:  # the waiting caller raises it
                answered.set_exception(failure)

        aside("pok-commit", commit)
        try:
            return answered.result(ANSWER_S)
        except FutureTimeoutError as late:
            self._not_answered = True
            raise errors.CommitOutcomeUnknown(f"commit of group {self._group_id}: no answer in time") from late

    def _commit_in_callback(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Inside of a callback of the group no reply can be received within a time limit: another thread's commit waits
        for the callback's end, and polling in it ends the process. So the commit is sent, followed by a request for the
        group's offsets on the same connection, for 20 seconds.

        A later poll returns the reply itself. Without it within 20 seconds of the callback's end, or without the
        group's offsets, the membership is lost as with any other unanswered commit.

        Raises:
            CommitOutcomeUnknown: the group does not have the commit, which is a refusal, except for a commit that is
                resent.
        """
        for part in split_commits(commits):
            sent = _SentCommit(part, time.monotonic())
            self._unheard.append(sent)
            try:
                self._handle.commit(offsets=self._offsets(part), asynchronous=True)
            except KafkaException as failure:
                self._unheard.remove(sent)
                raise self._commit_error(failure.args[0]) from failure
        try:
            found = self.committed(sorted(commits), ANSWER_S)
        except errors.StoreError as failure:
            self._not_answered = True
            raise errors.CommitOutcomeUnknown(f"commit of group {self._group_id}: {failure}") from failure
        if any(found.get(partition) != commit for partition, commit in commits.items()):
            raise errors.CommitOutcomeUnknown(f"commit of group {self._group_id}: it was not there when read back")

    def _commit_here(self, offsets: list[TopicPartition]) -> Sequence[TopicPartition]:
        try:
            return self._handle.commit(offsets=offsets, asynchronous=False) or ()
        except KafkaException as failure:
            raise self._commit_error(failure.args[0]) from failure

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Send a commit; its outcome comes to `callbacks.committed` from a later poll. One at a time, one part only."""
        self._refuse_if_owed()
        self._resent.answered(self._under_way, 0.0, known=False)  # no caller waited for it
        self._under_way, self._sent_s = dict(commits), time.monotonic()
        try:
            self._handle.commit(offsets=self._offsets(commits), asynchronous=True)
        except KafkaException as failure:
            self._under_way = {}
            raise self._commit_error(failure.args[0]) from failure

    def _offsets(self, commits: Mapping[int, CommittedOffset]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, p, c.kafka_offset, c.metadata) for p, c in commits.items()]

    @property
    def notices_deletion(self) -> bool:
        """False: librdkafka reads on in a topic that was deleted and created again."""
        return False

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader reports now."""
        return watermarks(self._handle, KafkaPartition(self._topic, partition), timeout_s, self._needed())

    def known_end(self, partition: int) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""
        return known_end(self._handle, KafkaPartition(self._topic, partition))

    def seek(self, partition: int, offset: int) -> None:
        """Go on reading at `offset`; what was fetched ahead is dropped."""
        self._drop_kept({partition})
        try:
            self._handle.seek(TopicPartition(self._topic, partition, offset))
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._STATE:
                raise translate(failure, f"seek of {self._topic}-{partition} to {offset}") from failure
            # Fetching ended with an error (the position was outside of the log): begin it anew.
            self._handle.incremental_unassign([TopicPartition(self._topic, partition)])
            self._handle.incremental_assign([TopicPartition(self._topic, partition, offset)])

    def _drop_kept(self, partitions: Collection[int]) -> None:
        self._kept = [record for record in self._kept if record.partition() not in partitions]

    def pause(self, partitions: Sequence[int]) -> None:
        self._handle.pause([TopicPartition(self._topic, partition) for partition in partitions])

    def resume(self, partitions: Sequence[int]) -> None:
        self._handle.resume([TopicPartition(self._topic, partition) for partition in partitions])

    def close(self) -> None:
        """Leaves the group; `revoked` runs in here for assigned partitions.

        It runs before librdkafka leaves, not inside of that, where it could send no request to the group.
        """
        if self._left or not handles.is_ours(self._handle):
            return
        owed = self._is_owed()
        if owed:
            self._lose(self._handle)
        elif served := self._served(self._handle.assignment()):
            self._callbacks.revoked([where.partition for where in served])
            owed = self._is_owed()
        self._left = True
        self._wake.close()
        if owed:
            _leave(self._handle)
        else:
            self._handle.close()
            handles.release(self._handle)
        if self._local_peers is not None:
            self._local_peers.left()


def _leave(handle: Consumer) -> None:
    """Leaves in a thread of its own: librdkafka may take the session's time."""

    def leave() -> None:
        handle.close()
        handles.release(handle)

    aside("pok-leaving", leave)


def split_commits(commits: Mapping[int, CommittedOffset]) -> list[dict[int, CommittedOffset]]:
    """Parts that each fit one record batch of the offsets topic."""
    parts: list[dict[int, CommittedOffset]] = []
    room = 0
    for partition, commit in commits.items():
        size = len(commit.metadata) + _COMMIT_RECORD_OVERHEAD
        if not parts or size > room:
            parts.append({})
            room = MAX_COMMIT_BYTES
        parts[-1][partition] = commit
        room -= size
    return parts
