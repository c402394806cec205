"""Partitions whose read position Kafka refused."""

from __future__ import annotations

from typing import Any, cast

from pulsar_on_kafka.base.errors import OffsetOutOfRange
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.member.fetching import PartitionReader
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.kafka.reading.events import KafkaPartition, OutOfRange
from tests.same_incarnation import SAME_INCARNATION
from tests.simulation.cursors import an_identity, owned_by
from tests.simulation.turns import ManualClock
from tests.unit.broker.subscriptions.member.nothing_open import NOTHING_OPEN


class Log:
    """Offsets 0 to 2 are there."""

    notices_deletion = False

    def __init__(self) -> None:
        self.asked = 0

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        self.asked += 1
        return 0, 3

    incarnation = SAME_INCARNATION


def refused() -> tuple[PartitionReader, dict[int, OwnedPartition], Log]:
    log = Log()
    owned = {3: owned_by(an_identity(), CursorState(7, 10))}
    fake = cast("Any", log)
    clock = ManualClock()
    reader = PartitionReader(fake, clock, fake, owned, NOTHING_OPEN, lambda: True)
    clock.seconds = 1
    reader._take([OutOfRange(KafkaPartition("t", 3), OffsetOutOfRange("simulated"), 7)])
    assert reader.next_due() == 1.0
    return reader, owned, log


def test_a_cursor_that_knows_of_more_than_the_log_has_stops() -> None:
    reader, owned, _ = refused()
    reader.step(())
    assert "lost data" in str(owned[3].intake.stopped)


def test_a_partition_that_was_given_up_meanwhile_is_not_looked_at() -> None:
    reader, owned, log = refused()
    del owned[3]
    reader.step(())
    owned[3] = anew = owned_by(an_identity(), CursorState(2, 10))
    reader.step(())
    assert (log.asked, anew.intake.stopped) == (0, None)
