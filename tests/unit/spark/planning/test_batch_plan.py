"""Plans and outcomes of micro-batches: as files, and what is acknowledged of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.planning.batch_plan import (
    BatchPlan,
    Entries,
    accepted,
    both,
    decode_outcome,
    decode_plan,
    encode_outcome,
    encode_plan,
    only,
    spread,
)
from pulsar_on_kafka_spark.planning.chunked_messages import WholeChunkedMessage

SIZE = 4
MESSAGES = st.sets(st.tuples(st.integers(0, 12), st.integers(0, SIZE - 1)))
"""(Offset, batch index); every entry is a batch of four here."""
TOPICS = ("a", "b")


def _named(messages: set[tuple[int, int]]) -> dict[str, dict[int, Entries]]:
    """Messages by topic and partition, in the form of `located_messages`."""
    bits: dict[int, int] = {}
    for offset, index in messages:
        bits[offset] = bits.get(offset, 0) | 1 << index
    whole = BitMap64(offset for offset, each in bits.items() if each == (1 << SIZE) - 1)
    some = {offset: (SIZE, each) for offset, each in bits.items() if offset not in whole}
    return {"a": {0: Entries(whole, some)}} if bits else {}


def _messages(entries: dict[str, dict[int, Entries]]) -> set[tuple[int, int]]:
    found = entries.get("a", {}).get(0, Entries(BitMap64()))
    whole = {(offset, index) for offset in found.whole for index in range(SIZE)}
    return whole | {(o, i) for o, (size, bits) in found.batches.items() for i in range(size) if bits >> i & 1}


@given(
    st.sets(st.integers(0, 12)),
    st.dictionaries(st.integers(0, 12), st.integers(1, (1 << SIZE) - 2)),
    MESSAGES,
    MESSAGES,
)
def test_what_was_delivered_is_either_acknowledged_or_refused(
    offsets: set[int], absent: dict[int, int], first: set[tuple[int, int]], second: set[tuple[int, int]]
) -> None:
    known = {offset: (SIZE, bits) for offset, bits in absent.items() if offset in offsets}
    delivered = {"a": {0: Entries(BitMap64(offsets), known)}}
    everything = {
        (offset, index)
        for offset in offsets
        for index in range(SIZE)
        if not known.get(offset, (SIZE, 0))[1] >> index & 1
    }
    first, second = first & everything, second & everything  # nobody refuses what was not delivered
    refused = both(only(_named(first), delivered), only(_named(second), delivered))
    assert _messages(refused) == first | second
    assert _messages(accepted(delivered, refused)) == everything - first - second


BITMAPS = st.sets(st.integers(0, 2**50)).map(BitMap64)
ENTRIES = st.builds(
    Entries, BITMAPS, st.dictionaries(st.integers(0, 2**50), st.tuples(st.integers(1, 70), st.integers(0, 2**70)))
)
CHUNKED = st.lists(st.integers(0, 2**50), min_size=1, unique=True).map(
    lambda at: {max(at): WholeChunkedMessage(tuple(sorted(at)), 9)}
)
DELIVERED = st.builds(lambda entries, chunked: replace(entries, chunked=chunked), ENTRIES, CHUNKED)
BY_TOPIC = st.dictionaries(st.text(max_size=5), st.dictionaries(st.integers(0, 8191), ENTRIES, max_size=2), max_size=2)


@given(st.text(), st.text(), BY_TOPIC, DELIVERED, BITMAPS)
def test_files_come_back_as_they_were(
    start: str, end: str, entries: dict[str, dict[int, Entries]], chunked: Entries, pending: BitMap64
) -> None:
    plan = BatchPlan(start, end, {**entries, "chunked": {1: chunked}}, {"pending": {2: pending}})
    assert decode_plan(encode_plan(plan), "7.plan") == plan
    assert decode_plan(encode_plan(BatchPlan(start, end, entries)), "7.plan") == BatchPlan(start, end, entries)
    assert decode_outcome(encode_outcome(entries), "7.outcome") == entries


def test_a_message_in_chunks_is_acknowledged_or_refused_with_all_of_them() -> None:
    messages = {7: WholeChunkedMessage((3, 5, 7), 9), 8: WholeChunkedMessage((4, 8), 9)}
    delivered = {"a": {0: Entries(BitMap64([6, 7, 8]), chunked=messages)}}
    refused = {"a": {0: Entries(BitMap64([7]))}}
    assert accepted(delivered, refused)["a"][0].whole == BitMap64([4, 6, 8])
    assert spread(refused, delivered)["a"][0].whole == BitMap64([3, 5, 7])


@pytest.mark.parametrize("content", [b"", b"{}", b'{"v":2}', b'{"v":1,"start":"","end":"","topics":{"a":{"0":{}}}}'])
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(NotReadable, match="cannot be read"):
        decode_plan(content, "7.plan")
    with pytest.raises(NotReadable, match="cannot be read"):
        decode_outcome(content, "7.outcome")


def test_files_of_earlier_versions_are_read_and_what_later_ones_add_is_passed_over() -> None:
    entries = b'{"entries":"","batches":[[17,8,3]],"unsealed":[[1,7]],"more":{"a":1}}'
    plan = decode_plan(b'{"v":1,"start":"s","end":"e","topics":{"a":{"0":' + entries + b'}},"added":[1]}', "7.plan")
    assert plan == BatchPlan("s", "e", {"a": {0: Entries(BitMap64(), {17: (8, 3)}, frozenset({TxnId(1, 7)}))}})


def test_an_error_names_the_file_and_what_was_expected() -> None:
    with pytest.raises(NotReadable, match=r"file 7.plan cannot be read.*Expected `str`, got `int` - at `\$.start`"):
        decode_plan(b'{"v":1,"start":5,"end":"","topics":{}}', "7.plan")
