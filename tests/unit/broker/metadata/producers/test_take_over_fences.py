"""Copies of a former replicator, and records of a producer name's former holder, are void; those of other origins are
not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.fence_log import TakeOverFences
from pulsar_on_kafka.broker.metadata.producers.fence_view import HeartbeatsAndFences, KnownTakeOvers, OriginEpoch
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.epoch_fences import END_ORIGIN, Fence, name_origin, take_over_marker
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, PRODUCER, REPLICATED_FROM
from pulsar_on_kafka_mapping.state.metadata.producer_records import TakeOverBound
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS
from tests.kafka_records import ReadRecord
from tests.memory_log import MemoryStateLog

TOPIC = Topic(TopicName.parse("t"), "k", "id", 1, False, LedgerLayout(4, 100))
PLACE = str(TOPIC.name)
SOON = Deadline.never()


def copy(offset: int, epoch: int, origin: bytes = b"eu") -> ReadRecord:
    # A high epoch of its producer, which is its origin's own affair.
    headers: Headers = [(PRODUCER, b"1:99:p"), (REPLICATED_FROM, origin), (ORIGINAL_ID, b"%d:0:1:%d" % (offset, epoch))]
    return ReadRecord(offset, headers)


def marker(offset: int, epoch: int, origin: bytes = b"eu") -> ReadRecord:
    return ReadRecord(offset, take_over_marker(origin.decode(), epoch))


def test_behind_the_end_of_a_topic_all_is_void_but_what_other_programs_wrote() -> None:
    own = [ReadRecord(offset, [(PRODUCER, b"1:9:p")]) for offset in (0, 3)]
    end, foreign = marker(1, 2, END_ORIGIN.encode()), ReadRecord(4, [])
    records = [own[0], end, copy(2, 7), own[1], foreign]
    assert [record.offset() for record in Fences().valid(records, [1])] == [0, 1, 4]
    assert Fences([Fence(1, 2, END_ORIGIN)]).void_in([0, 2, 3], [own[0], copy(2, 7), own[1]]) == [1, 2]


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

    def start_offsets(self, _topic: str, partitions: Iterable[int], _deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, self.start)

    def end_offsets(self, _topic: str, partitions: Iterable[int], _deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, len(self.records))

    def read(self, _topic: str, _partition: int, start: int, end: int, _deadline: Deadline) -> Iterator[list[Any]]:
        yield self.records[start:end]


def test_behind_a_marker_of_a_producer_name_its_lower_epochs_are_void_and_no_others() -> None:
    own: Headers = [(PRODUCER, b"1:1:p")]
    other: Headers = [(PRODUCER, b"1:1:q")]
    copied: Headers = [*own, (REPLICATED_FROM, b"eu"), (ORIGINAL_ID, b"7:0:1:1")]
    begins = take_over_marker(name_origin("p"), 2)
    written: list[Headers] = [own, begins, own, other, copied, [(PRODUCER, b"1:2:p")], [(PRODUCER, b"rubbish")], []]
    records = [ReadRecord(offset, headers) for offset, headers in enumerate(written)]
    assert [record.offset() for record in Fences().valid(records, [1])] == [0, 1, 3, 4, 5, 6, 7]


class State:
    """What `producers` says of take-overs of one topic whose partition is `data`."""

    def __init__(self) -> None:
        self.data = Log()
        self.log = MemoryStateLog(SystemClock())
        place = PRODUCERS.partition_for(PLACE)
        self.view = LogView(self.log, PRODUCERS, place, HeartbeatsAndFences, SystemClock())
        data = cast("Any", self.data)
        self.fences = TakeOverFences(self.log, data, data, self.ask)

    def ask(self, topic: str, question: Callable[[KnownTakeOvers], Any], deadline: Deadline) -> Any:
        return self.view.query(lambda state: question(state.take_overs.get(topic, KnownTakeOvers())), deadline)

    def begin(self, epoch: int, origin: str = "eu", *, answered: bool = True) -> dict[int, int]:
        def append(partitions: Sequence[int]) -> dict[int, int]:
            self.data.records.append(marker(len(self.data.records), epoch, origin.encode()))
            if not answered:
                raise ConnectionError
            return dict.fromkeys(partitions, len(self.data.records) - 1)

        with suppress(ConnectionError):
            return self.fences.begin(TOPIC, origin, epoch, [0], append, SOON)
        return {}

    def known(self) -> list[Fence]:
        return sorted(self.fences.of_partitions(TOPIC, [0], SOON)[0])

    def on_record(self) -> list[tuple[int, bool]]:
        found = self.ask(PLACE, lambda known: known.of(TOPIC.layout.incarnation, 0), SOON)
        return sorted((fence.offset, fence.exact) for fence in found.values())


def test_a_bound_alone_makes_readers_look_for_the_marker_and_old_fences_go() -> None:
    state = State()
    state.data.records = [copy(0, 1)]
    state.begin(2, answered=False)
    state.data.records.append(copy(2, 1))
    assert state.known() == [Fence(1, 2, "eu")]
    assert state.on_record() == [(1, True)], "the reader noted it"
    state.begin(3)
    state.begin(1, "asia")
    assert state.known() == [Fence(1, 2, "eu"), Fence(3, 3, "eu"), Fence(4, 1, "asia")]
    state.data.start = 4  # the marker of epoch 3 has left the log: all that is there lies behind it
    state.begin(4)
    assert state.known() == [Fence(3, 3, "eu"), Fence(4, 1, "asia"), Fence(5, 4, "eu")]


def test_a_marker_whose_answer_was_lost_counts_when_its_epoch_is_begun_once_more() -> None:
    state = State()
    state.begin(2, answered=False)
    state.data.records.append(copy(1, 1))
    assert state.begin(2) == {0: 0}
    assert state.on_record() == [(0, True)]


def naive_superfluous(known: KnownTakeOvers, life: int, log_start: int) -> set[tuple[str, int]]:
    found = {(origin, n): fence for origin, epochs in known.fences.get(0, {}).items() for n, fence in epochs.items()}
    gone = set()
    for (origin, number), fence in found.items():
        later = any(
            other == origin and n > number and one.exact and one.topic_incarnation == life
            and (one.offset < log_start or one.offset <= fence.offset)
            for (other, n), one in found.items()
        )  # fmt: skip
        if fence.topic_incarnation < life or (fence.topic_incarnation == life and later):
            gone.add((origin, number))
    return gone


def test_superfluous_fences_are_those_that_the_rule_names() -> None:
    for seed in range(300):
        chance, known = random.Random(seed), KnownTakeOvers()
        for _ in range(30):
            epoch = OriginEpoch(chance.choice(["/p", "/q", "eu"]), chance.randrange(12))
            fence = TakeOverBound(chance.choice([3, 4, 4, 4, 5]), chance.randrange(20), exact=chance.random() < 0.7)
            known.put(0, epoch, None if chance.random() < 0.1 else fence)
        log_start = chance.randrange(15)
        keys = list(known.superfluous(PLACE, 4, 0, log_start))
        assert {(key.origin, key.epoch) for key in keys} == naive_superfluous(known, 4, log_start), f"seed {seed}"
        assert len(set(keys)) == len(keys)


def test_fences_of_many_names_are_looked_through_once() -> None:
    known = KnownTakeOvers()
    for number in range(20_000):
        known.put(0, OriginEpoch(f"/{number}", number), TakeOverBound(4, number, exact=True))
    assert list(known.superfluous(PLACE, 4, 0, 0)) == []
    assert known.of(4, 0, "/7") == {OriginEpoch("/7", 7): TakeOverBound(4, 7, exact=True)}
    known.put(0, OriginEpoch("/7", 7), None)
    assert "/7" not in known.fences[0]


def test_a_name_is_fenced_from_the_bound_on_in_its_life_of_the_topic() -> None:
    state = State()
    state.begin(2, name_origin("p"), answered=False)
    assert state.fences.has_begun(TOPIC, name_origin("p"), SOON)
    assert not state.fences.has_begun(TOPIC, name_origin("q"), SOON)
    assert not state.fences.has_begun(replace(TOPIC, layout=LedgerLayout(5, 100)), name_origin("p"), SOON)
    assert state.fences.of_partitions(TOPIC, [0], SOON, origin="eu") == {0: []}
    assert state.fences.of_partitions(TOPIC, [0], SOON, origin="/p") == {0: [Fence(0, 2, "/p")]}


def test_a_marker_that_never_came_is_looked_for_in_the_same_records_only_once() -> None:
    state = State()
    state.fences._record(TOPIC, OriginEpoch("eu", 2), {0: TakeOverBound(4, 0, exact=False)}, SOON)
    state.data.records = [copy(offset, 1) for offset in range(1000)]
    assert (state.known(), state.on_record()) == ([], [(1000, False)])
    state.begin(3)
    assert state.on_record() == [(1000, True)], "behind the marker of a higher epoch it makes no difference"
