"""A window of messages is bounded, and continues exactly where it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from pulsar_on_kafka.admin.cursor_view import view_of
from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.console.message_window import (
    MAX_BYTES,
    MAX_PARTITIONS,
    MAX_ROWS,
    MAX_S,
    MessageRequest,
    MessageRow,
    MessageWindow,
    WindowEnd,
    WindowPlace,
    WindowStart,
    search,
    state_for,
)
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from tests.clocks import SetClock

NOW_MS = 1_800_000_000_000
TOPIC = "persistent://public/default/orders"


def message(offset: int, value: Any = None, *, index: int = -1, partition: int = 0, **of: Any) -> ShownMessage:
    found = ShownMessage(
        NativeMessageId(partition, 7, offset, index), TOPIC, "", "", {}, NOW_MS + offset, 0, "", 0,
        b"%d" % offset, False, value is not None, value, "", 0,
    )  # fmt: skip
    return replace(found, **of)


def searched(
    messages: Iterable[ShownMessage], clock: SetClock | None = None, begin: str = "earliest", **query: str
) -> MessageWindow:
    requested = MessageRequest.of({"topic": TOPIC, "from": begin, **query}, NOW_MS)
    begins = {partition: place.offset for partition, place in requested.places} or {0: 0}

    def place_of(found: NativeMessageId) -> tuple[int, int]:
        return max(0, found.partition()), found.entry_id()

    return search(requested, messages, place_of, begins, clock or SetClock())


def offsets(window: MessageWindow) -> list[int]:
    return [row.offset for row in window.rows]


def test_rows_end_a_window_and_the_next_one_begins_there() -> None:
    messages = [message(number) for number in range(MAX_ROWS * 2 + 7)]
    first = searched(messages)
    assert (offsets(first), first.end, first.on) == ([*range(MAX_ROWS)], WindowEnd.ROWS, f"0.{MAX_ROWS}")
    second = searched(messages[MAX_ROWS:], on=first.on)
    third = searched(messages[2 * MAX_ROWS :], on=second.on)
    assert offsets(second) == [*range(MAX_ROWS, 2 * MAX_ROWS)]
    assert (offsets(third), third.end) == ([*range(2 * MAX_ROWS, 2 * MAX_ROWS + 7)], WindowEnd.LOG)


def test_a_window_ends_within_a_batch_and_the_next_one_has_its_rest() -> None:
    batch = [message(4, index=number) for number in range(MAX_ROWS + 3)]
    first = searched(batch)
    assert (len(first.rows), first.on) == (MAX_ROWS, f"0.4.{MAX_ROWS}")
    second = searched(batch, on=first.on)
    assert [row.message_id.batch_index() for row in second.rows] == [MAX_ROWS, MAX_ROWS + 1, MAX_ROWS + 2]


def test_partitions_continue_each_where_it_ended() -> None:
    messages = [message(5, partition=0), message(9, partition=1), message(6, partition=0)]
    requested = MessageRequest.of({"topic": TOPIC, "on": "0.5_1.9_2.3"}, NOW_MS)
    assert requested.places == ((0, WindowPlace(5)), (1, WindowPlace(9)), (2, WindowPlace(3)))
    assert searched(messages, on="0.5_1.9_2.3").on == "0.7_1.10_2.3"


def test_bytes_and_time_are_bounds_that_a_window_names() -> None:
    large = [message(number, payload=b"x" * (MAX_BYTES // 2)) for number in range(5)]
    found = searched(large, text="nothing has this")
    assert (found.end, found.read, found.on, found.rows) == (WindowEnd.BYTES, 2, "0.2", ())
    clock = SetClock()

    def slow() -> Any:
        for number in range(5):
            yield message(number)
            clock.seconds += MAX_S / 2

    found = searched(slow(), clock)
    assert (found.end, found.read, found.on) == (WindowEnd.TIME, 2, "0.2")


def test_key_value_and_property_are_all_required() -> None:
    messages = [
        message(0, {"item": "Kettle"}, key="a", properties={"reason": "late"}),
        message(1, {"item": "kettle"}, key="b", properties={"reason": "early"}),
        message(2, payload=b"a KETTLE", key="a"),
    ]
    assert offsets(searched(messages, text="kettle")) == [0, 1, 2]
    assert offsets(searched(messages, text="kettle", key="a")) == [0, 2]
    assert offsets(searched(messages, property="reason")) == [0, 1]
    assert offsets(searched(messages, property="reason=early")) == [1]
    assert searched(messages, key="c").rows == ()


def test_an_encrypted_value_is_neither_searched_nor_shown() -> None:
    secret = message(0, payload=b"cipher", encrypted=True, key="a")
    assert searched([secret], text="cipher").rows == ()
    (row,) = searched([secret], key="a").rows
    assert (row.value, row.encrypted) == ("", True)


def test_the_newest_messages_are_kept_and_come_first() -> None:
    messages = [message(number) for number in range(MAX_ROWS + 5)]
    found = searched(messages, begin="newest")
    assert offsets(found) == [*range(MAX_ROWS + 4, 4, -1)]
    assert found.end is WindowEnd.LOG
    ends = dict.fromkeys(range(10), 1_000_000)
    starts = dict.fromkeys(range(10), 0)
    assert set(MessageRequest(TOPIC).newest(starts, ends).values()) == {1_000_000 - MAX_ROWS // 10}
    assert set(MessageRequest(TOPIC, key="k").newest(starts, ends).values()) == {1_000_000 - 1000}
    assert MessageRequest(TOPIC).newest({0: 3}, {0: 5}) == {0: 3}


def test_a_row_is_short_and_shows_the_match() -> None:
    value = f"{'x' * 500}needle{'y' * 500}"
    (row,) = searched([message(0, value, key="k" * 500, properties={"p": "v" * 500})], text="needle").rows
    assert "needle" in row.value
    assert re.fullmatch(r"… x{40}needley+ …", row.value)
    assert max(map(len, (row.value, row.key, row.properties))) <= 204


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"from": "middle"}, "from is 'middle', expected newest, earliest, offset or time"),
        ({"from": "offset"}, "the offset is '', expected a whole number from 0"),
        ({"from": "offset", "at": "-1"}, "the offset is '-1', expected a whole number from 0"),
        ({"from": "time", "at": "noon"}, "'noon' is no time; expected ISO 8601"),
        ({"partition": "two"}, "the partition is 'two', expected a whole number from 0"),
        ({"on": "0"}, "'0' is no place, expected partition.offset or partition.offset.index"),
        ({"on": "_".join(["0.1"] * (MAX_PARTITIONS + 1))}, "on names 65 partitions, expected 64 at most"),
        ({"key": "k" * 1001}, "the key has 1,001 characters, expected 1,000 at most"),
    ],
)
def test_what_a_browser_sends_is_checked(query: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        MessageRequest.of({"topic": TOPIC, **query}, NOW_MS)


def test_a_time_may_be_an_age() -> None:
    requested = MessageRequest.of({"topic": TOPIC, "from": "time", "at": "1h"}, NOW_MS)
    assert (requested.begin, requested.at) == (WindowStart.TIME, NOW_MS - 3_600_000)


def test_the_state_on_a_subscription() -> None:
    state = CursorState(0, 100)
    state.acknowledge([0, 2])
    state.acknowledge_batches({4: BatchAckSet(3, 0b010)})
    cursor = view_of(0, RecoveredCursor(state, None, "commit"), LedgerLayout(7, 100), 0, 10, "commit", 0, [])

    def state_of(offset: int, index: int = -1, due_ms: int = 0, *, delays: bool = True) -> str:
        row = MessageRow(NativeMessageId(0, 7, offset, index), 0, offset, "", "", "", 0, 0, due_ms, False)
        return state_for(cursor, row, delays=delays, now_ms=NOW_MS)

    assert [state_of(offset) for offset in range(4)] == ["acknowledged", "waiting", "acknowledged", "waiting"]
    assert [state_of(4, index) for index in range(3)] == ["waiting", "acknowledged", "waiting"]
    assert state_of(3, due_ms=NOW_MS + 1000) == "delayed until 2027-01-15T08:00:01.000Z"
    assert state_of(3, due_ms=NOW_MS + 1000, delays=False) == "waiting"
    assert state_of(3, due_ms=NOW_MS) == "waiting"
    assert state_for(None, searched([message(0)]).rows[0], delays=True, now_ms=NOW_MS) == "unknown"
