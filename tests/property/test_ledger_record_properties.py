"""Records and keys of the lists of ledgers: round trips, and what is no record is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.metadata.ledger_records import (
    LedgerRecord,
    LedgerState,
    LedgerValue,
    MaintenanceTakenOver,
    decode_ledger_value,
    encode_ledger_value,
)
from pulsar_on_kafka_mapping.state.state_keys import LedgerKey, MaintenanceTakeoverKey, decode_key, encode_key

NUMBER = st.integers(0, 2**62 - 1) | st.integers(0, 300)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
RECORDS = st.builds(
    lambda topic, state, first, entries, rest, properties: LedgerRecord(
        topic, state, first, first + entries, rest[0], rest[1], rest[2], rest[3], properties
    ),
    TEXT, st.sampled_from(LedgerState), NUMBER, NUMBER, st.tuples(NUMBER, NUMBER, NUMBER, NUMBER),
    st.dictionaries(TEXT, TEXT, max_size=3),
)  # fmt: skip
VALUES = RECORDS | st.just(MaintenanceTakenOver())


@given(st.integers(1, 2**62), VALUES)
def test_records_round_trip(by: int, value: LedgerValue) -> None:
    assert decode_ledger_value(encode_ledger_value(by, value)) == (by, value)


@given(NUMBER, TEXT, NUMBER)
def test_keys_round_trip(number: int, session: str, op: int) -> None:
    for key in (LedgerKey(number, session, op), MaintenanceTakeoverKey(number, session, op)):
        assert decode_key(encode_key(key)) == key


@given(st.binary(max_size=60) | VALUES.map(lambda value: encode_ledger_value(3, value)[:-2]))
def test_other_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_ledger_value(data)


@pytest.mark.parametrize(
    ("by", "record"),
    [
        (0, LedgerRecord("t", LedgerState.OPEN, 0, 0)),
        (1, LedgerRecord("t", LedgerState.OPEN, 5, 4)),
        (1, LedgerRecord("t", LedgerState.OPEN, -1, 4)),
    ],
)
def test_what_cannot_be_is_not_written(by: int, record: LedgerRecord) -> None:
    with pytest.raises(MappingError):
        encode_ledger_value(by, record)


def test_a_ledger_that_ends_before_it_begins_is_corrupt() -> None:
    good = encode_ledger_value(1, LedgerRecord("t", LedgerState.CLOSED, 10, 20))
    with pytest.raises(CorruptRecord, match="ends at 20, before its first offset 30"):
        decode_ledger_value(good.replace(b'"first":10', b'"first":30'))
