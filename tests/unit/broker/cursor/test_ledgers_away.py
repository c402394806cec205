"""A cursor whose ledgers go away and come back answers as one that keeps all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Holes
from tests.seeds import for_each_seed

END = 80


class Cursors:
    """One that keeps everything, and one whose saved ledgers go away."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.size = rng.choice((2, 3, 7, 16, 50))
        start = rng.randrange(20)
        self.kept, self.sent = CursorState(start, self.size), CursorState(start, self.size)
        self.sent.loader = self._read
        self._segments: dict[int, Holes] = {}

    def _read(self, indexes: Iterable[int]) -> Iterator[tuple[int, Holes]]:
        for index in indexes:
            saved = self._segments[index]
            yield index, Holes(saved.acked.copy(), saved.batches)

    def send_away(self) -> None:
        """What was written of a ledger stays as it is until the ledger changes, though mark-delete moves into it."""
        assert self.sent.dirty_ledgers == self.kept.dirty_ledgers
        for index in self.sent.dirty_ledgers:
            self._segments[index] = self.sent.holes_of(index)
        self.sent.dirty_ledgers.clear()
        self.kept.dirty_ledgers.clear()
        for index in sorted(self.sent.ledgers_here()):
            if self.rng.random() < 0.7:
                stays = index == self.sent.next_unacked // self.size
                assert self.sent.send_away(index, 1) is not stays
                assert self.sent.is_away(index) is not stays

    def change(self) -> None:
        """By the same call to both."""
        change = _a_change(self.rng, self.size)
        before = self.kept.revision, self.sent.revision
        assert change(self.kept) == change(self.sent)
        assert (self.kept.revision > before[0]) == (self.sent.revision > before[1])
        assert self.kept.revision >= before[0]

    def agree(self) -> None:
        """Without anything coming back, where a summary answers."""
        away = {index for index in range(END) if self.sent.is_away(index)}
        for say in (
            lambda cursor: cursor.next_unacked,
            lambda cursor: bool(cursor.deleted),
            lambda cursor: len(cursor.deleted),
            lambda cursor: len(cursor.batches),
            lambda cursor: cursor.deleted.max(),
            lambda cursor: cursor.deleted.count_gaps(),
            lambda cursor: cursor.backlog(200),
            lambda cursor: cursor.ledgers_with_state(),
        ):
            assert say(self.sent) == say(self.kept)
        if not self.sent.batches.away:
            assert self.sent.known_end() == self.kept.known_end()
        assert away == {index for index in range(END) if self.sent.is_away(index)}

    def answer_alike(self) -> None:
        """To one question, that may need a ledger."""
        question = _a_question(self.rng)
        assert question(self.sent) == question(self.kept)


def _a_change(rng: random.Random, size: int) -> Callable[[CursorState], object]:
    offsets = [rng.randrange(END) for _ in range(rng.randrange(1, 12))]
    start, length = rng.randrange(END), rng.randrange(30)
    sets = {offset: BatchAckSet(4, rng.randrange(1, 16)) for offset in offsets}
    ledgers = of_offsets(BitMap64(range(start, start + length)), sets, size)
    changes: tuple[Callable[[CursorState], object], ...] = (
        lambda cursor: cursor.acknowledge(offsets),
        lambda cursor: cursor.acknowledge(offsets[:1]),
        lambda cursor: cursor.acknowledge_range(start, start + length),
        lambda cursor: cursor.acknowledge_batches(sets),
        lambda cursor: cursor.acknowledge_ledgers(ledgers),
        lambda cursor: cursor.acknowledge_cumulative(start // 2),
        lambda cursor: cursor.reset(start) if length == 0 else None,
    )
    return rng.choice(changes)


def _a_question(rng: random.Random) -> Callable[[CursorState], object]:
    start, length = rng.randrange(END), rng.randrange(1, 30)
    questions: tuple[Callable[[CursorState], object], ...] = (
        lambda cursor: cursor.is_acknowledged(start),
        lambda cursor: cursor.acknowledged_in(start, start + length),
        lambda cursor: cursor.unacknowledged(start, start + length),
        lambda cursor: cursor.after(length, start + length),
        lambda cursor: cursor.backlog(start),
        lambda cursor: cursor.batches.get(start),
    )
    return rng.choice(questions)


@for_each_seed(range(150))
def test_what_went_away_is_known_all_the_same(seed: int) -> None:
    cursors = Cursors(random.Random(seed))
    for _ in range(20):
        cursors.change()
        cursors.send_away()
        cursors.agree()
        cursors.answer_alike()
    assert dict(cursors.sent.batches.items()) == dict(cursors.kept.batches.items())
    assert cursors.sent.deleted == cursors.kept.deleted


def test_a_ledger_counts_as_used_when_it_is_asked_for_changed_or_read_back() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge([12, 23, 34])
    saved = {index: cursor.holes_of(index) for index in (1, 2, 3)}
    cursor.loader = lambda indexes: [(index, saved[index]) for index in indexes]
    cursor.deleted.now_s = 5
    cursor.acknowledged_in(10, 20)
    cursor.acknowledge_batches({25: BatchAckSet(2, 1)})
    assert [cursor.last_used(index) for index in (1, 2, 3)] == [5, 5, 0]
    cursor.send_away(3, 1)
    cursor.deleted.now_s = 7
    assert cursor.is_acknowledged(34)
    assert [cursor.last_used(index) for index in (1, 2, 3)] == [5, 5, 7]
    cursor.deleted.now_s = 9
    cursor.acknowledge([13])
    cursor.reset(0)
    cursor.acknowledge([44])
    assert [cursor.last_used(index) for index in (1, 2, 3, 4)] == [0, 0, 0, 9]
