"""Requests to a cursor's owner and its answers, and where a cursor remembers them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    Acknowledge,
    AcknowledgeUpTo,
    CloseConsumers,
    CursorLife,
    CursorReply,
    CursorTransactionRequest,
    Request,
    SaveNow,
    Seek,
    Skip,
    decode,
    encode_answer,
    encode_request,
    encode_transaction,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    Holes,
    Lineage,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck

NUMBERS = st.integers(0, 2**62)
IDS = st.binary(min_size=8, max_size=8)
LIVES = st.builds(CursorLife, st.text(max_size=22), NUMBERS, NUMBERS)
BATCH_ACKS = st.integers(1, 80).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, 2**size - 1)))
HOLES = st.builds(
    Holes, st.sets(st.integers(0, 2**22)).map(BitMap), st.dictionaries(st.integers(0, 2**22), BATCH_ACKS, max_size=5)
)
WISHES = st.one_of(
    st.builds(Acknowledge, st.dictionaries(st.integers(0, 2**40), HOLES, max_size=4)),
    st.builds(Seek, NUMBERS, NUMBERS, NUMBERS),
    st.builds(AcknowledgeUpTo, st.integers(-1, 2**62)),
    st.builds(Skip, NUMBERS, NUMBERS),
    st.just(SaveNow()),
    st.just(CloseConsumers()),
)
REQUESTS = st.builds(Request, IDS, LIVES, WISHES)
ANSWERS = st.builds(CursorReply, IDS, NUMBERS, st.text(max_size=50), st.sampled_from(["", "TransactionConflict"]))
ACKS = st.builds(
    TxnAck, st.sets(NUMBERS, max_size=5).map(BitMap64), st.dictionaries(NUMBERS, BATCH_ACKS, max_size=3),
    st.none() | NUMBERS.map(CumulativeAck),
)  # fmt: skip
TXNS = st.builds(TxnId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
TRANSACTION_REQUESTS = st.builds(CursorTransactionRequest, IDS, LIVES, TXNS, ACKS, st.booleans())
LINEAGE = Lineage("t" * 22, 1, 2, b"s" * 16, 3, 4)


@given(REQUESTS)
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    assert decode(encode_request(request)) == request


@given(TRANSACTION_REQUESTS)
def test_a_request_of_a_transaction_comes_back_as_it_was(request: CursorTransactionRequest) -> None:
    assert decode(encode_transaction(request)) == request


@given(ANSWERS)
def test_an_answer_comes_back_as_it_was(answer: CursorReply) -> None:
    assert decode(encode_answer(answer)) == answer


@given(REQUESTS, st.data())
def test_a_request_that_is_cut_is_corrupt(request: Request, data: st.DataObject) -> None:
    value = encode_request(request)
    with pytest.raises(CorruptRecord):
        decode(value[: data.draw(st.integers(1, len(value) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_corrupt(value: bytes) -> None:
    for tried in (value, b"{" + value):
        try:
            decode(tried)
        except CorruptRecord:
            continue


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":1,"ask":"seek","id":"00","life":["t",1,2],"offset":1,"batch_size":0,"begun":0}',
        b'{"v":1,"ask":"seek","id":"0000000000000000","life":["t",1],"offset":1,"batch_size":0,"begun":0}',
        b'{"v":1,"ask":"seek","id":"0000000000000000","life":["t",1,2],"offset":"1","batch_size":0,"begun":0}',
        b'{"v":1,"ask":"seek","id":"0000000000000000","life":["t",1,2],"batch_size":1}',
        b'{"v":1,"ask":"skip","id":"0000000000000000","life":["t",1,2],"count":true,"end":2}',
        b'{"v":1,"answer":"zz","result":0,"refused":""}',
        b'{"v":1,"answer":"0000000000000000","result":-1,"refused":""}',
        b'{"v":1,"answer":"0000000000000000","result":0}',
    ],
)
def test_what_lacks_or_mistypes_a_field_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode(value)


@pytest.mark.parametrize(
    "value", [b"", b"\x01lease", b'{"v":1}', b'{"v":2,"ask":"seek"}', b'{"v":1,"ask":"dance"}', b'{"v":2,"answer":"x"}']
)
def test_other_kinds_and_later_versions_are_left_alone(value: bytes) -> None:
    assert decode(value) is None


@given(st.dictionaries(IDS, NUMBERS, max_size=8), st.none() | NUMBERS, st.booleans(), st.booleans())
def test_a_commit_holds_what_took_effect(
    requests: dict[bytes, int], marker: int | None, beside: bool, pending_acks: bool
) -> None:
    holes = Holes(BitMap([1, 5]), {7: (3, 0b101)}) if marker is None or beside else None
    metadata = CommitMetadata(LINEAGE, holes, marker, None, requests, pending_acks)
    found = decode_commit_metadata(encode_commit_metadata(metadata))
    assert found == metadata
    assert found is not None
    assert list(found.requests) == list(requests)
