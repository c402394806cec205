"""A batch collects messages for one record, and reports the record's outcome to their senders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.reentry import in_callback
from pulsar_on_kafka.broker.publishing.in_flight import NO_ID, PartitionOut, SendCallback, SendsInFlight, is_prompt
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka_mapping.ids.native_message_id import BatchedMessageId, StoredMessageId
from pulsar_on_kafka_mapping.records.batch_entry import FORMAT_VERSION, encode_columns
from pulsar_on_kafka_mapping.records.message_record import MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.record_headers import BATCH, HIGHEST_SEQUENCE

_log = logging.getLogger(__name__)

_OK: Final = Result.Ok


class BatchesInFlight(SendsInFlight):
    """`SendsInFlight` that counts messages of batches. `taken` has one writer at a time: the producer's gate."""

    def __init__(self, limit: int, kafka: KafkaProducer, failed: Any) -> None:
        super().__init__(limit, kafka, failed)
        self.taken = 0
        self.released = 0
        """Messages that are stored or failed; `settled` follows when their callbacks have returned. A callback may send
        again into a queue that was full."""
        self.outstanding: set[Any] = set()
        """Batches, and messages that wait for the answer of one they repeat, whose callbacks have not returned."""

    def sent(self) -> Collection[Any]:
        return self.outstanding.copy()

    def unanswered(self, sent: Collection[Any]) -> int:
        """Each counts as one message, which it has at least."""
        left = self.outstanding.intersection(sent)
        return sum(not each.reported for each in left) if in_callback() else len(left)

    def has_callbacks_waiting(self) -> bool:
        return any(each.reported for each in self.outstanding.copy())

    def under_way(self) -> int:
        return self.taken - self.answered_messages()

    def has_room(self) -> bool:
        """Whether one more message fits; called in the producer's gate. Where callbacks are slower than Kafka, senders
        wait for them, except a callback that sends."""
        done = self.released if self.kafka.callbacks.is_own_thread() else self.answered_messages()
        return self.taken - done < self._limit

    def release(self, count: int) -> None:
        with self._counting:  # without a call inside
            self.released += count

    def answered(self, what: Any, count: int) -> None:
        """The `count` callbacks of a batch, or of a message that waited, have returned."""
        self.outstanding.discard(what)
        self.settle_aside(count)

    def move_to(self, other: BatchesInFlight, batch: OutgoingBatch) -> None:
        """A batch waits for another Kafka producer now; in the producer's gate."""
        count = len(batch.payloads)
        other.outstanding.add(batch)
        other.taken += count
        self.taken -= count
        self.outstanding.discard(batch)
        self.wake_waiting()


class OutgoingBatch:
    """Messages for one record, as columns (a fresh object per message would keep the garbage collector busy), called
    with the record's delivery report.

    A column is None while no message has what it holds, and shorter than `payloads` while the last ones have none.
    """

    __slots__ = (
        "_event_times",
        "_fail",
        "_keys",
        "_offset",
        "_ordering_keys",
        "_properties",
        "_sequences",
        "alone",
        "callbacks",
        "first_sequence",
        "in_flight",
        "marks",
        "next_sequence",
        "origin",
        "partition",
        "payloads",
        "reported",
        "stamp",
    )

    def __init__(
        self,
        in_flight: BatchesInFlight,
        origin: PartitionOut,
        partition: int,
        first_sequence: int,
        marks: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        self.in_flight = in_flight
        self.origin = origin
        self.partition = partition
        self.first_sequence = first_sequence
        self.next_sequence = first_sequence
        """The id of the next message, if it is regular."""
        self.marks = marks
        """The record's headers that do not depend on the single message."""
        self.payloads: list[bytes | None] = []
        self.callbacks: list[SendCallback | None] = []
        self.alone: tuple[bytes | None, MessageMetadata] | None = None
        """Key and metadata of a message that goes into a record of its own, which is no batch."""
        self.stamp: Callable[[], int] | None = None
        """Returns the record's timestamp in milliseconds when the record is handed to Kafka; may refuse with an error.
        None: now."""
        self.reported = False
        """Kafka has answered; callbacks may not have returned."""
        self._fail: Callable[[SendCallback | None], None] | None = None
        """Reports the record's failure to a sender's callback."""
        self._offset: int | None = None
        self._keys: list[bytes | None] | None = None
        self._ordering_keys: list[bytes | None] | None = None
        self._properties: list[Any] | None = None
        self._event_times: list[int] | None = None
        self._sequences: list[int | None] | None = None

    def irregular_sequence(self, sequence: int) -> None:
        """The message that was added last does not have its predecessor's sequence id + 1."""
        at = len(self.payloads) - 1
        if self._sequences is None:
            self._sequences = list(range(self.first_sequence, self.first_sequence + at))
        self._sequences += (None,) * (at - len(self._sequences))
        self._sequences.append(sequence)

    def describe(self, key: bytes | None, metadata: MessageMetadata | None) -> int:
        """The message that was added last has more than a payload; gives the size of that in bytes."""
        at = len(self.payloads) - 1
        size = 0
        ordering_key = metadata.ordering_key if metadata is not None else None
        if metadata is not None and metadata.key_is_ordering_key:
            key, ordering_key = None, key
        if key is not None:
            self._keys = _with(self._keys, at, None, key)
            size += len(key)
        if ordering_key is not None:
            self._ordering_keys = _with(self._ordering_keys, at, None, ordering_key)
            size += len(ordering_key)
        if metadata is not None and metadata.properties:
            self._properties = _with(self._properties, at, None, dict(metadata.properties))
            size += sum(len(name) + len(value) for name, value in metadata.properties.items())
        if metadata is not None and metadata.event_time_ms:
            self._event_times = _with(self._event_times, at, 0, metadata.event_time_ms)
        return size

    def record(self) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Value, Kafka key and headers, but for the producer's.

        The key is that of the first message, as Pulsar's broker sees a batch's.

        Raises:
            MappingError: a value cannot be written.
        """
        if self.alone is not None:
            key, metadata = self.alone
            return self.payloads[0], key, encode_headers(metadata)
        count = len(self.payloads)
        key, headers = self._first_key()
        headers.append((BATCH, b"%d:%d" % (FORMAT_VERSION, count)))
        if self._sequences is not None:
            headers.append((HIGHEST_SEQUENCE, b"%d" % max(self.sequence_ids())))
        value = encode_columns(
            self.payloads,
            _filled(self._keys, count, None),
            _filled(self._ordering_keys, count, None),
            _filled(self._properties, count, None),
            _filled(self._event_times, count, 0),
            # The ids that are not the record's own plus the batch index must be there; those that are, may be.
            _filled(self._sequences, count, None),
        )
        return value, key, headers

    def _first_key(self) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
        key = self._keys[0] if self._keys else None
        ordering_key = self._ordering_keys[0] if self._ordering_keys else None
        if ordering_key is None:
            return key, []
        if key is None:
            return ordering_key, encode_headers(MessageMetadata(key_is_ordering_key=True))
        return key, encode_headers(MessageMetadata(ordering_key=ordering_key))

    def sequence_ids(self) -> Sequence[int]:
        column = _filled(self._sequences, len(self.payloads), None)
        if column is None:
            return range(self.first_sequence, self.first_sequence + len(self.payloads))
        return [self.first_sequence + i if given is None else given for i, given in enumerate(column)]

    def _last_sequence(self) -> int:
        count = len(self.payloads)
        if self._sequences is not None and len(self._sequences) == count:
            last = self._sequences[-1]
            if last is not None:
                return last
        return self.first_sequence + count - 1

    def __call__(self, error: Any, record: Any) -> None:
        if error is None:
            self.origin.last_sequence_id = self._last_sequence()
            self._offset = record.offset()
        else:
            self._fail = partial(self.in_flight.failed, error)
        self._answered()

    def refused(self, fail: Callable[[SendCallback | None], None]) -> None:
        """Handles a record that Kafka rejected: calls `fail(callback)` for each sender."""
        self._fail = fail
        self._answered()
        self.in_flight.kafka.make_calls()

    def _answered(self) -> None:
        in_flight = self.in_flight
        in_flight.release(len(self.callbacks))
        later = any(not is_prompt(callback) for callback in self.callbacks)
        self.reported = later  # senders wait for callbacks, and for none where there are none
        if later:  # first: a send that returns waits for the callbacks before its own
            in_flight.kafka.call_later(self.call_back)
        if any(self.callbacks) or self._fail is not None:
            self._answer(prompt=True)
        if not later:
            in_flight.answered(self, len(self.callbacks))

    def call_back(self) -> None:
        """Call the programs' callbacks, outside of `poll`."""
        try:
            self._answer(prompt=False)
        finally:
            self.in_flight.answered(self, len(self.callbacks))

    def _answer(self, *, prompt: bool) -> None:
        fail, offset, count = self._fail, self._offset, len(self.callbacks)
        for index, callback in enumerate(self.callbacks):
            if is_prompt(callback) is not prompt:
                continue
            try:
                if fail is not None:
                    fail(callback)
                elif callback is None:
                    continue
                elif offset is None:
                    callback(_OK, NO_ID)
                elif self.alone is None:
                    callback(_OK, BatchedMessageId(self.origin, offset, index, count))
                else:
                    callback(_OK, StoredMessageId(self.origin, offset))
            except Exception:  # the application's; the other senders get their reports nevertheless
                _log.exception("producer=%s a send callback failed", self.origin.topic)


class Container:
    """A container collects the messages of one partition in one batch, or with key-based batching in one for each key.

    Source: BatchMessageContainer and BatchMessageKeyBasedContainer: the limits count all keys together.
    """

    __slots__ = ("batches", "marks", "messages", "opened_s", "partition", "size_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.batches: dict[bytes | None, OutgoingBatch] = {}
        self.messages = 0
        self.size_bytes = 0
        self.opened_s = 0.0
        self.marks: Sequence[tuple[str, bytes]] = ()
        """The headers of its batches; a message with other headers, another schema version say, starts the next
        batch."""

    def take(self) -> list[OutgoingBatch]:
        """The batches, in the order of their first messages; the container is empty then."""
        batches = list(self.batches.values())
        self.batches.clear()
        self.messages = self.size_bytes = 0
        return batches


def _with(column: list[Any] | None, at: int, absent: Any, item: Any) -> list[Any]:
    """`column` with `item` at index `at`, and `absent` where it was too short."""
    column = column if column is not None else []
    column += (absent,) * (at - len(column))
    column.append(item)
    return column


def _filled(column: list[Any] | None, count: int, absent: Any) -> list[Any] | None:
    return column if column is None else [*column, *(absent,) * (count - len(column))]
