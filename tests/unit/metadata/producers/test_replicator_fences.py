"""Copies of a former replicator are void, the topic's own records and other origins' are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.records.epoch_fences import Fence, replicator_marker
from pulsar_on_kafka.mapping.records.message_record import Headers
from pulsar_on_kafka.mapping.records.record_headers import ORIGINAL_ID, PRODUCER, REPLICATED_FROM
from pulsar_on_kafka.mapping.state.state_topics import PRODUCERS
from pulsar_on_kafka.metadata.producers.fence_records import ReplicatorFences
from pulsar_on_kafka.metadata.producers.known_fences import HeartbeatsAndFences, KnownReplicators
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka.subscriptions.records.fences import Fences
from tests.kafka_records import ReadRecord
from tests.memory_log import MemoryStateLog

TOPIC = Topic(TopicName.parse("t"), "k", "id", 1, False, LedgerLayout(4, 100))
PLACE = str(TOPIC.name)


def copy(offset: int, epoch: int, origin: bytes = b"eu") -> ReadRecord:
    # A high epoch of its producer, which is its origin's own affair.
    headers: Headers = [(PRODUCER, b"1:99:p"), (REPLICATED_FROM, origin), (ORIGINAL_ID, b"%d:0:1:%d" % (offset, epoch))]
    return ReadRecord(offset, headers)


def marker(offset: int, epoch: int, origin: bytes = b"eu") -> ReadRecord:
    return ReadRecord(offset, replicator_marker(origin.decode(), epoch))


def test_behind_a_marker_lower_epochs_of_its_origin_are_void() -> None:
    own = ReadRecord(6, [(PRODUCER, b"1:0:p")])
    records = [copy(0, 1), marker(1, 2), copy(2, 2), copy(3, 1), copy(4, 1, b"asia"), copy(5, 3), own]
    assert [record.offset() for record in Fences().valid(records, [1])] == [0, 1, 2, 4, 5, 6]
    assert Fences([Fence(1, 2, "eu")]).void_in([3, 4], [copy(3, 1), copy(4, 1, b"asia")]) == [0]
    assert Fences([(1, 100)]).void_in([3, 6], [copy(3, 1), own]) == [1]  # an exclusive producer of the topic


class Log:
    """A partition's records."""

    def __init__(self) -> None:
        self.records: list[ReadRecord] = []
        self.start = 0

    def watermarks(self, _topic: str, _partition: int, _deadline: Deadline) -> tuple[int, int]:
        return self.start, len(self.records)

    def read(self, _topic: str, _partition: int, start: int, end: int, _deadline: Deadline) -> Iterator[list[Any]]:
        yield self.records[start:end]


def test_a_bound_alone_makes_readers_look_for_the_marker_and_old_fences_go() -> None:
    state, data, soon = MemoryStateLog(), Log(), Deadline.after(20)
    view = LogView(state, PRODUCERS, PRODUCERS.partition_for(PLACE), HeartbeatsAndFences, SystemClock())
    nothing = KnownReplicators()
    fences = ReplicatorFences(
        state, cast("Any", data), lambda topic, ask, at: view.ask(lambda s: ask(s.replicators.get(topic, nothing)), at)
    )
    data.records = [copy(0, 1)]

    def known() -> list[Fence]:
        return sorted(fences.of_partitions(TOPIC, [0], soon)[0])

    def dies(epoch: int) -> int:
        data.records.append(marker(len(data.records), epoch))
        raise ConnectionError

    with suppress(ConnectionError):
        fences.raise_one(TOPIC, 0, "eu", 2, lambda: dies(2), soon)
    data.records.append(copy(2, 1))
    assert known() == [Fence(1, 2, "eu")]

    def appends(epoch: int) -> int:
        data.records.append(marker(len(data.records), epoch))
        return len(data.records) - 1

    fences.raise_one(TOPIC, 0, "eu", 3, lambda: appends(3), soon)
    fences.raise_one(TOPIC, 0, "asia", 1, lambda: appends(1), soon)
    assert known() == [Fence(1, 2, "eu"), Fence(3, 3, "eu"), Fence(4, 1, "asia")]
    data.start = 4  # the marker of epoch 3 has left the log: all that is there lies behind it
    fences.raise_one(TOPIC, 0, "eu", 4, lambda: appends(4), soon)
    assert known() == [Fence(3, 3, "eu"), Fence(4, 1, "asia"), Fence(5, 4, "eu")]
