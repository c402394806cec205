"""Progress of copying one partition, whatever is under way."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import CopiedMessages
from pulsar_on_kafka.service.replication.copying import Copying
from pulsar_on_kafka.service.replication.partition_copier import Lane, ReplicationCursor
from pulsar_on_kafka_mapping.records.record_headers import SCHEMA_VERSION
from tests.copied_records import CopiedRecord

IDENTITY = CursorIdentity("t", 0, "pulsar.repl.us", "k", "i", 1, 9, 100)


class Sending:
    """A producer that keeps what it is given until it is told to report."""

    def __init__(self) -> None:
        self.under_way: list[Any] = []
        self.refuses: Exception | None = None
        """What the next call raises; a full queue has room once it was polled."""

    def produce(self, _topic: str, _value: Any, _key: Any, _partition: int, delivered: Any, *_rest: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.under_way.append(delivered)

    def poll_inline(self) -> None:
        """Reports come when the test says so."""

    def wait_for_reports(self, _timeout_s: float) -> None:
        self.refuses = None

    def report(self, place: int, error: Any = None) -> None:
        self.under_way.pop(0)(error, CopiedRecord(place))


class RefusingTheSecond(Sending):
    def produce(self, *record: Any) -> None:
        if self.under_way:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        super().produce(*record)


def lane_at(copied: CopiedMessages) -> Lane:
    cursor = ReplicationCursor(IDENTITY, RecoveredCursor(CursorState(0, 100), None, "start"))
    lane = Lane(0, cursor, "k", lambda _: (), lambda _: cast("Any", None))
    lane.begin(Copying("eu", "us", 0, 1, cursor.epoch, lambda version: version, lambda **_: None), copied)
    return lane


def send(lane: Lane, sending: Sending, *offsets: int) -> None:
    lane.send([CopiedRecord(offset) for offset in offsets], cast("Any", sending))
    lane.read_position = offsets[-1] + 1


def test_what_is_done_ends_before_the_first_that_is_under_way() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 50))
    send(lane, sending, 0)
    send(lane, sending, 1, 5)
    assert lane.done_upto() == CopiedMessages(-1, 50)
    sending.report(60)
    assert lane.done_upto() == CopiedMessages(0, 61)
    sending.report(61)
    assert (lane.done_upto(), lane.copies.records, lane.copies.bytes) == (CopiedMessages(0, 61), 2, 20)
    sending.report(70)
    assert (lane.done_upto(), lane.copies.records, lane.copies.bytes) == (CopiedMessages(5, 71), 0, 0)


def test_many_at_once_are_done_step_by_step() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 0))
    send(lane, sending, *range(120))
    done = []
    for place in range(120):
        sending.report(place)
        done.append(lane.done_upto())
    reached = (
        [CopiedMessages(-1, 0)] * 49
        + [CopiedMessages(49, 50)] * 50
        + [CopiedMessages(99, 100)] * 20
        + [CopiedMessages(119, 120)]
    )
    assert (done, lane.copies.records, lane.copies.bytes) == (reached, 0, 0)


def test_what_a_former_owner_copied_is_passed_over_and_found_again_by_the_next_one() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(2, 50, BitMap64([4, 6])))
    assert lane.read_position == 3
    send(lane, sending, 3, 4, 5)
    assert len(sending.under_way) == 2
    sending.report(80)
    sending.report(81)
    assert lane.done_upto() == CopiedMessages(5, 50, BitMap64([4, 6]))  # the copy of 6 lies below 80
    send(lane, sending, 6, 7)
    assert lane.done_upto() == CopiedMessages(6, 82)


def test_after_a_failure_nothing_more_counts() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 0))
    for offset in range(3):
        send(lane, sending, offset)
    sending.report(0)
    sending.report(-1, error="too large")
    sending.report(1)
    assert (lane.copies.failure, lane.done_upto().highest) == ("too large", 0)


@pytest.mark.parametrize("failed", range(3))
def test_one_of_a_step_that_fails_fails_the_step(failed: int) -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 0))
    send(lane, sending, 0)
    send(lane, sending, 1, 2, 3)
    sending.report(0)
    for number in range(3):
        sending.report(-1 if number == failed else 1 + number, KafkaError(10) if number == failed else None)
    assert (lane.copies.failure.code(), lane.done_upto(), lane.copies.records) == (10, CopiedMessages(0, 1), 3)


def test_what_cannot_be_handed_over_ends_what_is_done_though_more_was_let_go() -> None:
    """The target's registry is away when the second of three records is met, which a transaction held up before."""
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 50))
    lane.read_position = 9

    def version(_header: bytes) -> bytes:
        raise errors.ConnectFailed("nobody answers")

    lane.copying = Copying("eu", "us", 0, 1, lane.cursor.epoch, version, lambda **_: None)
    records = [CopiedRecord(0), CopiedRecord(4, headers=[(SCHEMA_VERSION, b"v")]), CopiedRecord(5)]
    with pytest.raises(errors.ConnectFailed):
        lane.send(records, cast("Any", sending))
    sending.report(60)
    assert (lane.done_upto(), lane.copies.records) == (CopiedMessages(3, 61), 0)


def test_what_the_producer_refuses_is_neither_done_nor_under_way() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 50))
    send(lane, sending, 0)
    sending.refuses = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    with pytest.raises(errors.RecordTooLarge, match="copying offset 1 to k-0"):
        send(lane, sending, 1, 2)
    sending.report(60)
    assert (lane.done_upto(), lane.copies.records, lane.copies.bytes) == (CopiedMessages(0, 61), 0, 0)


def test_of_a_step_that_is_refused_in_the_middle_nothing_is_done_and_the_rest_stays_under_way() -> None:
    sending, lane = RefusingTheSecond(), lane_at(CopiedMessages(-1, 50))
    with pytest.raises(errors.RecordTooLarge, match="copying offset 4 to k-0"):
        send(lane, sending, 3, 4, 5)
    sending.report(60)
    assert (lane.done_upto().highest < 3, lane.done_upto().upto, lane.copies.records > 0) == (True, 50, True)


def test_a_full_queue_is_waited_for() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 50))
    sending.refuses = BufferError("full")
    send(lane, sending, 0, 1)
    assert (lane.copies.records, len(sending.under_way)) == (2, 2)


def test_a_report_without_a_place_leaves_where_later_copies_are_looked_for() -> None:
    sending, lane = Sending(), lane_at(CopiedMessages(-1, 50))
    send(lane, sending, 0)
    send(lane, sending, 1)
    sending.report(-1001)
    assert lane.done_upto() == CopiedMessages(0, 50)
    sending.report(61)
    assert lane.done_upto() == CopiedMessages(1, 62)


def test_epochs_grow_with_owners_and_with_lives_of_the_subscription() -> None:
    def epoch(version: int, life: int) -> int:
        identity = CursorIdentity("t", 0, "pulsar.repl.us", "k", "i", 1, life, 100)
        return ReplicationCursor(identity, RecoveredCursor(CursorState(0, 100), None, "start", version)).epoch

    assert epoch(0, 1) < epoch(1, 1) < epoch(2**31, 1) < epoch(0, 2)
