"""The encryption header: its bytes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.encryption_header import (
    EncryptedKey,
    EncryptionInfo,
    decode_encryption,
    encode_encryption,
    encode_keys,
)
from pulsar_on_kafka_mapping.records.message_record import MessageMetadata, decode_headers, encode_headers, is_plain
from pulsar_on_kafka_mapping.records.record_headers import ENCRYPTION

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = st.builds(EncryptedKey, TEXT, st.binary(max_size=300), st.dictionaries(TEXT, TEXT, max_size=3))
INFO = st.builds(EncryptionInfo, st.lists(KEYS, min_size=1, max_size=3).map(tuple), st.binary(max_size=20), TEXT)


@given(INFO)
def test_what_was_written_is_read(info: EncryptionInfo) -> None:
    assert decode_encryption(encode_encryption(encode_keys(info.keys, info.algorithm), info.param)) == info
    headers = encode_headers(MessageMetadata(encryption=info))
    assert decode_headers(headers).encryption == info
    assert not is_plain(headers)


@given(st.binary(max_size=60))
def test_garbage_is_read_or_refused(data: bytes) -> None:
    try:
        decode_encryption(data)
    except CorruptRecord:
        return


@given(INFO, st.data())
def test_half_a_header_is_refused_or_says_less(info: EncryptionInfo, data: st.DataObject) -> None:
    whole = encode_encryption(encode_keys(info.keys, info.algorithm), info.param)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        assert decode_encryption(cut) != info or not info.param
    except CorruptRecord:
        return


def test_the_bytes_are_pulsar_s_message_metadata() -> None:
    keys = encode_keys([EncryptedKey("k1", b"\x01\x02", {"a": "b"})])
    assert keys == bytes.fromhex("6a100a026b31120201021a060a0161120162")
    assert encode_encryption(keys, b"\xff" * 12)[len(keys) :] == b"\x7a\x0c" + b"\xff" * 12


def test_unknown_fields_are_passed_over() -> None:
    known = encode_encryption(encode_keys([EncryptedKey("k", b"v", {})]), b"p")
    other = b"\x08\x05" + b"\x15\x00\x00\x00\x00" + b"\x82\x01\x01x"
    assert decode_encryption(other + known) == decode_encryption(known)


@pytest.mark.parametrize("data", [b"", b"\x7a\x01p", b"\x6b", b"\x6a\x05\x0a"])
def test_what_cannot_be_read_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_headers([(ENCRYPTION, data)])
