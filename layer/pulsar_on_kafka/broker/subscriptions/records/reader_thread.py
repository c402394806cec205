"""Reads partitions outside of any subscription: the thread behind a Reader.

No group, so no rebalance and no wait for one; no cursor, so nothing is acknowledged or saved. Other threads take
messages out of the endpoint, hand commands over, and look at how far it has come.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import CommandQueue, outcome
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import ReadCounts
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.subscriptions.records.batches import Begun, affordable, messages_of
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, EntryDelivery, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.subscriptions.records.reader_filter import Readable
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, KafkaPartition, OutOfRange, Records, inside

_log = logging.getLogger(__name__)

_BATCH: Final = 1000
_POLL_S: Final = 0.01
_IDLE_POLL_S: Final = 0.05
_IDLE_AFTER_POLLS: Final = 200
_STARVED_WAIT_S: Final = 0.1
_WATERMARKS_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class TailStats:
    """One reader at one moment: entries that it has not read up to the log's end, as Kafka last told, and messages that
    it read and the application did not receive."""

    behind: int
    buffered: int


class _Run(NamedTuple):
    """Records of a partition for the application, and behind which offset its next one is to be looked for."""

    partition: int
    records: Sequence[Any]
    upto: int


class Tail:
    """Fills one endpoint from the partitions that it was given.

    What waits for the end of a transaction counts as read, and is handed on when it can be. Memory: librdkafka's fetch
    queue, one batch of 1,000 records, the messages of some of them, which have `MAX_BYTES_AT_ONCE` decompressed bytes
    beside those of the last one, what Readable says, and the endpoint's inbox.
    """

    def __init__(
        self,
        kafka_topic: str,
        config: dict[str, Any],
        slot: Callable[[int], PartitionAcks],
        starts: Mapping[int, int],
        endpoint: Endpoint,
        readable: Readable,
        looking: TransactionWaits,
        incarnation: IncarnationCheck,
        begun: Mapping[int, Begun] = MappingProxyType({}),
    ) -> None:
        """`starts`: the offset of the first record to read, per partition; `begun`: what of a batch entry there is not
        to come."""
        self._topic = kafka_topic
        self._reader = AssignedReader(config, f"reader of {kafka_topic}", reserved=False)
        self._slot = slot
        self._endpoint = endpoint
        self._readable = readable
        self._looking = looking
        self._incarnation = incarnation
        self._look_required = False
        self._found_open: dict[int, tuple[int, float]] = {}
        """By partition, the first offset that waits, and when its transaction was last read."""
        self._paused: set[int] = set()
        """Partitions of which too much waits."""
        self._positions = dict(starts)
        self._begun = dict(begun)
        self._waiting: deque[Delivery] = deque()
        """Read, and not in the inbox yet."""
        self._moving = threading.Lock()
        """Held while messages leave `_waiting` for the inbox: meanwhile they are in neither."""
        self._waiting_bytes = 0
        self._unopened: deque[_Run] = deque()
        """Read, and not made into messages yet."""
        self._received_bytes = 0
        self._quiet_polls = 0
        self._commands = CommandQueue()
        self._stopping = False
        self.failure: Exception | None = None
        self._thread: threading.Thread | None = None

    # Any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Raises TooManyHandles."""
        self._reader.open()
        self._endpoint.wake_member = self._commands.wake
        self._thread = aside(f"pok-reader {self._endpoint.name}", self._run)

    def partitions(self) -> list[int]:
        return sorted(self._positions)

    def has_messages_at_hand(self) -> bool:
        """Something is in the inbox, or would be if it had room."""
        with self._moving:
            return bool(self._waiting or self._endpoint.queue)

    def has_reached(self, ends: Mapping[int, int], since_s: float) -> bool:
        """Every record below these ends was read, or waits for the end of a transaction that was still open after
        `since_s` (monotonic clock), when the ends were known; what of it is for the application was handed on *before*
        that."""
        return all(self._has_reached(partition, end, since_s) for partition, end in ends.items())

    def _has_reached(self, partition: int, end: int, since_s: float) -> bool:
        committed = self._readable.committed.get(partition)
        blocker = None if committed is None else committed.waits_from
        if blocker is None:
            return self._positions.get(partition, 0) >= end
        offset, requested_s = self._found_open.get(partition, (-1, since_s))
        if offset == blocker and requested_s >= since_s:
            return True
        self._look_required = True
        return False

    def waits_from(self, partition: int) -> int | None:
        """The offset of the first message of a transaction that was open at the last look; None without one."""
        committed = self._readable.committed.get(partition)
        return None if committed is None else committed.waits_from

    def read_counts(self) -> ReadCounts:
        """The counts of this reader up to now, for `ReaderMeter`."""
        return ReadCounts(self._endpoint.delivered, self._endpoint.decryptor.failures, self._received_bytes)

    def request_stats(self) -> Future[TailStats]:
        """Requests statistics, for callers that wait for several readers. The future raises Closed, or the reader's
        failure."""
        return self._commands.run(self._stats)

    def seek(self, offsets: Mapping[int, int], begun: Mapping[int, Begun], deadline: Deadline) -> None:
        """Go on at these offsets (`begun` as for `Tail`); what was read of those partitions and not received is
        dropped."""
        self._command(lambda: self._seek(offsets, begun), deadline, "the seek")

    def add(self, starts: Mapping[int, int], deadline: Deadline) -> None:
        """Read these partitions, too; those that are being read already are left alone."""
        self._command(lambda: self._add(starts), deadline, "partitions to be added")

    def stop(self, deadline: Deadline) -> None:
        """End the thread and the connection; a second call does nothing."""
        self._stopping = True
        self._commands.wake()
        if self._thread is None or self._thread is threading.current_thread():
            return
        self._thread.join(deadline.remaining_s())
        if self._thread.is_alive():
            raise errors.DeadlineExceeded(f"reader {self._endpoint.name} of {self._topic} did not close in time")

    def _command(self, action: Callable[[], None], deadline: Deadline, what: str) -> None:
        outcome(self._commands.run(action), deadline, f"{what}, by reader {self._endpoint.name}")

    # Its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                self._reader.add(self._placed(self._positions))
                while not self._stopping:
                    self._step()
            finally:
                self._reader.release()
        except Exception as error:  # reported to its reader, which would wait for ever
            if not isinstance(error, errors.LayerError):
                _log.exception("reader=%s topic=%s stopped", self._endpoint.name, self._topic)
            self.failure = error
            self._endpoint.fail(error)
        finally:
            self._commands.close(lambda: self.failure or errors.Closed(f"reader {self._endpoint.name} was closed"))
            self._waiting.clear()  # a gateway's endpoint refers to this reader: see `Delivery`

    def _where(self, partition: int) -> KafkaPartition:
        return KafkaPartition(self._topic, partition)

    def _placed(self, offsets: Mapping[int, int]) -> dict[KafkaPartition, int]:
        return {self._where(partition): offset for partition, offset in offsets.items()}

    def _step(self) -> None:
        self._commands.execute()
        if not self._hand_on():
            self._wait_for_room()
            return
        timeout_s = _POLL_S if self._quiet_polls < _IDLE_AFTER_POLLS else _IDLE_POLL_S
        if self._looking:
            timeout_s = 0.0 if self._look_required else min(timeout_s, self._looking.in_s())
        events = self._reader.poll(_BATCH, timeout_s)
        self._quiet_polls = 0 if events else self._quiet_polls + 1
        if events:
            self._incarnation.before_delivery()
        else:
            self._incarnation.while_idle()
        came = 0
        for event in events:
            match event:
                case Records(where, records):
                    came += len(records)
                    self._take(where.partition, records)
                case EndOfLog((_, partition), offset):
                    if partition in self._positions:
                        self._unopened.append(_Run(partition, (), offset))
                case OutOfRange((_, partition)):
                    self._leave_gap(partition)
                case Failed():
                    event.raise_or_log(_log, f"reader={self._endpoint.name} topic={self._topic}")
        self._hand_on()
        if self._looking and (self._look_required or self._looking.is_due(came)):
            self._look_again()

    def _take(self, partition: int, records: list[Any]) -> None:
        """Sort the records out. That they were read is said once messages were made of them (see `has_reached`)."""
        position = self._positions.get(partition)
        if position is None:
            return
        if records[0].offset() < position:  # fetched before a seek took effect
            records = [record for record in records if record.offset() >= position]
            if not records:
                return
        self._received_bytes += sum(map(len, records))
        self._unopened.append(_Run(partition, self._readable.of(partition, records), records[-1].offset() + 1))
        committed = self._readable.committed.get(partition)
        if committed is not None and self._looking.came(partition, committed, self._look_again):
            self._paused.add(partition)
            self._reader.pause(self._where(partition))

    def _open_next(self) -> None:
        """Make messages of the first records, as many as may be decompressed at once."""
        run = self._unopened.popleft()
        partition, records, upto = run
        if records:
            feed = self._endpoint.feed(self._slot(partition))
            count, size = affordable(records)
            found = messages_of(records[:count], feed, self._begun.get(partition), self._readable.left_out(partition))
            self._waiting.extend(found)
            self._waiting_bytes += size
            if count < len(records):
                self._unopened.appendleft(run._replace(records=records[count:]))
                return
        self._positions[partition] = max(self._positions.get(partition, 0), upto)

    def _look_again(self) -> None:
        """Ask what became of the transactions that hold something up, and hand on what may be read now."""
        committed = self._readable.committed
        self._look_required = False
        if self._looking.look_again(committed, self._release):
            for partition, each in committed.items():
                if each.waits_from is not None:
                    self._found_open[partition] = (each.waits_from, self._looking.looked_s)
            self._looking.put_late_on_record(committed.values())

    def _release(self, partition: int) -> None:
        self._unopened.append(_Run(partition, self._readable.release(partition), 0))
        self._hand_on()
        if partition in self._paused and not self._readable.committed[partition].full:
            self._resume(partition)

    def _resume(self, partition: int) -> None:
        self._paused.discard(partition)
        self._reader.resume(self._where(partition))

    def _leave_gap(self, partition: int) -> None:
        if partition in self._positions:
            self._incarnation.now(Deadline.after(_WATERMARKS_TIMEOUT_S))
            log = self._reader.watermarks(self._where(partition), _WATERMARKS_TIMEOUT_S)
            read_to = max([self._positions[partition], *(run.upto for run in self._unopened if run[0] == partition)])
            place = inside(log, read_to, f"reader {self._endpoint.name} of {self._where(partition)}")
            self._positions[partition] = place
            self._reader.seek({self._where(partition): place})

    def _hand_on(self) -> bool:
        """Move what the inbox takes; True when nothing waits any more."""
        while self._move_messages():
            if not self._unopened:
                return True
            self._open_next()
        return False

    def _move_messages(self) -> bool:
        """Move what was made of records; True when nothing of that waits any more."""
        waiting, endpoint = self._waiting, self._endpoint
        if endpoint.delivery_type is EntryDelivery:
            while waiting and endpoint.permits() > 0:  # each counts for as many as it has
                with self._moving:
                    endpoint.deliver([waiting.popleft()])
            return not waiting
        if not waiting:
            return True
        count = min(endpoint.permits(), len(waiting))
        if count:
            size = self._waiting_bytes * count // len(waiting)
            self._waiting_bytes -= size
            endpoint.bytes_here.add(count, size)
            with self._moving:
                endpoint.deliver([waiting.popleft() for _ in range(count)])
        return not waiting

    def _wait_for_room(self) -> None:
        self._endpoint.watch()
        # A receiver that drained the inbox before it could see the flag is seen here instead.
        if not self._stopping and not self._endpoint.permits():
            self._commands.wait(_STARVED_WAIT_S)
        self._endpoint.unwatch()

    def _seek(self, offsets: Mapping[int, int], begun: Mapping[int, Begun]) -> None:
        self._readable.skip(p for p, offset in offsets.items() if offset > self._positions.get(p, 0))
        self._readable.forget(offsets)
        for partition in self._paused.intersection(offsets):
            self._resume(partition)
        self._reader.seek(self._placed(offsets))
        self._positions.update(offsets)
        for partition in offsets:
            self._begun.pop(partition, None)
        self._begun.update(begun)
        for partition in offsets:
            slot = self._slot(partition)
            self._endpoint.discard(slot)
            if any(delivery.feed.slot is slot for delivery in self._waiting):
                self._waiting = deque(delivery for delivery in self._waiting if delivery.feed.slot is not slot)
        self._unopened = deque(run for run in self._unopened if run.partition not in offsets)

    def _add(self, starts: Mapping[int, int]) -> None:
        new = {partition: offset for partition, offset in starts.items() if partition not in self._positions}
        if new:
            self._reader.add(self._placed(new))
            self._positions.update(new)

    def _stats(self) -> TailStats:
        behind = sum(
            max(0, self._reader.known_end(self._where(p)) - position) for p, position in self._positions.items()
        )
        unopened = sum(len(run.records) for run in self._unopened)
        return TailStats(behind, unopened + len(self._waiting) + len(self._endpoint.queue))
