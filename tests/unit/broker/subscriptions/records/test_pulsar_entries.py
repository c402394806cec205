"""What the official clients wrote to a real Pulsar reads here as they read it there: every codec, alone, in batches, in
chunks, encrypted."""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.subscriptions.records.batches import messages_of
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.reader_filter import ReaderChunks
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.message import ReceivedMessage
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.record_headers import BATCH, COMPRESSION
from pulsar_on_kafka_mapping.records.stored_sequence import stored_sequence
from pulsar_on_kafka_mapping.wire.entries import read_entry, write_entry
from pulsar_on_kafka_mapping.wire.message_metadata import decode_metadata, encode_metadata
from pulsar_on_kafka_mapping.wire.stored_entries import metadata_of
from tests.pulsar_entries import Case, cases, payload_text, private_key
from tests.pulsar_entries.stored import PlacedRecord, differences, records_of

CASES = cases()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    private = tmp_path_factory.mktemp("keys") / "private.pem"
    private.write_bytes(private_key())
    return pulsar.CryptoKeyReader("/nowhere/public.pem", str(private))


def an_endpoint(
    keys: pulsar.CryptoKeyReader | None,
    on_failure: pulsar.ConsumerCryptoFailureAction = pulsar.ConsumerCryptoFailureAction.FAIL,
) -> Endpoint:
    decryptor = consumer_encryption(keys, on_failure)
    return Endpoint("reader", 1000, delivery_type=ReceivedMessage, decryptor=decryptor)


def read(case: Case, endpoint: Endpoint, *, native: bool = False) -> list[Any]:
    placed = [PlacedRecord(record, offset) for offset, record in enumerate(records_of(case, native=native))]
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 50_000))
    chunks = ReaderChunks("reader", lambda *_: {}, lambda _: 0, lambda: 0.0)
    return list(messages_of(chunks.together(0, placed), endpoint.feed(slot), None))


def test_there_is_every_kind() -> None:
    names = [each.name for each in CASES]
    for client in ("python", "java"):
        for codec in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
            for kind in ("single", "batch", "chunks", "single encrypted", "batch encrypted", "chunks encrypted"):
                assert f"{client}: {codec} {kind}" in names


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_reads_as_the_official_client_read_it(case: Case, keys: pulsar.CryptoKeyReader) -> None:
    found = read(case, an_endpoint(keys))
    assert not differences(found, case)
    for message in found:
        context = message.encryption_context()
        alone_and_null = message.has_null_value() and message.message_id().batch_index() < 0
        assert (context is None) == ("encrypted" not in case.name or alone_and_null)
        if context is not None:
            codec = case.name.split()[1]
            assert (context.compression_type().name, context.is_decryption_failed()) == (codec, False)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_taken_apart_it_reads_the_same_from_a_record_for_each_message(case: Case, keys: pulsar.CryptoKeyReader) -> None:
    records = records_of(case, native=True)
    if "encrypted" in case.name or "chunks" in case.name:
        assert records == records_of(case), "it stays as it came"
        return
    alone = Case(case.name, [], [told | {"batch_index": -1} for told in case.messages], case.schema)
    assert not differences(read(case, an_endpoint(keys), native=True), alone)
    assert [payload_text(record.value) for record in records] == [told["data"] for told in case.messages]
    for record in records:
        assert not {BATCH, COMPRESSION}.intersection(name for name, _ in record.headers)
    ids = [stored_sequence(record.headers, case.name.partition(":")[0].encode()) for record in records]
    assert all(each is not None and each[0] == each[1] for each in ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("name", "first", "highest"),
    [
        ("java: LZ4 batch", 0, 7),
        ("python: SNAPPY batch encrypted", 0, 6),
        ("java: NONE single", 0, 0),
        ("python: ZSTD chunks", 0, 0),
        ("java: batch of one", 0, 0),
    ],
)
def test_deduplication_counts_them(name: str, first: int, highest: int) -> None:
    case = next(each for each in CASES if each.name == name)
    counts = [stored_sequence(record.headers, name.partition(":")[0].encode()) for record in records_of(case)]
    assert next(count for count in counts if count is not None) == (first, highest)
    if "chunks" in name:
        assert counts == [None] * (len(counts) - 1) + [(first, highest)], "of a message in chunks the last one"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_client_of_pulsar_s_is_given_what_was_sent(case: Case) -> None:
    for data, record in zip(case.entries, records_of(case), strict=True):
        entry = read_entry(data)
        sent = decode_metadata(entry.metadata)
        sent.txn_most = sent.txn_least = None
        given = metadata_of(record)
        if not sent.compression:
            sent.compression = None
        if sent.null_value:
            sent.compression, sent.encryption = None, ()
        if sent.uncompressed_bytes is None:  # given all the same: Go's client needs it
            sent.uncompressed_bytes = given.uncompressed_bytes
        if sent.highest_sequence_id in (None, (sent.sequence_id or 0) + (sent.messages or 1) - 1):
            sent.highest_sequence_id = given.highest_sequence_id  # of batches it is always said
        for name in ("null_value", "in_base64"):
            setattr(sent, name, getattr(sent, name) or None)
        assert encode_metadata(given) == encode_metadata(sent)
        again = write_entry(entry._replace(metadata=encode_metadata(given), payload=record.value or b""))
        assert read_entry(again, checksum_required=True).payload == (record.value or b"")
