"""Chunks are put together to messages, beside a naive truth."""

from __future__ import annotations

import random

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.planning import chunked_messages as chunks
from pulsar_on_kafka_spark.planning.chunked_messages import KnownChunks, WholeChunkedMessage, put_together, read_chunk


def interleaved(chance: random.Random) -> list[tuple[str, int, int]]:
    """(uuid, chunk id, chunks) in the order of a log, some of them not there; also what is no chunk: ('', 0, 0)."""
    left = {f"m{number}": [chance.randrange(1, 6), 0] for number in range(chance.randrange(1, 8))}
    found = []
    while left:
        uuid = chance.choice(list(left))
        count, at = left[uuid]
        if chance.random() < 0.95:
            found.append((uuid, at, count))
        left[uuid][1] += 1
        if left[uuid][1] == count:
            del left[uuid]
        found += [("", 0, 0)] * chance.randrange(2)
    return found


def expected(log: list[tuple[str, int, int]]) -> dict[int, WholeChunkedMessage]:
    places: dict[str, list[int]] = {}
    for offset, (uuid, _, _) in enumerate(log):
        places.setdefault(uuid, []).append(offset)
    return {
        offset: WholeChunkedMessage(tuple(places[uuid]), count)
        for offset, (uuid, at, count) in enumerate(log)
        if uuid and at == count - 1 and len(places[uuid]) == count
    }


def test_messages_of_which_all_chunks_are_there_lie_where_the_last_one_does() -> None:
    for seed in range(2000):
        log = interleaved(random.Random(seed))
        found = put_together(
            (offset, ChunkInfo(at, count, count, uuid)) for offset, (uuid, at, count) in enumerate(log) if uuid
        )
        assert found.messages == expected(log), seed
        assert found.parts == BitMap64(offset for offset, (uuid, _, _) in enumerate(log) if uuid)
        others = BitMap64(offset for offset, (uuid, _, _) in enumerate(log) if not uuid)
        assert found.places(BitMap64(range(len(log)))) == others | BitMap64(found.messages)
        assert found.pending <= found.without_place()


def test_what_is_told_in_parts_is_what_is_told_at_once() -> None:
    """A stream meets a log in parts: of what is behind it, it looks again only at what is not complete."""
    for seed in range(500):
        chance = random.Random(seed)
        log = interleaved(chance)
        known, carried, messages, at = KnownChunks(), BitMap64(), set[int](), 0
        while at < len(log):
            upto = min(len(log), at + chance.randrange(1, 6))
            offsets = carried | BitMap64(range(at, upto))
            fresh = known.unknown(offsets)
            known.learn(fresh, {o: ChunkInfo(log[o][1], log[o][2], log[o][2], log[o][0]) for o in fresh if log[o][0]})
            found = known.together()
            messages |= set(found.messages)
            carried, at = found.pending, upto
        assert messages == set(expected(log)), seed


def test_pending_is_what_may_still_become_a_message() -> None:
    found = put_together([(3, ChunkInfo(0, 3, 9, "a")), (4, ChunkInfo(1, 2, 9, "b")), (5, ChunkInfo(1, 3, 9, "a"))])
    assert found.pending == BitMap64([3, 5])
    assert found.without_place() == BitMap64([3, 4, 5])
    assert not found.messages


def test_a_header_that_cannot_be_read_is_of_no_message() -> None:
    assert read_chunk("1:3:9:a:b") == ChunkInfo(1, 3, 9, "a:b")
    assert read_chunk("what") is None
    known = KnownChunks()
    known.learn(BitMap64([0, 1]), {1: None})
    assert known.together().places(BitMap64([0, 1])) == BitMap64([0])
    assert known.unknown(BitMap64([1, 2])) == BitMap64([2])
    assert known.unknown(BitMap64([0])) == BitMap64([0]), "what did not matter any more is forgotten"


def test_more_chunks_than_the_driver_is_to_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_CHUNKS", 3)
    with pytest.raises(NotReadable, match="more than 3 chunks"):
        KnownChunks().learn(BitMap64(range(4)), dict.fromkeys(range(4)))
