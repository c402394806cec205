"""Folding a range of the log to the newest message of each key."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage, encode_batch
from pulsar_on_kafka_mapping.records.record_headers import BATCH, ENCRYPTION, FENCE, MARKER, PRODUCER


@dataclass
class Record:
    at: int
    its_key: bytes | None
    its_headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    its_value: bytes | None = b"x"

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.its_key

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.its_headers

    def value(self) -> bytes | None:
        return self.its_value


def batch(at: int, *messages: tuple[bytes | None, bytes]) -> Record:
    value = encode_batch([BatchMessage(payload, key) for key, payload in messages])
    return Record(at, messages[0][0], [(BATCH, b"1:%d" % len(messages))], value)


def folded(records: list[Record], fences: Fences | None = None) -> tuple[list[int], dict[int, int]]:
    """The offsets that stay, and what is left out of batches there, as bits."""
    found = CompactedRange(len(records), fences)
    found.fold(records)
    found.seal()
    return [record.offset() for record in found.remaining(records)], {o: p.acked for o, p in found.parts.items()}


def remaining(records: list[Record], end: int, *, empty_removes_key: bool = False) -> list[int]:
    folded = CompactedRange(end, empty_removes_key=empty_removes_key)
    folded.fold([record for record in records if record.offset() < end])
    folded.seal()
    return [record.offset() for record in folded.remaining(records)]


def test_the_newest_of_each_key_stays() -> None:
    records = [Record(offset, key) for offset, key in enumerate([b"a", b"b", b"a", b"c", b"b"])]
    assert remaining(records, 5) == [2, 3, 4]


def test_messages_without_a_key_go() -> None:
    assert remaining([Record(0, None), Record(1, b"a"), Record(2, None)], 3) == [1]


def test_what_came_after_the_compaction_is_untouched() -> None:
    records = [Record(0, b"a"), Record(1, b"a"), Record(2, b"a"), Record(3, None)]
    assert remaining(records, 2) == [1, 2, 3]


def test_a_marker_is_nobodys_newest_message() -> None:
    assert remaining([Record(0, b"a"), Record(1, b"a", [(MARKER, b"txn_commit")])], 2) == [0]


def test_batches_are_folded_message_by_message() -> None:
    first = batch(0, (b"a", b"a1"), (b"b", b"b1"), (b"a", b"a2"), (b"c", b"c1"))
    second = batch(1, (b"b", b"b2"), (b"d", b"d1"))
    assert folded([first, second]) == ([0, 1], {0: 0b0011})


def test_a_batch_that_is_superseded_goes_whole() -> None:
    assert folded([batch(0, (b"a", b"1"), (b"b", b"1")), batch(1, (b"b", b"2"), (b"a", b"2"))]) == ([1], {})


def test_batches_and_single_messages_supersede_each_other() -> None:
    mixed = [Record(0, b"a"), Record(1, b"b"), batch(2, (b"a", b"2"), (b"c", b"1"), (b"d", b"1")), Record(3, b"c")]
    assert folded(mixed) == ([1, 2, 3], {2: 0b010})


def test_messages_of_a_batch_without_a_key_go() -> None:
    keyless = [batch(0, (b"a", b"1"), (None, b"x"), (b"b", b"1")), batch(1, (None, b"x"), (None, b"y"))]
    assert folded(keyless) == ([0], {0: 0b010})


def test_an_empty_message_in_a_batch_takes_its_key_with_it() -> None:
    assert folded([batch(0, (b"a", b"1"), (b"b", b"1")), batch(1, (b"a", b""), (b"d", b"1"))]) == (
        [0, 1], {0: 0b01, 1: 0b01},
    )  # fmt: skip


def test_a_single_empty_message_stays_or_takes_its_key_with_it_as_the_policy_says() -> None:
    records = [Record(0, b"a"), Record(1, b"b"), Record(2, b"a", its_value=b""), Record(3, b"b", its_value=None)]
    assert remaining(records, 4) == [2, 3]
    assert remaining(records, 4, empty_removes_key=True) == []
    assert remaining([*records, Record(4, b"a")], 5, empty_removes_key=True) == [4]
    assert remaining(records, 3, empty_removes_key=True) == [1, 3], "the message behind the end stays"


def test_a_batch_that_cannot_be_read_stays_whole() -> None:
    later = Record(1, None, [(BATCH, b"99:2")])
    corrupt = Record(2, None, [(BATCH, b"1:2")], b"junk")
    sealed = Record(3, None, [(BATCH, b"1:2"), (ENCRYPTION, b"")])
    assert folded([Record(0, b"a"), later, corrupt, sealed]) == ([0, 1, 2, 3], {})


def test_void_records_supersede_nothing_and_do_not_stay() -> None:
    def of(at: int, epoch: int, *marks: tuple[str, bytes | None]) -> Record:
        return Record(at, b"a", [(PRODUCER, b"0:%d:p" % epoch), *marks])

    assert folded([of(0, 1), of(1, 2, (FENCE, b"")), of(2, 1)]) == ([1], {})
    assert folded([of(0, 1)], Fences([(-1, 2)])) == ([], {})  # its epoch's beginning is gone from the log


def test_random_logs_agree_with_a_dictionary() -> None:
    chance = random.Random(11)
    for _ in range(1000):
        keys = [chance.choice([None, b"a", b"b", b"c"]) for _ in range(chance.randrange(30))]
        end = chance.randrange(len(keys) + 1)
        newest = {key: offset for offset, key in enumerate(keys[:end]) if key is not None}
        expected = sorted(newest.values()) + list(range(end, len(keys)))
        assert remaining([Record(offset, key) for offset, key in enumerate(keys)], end) == expected
