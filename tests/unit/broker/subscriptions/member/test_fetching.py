"""Nothing is fetched before a consumer has room, and the first batches are small."""

from __future__ import annotations

from typing import Any, cast

from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.member.fetching import PartitionReader
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from tests.same_incarnation import SAME_INCARNATION
from tests.simulation.cursors import an_identity, owned_by
from tests.simulation.turns import ManualClock
from tests.unit.broker.subscriptions.member.nothing_open import NOTHING_OPEN


class Membership:
    """A membership whose resumed partitions are noted. It knows by `ends` where logs end; `known` is what came with a
    fetch."""

    incarnation = SAME_INCARNATION
    transient = False
    notices_deletion = False

    def __init__(self) -> None:
        self.resumed: list[int] = []
        self.resume = self.resumed.extend
        self.ends: dict[int, int] = {}
        self.known: dict[int, int] = {}
        self.asked: list[int] = []

    def known_end(self, partition: int) -> int:
        return self.known.get(partition, -1)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        assert 0 < timeout_s <= 2
        self.asked.append(partition)
        if partition not in self.ends:
            raise StoreError("no broker answers")
        return 0, self.ends[partition]


class Opened:
    """A reader of partition 3, and others, which a consumer with or without room attends."""

    def __init__(self, *others: int) -> None:
        self.membership = Membership()
        self.has_room = False
        fake = cast("Any", self.membership)
        owned: dict[int, OwnedPartition] = {
            number: owned_by(an_identity(), CursorState(7, 10)) for number in (3, *others)
        }
        self.reader = PartitionReader(fake, ManualClock(), fake, owned, NOTHING_OPEN, lambda: self.has_room)


def test_a_partition_waits_for_the_first_room_and_then_goes_on() -> None:
    opened = Opened()
    reader = opened.reader
    assert not reader.begins(3)
    assert reader.awaits_consumer
    reader.resume_drained()
    assert opened.membership.resumed == []
    opened.has_room = True
    reader.resume_drained()
    assert opened.membership.resumed == [3]
    assert not reader.awaits_consumer


def test_a_partition_whose_consumer_has_room_is_fetched_at_once() -> None:
    opened = Opened()
    opened.has_room = True
    assert opened.reader.begins(3)
    assert not opened.reader.awaits_consumer


def test_a_partition_that_is_assigned_again_waits_again() -> None:
    opened = Opened()
    opened.reader.begins(3)
    opened.reader.forget([3])
    assert not opened.reader.awaits_consumer
    opened.has_room = True
    assert opened.reader.begins(3)


def test_a_non_persistent_topic_is_read_whoever_has_room() -> None:
    opened = Opened()
    opened.membership.transient = True
    assert opened.reader.begins(3)


def test_the_first_batch_has_one_record() -> None:
    opened = Opened()
    opened.reader.step(())
    assert opened.reader.affordable == 1


def test_kafka_is_asked_where_logs_end_of_which_nothing_was_fetched() -> None:
    opened = Opened(4, 5)
    membership = opened.membership
    membership.ends, membership.known = {3: 30, 4: 40, 5: 50}, {5: 51}
    for number in (3, 5):
        opened.reader.begins(number)
    assert opened.reader.log_ends() == {3: 30, 4: -1, 5: 51}
    assert membership.asked == [3], "a fetch of 4 is under way, and tells it"


def test_where_kafka_does_not_answer_it_is_asked_for_the_end_of_one_log() -> None:
    opened = Opened(*range(4, 10))
    opened.membership.known = {5: 51}
    for number in range(3, 10):
        opened.reader.begins(number)
    assert opened.reader.log_ends() == {number: 51 if number == 5 else -1 for number in range(3, 10)}
    assert len(opened.membership.asked) == 1
