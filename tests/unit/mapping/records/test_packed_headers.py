"""Packed headers say what the list of them said."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from confluent_kafka import Message

from pulsar_on_kafka.broker.transactions.buffer.model import look_over
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import Headers, decode_headers, is_plain
from pulsar_on_kafka_mapping.records.record_headers import EVENT_TIME, PRODUCER, SCHEMA_VERSION, TXN
from pulsar_on_kafka_mapping.records.transaction_headers import marker_headers

TXN_1 = TxnId(1, 7).to_bytes()
OF_A_PRODUCER = (PRODUCER, b"12:3:name \x00 with everything")


def fetched(headers: Headers) -> Message:
    return Message(topic="t", value=b"x", headers=list(headers))


@pytest.mark.parametrize(
    "headers",
    [
        [OF_A_PRODUCER],
        [(PRODUCER, b"-1:0:")],
        [OF_A_PRODUCER, (SCHEMA_VERSION, b"\x00\x01\x02\x03\x04\x05\x06\x07")],
        [OF_A_PRODUCER, (TXN, TXN_1)],
    ],
)
def test_what_most_records_have_is_packed_and_says_the_same(headers: Headers) -> None:
    records = [fetched(headers), fetched(headers)]
    for _ in range(2):  # what is read again may be looked over again
        looked = look_over([4, 5], records)
        assert looked.odd == []
        assert [offset for met in looked.met for offset in met.offsets()] == ([4, 5] if (TXN, TXN_1) in headers else [])
        packed: Any = records[1].headers()
        assert not gc.is_tracked(packed)
        assert headers_of(records[1]) == headers
        assert decode_headers(packed) == decode_headers(headers)
        assert is_plain(packed)


@pytest.mark.parametrize(
    "headers",
    [
        [(PRODUCER, None)],
        [("of somebody else", b"x")],
        [OF_A_PRODUCER, (SCHEMA_VERSION, b"short")],
        [OF_A_PRODUCER, (SCHEMA_VERSION, None)],
        [OF_A_PRODUCER, (TXN, None)],
        [OF_A_PRODUCER, (TXN, b"none")],
        [OF_A_PRODUCER, (EVENT_TIME, b"1")],
        [OF_A_PRODUCER, ("property", b"value")],
        [OF_A_PRODUCER, (SCHEMA_VERSION, b"12345678"), (TXN, TXN_1)],
        [*marker_headers(TxnId(1, 7), committed=True)],
    ],
)
def test_everything_else_stays_as_it_came(headers: Headers) -> None:
    record = fetched(headers)
    look_over([4, 5], [fetched([OF_A_PRODUCER, (TXN, TXN_1)]), record])
    assert record.headers() == headers


def test_transactions_that_alternate() -> None:
    txns = [TxnId(1, least).to_bytes() for least in (3, 4)]
    lists: list[Headers] = [[(PRODUCER, b"%d:0:p" % number), (TXN, txns[number % 2])] for number in range(9)]
    records = [fetched(headers) for headers in lists]
    looked = look_over(range(9), records)
    assert [met.offsets() for met in looked.met] == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]
    assert [headers_of(record) for record in records] == lists
