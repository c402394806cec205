"""Transaction log and requests: round trips, one byte form, and garbage raises CorruptRecord and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    MAX_RECORD_BYTES,
    Answered,
    LogValue,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    TakenOver,
    TopicPartition,
    TopicSubscription,
    TxnStatus,
    decode_log_value,
    encode_log_value,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    End,
    TransactionRequest,
    decode_transaction_request,
    encode_transaction_request,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)
PARTITIONS = st.lists(st.builds(TopicPartition, TEXT, NUMBERS), max_size=4).map(tuple)
SUBSCRIPTIONS = st.lists(st.builds(TopicSubscription, TEXT, NUMBERS, TEXT), max_size=4).map(tuple)
STATUSES = st.sampled_from([status for status in TxnStatus if status is not TxnStatus.OPEN])
VALUES: st.SearchStrategy[LogValue] = st.one_of(
    st.builds(NewTransaction, NUMBERS, NUMBERS, NUMBERS, NUMBERS, TEXT, TEXT),
    st.builds(PartitionsAdded, NUMBERS, PARTITIONS),
    st.builds(SubscriptionsAdded, NUMBERS, SUBSCRIPTIONS),
    st.builds(StatusUpdated, NUMBERS, STATUSES),
    st.builds(Answered, NUMBERS, TEXT, TEXT),
    st.builds(TakenOver, NUMBERS),
)
TXNS = st.builds(TxnId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
REQUESTS = st.builds(
    TransactionRequest,
    NUMBERS,
    st.one_of(
        st.builds(Begin, NUMBERS),
        st.builds(AddPartitions, TXNS, PARTITIONS),
        st.builds(AddSubscriptions, TXNS, SUBSCRIPTIONS),
        st.builds(End, TXNS, st.booleans()),
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_log_values_round_trip_and_none_shares_its_bytes(one: LogValue, other: LogValue) -> None:
    assert decode_log_value(encode_log_value(one)) == one
    assert (encode_log_value(one) == encode_log_value(other)) == (one == other)


@given(REQUESTS, REQUESTS)
def test_requests_round_trip_and_none_shares_its_bytes(one: TransactionRequest, other: TransactionRequest) -> None:
    assert decode_transaction_request(encode_transaction_request(one)) == one
    assert (encode_transaction_request(one) == encode_transaction_request(other)) == (one == other)


@given(st.binary(max_size=80))
def test_garbage_is_corrupt(value: bytes) -> None:
    with suppress(CorruptRecord):
        decode_log_value(value)
    with suppress(CorruptRecord):
        decode_transaction_request(value)


@given(VALUES, st.data())
def test_a_field_of_another_kind_is_corrupt_or_means_something_else(value: LogValue, data: st.DataObject) -> None:
    parsed = json.loads(encode_log_value(value))
    parsed[data.draw(st.sampled_from(sorted(parsed)))] = data.draw(JSON)
    with suppress(CorruptRecord):
        assert encode_log_value(decode_log_value(json.dumps(parsed).encode()))


@given(REQUESTS, st.data())
def test_a_request_with_a_field_of_another_kind_is_corrupt_or_another(
    request: TransactionRequest, data: st.DataObject
) -> None:
    parsed = json.loads(encode_transaction_request(request))
    parsed[data.draw(st.sampled_from(sorted(parsed)))] = data.draw(JSON)
    with suppress(CorruptRecord):
        assert encode_transaction_request(decode_transaction_request(json.dumps(parsed).encode()))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"v":1,"by":3,"op":"UPDATE","status":"OPEN"}', "to OPEN, expected a later status"),
        (
            b'{"v":1,"by":3,"op":"NEW","start_ms":-1,"timeout_ms":1,"max_local_id":1,"request":""}',
            "Expected `int` >= 0 - at `\\$.start_ms`",
        ),
        (
            b'{"v":1,"by":3,"op":"ADD_PARTITION","partitions":[["orders"]]}',
            r"Expected `array` of length 2 - at `\$.partitions\[0\]`",
        ),
        (b'{"v":1,"by":true,"op":"UPDATE","status":"COMMITTED"}', "Expected `int`, got `bool` - at `\\$.by`"),
        (b'{"v":2,"by":3,"op":"UPDATE","status":"COMMITTED"}', "format 2, this version reads 1"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_a_bad_log_value_names_what_was_expected(value: bytes, expected: str) -> None:
    with pytest.raises(CorruptRecord, match=expected):
        decode_log_value(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            b'{"v":1,"until_ms":5,"ask":"end","txn":"7","commit":true}',
            "expected <most>:<least>",
        ),
        (b'{"v":1,"until_ms":5,"ask":"end","txn":"7:8","commit":1}', "Expected `bool`, got `int` - at `\\$.commit`"),
        (b'{"v":1,"ask":"begin","timeout_ms":5}', "missing required field `until_ms`"),
        (b'{"v":1,"until_ms":5,"ask":"dance"}', "one of begin, add_partitions, add_subscriptions, end"),
    ],
)
def test_a_bad_request_names_what_was_expected(value: bytes, expected: str) -> None:
    with pytest.raises(CorruptRecord, match=expected):
        decode_transaction_request(value)


def test_what_is_too_large_or_no_text_is_not_written() -> None:
    many = tuple(TopicPartition("t" * 100, number) for number in range(MAX_RECORD_BYTES // 100))
    with pytest.raises(MappingError, match=r"ADD_PARTITION takes .* bytes, at most 1000000"):
        encode_log_value(PartitionsAdded(1, many))
    with pytest.raises(MappingError, match="transaction request add_partitions takes"):
        encode_transaction_request(TransactionRequest(1, AddPartitions(TxnId(0, 1), many)))
    with pytest.raises(MappingError, match="cannot be written"):
        encode_log_value(PartitionsAdded(1, (TopicPartition("\ud800", 0),)))
    with pytest.raises(MappingError, match="UPDATE of a transaction to OPEN"):
        encode_log_value(StatusUpdated(1, TxnStatus.OPEN))
