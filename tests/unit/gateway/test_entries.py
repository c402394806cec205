"""Records as entries of the protocol: a batch of the SDK's is converted once for all that it goes to."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.gateway.handlers.entry_encoder import NotForPulsarsClients, OutgoingEntries
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage, encode_batch
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, ENCRYPTION, PRODUCER
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES, MAX_MESSAGE_ENTRY_BYTES, read_entry
from pulsar_on_kafka_mapping.wire.message_metadata import decode_metadata
from pulsar_on_kafka_mapping.wire.single_messages import decode_batch
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord
from tests.pulsar_entries.stored import PlacedRecord

TOPIC = "persistent://public/default/t"


def batched(*texts: bytes, offset: int = 0, time_ms: int = 1000, more: tuple[str, bytes] | None = None) -> PlacedRecord:
    headers: Headers = [(PRODUCER, b"4:0:p"), (BATCH, b"1:%d" % len(texts)), *([more] if more else [])]
    value = encode_batch([BatchMessage(each) for each in texts])
    return PlacedRecord(EntryRecord(None, value, headers, time_ms), offset)


def entry(entries: OutgoingEntries, record: PlacedRecord, topic: str = TOPIC, incarnation: int = 7) -> list[bytes]:
    """The messages of its entry."""
    ((_, found, size),) = entries.of(record, record.offset(), topic, incarnation)
    read = read_entry(found)
    metadata = decode_metadata(read.metadata)
    assert metadata.messages == size
    return [each.payload for each in decode_batch(read.payload, size)]


def test_consumers_and_redeliveries_share_one_conversion() -> None:
    entries = OutgoingEntries()
    for _ in range(5):
        assert entry(entries, batched(b"a", b"b")) == [b"a", b"b"]
    assert entries.converted == 1
    assert entry(entries, batched(b"c", offset=1)) == [b"c"]
    assert entry(entries, batched(b"a", b"b")) == [b"a", b"b"]
    assert entries.converted == 2


def test_another_record_is_never_taken_for_it() -> None:
    entries = OutgoingEntries()
    entry(entries, batched(b"a"))
    assert entry(entries, batched(b"b"), incarnation=8) == [b"b"], "of another life of the topic"
    assert entry(entries, batched(b"c"), topic=f"{TOPIC}-partition-1") == [b"c"]
    assert entry(entries, batched(b"d", time_ms=2000)) == [b"d"], "of a topic that lost its end"
    assert entries.converted == 4


def test_it_holds_so_many_bytes_and_the_ones_that_were_asked_for_last() -> None:
    entries = OutgoingEntries(max_bytes=2_500)
    for offset in (0, 1, 0, 2):
        entry(entries, batched(b"x" * 1_000, offset=offset))
    assert entries.converted == 3
    entry(entries, batched(b"x" * 1_000, offset=0))
    assert entries.converted == 3
    entry(entries, batched(b"x" * 1_000, offset=1))
    assert entries.converted == 4
    entry(entries, batched(b"x" * 3_000, offset=3))
    entry(entries, batched(b"x" * 3_000, offset=3))
    assert entries.converted == 6, "a larger one is not kept"


def test_what_no_client_of_pulsar_s_reads_is_told_apart_from_what_nobody_does() -> None:
    entries = OutgoingEntries()
    with pytest.raises(NotForPulsarsClients, match="a batch of the SDK is encrypted"):
        entry(entries, batched(b"a", more=(ENCRYPTION, b"")))
    broken = PlacedRecord(EntryRecord(None, b"none", [(PRODUCER, b"4:0:p"), (BATCH, b"1:2")], 0), 0)
    with pytest.raises(CorruptRecord):
        entry(entries, broken)


@pytest.mark.parametrize(
    ("record", "size"),
    [
        (EntryRecord(None, b"text", [(PRODUCER, b"4:0:p")], 0), 4),
        (EntryRecord(None, b"", [(PRODUCER, b"4:0:p")], 0), 0),
        (EntryRecord(None, None, [(PRODUCER, b"4:0:p")], 0), 0),
        (EntryRecord(None, bytes(26), [(PRODUCER, b"4:0:p"), (ENCRYPTION, b"z\x01v")], 0), 10),
        (EntryRecord(None, b"half", [(PRODUCER, b"4:0:p"), (CHUNK, b"0:2:100:id")], 0), 100),
        (EntryRecord(None, bytes(66), [(PRODUCER, b"4:0:p"), (CHUNK, b"0:2:100:id"), (ENCRYPTION, b"z\x01v")], 0), 100),
    ],
)
def test_every_message_of_the_sdk_says_its_size_before_chunks_and_encryption(record: EntryRecord, size: int) -> None:
    """Without it Go's client takes the last chunk for the message, or hands out what is encrypted."""
    ((_, found, _),) = OutgoingEntries().of(PlacedRecord(record, 0), 0, TOPIC, 7)
    assert decode_metadata(read_entry(found).metadata).uncompressed_bytes == size


def test_a_batch_of_the_sdk_says_the_size_of_the_batch_that_is_made_of_it() -> None:
    ((_, found, _),) = OutgoingEntries().of(batched(b"a", b"bc"), 0, TOPIC, 7)
    read = read_entry(found)
    assert decode_metadata(read.metadata).uncompressed_bytes == len(read.payload)


@pytest.mark.parametrize("more", [0, 1_000])
def test_what_is_larger_than_a_frame_is_for_the_sdks_consumers(more: int) -> None:
    large = PlacedRecord(EntryRecord(b"k", bytes(MAX_MESSAGE_ENTRY_BYTES + more), [], 1000), 0)
    with pytest.raises(
        NotForPulsarsClients, match=rf"it has \d+ bytes, of which a frame takes {MAX_MESSAGE_ENTRY_BYTES}"
    ):
        list(OutgoingEntries().of(large, 0, TOPIC, 7))


def test_what_just_fits_a_frame_is_sent() -> None:
    fits = PlacedRecord(EntryRecord(None, bytes(MAX_MESSAGE_ENTRY_BYTES - 1_000), [], 1000), 0)
    ((_, found, _),) = OutgoingEntries().of(fits, 0, TOPIC, 7)
    assert len(found) <= MAX_ENTRY_BYTES
