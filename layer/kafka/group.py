"""One membership in a consumer group. Driven by exactly one thread: two on one Consumer starve each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from layer import errors
from layer.kafka import handles
from layer.kafka.batches import next_batch
from layer.kafka.errors import is_no_such_topic, is_not_authorized, translate
from layer.kafka.events import ErrorEvents
from layer.kafka.records import CommittedOffset
from layer.kafka.rights import Right, on_group, on_topic

_log = logging.getLogger(__name__)

MAX_COMMIT_BYTES: Final = 512 * 1024
"""One commit's records must fit one batch of the offsets topic (1 MB by default), or it is refused whole."""

_COMMIT_RECORD_OVERHEAD: Final = 200


@dataclass(frozen=True, slots=True)
class GroupCallbacks:
    """What a membership tells its owner, always inside of `poll` or `close`.

    `assigned` gives the offset to start at for each partition; `revoked` may still commit, `lost` may not.
    """

    assigned: Callable[[list[int]], Mapping[int, int]]
    revoked: Callable[[list[int]], None]
    lost: Callable[[list[int]], None]
    committed: Callable[[errors.LayerError | None], None]
    """The outcome of the last `commit_async`."""


class GroupConsumer:
    """A member of group `group_id` that reads one topic, or `only` one partition of it.

    With `only` the group shares all partitions out, and its other ones are nobody's business.

    Memory: librdkafka's fetch queue, bounded by `queued.max.messages.kbytes` of the configuration.
    """

    def __init__(self, config: dict[str, Any], topic: str, callbacks: GroupCallbacks, only: int | None = None) -> None:
        self._topic = topic
        self._only = only
        self._callbacks = callbacks
        self._under_way: dict[int, CommittedOffset] = {}
        self._handle = Consumer({**config, "on_commit": self._on_commit, "error_cb": ErrorEvents("group member")})
        handles.track(self._handle)
        self._group_id = str(config["group.id"])
        self._handle.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _on_assign(self, _handle: Consumer, partitions: list[TopicPartition]) -> None:
        starts = self._callbacks.assigned([where.partition for where in self._served(partitions)])
        self._handle.incremental_assign(
            [TopicPartition(self._topic, partition, offset) for partition, offset in starts.items()]
        )

    def _on_revoke(self, _handle: Consumer, partitions: list[TopicPartition]) -> None:
        served = self._served(partitions)
        try:
            self._callbacks.revoked([where.partition for where in served])
        finally:
            self._unassign(served)

    def _on_lost(self, _handle: Consumer, partitions: list[TopicPartition]) -> None:
        served = self._served(partitions)
        try:
            self._callbacks.lost([where.partition for where in served])
        finally:
            self._unassign(served)

    def _unassign(self, partitions: list[TopicPartition]) -> None:
        """None of them is paused when it comes back: librdkafka would remember that, and never fetch it again."""
        self._handle.resume(partitions)
        self._handle.incremental_unassign(partitions)

    def _served(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return partitions if self._only is None else [where for where in partitions if where.partition == self._only]

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        failure = error or next((where.error for where in partitions if where.error is not None), None)
        commits = {where.partition: CommittedOffset(where.offset, where.metadata or "") for where in partitions}
        if commits == self._under_way:  # not of an earlier one, which the caller did not wait for
            self._callbacks.committed(None if failure is None else self._commit_error(failure))

    def _commit_error(self, error: KafkaError) -> errors.LayerError:
        if error.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TRANSPORT):
            return errors.CommitOutcomeUnknown(f"commit of group {self._group_id}: {error.str()}")
        return translate(error, f"commit of group {self._group_id}", *self._needed())

    def _needed(self) -> tuple[Right, Right]:
        return on_topic("Read", self._topic), on_group("Read", self._group_id)

    def forbidden(self, error: KafkaError) -> errors.LayerError | None:
        """What an ACL that stands behind this error forbids, or None when none does."""
        if not is_not_authorized(error):
            return None
        return translate(error, f"reading {self._topic} in group {self._group_id}", *self._needed())

    def poll_batch(self, limit: int, timeout_s: float) -> list[Any]:
        """Records and error events, up to `limit`; rebalance callbacks run in here."""
        return next_batch(self._handle, limit, timeout_s)

    def member_id(self) -> str:
        """'' until the group was joined."""
        return str(self._handle.memberid() or "")

    def committed(self, partitions: Sequence[int], timeout_s: float) -> dict[int, CommittedOffset]:
        """What the group committed; partitions without a commit are left out."""
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
        """Commit and wait for the coordinator's answer.

        Raises:
            Fenced: this member has lost its place; nothing was committed.
            CommitOutcomeUnknown: no answer; read the committed offsets back.
        """
        for part in split_commits(commits):
            try:
                answer = self._handle.commit(offsets=self._offsets(part), asynchronous=False)
            except KafkaException as failure:
                raise self._commit_error(failure.args[0]) from failure
            for where in answer or ():
                if where.error is not None:
                    raise self._commit_error(where.error)

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Send a commit; its outcome comes to `callbacks.committed` from a later poll. One at a time, one part only."""
        self._under_way = dict(commits)
        try:
            self._handle.commit(offsets=self._offsets(commits), asynchronous=True)
        except KafkaException as failure:
            raise self._commit_error(failure.args[0]) from failure

    def _offsets(self, commits: Mapping[int, CommittedOffset]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, p, c.kafka_offset, c.metadata) for p, c in commits.items()]

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader says now."""
        try:
            low, high = self._handle.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=timeout_s)
        except KafkaException as failure:
            raise translate(failure, f"asking for the end of {self._topic}-{partition}", *self._needed()) from failure
        return low, high

    def known_end(self, partition: int) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""
        _, high = self._handle.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return int(high) if high >= 0 else -1

    def seek(self, partition: int, offset: int) -> None:
        """Go on reading at `offset`; what was fetched ahead is dropped."""
        try:
            self._handle.seek(TopicPartition(self._topic, partition, offset))
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._STATE:
                raise translate(failure, f"seek of {self._topic}-{partition} to {offset}") from failure
            # Fetching ended with an error (the position was outside of the log): begin it anew.
            self._handle.incremental_unassign([TopicPartition(self._topic, partition)])
            self._handle.incremental_assign([TopicPartition(self._topic, partition, offset)])

    def pause(self, partitions: Sequence[int]) -> None:
        self._handle.pause([TopicPartition(self._topic, partition) for partition in partitions])

    def resume(self, partitions: Sequence[int]) -> None:
        self._handle.resume([TopicPartition(self._topic, partition) for partition in partitions])

    def close(self) -> None:
        """Leave the group; `revoked` runs in here for what is still assigned."""
        if handles.is_ours(self._handle):
            self._handle.close()
            handles.release(self._handle)


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


def is_offset_out_of_range(error: KafkaError) -> bool:
    return error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


def is_topic_gone(error: KafkaError) -> bool:
    return is_no_such_topic(error)
