"""Origins of a log's records, as it is read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.cross_cluster.origin_reader import OriginReading
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedRun
from pulsar_on_kafka_mapping.records.epoch_fences import take_over_marker
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, encode_original
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, REPLICATED_FROM
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

LIFE = 5
WEST = Origin("west", LIFE)


class Record:
    def __init__(self, offset: int, headers: list[tuple[str, bytes | None]]) -> None:
        self._offset, self._headers = offset, headers

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers


class Log:
    """One partition, as `RangeReader` and `KafkaAdmin` are asked for it."""

    def __init__(self, *headers: list[tuple[str, bytes | None]]) -> None:
        self.records = [Record(offset, each) for offset, each in enumerate(headers)]

    def start_offsets(self, _: str, partitions: list[int], __: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def read(self, ranges: list[Any], take: Callable[[int, list[Record]], None], _: Deadline) -> dict[int, Exception]:
        for number, each in enumerate(ranges):
            take(number, self.records[each.start : each.end])
        return {}


def copy(original: int, epoch: int) -> list[tuple[str, bytes | None]]:
    return [(REPLICATED_FROM, b"west"), (ORIGINAL_ID, encode_original(OriginalPosition(original, 0, LIFE, epoch)))]


def test_a_copy_behind_the_marker_of_a_later_replicator_is_no_message() -> None:
    """It is void: nobody receives it, so its acknowledgement says nothing of the message, which is copied once more."""
    log = Log(copy(0, 1), [], take_over_marker("west", 2), copy(1, 1), copy(1, 2), copy(2, 2), copy(2, 2))
    reading = OriginReading(cast("Any", log), cast("Any", log))
    topic = cast("Any", SimpleNamespace(kafka_topic="t", kafka_topic_id="id"))
    index = reading.read_on(topic, {0: 7}, Deadline.after(5))[0]
    assert list(index.runs(WEST)) == [CopiedRun(0, 0, 1), CopiedRun(1, 4, 2)]
    assert list(index.nothing) == [2, 3, 6]
