"""Both sides of a partition, beside a plain list of what is where."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded, Refused
from pulsar_on_kafka.clusters.migration.inventory import Inventory, SubscriptionEntry, TopicEntry, lacking
from pulsar_on_kafka.clusters.migration.log_comparison import BothSides, Compared, SideBySide
from pulsar_on_kafka_mapping.records.epoch_fences import take_over_marker
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, encode_original
from pulsar_on_kafka_mapping.records.record_headers import MARKER, ORIGINAL_ID, REPLICATE_TO, REPLICATED_FROM, TXN

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


class Log:
    """One partition of a cluster, as `RangeReader` and `KafkaAdmin` are asked for it."""

    def __init__(self, *records: Any) -> None:
        self.records = list(records)
        self.read_from: list[int] = []
        self.stalls = 0

    def start_offsets(self, _: str, partitions: list[int], __: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, self.records[0].offset() if self.records else 0)

    def end_offsets(self, _: str, partitions: list[int], __: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, self.records[-1].offset() + 1 if self.records else 0)

    def read(self, ranges: list[Any], take: Callable[[int, list[Any]], None], _: Deadline) -> dict[int, Exception]:
        for number, each in enumerate(ranges):
            if each.start < each.end:
                self.read_from.append(each.start)
                first, end = (bisect_left(self.records, at, key=Record.offset) for at in (each.start, each.end))
                found = self.records[first:end]
                if self.stalls and len(found) > 1:
                    self.stalls -= 1
                    take(number, found[: len(found) // 2])
                    return {number: DeadlineExceeded("no records in time")}
                take(number, found)
        return {}


class Looks:
    """At a topic of one partition on two clusters, west and east."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, west: Log, east: Log) -> None:
        monkeypatch.setattr(
            "pulsar_on_kafka.broker.node.cross_cluster.subscription_reader.RangeReader", lambda log: log
        )
        self._both = BothSides(self._node(west), "west", self._node(east), "east")

    def __call__(self, remade: bool = False, settled: bool = False) -> Compared:
        here, there = (
            cast(
                "Any",
                SimpleNamespace(
                    name="orders", kafka_topic="t", kafka_topic_id=topic_id, partitions=1,
                    layout=SimpleNamespace(incarnation=LIFE),
                ),
            )
            for topic_id in ("a", "c" if remade else "b")
        )  # fmt: skip
        return self._both.read_on(here, there, Deadline.after(60), settled=settled)[0]

    @staticmethod
    def _node(log: Log) -> Any:
        return SimpleNamespace(admin=log, settings=SimpleNamespace(reader=lambda **_: log))


def test_messages_are_compared_by_place_and_content(monkeypatch: pytest.MonkeyPatch) -> None:
    west = Log(
        mine(0, b"a"),
        mine(1, b"b"),
        mine(2, b"", (MARKER, b"txn_commit")),
        mine(3, b"c", (TXN, b"1:2")),
        mine(4, b"d", (REPLICATE_TO, b"")),
        copy(5, 9, b"from there", "east"),
        mine(6, b"e"),
        mine(7, b"f", (TXN, b"1:3")),
    )
    east = Log(copy(0, 0, b"a"), copy(1, 1, b"other"), mine(2, b"z"), copy(3, 6, b"old", life=4), copy(9, 7, b"f"))
    look = Looks(monkeypatch, west, east)
    west.stalls = east.stalls = 1
    found = look()
    assert (west.read_from, east.read_from) == ([0, 4], [0, 2]), "brokers that hang for a while are read on"
    assert (found.equal, found.changed, found.missing, found.excused, found.first) == (2, 1, 1, 1, 1)
    assert not found.good
    again = Looks(monkeypatch, Log(west.records[0]), east)()
    assert again.good
    assert again.digest != found.digest

    # A later look reads what came since, and knows the rest.
    west.records.append(mine(8, b"g"))
    assert look().missing == 2
    west.read_from, east.read_from = [], []
    east.records += [copy(10, 6, b"e"), copy(11, 8, b"g")]
    found = look()
    assert (found.equal, found.changed, found.missing, found.excused, found.first) == (4, 1, 0, 1, 1)
    assert (west.read_from, east.read_from) == ([], [10])
    with pytest.raises(Refused, match="recreated"):
        look(remade=True)


def test_copies_behind_the_marker_of_a_later_replicator_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before those that do, of which some lie before copies of earlier originals."""
    west = Log(*(mine(n, b"%d" % n) for n in range(5, 9)))
    marker: Any = Record(1, b"", *take_over_marker("west", 2))
    void = [copy(0, 5, b"5", epoch=1), marker, copy(2, 6, b"void", epoch=1)]
    found = Looks(monkeypatch, west, Log(*void))()
    assert (found.equal, found.changed, found.missing, found.first) == (1, 0, 3, 6)
    east = Log(*void, *(copy(3 + i, n, b"%d" % n, epoch=2) for i, n in enumerate((3, 7, 6, 7, 8))))
    found = Looks(monkeypatch, west, east)()
    assert (found.equal, found.changed, found.missing, found.first) == (4, 0, 0, -1)


LIMIT = 250
"""What the test's `BothSides` keeps of each side: 200, and a step of 50."""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much was kept of a side, whenever anything was told."""
    found = [0]

    class Watched(SideBySide):
        def original(self, record: Any, headers: Any) -> None:
            super().original(record, headers)
            found.extend((self.waiting, self.early))

        def copy(self, original: int, record: Any, headers: Any) -> None:
            super().copy(original, record, headers)
            found.extend((self.waiting, self.early))

    monkeypatch.setattr("pulsar_on_kafka.clusters.migration.log_comparison.SideBySide", Watched)
    for name, value in {"_MAX_WAITING": 200, "_FEWEST": 50, "_APART": 50}.items():
        monkeypatch.setattr(f"pulsar_on_kafka.clusters.migration.log_comparison.{name}", value)
    return found


LONG = 20_000


def test_originals_are_not_read_far_ahead_of_their_copies(monkeypatch: pytest.MonkeyPatch, kept: list[int]) -> None:
    """And none is given up because its copy comes late."""
    west = Log(*(mine(n, b"%d" % n) for n in range(LONG)))
    copies = [copy(n, n, b"%d" % n) for n in range(LONG)]
    east = Log()
    look = Looks(monkeypatch, west, east)
    found = look()
    assert (found.equal, found.missing, found.first) == (0, LONG, 0)
    assert sum(kept) > 0
    assert max(west.read_from) <= LIMIT
    for upto in (1, 7_000, 7_001, LONG - 1):
        east.records = copies[:upto]
        found = look()
        assert (found.equal, found.missing, found.first, found.good) == (upto, LONG - upto, upto, False)
    east.records = copies
    assert (look().equal, look().good, look().complete) == (LONG, True, True)
    assert max(kept) <= LIMIT


def test_copies_are_not_read_far_ahead_of_their_originals(monkeypatch: pytest.MonkeyPatch, kept: list[int]) -> None:
    """Which are no longer there, or not there at all: their cluster lost them."""
    copies = [copy(n, n, b"%d" % n) for n in range(LONG)]
    found = Looks(monkeypatch, Log(mine(LONG - 1, b"%d" % (LONG - 1))), Log(*copies))()
    assert (found.equal, found.good) == (1, True)
    lost = Looks(monkeypatch, Log(mine(0, b"0")), Log(*copies))()
    assert (lost.equal, lost.good) == (1, True)
    assert max(kept) <= LIMIT


def test_whatever_the_order_is_little_is_kept(monkeypatch: pytest.MonkeyPatch, kept: list[int]) -> None:
    """Replicators keep it; so what comes far behind its turn counts as missing."""
    west = Log(*(mine(n, b"%d" % n) for n in range(LONG)))
    turned = Log(*(copy(n, LONG - 1 - n, b"%d" % (LONG - 1 - n)) for n in range(LONG)))
    found = Looks(monkeypatch, west, turned)(settled=True)
    assert found.equal + found.missing == LONG
    assert not found.good
    rng = random.Random(7)
    order = [n for start in range(0, LONG, 40) for n in rng.sample(range(start, start + 40), 40)]
    shuffled = Log(*(copy(n, original, b"%d" % original) for n, original in enumerate(order)))
    assert Looks(monkeypatch, west, shuffled)().equal == LONG
    assert max(kept) <= LIMIT


def test_what_has_no_copy_when_nothing_more_is_copied_is_told_of(
    monkeypatch: pytest.MonkeyPatch, kept: list[int]
) -> None:
    """A long end of aborted messages, and a message that was lost."""
    aborted = [mine(n, b"%d" % n, (TXN, b"1:2")) for n in range(1, LONG)]
    west = Log(mine(0, b"0"), *aborted, mine(LONG, b"lost"))
    look = Looks(monkeypatch, west, Log(copy(0, 0, b"0")))
    found = look()
    assert (found.equal, found.complete) == (1, False)
    assert found.missing > LONG - 2 * LIMIT, "they may be copied yet"
    found = look(settled=True)
    assert (found.equal, found.missing, found.excused, found.first) == (1, 1, LONG - 1, LONG)
    assert max(kept) <= LIMIT


def test_little_is_kept_of_two_long_logs(monkeypatch: pytest.MonkeyPatch, kept: list[int]) -> None:
    """Of one half of which nothing was copied, since it was not to be, and of which the beginning is gone."""
    aborted = [mine(n, b"%d" % n, (TXN, b"1:2")) for n in range(1_000, 3_000)]
    west = Log(*(mine(n, b"%d" % n) for n in range(500, 1_000)), *aborted, mine(3_000, b"last"))
    copies = [copy(n, n, b"%d" % n) for n in range(1_000)]
    east = Log(*copies, *(mine(n, b"") for n in range(1_000, 4_000)), copy(4_000, 3_000, b"last"))
    found = Looks(monkeypatch, west, east)()
    assert (found.equal, found.changed, found.missing, found.excused) == (501, 0, 0, 2_000)
    assert max(kept) <= LIMIT


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
