"""Start positions of reading, for ids of every kind."""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.client.receiving.start_position import start_offset
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

SIZE = 10
LAYOUT = LedgerLayout(7, SIZE)


def begin(message_id: NativeMessageId, *, inclusive: bool, partition: int = 0, low: int = 0, end: int = 35) -> int:
    return start_offset(LAYOUT, partition, message_id, inclusive=inclusive, low=low, end=end)


def made_by_hand(ledger: int, entry: int) -> NativeMessageId:
    return NativeMessageId(-1, ledger, entry, -1)


def test_earliest_and_latest() -> None:
    assert begin(MessageId.earliest, inclusive=False, low=3) == 3
    assert begin(MessageId.earliest, inclusive=True, low=3) == 3
    assert begin(MessageId.latest, inclusive=False) == 35
    assert begin(MessageId.latest, inclusive=True) == 34


def test_latest_inclusive_of_an_empty_topic_is_its_end() -> None:
    assert begin(MessageId.latest, inclusive=True, low=0, end=0) == 0
    assert begin(MessageId.latest, inclusive=True, low=35, end=35) == 35


@pytest.mark.parametrize("offset", [0, 9, 10, 34])
def test_an_id_is_its_record_or_the_one_behind(offset: int) -> None:
    named = made_by_hand(*LAYOUT.position(0, offset))
    assert begin(named, inclusive=True) == offset
    assert begin(named, inclusive=False) == offset + 1


def test_entry_minus_one_is_before_the_ledger() -> None:
    named = made_by_hand(LAYOUT.ledger_id(0, 2), -1)
    assert begin(named, inclusive=False) == 20
    assert begin(named, inclusive=True) == 20


def test_an_entry_behind_the_ledgers_last_is_the_next_ledgers_first() -> None:
    named = made_by_hand(LAYOUT.ledger_id(0, 1), 500)
    assert begin(named, inclusive=False) == 20
    assert begin(named, inclusive=True) == 20


def test_ledgers_of_others_are_before_or_behind_everything() -> None:
    for inclusive in (True, False):
        assert begin(made_by_hand(3, 4), inclusive=inclusive, low=2) == 2
        assert begin(made_by_hand(LAYOUT.ledger_id(5, 0), 4), inclusive=inclusive) == 35
        assert begin(made_by_hand(LAYOUT.ledger_id(0, 3), 4), inclusive=inclusive, partition=1, low=2) == 2


def test_what_was_deleted_or_is_not_there_yet_is_the_nearest_that_is() -> None:
    assert begin(made_by_hand(*LAYOUT.position(0, 3)), inclusive=True, low=8) == 8
    assert begin(made_by_hand(*LAYOUT.position(0, 90)), inclusive=True) == 35


def test_agrees_with_a_search_through_all_positions() -> None:
    chance = random.Random(5)
    for _ in range(3000):
        partition = chance.randrange(3)
        low = chance.randrange(40)
        end = low + chance.randrange(40)
        ledger = LAYOUT.ledger_id(chance.randrange(3), chance.randrange(9)) + chance.choice((0, 0, 0, -1, 1))
        entry = chance.randrange(-1, SIZE + 2)
        inclusive = chance.random() < 0.5
        positions = [LAYOUT.position(partition, offset) for offset in range(low, end)]
        behind = [p > (ledger, entry) or (inclusive and p == (ledger, entry)) for p in positions]
        expected = low + (behind.index(True) if True in behind else len(behind))
        named = made_by_hand(ledger, entry)
        assert begin(named, inclusive=inclusive, partition=partition, low=low, end=end) == expected, named
