"""Records of leases, and where a cursor says that there are some."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.layouts import write_bitmap
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife, CursorReply, encode_answer
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    Holes,
    Lineage,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Expel,
    Held,
    Lease,
    LeasedEntry,
    MemberId,
    Nack,
    Recall,
    RemoteConsumer,
    Report,
    Saved,
    TakeOver,
    Welcome,
    decode,
    encode,
)

NUMBERS = st.integers(0, 2**62)
SMALL = st.integers(0, 40)
TEXTS = st.text(max_size=20)
OWNERS = st.binary(min_size=16, max_size=16)
LIVES = st.builds(CursorLife, TEXTS, NUMBERS, NUMBERS)
MEMBERS = st.builds(MemberId, TEXTS, NUMBERS)
OFFSETS = st.sets(NUMBERS, min_size=1, max_size=5).map(BitMap64)
ACK_SETS = st.integers(1, 80).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, 2**size - 1)))
PLAIN = st.builds(LeasedEntry, NUMBERS, SMALL)
BATCHES = st.builds(LeasedEntry, NUMBERS, SMALL, st.integers(1, 99), st.none() | ACK_SETS)
CHUNKS = st.builds(
    LeasedEntry, NUMBERS, SMALL, SMALL, st.none(), st.lists(NUMBERS, min_size=1, max_size=4).map(tuple), NUMBERS
)
ENTRIES = st.lists(PLAIN | BATCHES | CHUNKS, max_size=6, unique_by=lambda entry: entry.offset).map(
    lambda entries: tuple(sorted(entries, key=lambda entry: entry.offset))
)
CONSUMERS = st.builds(
    RemoteConsumer, NUMBERS, TEXTS, SMALL, NUMBERS,
    st.none() | st.lists(st.tuples(SMALL, SMALL), max_size=3).map(tuple),
    st.booleans(), st.dictionaries(OWNERS, NUMBERS, max_size=2), NUMBERS, NUMBERS,
    st.none() | SMALL,
)  # fmt: skip
HELD = st.builds(
    Held, NUMBERS, st.dictionaries(st.tuples(SMALL, SMALL), OFFSETS, max_size=3), st.dictionaries(NUMBERS, SMALL),
    st.lists(st.tuples(st.lists(NUMBERS, min_size=1, max_size=4).map(tuple), NUMBERS), max_size=2).map(
        lambda chunked: {offsets[-1]: (offsets, size) for offsets, size in chunked}
    ),
)  # fmt: skip
NACKS = st.builds(Nack, SMALL, NUMBERS, NUMBERS, SMALL)
REPORTS = st.builds(
    Report, LIVES, MEMBERS, NUMBERS, st.lists(CONSUMERS, max_size=2).map(tuple),
    st.dictionaries(OWNERS, NUMBERS, max_size=2), st.dictionaries(SMALL, OFFSETS, max_size=2),
    st.dictionaries(SMALL, st.dictionaries(NUMBERS, ACK_SETS, max_size=3), max_size=2),
    st.dictionaries(SMALL, st.lists(NACKS, max_size=3).map(tuple), max_size=2),
    st.dictionaries(SMALL, HELD, max_size=2), st.booleans(), st.booleans(),
)  # fmt: skip
RECORDS = st.one_of(
    st.builds(TakeOver, LIVES, OWNERS, NUMBERS),
    st.builds(Lease, OWNERS, NUMBERS, MEMBERS, NUMBERS, NUMBERS, NUMBERS, ENTRIES),
    st.builds(Recall, OWNERS, NUMBERS, MEMBERS, NUMBERS),
    st.builds(Saved, OWNERS, NUMBERS, NUMBERS),
    st.builds(Welcome, OWNERS, MEMBERS),
    st.builds(Expel, OWNERS, MEMBERS, TEXTS),
    REPORTS,
)
ME, SOMEBODY = MemberId("me", 1), MemberId("somebody", 1)
OWNER = b"o" * 16


@given(RECORDS)
def test_what_is_written_is_read(record: object) -> None:
    assert decode(encode(record)) == record  # type: ignore[arg-type]


def test_leases_of_others_and_reports_are_passed_over() -> None:
    mine, theirs = Lease(OWNER, 1, ME, 1, 1, 1, ()), Lease(OWNER, 1, SOMEBODY, 1, 1, 1, ())
    report = Report(CursorLife("t", 1, 2), SOMEBODY, 1)
    assert [decode(encode(each), "me") for each in (mine, theirs, report)] == [mine, None, None]
    assert [decode(encode(each), "me", reports=True) for each in (mine, theirs, report)] == [mine, None, report]


def test_requests_in_the_same_topic_are_of_another_kind() -> None:
    assert decode(encode_answer(CursorReply(b"12345678"))) is None
    assert decode(b"") is None


def test_another_format_is_refused_and_another_kind_is_not() -> None:
    with pytest.raises(CorruptRecord, match="format 2, this version reads 1"):
        decode(b"\x02\x01")
    assert decode(b"\x01\x7f") is None


def _as_before_chunks(record: object) -> object:
    """`record` without its last section, which earlier versions do not write."""
    if not isinstance(record, Report):
        return record
    return replace(record, answers={number: replace(held, chunked={}) for number, held in record.answers.items()})


WITH_CHUNKS = Report(CursorLife("", 0, 0), ME, 0, answers={1: Held(0, {}, {}, {16384: ((0, 128, 128, 16384), 16384)})})


@given(RECORDS, st.integers(1, 20))
@example(WITH_CHUNKS, len(encode(WITH_CHUNKS)) - len(encode(replace(WITH_CHUNKS, answers={1: Held(0, {}, {}, {})}))))
def test_a_record_that_ends_too_early_is_corrupt_or_that_of_an_earlier_version(record: object, cut: int) -> None:
    value = encode(record)  # type: ignore[arg-type]
    earlier = _as_before_chunks(record)
    if value[:-cut] == encode(earlier):  # type: ignore[arg-type]
        assert decode(value[:-cut]) == earlier
    elif len(value) - cut > 2:
        with pytest.raises(CorruptRecord):
            decode(value[:-cut])


@given(st.none() | NUMBERS, st.dictionaries(st.binary(min_size=8, max_size=8), NUMBERS, max_size=3), st.booleans())
def test_a_commit_says_from_where_leases_are_replayed(
    leased_from: int | None, requests: dict[bytes, int], pending_acks: bool
) -> None:
    lineage = Lineage("t" * 22, 1, 2, b"s" * 16, 3, 4)
    for holes, marker in ((Holes(BitMap([3])), None), (None, 17), (Holes(BitMap([3])), 17)):
        metadata = CommitMetadata(lineage, holes, marker, None, requests, pending_acks, leased_from)
        assert decode_commit_metadata(encode_commit_metadata(metadata)) == metadata


def test_a_bitmap_of_billions_is_no_lease() -> None:
    owner, to = b"o" * 16, MemberId("m", 1)
    bitmap = BitMap64()
    bitmap.add_range(0, 2**36)
    value = encode(Lease(owner, 1, to, 1, 1, 0, (LeasedEntry(7, 0),)))
    short = written(BitMap64([7]))
    assert value.count(short) == 1
    with pytest.raises(CorruptRecord, match="leases 68719476736 messages, expected at most 1000000"):
        decode(value.replace(short, written(bitmap)))


def written(offsets: BitMap64) -> bytes:
    out = bytearray()
    write_bitmap(out, offsets)
    return bytes(out)
