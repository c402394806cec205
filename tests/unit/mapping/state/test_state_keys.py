"""Keys of state topics have one byte form each."""

from __future__ import annotations

import tracemalloc

import pytest

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.state_keys import (
    CursorSegmentKey,
    CursorTakeoverKey,
    LedgerKey,
    NamespaceKey,
    TopicKey,
    decode_key,
    encode_key,
)


def test_a_key_is_compact_json_with_its_tag_first() -> None:
    assert encode_key(TopicKey("persistent://a/b/ü", 3, "ff")) == '["t","persistent://a/b/ü",3,"ff"]'.encode()


def test_a_marker_is_segment_minus_one() -> None:
    key = CursorSegmentKey("t", 0, "s", "ab", 4, -1)
    assert decode_key(encode_key(key)) == key


def test_keys_of_two_kinds_are_never_equal() -> None:
    assert encode_key(TopicKey("a/b", 1, "x")) != encode_key(NamespaceKey("a/b", 1, "x"))
    assert TopicKey("a/b", 1, "x") != NamespaceKey("a/b", 1, "x")


def test_two_owners_that_claim_one_version_have_two_keys() -> None:
    claims = {encode_key(CursorTakeoverKey("t", 0, "s", session, 2)) for session in ("aa", "bb")}
    assert len(claims) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'"t"',
        b"\xff",
        b'["zz",1]',
        b'["l",5]',
        b'["l","5","s",1]',
        b'["l",true,"s",1]',
        b'["l",5.0,"s",1]',
        b'["l", 5,"s",1]',
        b'["l",5,"s",1]\n',
        b'["l",5,"\\u0073",1]',
        b'["l",-0,"s",1]',
        b'[["l"],5,"s",1]',
        b'["l",5,"s",1,1]',
    ],
)
def test_a_key_that_is_not_canonical_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_key(data)


@pytest.mark.parametrize("key", [LedgerKey(2**64, "s", 0), LedgerKey(-(2**63) - 1, "s", 0), LedgerKey(1, "\ud800", 0)])
def test_what_json_cannot_hold_is_refused(key: LedgerKey) -> None:
    with pytest.raises(MappingError):
        encode_key(key)


def test_digits_in_a_name_are_no_number() -> None:
    key = LedgerKey(2**64 - 1, "a,99999999999999999999,-99999999999999999999", -(2**63))
    assert decode_key(encode_key(key)) == key


def test_a_number_of_thousands_of_digits_is_no_key() -> None:
    with pytest.raises(CorruptRecord):
        decode_key(b'["l",' + b"9" * 10_000 + b',"s",1]')


def test_a_key_that_is_kept_takes_no_more_than_it_needs() -> None:
    tracemalloc.start()
    try:
        kept = [encode_key(LedgerKey(number, "s", 1)) for number in range(1000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < 200
