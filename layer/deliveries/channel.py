"""The records in `deliveries` that concern this process: one thread of the node reads them.

It begins where the log ends when somebody first wants to hear of a topic, and reads only the partitions of topics that
somebody wants to hear of; while nobody does it waits, and without anybody ever it is not there. What was written before
is not seen: whoever asks asks again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from layer import errors
from layer.deadline import Deadline
from layer.kafka.assigned import AssignedConsumer, end_reached, failure_of, is_final, is_offset_out_of_range
from layer.statelog.api import StateLog
from mapping.errors import CorruptRecord
from mapping.state_keys import DeliveryKey, decode_key, encode_key
from mapping.state_topics import DELIVERIES

_log = logging.getLogger(__name__)

Heard = tuple[DeliveryKey, bytes]
Listener = Callable[[Sequence[Heard]], None]
"""Called by the channel's thread with what a topic's records say, in the order of the log. Returns at once."""

_BATCH: Final = 500
_POLL_S: Final = 0.1
_END_TIMEOUT_S: Final = 10.0
_AGAIN_S: Final = 1.0
_FORBIDDEN_AGAIN_S: Final = 30.0


class DeliveryChannel:
    """Thread-safe. Memory: one batch of 500 records, and librdkafka's fetch queue.

    When it cannot read it says so once, and tries again every second; every 30 s where a right is missing.
    """

    def __init__(self, log: StateLog, open_reader: Callable[[], AssignedConsumer]) -> None:
        self._log = log
        self._open_reader = open_reader
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Listener]] = {}
        self._starts: dict[int, int] = {}
        """Where reading of a partition is to begin, if it is not being read yet and not at its end."""
        self._changed = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._told = ""
        self.corrupt_records = 0
        """Records that could not be read and were skipped."""

    # Any thread ---------------------------------------------------------------------------------------------------

    def listen(self, topic: str, listener: Listener, start: int | None = None) -> None:
        """From now on `listener` hears of what concerns a topic; from `start` on, if the topic's partition is not being
        read already, else from where that stands."""
        with self._lock:
            if self._closed:
                return
            self._listeners.setdefault(topic, []).append(listener)
            if start is not None:
                partition = DELIVERIES.partition_for(topic)
                self._starts[partition] = min(start, self._starts.get(partition, start))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pok-deliveries", daemon=True)
                self._thread.start()
        self._changed.set()

    def unlisten(self, topic: str, listener: Listener) -> None:
        """It hears no more, but perhaps of what is being told just now; a second call does nothing."""
        with self._lock:
            listeners = self._listeners.get(topic, [])
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                self._listeners.pop(topic, None)
        self._changed.set()

    def end(self, topic: str, deadline: Deadline) -> int:
        """Where the next record about a topic will lie, or behind that. Raises StoreError."""
        return self._log.end_offset(DELIVERIES, DELIVERIES.partition_for(topic), deadline)

    def write(self, records: Sequence[Heard], deadline: Deadline) -> None:
        """Append records about one topic, and wait until they are durable. Raises StoreError."""
        partition = DELIVERIES.partition_for(records[0][0].topic)
        self._log.append_many(DELIVERIES, partition, [(encode_key(key), value) for key, value in records], deadline)

    def skipped(self, key: DeliveryKey, reason: CorruptRecord) -> None:
        """A value cannot be read. For listeners."""
        self.corrupt_records += 1
        _log.warning("topic=%s subscription=%s skipped a record: %s", key.topic, key.subscription, reason)

    def close(self, deadline: Deadline) -> None:
        """End the thread; a second call does nothing."""
        with self._lock:
            self._closed = True
            self._listeners.clear()
            thread = self._thread
        self._changed.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(deadline.remaining_s())

    # Its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            try:
                self._follow()
            except Exception as failure:
                self._tell(failure)
                self._wait(_FORBIDDEN_AGAIN_S if isinstance(failure, errors.NotAuthorized) else _AGAIN_S)

    def _tell(self, failure: Exception) -> None:
        if self._closed:
            return
        if not isinstance(failure, errors.LayerError):
            _log.exception("%s: reading failed", DELIVERIES.kafka_name)
            return
        told = type(failure).__name__
        level = logging.WARNING if told != self._told else logging.DEBUG
        self._told = told
        _log.log(
            level,
            "other processes cannot seek, skip or delete by force this one's live subscriptions: %s",
            failure,
        )

    def _wait(self, seconds: float) -> None:
        """Until the time is over, or the channel is closed."""
        deadline = Deadline.after(seconds)
        while not self._closed and not deadline.passed():
            self._changed.wait(deadline.remaining_s())
            self._changed.clear()

    def _follow(self) -> None:
        reader: AssignedConsumer | None = None
        reading: set[int] = set()
        try:
            while not self._closed:
                if self._changed.is_set():
                    self._changed.clear()
                    wanted = self._wanted()
                    if wanted - reading and reader is None:
                        reader = self._open_reader()
                    if reader is not None:
                        self._read_these(reader, wanted, reading)
                if reader is None or not reading:
                    self._changed.wait()
                    continue
                batch = reader.poll_batch(_BATCH, _POLL_S)
                if batch:
                    self._told = ""
                    self._hand_on(reader, batch)
        finally:
            self._changed.set()  # whatever follows begins with looking
            if reader is not None:
                reader.close()

    def _wanted(self) -> set[int]:
        with self._lock:
            return {DELIVERIES.partition_for(topic) for topic in self._listeners}

    def _read_these(self, reader: AssignedConsumer, wanted: set[int], reading: set[int]) -> None:
        dropped = reading - wanted
        if dropped:
            reader.drop(dropped)
            reading -= dropped
        for partition in wanted - reading:
            reader.add({partition: self._start(partition)})
            reading.add(partition)
        with self._lock:
            self._starts = {partition: start for partition, start in self._starts.items() if partition not in reading}

    def _start(self, partition: int) -> int:
        with self._lock:
            start = self._starts.get(partition)
        if start is not None:
            return start
        return self._log.end_offset(DELIVERIES, partition, Deadline.after(_END_TIMEOUT_S))

    def _hand_on(self, reader: AssignedConsumer, batch: Iterable[Any]) -> None:
        by_topic: dict[str, list[Heard]] = {}
        for record in batch:
            error = record.error()
            if error is not None:
                self._on_event(reader, record.partition(), error)
                continue
            try:
                key = decode_key(record.key() or b"")
            except CorruptRecord as reason:
                self.corrupt_records += 1
                _log.warning("%s-%d offset %d skipped: %s", DELIVERIES.kafka_name, record.partition(), record.offset(),
                             reason)  # fmt: skip
                continue
            value = record.value()
            if isinstance(key, DeliveryKey) and value is not None:
                by_topic.setdefault(key.topic, []).append((key, value))
        for topic, heard in by_topic.items():
            with self._lock:
                listeners = list(self._listeners.get(topic, ()))
            for listener in listeners:
                listener(heard)

    def _on_event(self, reader: AssignedConsumer, partition: int | None, error: Any) -> None:
        if end_reached(error):
            return
        if partition is not None and is_offset_out_of_range(error):
            _log.warning("%s-%d: what was to be read is gone, going on at its end", DELIVERIES.kafka_name, partition)
            end = self._log.end_offset(DELIVERIES, partition, Deadline.after(_END_TIMEOUT_S))
            reader.seek({partition: end})
        elif is_final(error):
            raise failure_of(error, f"reading {DELIVERIES.kafka_name}")
        else:
            _log.info("%s: %s", DELIVERIES.kafka_name, error.str())
