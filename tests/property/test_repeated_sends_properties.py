"""What is known by its bytes is what reading says of it: of commands, and of entries that follow one that was read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand, Type, command, parsed
from pulsar_on_kafka_mapping.wire.entries import WireEntry, write_entry
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, encode_metadata
from pulsar_on_kafka_mapping.wire.repeated_sends import MAX_KNOWN, RepeatedEntries, plain_send
from pulsar_on_kafka_mapping.wire.stored_entries import MAX_CLOCK_DIFFERENCE_MS, record_of

NOW_MS: Final = 1_800_000_000_000
NUMBERS: Final = st.integers(0, 300) | st.integers(0, 2**64 - 1)
NEAR: Final = st.integers(-2 * MAX_CLOCK_DIFFERENCE_MS, 2 * MAX_CLOCK_DIFFERENCE_MS).map(lambda late: NOW_MS + late)


@given(NUMBERS, NUMBERS, st.sampled_from([{}, {"num_messages": 1}, {"txnid_least_bits": 7}, {"is_chunk": True}]))
def test_a_send_that_says_nothing_else_is_what_protobuf_says(producer: int, number: int, more: dict[str, Any]) -> None:
    found = plain_send(command(Type.SEND, producer_id=producer, sequence_id=number, **more))
    is_plain = producer < 128 and number < 2**63 and not more
    assert found == ((producer, number, varint(number)) if is_plain else None)


@given(st.binary(max_size=20) | st.binary(max_size=14).map(lambda rest: b"\x08\x06\x32\x06\x08" + rest))
def test_other_bytes_are_no_send_or_the_one_that_protobuf_reads(data: bytes) -> None:
    found = plain_send(data)
    if found is not None:
        kind, said = parsed(data)
        assert (kind, said.producer_id, said.sequence_id) == (Type.SEND, *found[:2])
        assert [each.name for each, _ in said.ListFields()] == ["producer_id", "sequence_id"]
    else:
        with suppress(MalformedCommand):
            parsed(data)


def metadata(number: int, time_ms: int, **more: Any) -> PulsarMetadata:
    return PulsarMetadata("standalone-0-1", number, time_ms, **more)


def entry(said: PulsarMetadata, payload: bytes) -> bytes:
    return write_entry(WireEntry(encode_metadata(said), payload))


MORE: Final = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": st.sampled_from([b"a", b"b"]),
        "uncompressed_bytes": st.integers(0, 5) | st.just(300),
        "properties": st.lists(st.tuples(st.just(b"name"), st.sampled_from([b"", b"1"])), max_size=2),
        "event_time_ms": st.integers(1, 2),
        "null_value": st.just(1),
    },
)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), NEAR, MORE, st.binary(max_size=5)), min_size=1, max_size=12))
def test_a_known_entry_is_the_record_that_reading_makes(sent: list[tuple[int, int, dict[str, Any], bytes]]) -> None:
    repeated, known = RepeatedEntries[tuple[bytes | None, bool, Any]](), dict[bytes, int | None]()
    for number, time_ms, more, payload in sent:
        said, like = metadata(number, time_ms, **more), encode_metadata(metadata(0, 0, **more))
        record = record_of(said, payload, epoch=3, now_ms=NOW_MS)
        near = abs(time_ms - NOW_MS) <= MAX_CLOCK_DIFFERENCE_MS
        found = repeated.find(varint(number), entry(said, payload), lambda: NOW_MS)
        size = len(payload) if "uncompressed_bytes" in more else None
        assert (found is not None) == (near and like in known and known[like] == size)
        if found is not None:
            (key, is_null, headers), body, at_ms = found
            made = key, None if is_null else body, headers, at_ms
            assert made == (record.key, record.value, record.headers[1:], record.timestamp_ms)
        elif near:
            meaning = record.key, record.value is None, record.headers[1:]
            repeated.learn(encode_metadata(said), varint(number), size, meaning)
            known[like] = size


@given(st.binary(max_size=60), st.integers(0, 70), st.integers(1, 255))
def test_an_entry_that_was_changed_is_not_known(payload: bytes, at: int, by: int) -> None:
    said = metadata(5, NOW_MS)
    repeated = RepeatedEntries[str]()
    repeated.learn(encode_metadata(said), varint(5), None, "known")
    data = bytearray(entry(said, payload))
    data[at % len(data)] ^= by
    assert repeated.find(varint(5), bytes(data), lambda: NOW_MS) is None
    for end in range(len(data)):
        assert repeated.find(varint(5), bytes(data[:end]), lambda: NOW_MS) is None


@pytest.mark.parametrize(
    "said", [b"", b"\x0a", b"\x0a\x03ab", b"\x10\x05", b"\x0a\x01a\x10\x06\x18", b"\x0a\x01a\x10\x05\x18\x01"]
)
def test_metadata_in_another_form_are_not_learned(said: bytes) -> None:
    repeated = RepeatedEntries[str]()
    repeated.learn(said, varint(5), None, "known")
    data = write_entry(WireEntry(said, b"payload"))
    assert repeated.find(varint(5), data, lambda: NOW_MS) is None


def test_as_many_are_known_as_are_said() -> None:
    """Where each has a key of its own, nothing is kept; who repeats himself again is known again."""
    repeated = RepeatedEntries[int]()

    def is_known(number: int, key: bytes) -> bool:
        said = metadata(number, NOW_MS, partition_key=key)
        if repeated.find(varint(number), entry(said, b""), lambda: NOW_MS) is not None:
            return True
        repeated.learn(encode_metadata(said), varint(number), None, number)
        return False

    assert not any(is_known(number, b"%d" % number) for number in range(MAX_KNOWN))
    assert is_known(MAX_KNOWN, b"0")
    assert not any(is_known(number, b"other %d" % number) for number in range(5_000))
    assert not is_known(1, b"0")
    assert any(is_known(number, b"one") for number in range(1_100))
