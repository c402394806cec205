"""A partition of Pulsar is read by a caller that takes its time, with a client that gives up incomplete chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import Entry
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import _CLIENT_LOG, PulsarAddress, PulsarReading

pytest.importorskip("pulsar")

_QUEUE = 3
_EXPIRE_S = 60.0


@dataclass(frozen=True, slots=True)
class Piece:
    """An entry there: a plain message, or a chunk."""

    uuid: str = ""
    chunk: int = 0
    chunks: int = 1


@dataclass(slots=True)
class Client:
    """Implements Pulsar's client and its readers, by a clock that a test sets. What is read reaches a reader's queue
    only while there is room in it."""

    log: Sequence[Piece]
    now_s: float = 0.0
    opened: int = 0
    _next: int = 0
    _queue: deque[int] = field(default_factory=deque)
    _begun: dict[str, tuple[float, int]] = field(default_factory=dict)

    def open(self, start: Position | None) -> Client:
        self.opened += 1
        self._next = 0 if start is None else start.entry_id
        self._queue.clear()
        self._begun.clear()
        self._fill()
        return self

    def read_next(self) -> Any:
        self._fill()
        found = self._queue.popleft() if self._queue else None
        self._fill()
        if found is None:
            return None
        place = SimpleNamespace(ledger_id=lambda: 0, entry_id=lambda: found, batch_index=lambda: -1)
        return SimpleNamespace(message_id=lambda: place)

    def _fill(self) -> None:
        for uuid in [uuid for uuid, (since_s, _) in self._begun.items() if self.now_s - since_s > _EXPIRE_S]:
            del self._begun[uuid]
        while len(self._queue) < _QUEUE and self._next < len(self.log):
            at, piece = self._next, self.log[self._next]
            self._next += 1
            if not piece.uuid:
                self._queue.append(at)
                continue
            since_s, count = self._begun.pop(piece.uuid, (self.now_s, 0))
            if count != piece.chunk:
                text = (
                    f"Received an uncached chunk (uuid: {piece.uuid} chunkId: {piece.chunk}, messageId: (0,{at},-1,-1))"
                )
                _CLIENT_LOG.receive(text)
            elif count + 1 == piece.chunks:
                self._queue.append(at)
            else:
                self._begun[piece.uuid] = since_s, count + 1

    def has_message_available(self) -> bool:
        return False

    def close(self) -> None:
        pass


class Reading(PulsarReading):
    def __init__(self, client: Client, chunks_expire_s: float = 0.0) -> None:
        super().__init__(PulsarAddress("pulsar://old:6650", "http://old:8080"), chunks_expire_s)
        self._played = client

    def _reader(self, topic: str, start: Position | None) -> Any:
        return self._played.open(start)

    def _next(self, reader: Any, topic: str) -> Any:
        return reader.read_next()

    def _entry(self, topic: str, position: Position, messages: list[Any]) -> Entry:
        return Entry(position, "p", 0, [], -1)


def read(
    client: Client, takes_s: float, start: int | None = None, expire_s: float = 0.0
) -> tuple[list[int], list[int]]:
    """The entries that come, and those at which the client has given up a message, where each `takes_s` seconds."""
    reading, found = Reading(client, expire_s), []
    begin, last = None if start is None else Position(0, start), Position(0, len(client.log) - 1)
    for entry in reading.entries("t", begin, last, lambda behind: False, Deadline.after(100)):
        found.append(entry.position.entry_id)
        client.now_s += takes_s
    return found, [each.position.entry_id for each in reading.given_up()]


PLAIN = Piece()
SPREAD = [PLAIN, Piece("a", 0, 3), *[PLAIN] * 6, Piece("a", 1, 3), *[PLAIN] * 6, Piece("a", 2, 3), PLAIN]


@pytest.mark.parametrize("takes_s", [0.0, 15.0, 61.0, 600.0])
def test_chunks_come_however_slow_their_reader_is(takes_s: float) -> None:
    client = Client(SPREAD)
    found, given_up = read(client, takes_s)
    assert found == [0, *range(2, 8), *range(9, 15), 15, 16]
    assert not given_up
    assert (client.opened == 1) == (takes_s == 0.0)


def test_chunks_at_the_end_come_though_nothing_follows() -> None:
    found, given_up = read(Client(SPREAD[:-1]), 61.0)
    assert (found[-2:], given_up) == ([14, 15], [])


def test_chunks_whose_beginning_is_missing_are_given_up_and_named() -> None:
    client = Client(SPREAD)
    found, given_up = read(client, 0.0, start=2)
    assert (found, given_up) == ([*range(2, 8), *range(9, 15), 16], [15])
    opened, client = client.opened, Client(SPREAD)
    assert read(client, 0.0, start=2, expire_s=100.0) == (found, given_up)
    assert (opened, client.opened) == (3, 1), "begun again for each chunk, which cannot help, and not for what is new"


@pytest.mark.parametrize("seed", range(30))
def test_every_message_comes_once_and_in_order(seed: int) -> None:
    rng = Random(seed)
    log, open_chunks = list[Piece](), dict[str, tuple[int, int]]()
    while len(log) < 80 or open_chunks:
        what = rng.random()
        if what < 0.1 and len(open_chunks) < 4 and len(log) < 80:
            open_chunks[f"m{len(log)}"] = 0, rng.randrange(2, 5)
        if what < 0.4 and open_chunks:
            uuid = rng.choice(sorted(open_chunks))
            chunk, chunks = open_chunks.pop(uuid)
            log.append(Piece(uuid, chunk, chunks))
            if chunk + 1 < chunks:
                open_chunks[uuid] = chunk + 1, chunks
        else:
            log.append(PLAIN)
    found, given_up = read(Client(log), rng.choice([1.0, 7.0, 40.0, 100.0]))
    assert found == [at for at, piece in enumerate(log) if piece.chunk + 1 == piece.chunks]
    assert not given_up
