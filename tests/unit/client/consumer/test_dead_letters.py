"""Dead letters name their origin."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.client.consumer.dead_letters import java_text
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import ChunkedMessageId, NativeMessageId, PartitionOrigin

LAYOUT = LedgerLayout(incarnation=1, entries_per_ledger=100)


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        (NativeMessageId(-1, 3, 5, -1), "3:5:-1"),
        (NativeMessageId(2, 3, 5, -1), "3:5:2"),
        (NativeMessageId(2, 3, 5, 0), "3:5:2:0"),
    ],
)
def test_ids_in_the_form_of_java(message_id: NativeMessageId, text: str) -> None:
    assert java_text(message_id) == text


def test_a_chunked_message_names_its_first_chunk_and_its_last_one() -> None:
    ledger = LAYOUT.position(0, 0)[0]
    message_id = ChunkedMessageId(PartitionOrigin(LAYOUT, -1, "t"), 3, 7)
    assert java_text(message_id) == f"{ledger}:3:-1;{ledger}:7:-1"
