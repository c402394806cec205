"""A window is a bounded part of a topic's messages: its beginning, filters, and how far the search came. Pure."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pulsar_on_kafka.admin.cursor_view import PartitionCursor
from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.client.values.texts import parse_time, payload_text, time_text
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

MAX_ROWS: Final = 50
MAX_BYTES: Final = 8_000_000
"""Bytes of values, keys and properties that one search reads; the last message may exceed it."""
MAX_S: Final = 3.0
MAX_PARTITIONS: Final = 64
"""Partitions that are read together."""
NEWEST_SEARCHED: Final = 10_000
"""Offsets before the ends of all partitions together that a search among the newest messages goes through."""
_FILTER_CHARS: Final = 1_000
_EXCERPT_CHARS: Final = 200
_BEFORE_MATCH: Final = 40
_PLACE: Final = re.compile(r"(\d{1,5})\.(\d{1,18})(?:\.(\d{1,9}))?")


class WindowStart(str, Enum):
    """The beginning of a window."""

    NEWEST = "newest"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True, order=True)
class WindowPlace:
    """The place of a message in a partition: its offset, and its index if it is one of a batch."""

    offset: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """The window that a browser requests. Empty filters take every message; `text` is searched in values, `needed` is
    the name of a property or name=value."""

    topic: str
    partition: int | None = None
    """None: all partitions."""
    begin: WindowStart = WindowStart.NEWEST
    at: int = 0
    """The offset, or the Unix time in ms."""
    key: str = ""
    text: str = ""
    needed: str = ""
    places: tuple[tuple[int, WindowPlace], ...] = ()
    """By partition, where an earlier search ended; they take the place of `begin`."""

    @staticmethod
    def of(query: Mapping[str, str], now_ms: int) -> MessageRequest:
        """Raises ValueError: a value is not of the expected form; the message names both."""
        given = {name: query.get(name, "").strip() for name in ("partition", "from", "at", "on")}
        filters = {name: query.get(name, "") for name in ("key", "text", "property")}
        for name, text in filters.items():
            if len(text) > _FILTER_CHARS:
                raise ValueError(f"the {name} has {len(text):,} characters, expected {_FILTER_CHARS:,} at most")
        if given["from"] not in {"", *(each.value for each in WindowStart)}:
            raise ValueError(f"from is {given['from']!r:.60}, expected newest, earliest, offset or time")
        begin = WindowStart(given["from"] or WindowStart.NEWEST)
        partition = _whole("the partition", given["partition"]) if given["partition"] else None
        at = 0
        if begin is WindowStart.OFFSET:
            at = _whole("the offset", given["at"])
            partition = partition or 0
        elif begin is WindowStart.TIME:
            at = parse_time(given["at"], now_ms)
        places = tuple(_place(each) for each in given["on"].split("_")) if given["on"] else ()
        if len(places) > MAX_PARTITIONS:
            raise ValueError(f"on names {len(places)} partitions, expected {MAX_PARTITIONS} at most")
        return MessageRequest(
            query.get("topic", ""), partition, begin, at, filters["key"], filters["text"], filters["property"], places
        )

    @property
    def filtered(self) -> bool:
        return bool(self.key or self.text or self.needed)

    @property
    def from_the_end(self) -> bool:
        """Whether the newest messages are kept, rather than the first ones."""
        return self.begin is WindowStart.NEWEST and not self.places

    def newest(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """The offsets at which a window of the newest messages begins."""
        each = max(1, (NEWEST_SEARCHED if self.filtered else MAX_ROWS) // max(1, len(ends)))
        return {partition: max(starts[partition], end - each) for partition, end in ends.items()}

    def takes(self, message: ShownMessage, text: str) -> bool:
        """Whether the filters take a message whose value has this text."""
        name, equals, value = self.needed.partition("=")
        found = message.properties.get(name)
        return (
            (not self.key or message.key == self.key)
            and (not self.needed or (found is not None and (not equals or found == value)))
            and (not self.text or self.text.lower() in text.lower())
        )


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message of a window. `value` is an excerpt of 200 characters, around the match where there is one."""

    message_id: NativeMessageId
    partition: int
    offset: int
    key: str
    properties: str
    value: str
    size: int
    """Bytes of the value."""
    publish_time_ms: int
    deliver_at_ms: int
    encrypted: bool


class WindowEnd(str, Enum):
    """The reason why a search ended."""

    LOG = "log"
    """No further message is there."""
    ROWS = "rows"
    BYTES = "bytes"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """A part of a topic's messages: `rows`, of `read` messages with `read_bytes`, until `end`."""

    rows: tuple[MessageRow, ...]
    read: int
    read_bytes: int
    end: WindowEnd
    begins: Mapping[int, int]
    """The offset at which it begins, by partition."""
    places: Mapping[int, WindowPlace] = field(default_factory=dict)
    """The place at which a next window begins, by partition."""

    @property
    def on(self) -> str:
        """The parameter that continues behind this window."""
        return "_".join(
            f"{partition}.{place.offset}" + (f".{place.index}" if place.index else "")
            for partition, place in sorted(self.places.items())
        )


def search(
    requested: MessageRequest,
    messages: Iterable[ShownMessage],
    place_of: Callable[[NativeMessageId], tuple[int, int]],
    begins: Mapping[int, int],
    clock: Clock,
) -> MessageWindow:
    """The window of these messages, which are read while the bounds allow it. `place_of` gives partition and offset.
    Memory: `MAX_ROWS` rows."""
    ends_s = clock.monotonic() + MAX_S
    kept = deque[MessageRow](maxlen=MAX_ROWS)
    passed = dict(requested.places)
    places = {partition: passed.get(partition, WindowPlace(offset)) for partition, offset in begins.items()}
    read = size = 0
    end = WindowEnd.LOG
    for message in messages:
        partition, offset = place_of(message.message_id)
        index = max(0, message.message_id.batch_index())
        if WindowPlace(offset, index) < passed.get(partition, WindowPlace(0)):
            continue  # of a batch of which the window before had the first messages
        bound = _bound(requested, len(kept), size, clock.monotonic() >= ends_s)
        if bound is not None:
            places[partition] = WindowPlace(offset, index)
            end = bound
            break
        text = full_text(message)
        if requested.takes(message, text):
            kept.append(_row(message, partition, offset, _excerpt(text, requested.text)))
        read += 1
        size += _bytes(message)
        places[partition] = (
            WindowPlace(offset, index + 1) if message.message_id.batch_index() >= 0 else WindowPlace(offset + 1)
        )
    rows = sorted(
        kept, key=lambda row: (row.publish_time_ms, row.partition, row.offset), reverse=requested.from_the_end
    )
    return MessageWindow(tuple(rows), read, size, end, dict(begins), places)


def _bound(requested: MessageRequest, rows: int, size: int, late: bool) -> WindowEnd | None:
    if rows == MAX_ROWS and not requested.from_the_end:
        return WindowEnd.ROWS
    if size >= MAX_BYTES:
        return WindowEnd.BYTES
    return WindowEnd.TIME if late else None


def full_text(message: ShownMessage) -> str:
    """The decoded value as JSON on one line, or the payload; '' for an encrypted one and for null."""
    if message.payload is None or message.encrypted:
        return ""
    return json.dumps(message.value, ensure_ascii=False) if message.decoded else payload_text(message.payload)


def state_for(cursor: PartitionCursor | None, row: MessageRow, *, delays: bool, now_ms: int) -> str:
    """A message's state on a subscription, as last saved. `delays`: the subscription's type delays messages."""
    if cursor is None:
        return "unknown"
    index, batch = row.message_id.batch_index(), cursor.state.batches.get(row.offset)
    if cursor.fate(row.offset).acknowledged or (batch is not None and index >= 0 and batch.acked >> index & 1):
        return "acknowledged"
    put_off_ms = cursor.fate(row.offset).put_off_ms
    if put_off_ms and put_off_ms > now_ms:
        return f"redelivered at {time_text(put_off_ms)}"
    if delays and row.deliver_at_ms > now_ms:
        return f"delayed until {time_text(row.deliver_at_ms)}"
    return "waiting"


def _row(message: ShownMessage, partition: int, offset: int, value: str) -> MessageRow:
    properties = ", ".join(f"{name}={each}" for name, each in sorted(message.properties.items()))
    return MessageRow(
        message.message_id,
        partition,
        offset,
        message.key[:_EXCERPT_CHARS],
        properties[:_EXCERPT_CHARS],
        value,
        len(message.payload or b""),
        message.publish_time_ms,
        message.deliver_at_ms,
        message.encrypted,
    )


def _excerpt(text: str, searched: str) -> str:
    at = text.lower().find(searched.lower()) if searched else 0
    first = max(0, at - _BEFORE_MATCH) if at + len(searched) > _EXCERPT_CHARS else 0
    shown = text[first : first + _EXCERPT_CHARS]
    return f"{'… ' if first else ''}{shown}{' …' if first + _EXCERPT_CHARS < len(text) else ''}"


def _bytes(message: ShownMessage) -> int:
    properties = sum(len(name) + len(value) for name, value in message.properties.items())
    return len(message.payload or b"") + len(message.key) + properties


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(f"{name} is {text!r:.60}, expected a whole number from 0")
    return int(text)


def _place(text: str) -> tuple[int, WindowPlace]:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.60} is no place, expected partition.offset or partition.offset.index")
    return int(found[1]), WindowPlace(int(found[2]), int(found[3] or 0))
