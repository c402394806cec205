"""Copying one partition of a Pulsar topic, by a producer that reports when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import CopiedMessages
from pulsar_on_kafka.clusters.migration.from_pulsar.copying import CopiedCounts, PartitionCopy
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import Entry, OriginOfCopies, PulsarMessage
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position, place_of

NEVER = Deadline.never()


def entry(number: int, size: int = 3) -> Entry:
    return Entry(Position(1, number), "p", 5, [PulsarMessage(bytes(size))])


def place(number: int) -> int:
    return place_of(Position(1, number))


class Sending:
    """Reports when it is waited for, with the offsets from 100 on."""

    asleep = False

    def __init__(self, *, refused: KafkaError | None = None) -> None:
        self.sent: list[bytes] = []
        self._waiting: list[Callable[[Any, Any], None]] = []
        self._refused = refused

    def produce(self, _topic: str, value: bytes, _key: Any, _partition: int, report: Any, *_rest: Any) -> None:
        self.sent.append(value)
        self._waiting.append(report)

    def wait_for_reports(self, _timeout_s: float) -> None:
        first = 100 + len(self.sent) - len(self._waiting)
        waiting, self._waiting = self._waiting, []
        for offset, report in enumerate(waiting, first):
            report(self._refused, SimpleNamespace(offset=lambda offset=offset: offset))

    def poll_inline(self) -> None: ...
    def wake(self) -> None: ...


class There:
    """A target that has what a former run copied."""

    topic = SimpleNamespace(kafka_topic="k", name="t")

    def __init__(self, sending: Sending, has: CopiedMessages) -> None:
        self.saved: list[tuple[CopiedMessages, bool]] = []
        self.chunked = False
        self._sending = sending
        self._has = has
        self.node = SimpleNamespace(producers=self)

    def producer(self) -> Sending:
        return self._sending

    def take_over(self, partition: int, epoch: int, deadline: Deadline) -> CopiedMessages:
        return self._has

    def save(self, partition: int, epoch: int, copied: CopiedMessages, deadline: Deadline, *, final: bool) -> None:
        self.saved.append((copied, final))

    def more_than_plain(self, topic: Any, deadline: Deadline, *, chunks: bool) -> None:
        self.chunked = self.chunked or chunks


class Schemas:
    def of(self, _version: int) -> tuple[None, bool]:
        return None, False


def copy_to(there: There, max_bytes: int = 1_000) -> PartitionCopy:
    copy = PartitionCopy(cast("Any", there), 0, OriginOfCopies("pulsar:old", 0, 1), cast("Any", Schemas()), max_bytes)
    copy.take_over(lambda: None, NEVER)
    return copy


def test_what_a_former_run_copied_is_not_sent_again() -> None:
    sending = Sending()
    there = There(sending, CopiedMessages(place(1), 50, BitMap64([place(3)])))
    copy = copy_to(there)
    copy.copy([entry(number) for number in range(5)])
    assert len(sending.sent) == 2  # 2 and 4
    assert copy.counts == CopiedCounts(entries=2, messages=2, records=2, bytes=copy.counts.bytes)
    assert there.saved == [(CopiedMessages(place(4), 102), True)]


def test_a_message_that_is_cut_counts_when_all_of_it_is_there() -> None:
    sending = Sending()
    there = There(sending, CopiedMessages(-1, 0))
    copy = copy_to(there)
    copy.copy([entry(1, size=2_500)])
    assert there.chunked
    assert (copy.counts.entries, copy.counts.records) == (1, len(sending.sent))
    assert there.saved == [(CopiedMessages(place(1), 100 + len(sending.sent)), True)]


def test_what_the_cluster_does_not_take_ends_the_run_and_is_not_on_record() -> None:
    there = There(Sending(refused=KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), CopiedMessages(-1, 0))
    copy = copy_to(there)
    with pytest.raises(errors.StoreError, match="copying to k-0"):
        copy.copy([entry(1), entry(2)])
    assert there.saved == []
