"""What a consumer of librdkafka tells becomes typed events, and what readers make of them without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading import events
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Event, Failed, KafkaPartition, OutOfRange, Records, events_of
from pulsar_on_kafka.kafka.reading.fetcher import READ_THROUGH, Fetcher, near_ones
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.reading.sequential_reader import AscendingReader
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka.kafka.rights import Right, on_group, on_topic

DEADLINE = Deadline.never()


def record(offset: int, partition: int = 0, topic: str = "t") -> Any:
    return Message(topic=topic, partition=partition, offset=offset, key=b"k", value=b"v")


def event(code: int, offset: int = -1, partition: int = 0, topic: str = "t") -> Any:
    return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(code))


def of_the_topic(topic: str) -> tuple[Right, ...]:
    return (on_topic("Read", topic),)


def told(batch: list[Any], topic: str | None = "t") -> list[Event]:
    return events_of(batch, topic, of_the_topic)


def test_records_come_as_runs_of_one_partition_each() -> None:
    found = told([record(3), record(4), record(0, 1), record(5)])
    assert [(each.where, [one.offset() for one in cast("Records", each).records]) for each in found] == [
        (("t", 0), [3, 4]),
        (("t", 1), [0]),
        (("t", 0), [5]),
    ]


def test_partitions_of_several_topics_are_told_apart() -> None:
    found = told([record(3), record(4, topic="u")], None)
    assert [str(each.where) for each in found] == ["t-0", "u-0"]


def test_the_end_stands_where_it_was_reached() -> None:
    first, end, second = told([record(3), event(KafkaError._PARTITION_EOF, 4), record(4)])
    assert isinstance(first, Records)
    assert end == EndOfLog(KafkaPartition("t", 0), 4)
    assert isinstance(second, Records)


def test_nothing_gives_no_event() -> None:
    assert told([]) == []


@pytest.mark.parametrize(
    ("code", "kind", "failure"),
    [
        (KafkaError.OFFSET_OUT_OF_RANGE, events.OutOfRange, errors.OffsetOutOfRange),
        (KafkaError._AUTO_OFFSET_RESET, events.OutOfRange, errors.OffsetOutOfRange),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, events.Gone, errors.NoSuchTopic),
        (KafkaError._UNKNOWN_TOPIC, events.Gone, errors.NoSuchTopic),
        (KafkaError._UNKNOWN_PARTITION, events.Gone, errors.NoSuchTopic),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, events.Forbidden, errors.NotAuthorized),
        (KafkaError._TRANSPORT, events.Failed, errors.ConnectFailed),
        (KafkaError._MAX_POLL_EXCEEDED, events.Failed, errors.StoreError),
    ],
)
def test_each_failure_has_its_event(code: int, kind: type[Failed], failure: type[Exception]) -> None:
    (found,) = told([event(code, 7)])
    assert type(found) is kind
    assert type(found.failure) is failure
    assert str(found.failure).startswith("reading t-0: ")


@pytest.mark.parametrize("topic", ["t", None])
def test_a_failure_of_no_partition_names_none(topic: str | None) -> None:
    (found,) = told([Message(error=KafkaError(KafkaError._TRANSPORT))], topic)
    assert found.where == (topic or "", -1)
    assert str(found.where) == (topic or "")


def test_a_handle_that_gave_up_says_so() -> None:
    gave_up = Message(topic="t", partition=0, offset=0, error=KafkaError(KafkaError._FATAL, "over", True))
    assert type(told([gave_up])[0]) is events.GaveUp


def test_a_refusal_names_the_right_that_is_missing() -> None:
    (found,) = told([event(KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    assert "--operation Read --topic 't'" in str(cast("Failed", found).failure)


def test_a_refusal_of_the_group_is_told_to_members_alone() -> None:
    refusal = event(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert told([refusal]) == []
    (found,) = events_of([refusal], "t", lambda topic: (on_topic("Read", topic), on_group("Read", "g")))
    assert type(found) is events.Forbidden
    assert "--group 'g'" in str(found.failure)


def test_out_of_range_says_which_offset() -> None:
    (found,) = told([event(KafkaError.OFFSET_OUT_OF_RANGE, 7)])
    assert isinstance(found, OutOfRange)
    assert found.offset == 7


@pytest.mark.parametrize(("position", "place"), [(3, 5), (5, 5), (7, 7), (9, 9)])
def test_below_the_start_of_the_log_reading_goes_on_there(position: int, place: int) -> None:
    assert events.inside((5, 9), position, "reader r") == place


def test_behind_the_end_of_the_log_data_was_lost() -> None:
    with pytest.raises(errors.OffsetOutOfRange, match="reader r stands at offset 10, the log ends at 9"):
        events.inside((5, 9), 10, "reader r")


def test_near_offsets_are_read_in_one_go() -> None:
    far = 20 + READ_THROUGH
    assert list(near_ones([1, 2, 20, far, far + 1])) == [[1, 2, 20], [far, far + 1]]
    assert list(near_ones([])) == []


# Readers on an assigned reader that a test plays ------------------------------------------------------------------


class Played:
    """Gives the turns that a test lists, one for each poll; the last one again and again."""

    def __init__(self, *turns: list[Any]) -> None:
        self._turns = list(turns)
        self.first: list[Event] = []
        """What is told before the turns."""
        self.assigned: dict[KafkaPartition, int] = {}
        self.begun: list[int] = []
        """Offsets at which all that is read was set."""

    def learn(self, topic: str, timeout_s: float) -> bool:
        return True

    def add(self, starts: Mapping[KafkaPartition, int]) -> None:
        self.assigned.update(starts)
        self.begun += starts.values()

    def drop(self, partitions: Iterable[KafkaPartition]) -> None:
        for where in list(partitions):
            del self.assigned[where]

    def drop_all(self) -> None:
        self.assigned = {}

    def seek(self, offsets: Mapping[KafkaPartition, int]) -> None:
        self.assigned.update(offsets)

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        first, self.first = self.first, []
        if first:
            return first
        turn = self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
        return told(turn, None)


def ascending(*turns: list[Any]) -> AscendingReader:
    return AscendingReader(cast("AssignedReader", Played(*turns)), cast("Fetcher", None), "t")


def offsets(batches: Iterable[list[Any]]) -> list[int]:
    return [each.offset() for batch in batches for each in batch]


def test_what_comes_of_another_partition_waits_for_it() -> None:
    reader = ascending([record(3)], [record(7, 1), record(4)], [record(8, 1)])
    assert offsets(reader.read_at("t", 0, [3], DEADLINE)) == [3]
    reader._at(1, 7)
    assert offsets(reader.read_at("t", 0, [4], DEADLINE)) == [4]
    assert offsets(reader.read_at("t", 1, [7, 8], DEADLINE)) == [7, 8]


def test_a_partition_out_of_range_costs_no_record_of_another() -> None:
    reader = ascending([record(3)], [event(KafkaError.OFFSET_OUT_OF_RANGE, 4), record(7, 1)], [record(8, 1)])
    assert offsets(reader.read_at("t", 0, [3], DEADLINE)) == [3]
    reader._at(1, 7)
    with pytest.raises(errors.OffsetOutOfRange):
        offsets(reader.read_at("t", 0, [4], DEADLINE))
    assert offsets(reader.read_at("t", 1, [7, 8], DEADLINE)) == [7, 8]


def test_what_the_end_says_was_compacted_is_missing() -> None:
    reader = ascending([record(3), event(KafkaError._PARTITION_EOF, 9)])
    assert offsets(reader.read_at("t", 0, [3, 8], DEADLINE)) == [3]


def ranges(wanted: list[OffsetRange], *turns: list[Any]) -> tuple[dict[int, list[int]], dict[int, type[Exception]]]:
    """What was taken, and why other ranges were not read, by place."""
    reader = RangeReader({})
    played = Played(*turns)
    reader._reader = cast("AssignedReader", played)
    taken: dict[int, list[int]] = {}

    def take(place: int, records: list[KafkaRecord]) -> None:
        taken.setdefault(place, []).extend(each.offset() for each in records)

    failed = reader.read(wanted, take, DEADLINE)
    assert played.assigned == {}
    return taken, {place: type(failure) for place, failure in failed.items()}


def test_ranges_that_lie_near_are_read_through() -> None:
    taken, failed = ranges(
        [OffsetRange("t", 0, 10, 12), OffsetRange("t", 0, 2, 4)], [record(offset) for offset in range(2, 15)]
    )
    assert (taken, failed) == ({0: [10, 11], 1: [2, 3]}, {})


def test_a_range_that_the_log_does_not_have_fails_alone() -> None:
    wanted = [OffsetRange("t", 0, 1, 3), OffsetRange("t", 1, 1, 3), OffsetRange("u", 0, 1, 3)]
    taken, failed = ranges(
        wanted,
        [record(1), event(KafkaError._PARTITION_EOF, 2, 1), event(KafkaError.OFFSET_OUT_OF_RANGE, 1, 0, "u")],
        [record(2)],
    )
    assert taken == {0: [1, 2]}
    assert failed == {1: errors.OffsetOutOfRange, 2: errors.OffsetOutOfRange}


def test_a_topic_that_is_gone_fails_all_that_is_read_of_it() -> None:
    wanted = [OffsetRange("t", 0, 1, 3), OffsetRange("u", 0, 1, 3), OffsetRange("u", 1, 1, 3)]
    gone = event(KafkaError.UNKNOWN_TOPIC_OR_PART, topic="u", partition=-1)
    taken, failed = ranges(wanted, [gone, record(1), record(2)])
    assert taken == {0: [1, 2]}
    assert failed == {1: errors.NoSuchTopic, 2: errors.NoSuchTopic}


def fetcher(*turns: list[Any]) -> tuple[Fetcher, Played]:
    found, played = Fetcher({}), Played(*turns)
    found._consumer = cast("AssignedReader", played)
    return found, played


def test_a_range_is_read_up_to_its_end_and_no_further() -> None:
    found, played = fetcher([record(3), record(4)], [record(5), record(6)])
    assert offsets(found.read("t", 0, 3, 6, DEADLINE)) == [3, 4, 5]
    assert played.assigned == {}


def test_the_end_of_the_log_ends_a_range_whose_last_records_were_compacted() -> None:
    found, _ = fetcher([record(3)], [event(KafkaError._PARTITION_EOF, 6)])
    assert offsets(found.read("t", 0, 3, 6, DEADLINE)) == [3]


def test_two_readings_take_turns_and_each_goes_on_where_it_was() -> None:
    found, played = fetcher([record(3)], [record(7, 1)], [record(4)], [record(8, 1)])
    first, second = found.read("t", 0, 3, 5, DEADLINE), found.read("t", 1, 7, 9, DEADLINE)
    assert offsets([next(first)]) == [3]
    assert offsets([next(second)]) == [7]
    assert played.assigned == {("t", 0): 3, ("t", 1): 7}
    assert offsets([next(first)]) == [4]
    assert played.assigned == {("t", 1): 7}
    assert offsets([next(second)]) == [8]
    assert played.assigned == {}


def test_two_readings_of_one_partition_take_turns() -> None:
    found, played = fetcher([record(3)], [record(1)], [record(4)], [record(2)])
    first, second = found.read("t", 0, 3, 5, DEADLINE), found.read("t", 0, 1, 3, DEADLINE)
    assert [offsets([next(each)]) for each in (first, second, first, second)] == [[3], [1], [4], [2]]
    assert played.begun == [3, 1, 4, 2]


def test_what_comes_behind_a_batch_that_nobody_has_taken_is_fetched_again() -> None:
    found, played = fetcher([record(3)], [record(4), record(7, 1)], [record(5), record(8, 1)], [record(5), record(6)])
    first, second = found.read("t", 0, 3, 7, DEADLINE), found.read("t", 1, 7, 9, DEADLINE)
    assert offsets([next(first)]) == [3]
    assert offsets([next(second)]) == [7]
    assert offsets([next(second)]) == [8]
    assert played.assigned == {}
    assert offsets(first) == [4, 5, 6]
    assert played.begun == [3, 7, 5]


def test_an_iterator_that_is_left_unfinished_is_not_fetched_any_more() -> None:
    found, played = fetcher([record(3)])
    first = found.read("t", 0, 3, 7, DEADLINE)
    assert offsets([next(first)]) == [3]
    del first
    assert played.assigned == {}


def test_a_failure_of_one_reading_is_not_anothers() -> None:
    found, _ = fetcher([record(3)], [event(KafkaError.OFFSET_OUT_OF_RANGE, 4), record(7, 1)], [record(8, 1)])
    first, second = found.read("t", 0, 3, 5, DEADLINE), found.read("t", 1, 7, 9, DEADLINE)
    assert offsets([next(first)]) == [3]
    assert offsets(second) == [7, 8]
    with pytest.raises(errors.OffsetOutOfRange):
        next(first)


def test_a_topic_that_was_read_before_and_is_gone_ends_no_other_reading() -> None:
    found, played = fetcher([record(3)])
    played.first = [events.Gone(KafkaPartition("", -1), errors.NoSuchTopic("another one"))]
    assert offsets(found.read("t", 0, 3, 4, DEADLINE)) == [3]
    found, _ = fetcher([event(KafkaError.UNKNOWN_TOPIC_OR_PART)])
    with pytest.raises(errors.NoSuchTopic):
        offsets(found.read("t", 0, 3, 4, DEADLINE))


def test_only_the_offsets_that_are_wanted_are_given() -> None:
    found, played = fetcher([record(3), record(4), record(5)], [record(READ_THROUGH + 9)])
    assert offsets(found.read_at("t", 0, [3, 5, READ_THROUGH + 9], DEADLINE)) == [3, 5, READ_THROUGH + 9]
    assert played.begun == [3, READ_THROUGH + 9]
