"""A record names its producer's sequence ids."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.publishing.batches import OutgoingBatch
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import BatchInfo, decode_headers
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, HIGHEST_SEQUENCE, PRODUCER
from pulsar_on_kafka_mapping.records.stored_sequence import StoredSequence, stored_sequence
from pulsar_on_kafka_mapping.state.metadata.producer_records import SequenceSnapshot, decode_snapshot, encode_snapshot
from pulsar_on_kafka_mapping.state.state_keys import ProducerSequenceKey, decode_key, encode_key

MINE = (PRODUCER, b"7:3:a:b")


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([MINE], StoredSequence(7, 7)),
        ([("colour", b"red"), MINE], StoredSequence(7, 7)),
        ([MINE, (BATCH, b"1:5")], StoredSequence(7, 11)),
        ([MINE, (BATCH, b"1:5"), (HIGHEST_SEQUENCE, b"40")], StoredSequence(7, 40)),
        ([MINE, (CHUNK, b"0:3:900:u:u")], None),
        ([MINE, (CHUNK, b"2:3:900:u:u")], StoredSequence(7, 7)),
        ([(PRODUCER, b"7:3:b")], None),
        ([(PRODUCER, b"7:3:xa:b")], None),
        ([(PRODUCER, None)], None),
        ([("colour", b"red")], None),
        (None, None),
    ],
)
def test_the_ids_of_a_record(headers: list[tuple[str, bytes | None]] | None, found: StoredSequence | None) -> None:
    assert stored_sequence(headers, b"a:b") == found


@pytest.mark.parametrize("odd", [(BATCH, b"1"), (CHUNK, b"x:3:1:u"), (HIGHEST_SEQUENCE, b""), (PRODUCER, b"x:1:a:b")])
def test_what_cannot_be_read_is_corrupt(odd: tuple[str, bytes]) -> None:
    headers = [odd] if odd[0] == PRODUCER else [MINE, odd]
    with pytest.raises(CorruptRecord, match="record of producer"):
        stored_sequence(headers, b"a:b")


def test_a_batch_whose_ids_do_not_count_up_says_its_highest() -> None:
    nothing: Any = None  # nothing is sent
    batch = OutgoingBatch(nothing, nothing, 0, 4)
    for sequence in (4, 5, 9, 8):
        batch.payloads.append(b"x")
        if sequence != batch.first_sequence + len(batch.payloads) - 1:
            batch.irregular_sequence(sequence)
    assert list(batch.sequence_ids()) == [4, 5, 9, 8]
    _, _, headers = batch.record()
    assert dict(headers)[HIGHEST_SEQUENCE] == b"9"
    assert stored_sequence([MINE, *headers], b"a:b") == StoredSequence(7, 9)
    assert decode_headers(headers).batch == BatchInfo(1, 4)  # passed over by those who need it not


def test_a_regular_batch_says_it_by_its_first_id_and_its_number() -> None:
    nothing: Any = None  # nothing is sent
    batch = OutgoingBatch(nothing, nothing, 0, 4)
    batch.payloads += [b"x", b"y"]
    assert batch.sequence_ids() == range(4, 6)
    assert HIGHEST_SEQUENCE not in dict(batch.record()[2])


def test_snapshots_and_their_keys_come_back() -> None:
    for snapshot in (
        SequenceSnapshot(7, -1, 12, final=True),
        SequenceSnapshot(7, 90_000, 12, True, BitMap64(range(0, 80_000, 3)), 4),
    ):
        assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    key = ProducerSequenceKey("persistent://public/default/t", 3, "a:b", 9)
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"v":2}', b'{"v":1,"topic_incarnation":1,"highest":1,"upto":"1","final":true}']
)
def test_no_snapshot(value: bytes) -> None:
    with pytest.raises(CorruptRecord, match="sequence snapshot"):
        decode_snapshot(value)
