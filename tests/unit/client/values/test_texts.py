"""Times, ids, properties and payloads as they are typed and printed."""

from __future__ import annotations

from datetime import datetime

import pytest

from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.client.values.texts import (
    member_text,
    message_id_text,
    parse_message_id,
    parse_properties,
    parse_time,
    payload_fields,
    payload_text,
    printable,
    process_text,
    ranges_of,
    ranges_text,
    time_text,
)
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

NOW_MS = 1_750_000_000_000


@pytest.mark.parametrize(
    ("text", "unix_ms"),
    [
        ("2025-03-01T12:00:00Z", 1_740_830_400_000),
        ("2025-03-01T12:00:00+00:00", 1_740_830_400_000),
        ("2025-03-01T13:00:00.250+01:00", 1_740_830_400_250),
        ("2025-03-01 12:00:00Z", 1_740_830_400_000),
        ("1740830400000", 1_740_830_400_000),
        ("0", 0),
        ("90s", NOW_MS - 90_000),
        ("250ms", NOW_MS - 250),
        ("1h", NOW_MS - 3_600_000),
        ("1h30m", NOW_MS - 5_400_000),
        ("2d", NOW_MS - 2 * 86_400_000),
        ("1w", NOW_MS - 7 * 86_400_000),
        (" 1h ", NOW_MS - 3_600_000),
    ],
)
def test_times_are_read(text: str, unix_ms: int) -> None:
    assert parse_time(text, NOW_MS) == unix_ms


def test_a_time_without_offset_is_local() -> None:
    local = datetime(2025, 3, 1, 12, 0)
    assert parse_time("2025-03-01T12:00:00", NOW_MS) == round(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "1x", "h", "-5", "1.5h", "2025-13-01", "12:00", "٣"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="expected ISO 8601"):
        parse_time(text, NOW_MS)


def test_seconds_are_not_taken_for_milliseconds() -> None:
    with pytest.raises(ValueError, match="1740830400000"):
        parse_time("1740830400", NOW_MS)


def test_times_are_printed_in_utc() -> None:
    assert time_text(1_740_830_400_250) == "2025-03-01T12:00:00.250Z"
    assert time_text(10**18) == "1000000000000000000 ms"


def test_a_message_id_is_read_as_it_is_printed() -> None:
    for partition in (-1, 0, 7):
        ledger_id, entry_id = LedgerLayout(5, 100).position(max(0, partition), 1234)
        message_id = NativeMessageId(partition, ledger_id, entry_id, -1)
        assert message_id_text(message_id).count(":") == (1 if partition < 0 else 2)
        found = parse_message_id(message_id_text(message_id))
        assert (found.ledger_id(), found.entry_id()) == (ledger_id, 34)
        assert found.partition() == max(0, partition)


@pytest.mark.parametrize("partition", [-1, 0, 7])
def test_an_id_in_a_batch_has_its_index(partition: int) -> None:
    ledger_id = LedgerLayout(5, 100).ledger_id(max(0, partition), 1)
    text = message_id_text(NativeMessageId(partition, ledger_id, 34, 2))
    assert text == f"{ledger_id}:34:{partition}:2"
    found = parse_message_id(text)
    assert (found.ledger_id(), found.entry_id(), found.partition()) == (ledger_id, 34, max(0, partition))
    assert found.batch_index() == 2
    assert parse_message_id(f"{text}:10") == found, "as Spark shows it, with the size of the batch"


def test_a_partition_left_out_is_told_by_the_ledger() -> None:
    ledger_id = LedgerLayout(5, 100).ledger_id(3, 1)
    assert parse_message_id(f"{ledger_id}:9").partition() == 3
    assert parse_message_id(f"{ledger_id}:9:-1").partition() == 3


def test_the_ends_have_names() -> None:
    assert parse_message_id("earliest") == MessageId.earliest
    assert parse_message_id("latest") == MessageId.latest
    assert message_id_text(MessageId.earliest) == "earliest"
    assert message_id_text(MessageId.latest) == "latest"


@pytest.mark.parametrize(
    "text", ["", "7", "7:", ":7", "7:1:2:3:4:5", "7:1:2:3:", "7:1::3", "a:b", "-1:2", "7:1:x", f"{2**63}:0"]
)
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected"):
        parse_message_id(text)


def test_properties_keep_further_equals_signs() -> None:
    assert parse_properties(["a=1", "b=x=y", "c=", "a=2"]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_what_is_no_property_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="name=value"):
        parse_properties([text])


def test_a_payload_that_is_no_text_becomes_base64() -> None:
    assert payload_fields("Grüße".encode()) == {"payload": "Grüße"}
    assert payload_fields(b"\xff\x00") == {"payload_base64": "/wA="}
    assert payload_text(b"\xff\x00") == "base64:/wA="
    assert payload_text(b"") == ""


def test_a_payload_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc\td\x9be") == r"a\x1b[31mb\nc\td\x9be"
    assert printable("Grüße 🎉") == "Grüße 🎉"


def test_a_member_is_shown_by_its_name_and_process() -> None:
    process = "web-1:4711:81234:0f:4026531836"
    assert process_text(process) == "web-1:4711"
    assert process_text(f"pulsar-on-kafka-abc@{process}") == "web-1:4711"
    assert member_text(f"pulsar-on-kafka-abc@{process} /10.0.0.1") == "pulsar-on-kafka-abc (web-1:4711)"
    assert member_text("rdkafka /10.0.0.1") == "rdkafka /10.0.0.1"


def test_numbers_become_ranges() -> None:
    assert ranges_text(ranges_of([0, 1, 2, 4, 7, 8])) == "0-2, 4, 7-8"
    assert ranges_of([]) == []
