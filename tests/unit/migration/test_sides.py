"""Both sides of a partition, beside a plain list of what is where."""

from __future__ import annotations

import random
from typing import Any

import pytest

from layer.cursor.batch_acks import BatchAckSet
from layer.cursor.machine import CursorState
from layer.migration.inventory import Inventory, SubscriptionEntry, TopicEntry, lacking
from layer.migration.sides import CopiedRecords, carried_over, compared, copied_records
from mapping.headers import MARKER, ORIGINAL_ID, REPLICATE_TO, REPLICATED_FROM, TXN
from mapping.original_position import OriginalPosition, encode_original

LIFE = 5


class Record:
    def __init__(self, offset: int, value: bytes, *headers: tuple[str, bytes]) -> None:
        self._offset, self._value, self._headers = offset, value, headers

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        return self._headers


def copy(offset: int, original: int, value: bytes, source: str = "west", life: int = LIFE) -> Any:
    place = encode_original(OriginalPosition(original, 0, life, 1))
    return Record(offset, value, ("user", b"x"), (REPLICATED_FROM, source.encode()), (ORIGINAL_ID, place))


def mine(offset: int, value: bytes, *headers: tuple[str, bytes]) -> Any:
    return Record(offset, value, ("user", b"x"), *headers)


def test_messages_are_compared_by_place_and_content() -> None:
    source = [
        mine(0, b"a"),
        mine(1, b"b"),
        mine(2, b"", (MARKER, b"txn_commit")),
        mine(3, b"c", (TXN, b"1:2")),
        mine(4, b"d", (REPLICATE_TO, b"")),
        copy(5, 9, b"from there", "east"),
        mine(6, b"e"),
        mine(7, b"f", (TXN, b"1:3")),
    ]
    target = [copy(0, 0, b"a"), copy(1, 1, b"other"), mine(2, b"z"), copy(3, 6, b"old", life=4), copy(9, 7, b"f")]
    found = compared([source[:3], source[3:]], copied_records([target], "west", LIFE), "east")
    assert (found.equal, found.changed, found.missing, found.excused, found.first) == (2, 1, 1, 1, 1)
    assert not found.good
    again = compared([[source[0]]], copied_records([target], "west", LIFE), "east")
    assert again.good
    assert again.digest != found.digest


@pytest.mark.parametrize("seed", range(50))
def test_every_acknowledgement_is_carried_over_to_its_copy(seed: int) -> None:
    draw = random.Random(seed)
    cursor = CursorState(draw.randrange(20), 7)
    copied, target = CopiedRecords(), 0
    for original in range(100):
        if draw.random() < 0.8:
            target += draw.choice((1, 1, 3))
            copied.add(original, target, 0)
        if draw.random() < 0.4:
            cursor.acknowledge([original])
        elif original >= cursor.next_unacked and draw.random() < 0.2:
            cursor.batches.put(original, BatchAckSet(3, 0b101))
    acks = carried_over(cursor, copied, 11)
    acked = {index * 11 + entry for index, holes in acks.items() for entry in holes.acked}
    sets = {index * 11 + entry: found for index, holes in acks.items() for entry, found in holes.batches.items()}
    pairs = list(zip(copied.originals, copied.copies, strict=True))
    assert acked == {there for here, there in pairs if cursor.is_acknowledged(here)}
    assert sets == {
        there: (3, 0b101) for here, there in pairs if cursor.batches.get(here) and not cursor.is_acknowledged(here)
    }


def test_what_the_target_lacks() -> None:
    entry = SubscriptionEntry({"a": "b"}, False)
    topic = TopicEntry(2, {"message_ttl_in_seconds": 5}, ("hash",), {"s": entry})
    here = Inventory({"acme/eu": {"deduplication": True}}, {"t": topic})
    assert lacking(here, here) == []
    assert lacking(here, Inventory()) == ["namespace acme/eu is not there", "topic t is not there"]
    other = TopicEntry(1, {}, (), {"s": SubscriptionEntry({}, False)})
    found = lacking(here, Inventory({"acme/eu": {}}, {"t": other, "more": other}))
    assert [sentence.split(",")[0].split(" are")[0].split(" has")[0] for sentence in found] == [
        "policies of namespace acme/eu", "topic t", "policies of topic t", "topic t",
        "properties of subscription s of t differ",
    ]  # fmt: skip
    bare = TopicEntry(2, topic.policies, topic.schemas, {})
    assert lacking(here, Inventory(here.namespaces, {"t": bare})) == ["subscription s of t is not there"]
