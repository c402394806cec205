"""Both sides of a partition, beside a plain list of what is where."""

from __future__ import annotations

from typing import Any

from layer.migration.inventory import Inventory, SubscriptionEntry, TopicEntry, lacking
from layer.migration.sides import compared, copied_records, digest_of
from mapping.fence import replicator_marker
from mapping.headers import MARKER, ORIGINAL_ID, REPLICATE_TO, REPLICATED_FROM, TXN
from mapping.original_position import OriginalPosition, encode_original

LIFE = 5


class Record:
    def __init__(self, offset: int, value: bytes, *headers: tuple[str, bytes | None]) -> None:
        self._offset, self._value, self._headers = offset, value, headers

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._headers


def copy(offset: int, original: int, value: bytes, source: str = "west", life: int = LIFE, epoch: int = 1) -> Any:
    place = encode_original(OriginalPosition(original, 0, life, epoch))
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


def test_copies_behind_the_marker_of_a_later_replicator_do_not_count() -> None:
    """They come before those that do, of which some lie before copies of earlier originals."""
    marker: Any = Record(1, b"", *replicator_marker("west", 2))
    found = copied_records([[copy(0, 5, b"void", epoch=1), marker, copy(2, 6, b"void", epoch=1)]], "west", LIFE)
    assert (found.digest(5), found.digest(6)) == (digest_of(mine(0, b"void")), None)
    found = copied_records(
        [[marker, *(copy(2 + i, n, b"%d" % n, epoch=2) for i, n in enumerate((3, 7, 5, 7, 8)))]], "west", LIFE
    )
    assert [found.digest(n) for n in range(3, 9)] == [
        digest_of(mine(0, b"%d" % n)) if n not in (4, 6) else None for n in range(3, 9)
    ]


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
