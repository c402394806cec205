"""Changes the offsets of groups without members in transactions of Kafka, of which one at a time is under way.

A group without members accepts offsets from any client, in any order. Transactions give them an order: opening an
author's next transaction ends the previous one in any process, and from then on Kafka refuses it. Only offsets are in
them, no records. Source: KIP-98 (fencing by transactional id), KIP-447 (offsets that wait for a transaction are not
stable).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.groups.membership import split_commits
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.rights import Right, on_group, on_topic, on_transactional_id

_LONGEST_S: Final = 3600.0

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError._STATE,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    }
)


class OffsetWriter(OfOneProcess):
    """One transactional id's producer. Used by one thread at a time. Memory: a librdkafka handle.

    After an error it can only be closed; what it had not committed is void.
    """

    def __init__(self, config: dict[str, Any], author: str) -> None:
        """`author` is the transactional id."""
        self._author = author
        self._config = {**config, "transactional.id": author, "error_cb": self._connection_failed}
        self._repeated = False
        self._groups: dict[str, Any] = {}
        self._handle: Producer | None = None

    def open(self, topic: str, deadline: Deadline) -> None:
        """End what this author's former writer has under way, and every later attempt of it.

        `topic` is any that may be described: who has met the cluster before need not wait half a second for the
        coordinator.

        Raises:
            StoreError: it could not be done.
            NotAuthorized: the transactional id may not be used.
        """
        with self._translated(f"becoming the author {self._author}", on_transactional_id("Write", self._author)):
            self._handle = handles.opened(lambda: Producer(self._config), reserved=True)
            self._handle.list_topics(topic, timeout=_seconds(deadline))
            self._handle.init_transactions(_seconds(deadline))
            self._handle.poll(0)
            self._repeated = False  # a copy of what was sent so far only ends this writer

    def put(self, topic: str, changes: Mapping[str, Mapping[int, CommittedOffset]], deadline: Deadline) -> None:
        """Puts these offsets (by group, partition) into the transaction, until `commit` or `abort`.

        Raises:
            Fenced: another writer of this author has begun.
            StoreError: certainly nothing is changed.
        """
        handle = self._opened()
        needed = on_topic("Read", topic), *(on_group("Read", group) for group in changes)
        with self._translated(f"setting the offsets of {', '.join(changes)}", *needed):
            handle.begin_transaction()
            for group, offsets in changes.items():
                for part in split_commits(offsets):
                    handle.send_offsets_to_transaction(
                        [TopicPartition(topic, number, one.kafka_offset, one.metadata) for number, one in part.items()],
                        self._group(group),
                        _seconds(deadline),
                    )

    def commit(self, deadline: Deadline) -> None:
        """Raises CommitOutcomeUnknown: what was put may count, or may not."""
        handle = self._opened()
        try:
            while True:
                try:
                    return handle.commit_transaction(_seconds(deadline))
                except KafkaException as failure:
                    if not failure.args[0].retriable() or deadline.passed():
                        raise
        except KafkaException as failure:
            raise errors.CommitOutcomeUnknown(
                str(translate(failure, f"ending a change of {self._author}"))
            ) from failure

    def abort(self, deadline: Deadline) -> None:
        """Aborts the transaction. Raises StoreError: it stays open until Kafka's time-out, or until the next writer; it
        will not be committed."""
        with self._translated(f"giving up a change of {self._author}"):
            self._opened().abort_transaction(_seconds(deadline))

    def may_have_repeated(self) -> bool:
        """Whether a connection failed since the opening: librdkafka resends unanswered requests on another one, and
        both copies may arrive."""
        if self._handle is None or not handles.is_ours(self._handle):
            return True
        self._handle.poll(0)
        return self._repeated

    def _connection_failed(self, _error: KafkaError) -> None:
        """Every failure of a call is raised where it is met."""
        self._repeated = True

    def close(self) -> None:
        handle, self._handle = self._handle, None
        handles.release(handle)

    def _opened(self) -> Producer:
        if self._handle is None or not handles.is_ours(self._handle):
            raise errors.Fenced(f"the writer {self._author} is closed")
        return self._handle

    def _group(self, group: str) -> Any:
        """librdkafka's word for "the group, and none of its members"."""
        if group not in self._groups:
            unconnected = handles.opened(lambda: Consumer({"group.id": group}), reserved=True)
            self._groups[group] = unconnected.consumer_group_metadata()
            unconnected.close()
            handles.release(unconnected)
        return self._groups[group]

    @contextmanager
    def _translated(self, what: str, *needed: Right) -> Iterator[None]:
        try:
            yield
        except KafkaException as failure:
            if failure.args[0].code() in _FENCED:
                raise errors.Fenced(str(translate(failure, what))) from failure
            raise translate(failure, what, *needed) from failure


def _seconds(deadline: Deadline) -> float:
    return max(0.05, min(deadline.remaining_s(), _LONGEST_S))
