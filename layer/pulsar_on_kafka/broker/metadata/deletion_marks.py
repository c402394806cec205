"""Deletions of topics that are not used exclude the programs that open these topics.

A deletion without force marks the topic's record, looks for producers and consumers, and deletes the topic only while
its mark stands. A program that opens the topic puts its producer or consumer on record first, and reads the topic's
record after that. So at least one of the two sees the other: the deletion is refused, or the program waits for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Versioned
from pulsar_on_kafka.broker.metadata.removals import Amend, OpenedTopic, is_same
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import DeletionMark, LifeState, TopicRecord, decode_topic

MARK_MS: Final = 10_000
"""A deletion decides within this time whether the topic is used."""
DECIDE_MARGIN_MS: Final = 3_000
"""A deletion decides so long before its mark expires: its record must not arrive later. Programs that may not remove
the mark go on when it has expired."""


class DeletionMarks:
    """Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        amend: Amend,
        read: Callable[[TopicName, Deadline], Versioned | None],
        until: Callable[[Callable[[], bool], Deadline], bool],
    ) -> None:
        """`clock` returns the brokers' time. `until`: see `Topics`."""
        self._clock = clock
        self._amend = amend
        self._read = read
        self._until = until

    def begin(self, topic: OpenedTopic, check: Callable[[], None], deadline: Deadline) -> TopicRecord:
        """Records that the topic is being deleted, unless `check` raises: then the topic stays. Returns that record;
        `Topics.finish_deletion` does the rest.

        Raises:
            NoSuchTopic: the topic was deleted, or deleted and recreated.
            Refused: another deletion is checking the topic, or this one took longer than its mark holds.
            The errors of `check`.
        """
        mark = DeletionMark(secrets.token_hex(8), self._clock.now_ms() + MARK_MS)

        def marked(record: TopicRecord) -> TopicRecord | None:
            self._require(record, topic)
            other = record.deletion_mark
            if other is not None and other != mark and self._clock.now_ms() < other.until_ms:
                raise errors.Refused(f"topic {topic.name} is looked at by another deletion, try again in some seconds")
            return replace(record, deletion_mark=mark)

        def unmarked(record: TopicRecord) -> TopicRecord | None:
            return replace(record, deletion_mark=None) if record.deletion_mark == mark else None

        def decided(record: TopicRecord) -> TopicRecord | None:
            if is_same(record, topic) and record.state is LifeState.DELETING:
                return None  # a time-out had hidden that it was written
            self._require(record, topic)
            if record.deletion_mark != mark or self._clock.now_ms() >= mark.until_ms - DECIDE_MARGIN_MS:
                within_s = (MARK_MS - DECIDE_MARGIN_MS) // 1000
                raise errors.Refused(
                    f"topic {topic.name} stays: whether it is used was not found out within {within_s} s"
                )
            return replace(record, state=LifeState.DELETING, deletion_mark=None)

        if self._amend(topic.name.base, marked, deadline) is None:
            raise errors.NoSuchTopic(f"topic {topic.name} does not exist")
        try:
            check()
            left_ms = max(DECIDE_MARGIN_MS, mark.until_ms - self._clock.now_ms())
            deleting = self._amend(topic.name.base, decided, deadline.at_most(left_ms / 1000))
        except BaseException:
            self._amend(topic.name.base, unmarked, deadline)
            raise
        if deleting is None:
            raise errors.NoSuchTopic(f"topic {topic.name} does not exist")
        return decode_topic(deleting.value)

    def await_decision(self, topic: OpenedTopic, deadline: Deadline) -> None:
        """Return once no deletion can end the topic without seeing what the caller has put on record before this call.

        Raises:
            NoSuchTopic: the topic was deleted after it was opened.
            DeadlineExceeded: the deletion was not decided in time.
        """

        def given_up(record: TopicRecord) -> TopicRecord | None:
            mark = record.deletion_mark
            late = mark is not None and self._clock.now_ms() >= mark.until_ms
            return replace(record, deletion_mark=None) if late else None

        def decided() -> bool:
            current = self._read(topic.name.base, deadline)
            record = None if current is None else decode_topic(current.value)
            if record is not None and record.deletion_mark is not None:
                if self._clock.now_ms() < record.deletion_mark.until_ms:
                    return False
                try:
                    current = self._amend(topic.name.base, given_up, deadline)
                except errors.NotAuthorized:  # a consumer need not have the right to write what topics are
                    return True
                record = None if current is None else decode_topic(current.value)
            if record is None:
                raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
            self._require(record, topic)
            return record.deletion_mark is None

        if not self._until(decided, deadline):
            raise errors.DeadlineExceeded(f"a deletion of topic {topic.name} was not decided in time")

    @staticmethod
    def _require(record: TopicRecord, topic: OpenedTopic) -> None:
        if not is_same(record, topic) or record.state is not LifeState.ACTIVE:
            raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
