"""`Producer`: sends messages, one Kafka record each."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from layer.client.enums import PartitionsRoutingMode
from layer.client.errors import as_pulsar, pulsar_errors
from layer.client.message_id import NativeMessageId, PartitionOrigin, StoredMessageId
from layer.client.options import check_type, check_type_or_none, not_yet
from layer.deadline import Deadline
from layer.exceptions import (
    AlreadyClosed,
    MessageTooBig,
    ProducerQueueIsFull,
    PulsarException,
    Result,
    Timeout,
    UnknownError,
)
from layer.kafka.errors import ours, translate
from layer.kafka.producer import KafkaProducer
from layer.kafka.settings import MAX_MESSAGE_BYTES
from layer.metadata.topics import Topic
from layer.schema.plain import BytesSchema, Schema
from mapping.headers import PRODUCER, producer_suffix
from mapping.message_record import MessageMetadata, encode_headers
from mapping.routing import partition_for_key

SendCallback = Callable[[Result, NativeMessageId], None]
MessageRouter = Callable[["OutgoingMessage", int], int]

_log = logging.getLogger(__name__)

_OK: Final = Result.Ok
_NO_ID: Final = NativeMessageId(-1, -1, -1, -1)
"""What the callback of a failed send gets for an id, as officially."""
_POLL_MASK: Final = 63
_CLOSE_TIMEOUT_S: Final = 30.0
_BLOCKED_POLL_S: Final = 0.05
_NOBODY_WAITS: Final = 2**62


class _Answer:
    """The callback of a synchronous send."""

    __slots__ = ("error", "message_id", "settled")

    def __init__(self) -> None:
        self.settled = threading.Event()
        self.message_id: NativeMessageId | None = None
        self.error: PulsarException | None = None

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        self.message_id = message_id
        self.settled.set()


class _Ticket:
    """One message under way, called with its delivery report.

    Tickets are used again: a hundred thousand fresh objects in flight would keep the garbage collector busier than all
    the rest of a send.
    """

    __slots__ = ("callback", "origin", "producer", "sequence")

    callback: SendCallback | None
    origin: PartitionOrigin
    sequence: int

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def __call__(self, error: Any, record: Any) -> None:
        # Delivery reports come one at a time (KafkaProducer), so what is counted here has one writer.
        producer = self.producer
        callback = self.callback
        producer._settled = settled = producer._settled + 1
        if settled >= producer._wake_at:
            producer._wake_waiting(settled)
        try:
            if error is not None:
                producer._failed(error, callback)
            else:
                producer._last_sequence_id = self.sequence
                if callback is not None:
                    callback(_OK, StoredMessageId(self.origin, record.offset()))
        except Exception:  # the application's; it must not end the thread that serves everybody's reports
            _log.exception("producer=%s a send callback failed", producer._name)
        self.callback = None
        producer._tickets.append(self)


class OutgoingMessage:
    """What a `message_router` sees of a message that is about to be sent."""

    __slots__ = ("_event_timestamp", "_key", "_ordering_key", "_payload", "_properties")

    def __init__(
        self,
        payload: bytes | None,
        properties: dict[str, str] | None,
        key: str | None,
        ordering_key: str | None,
        event_timestamp: int | None,
    ) -> None:
        self._payload = payload
        self._properties = properties or {}
        self._key = key
        self._ordering_key = ordering_key
        self._event_timestamp = event_timestamp

    def data(self) -> bytes:
        return b"" if self._payload is None else self._payload

    def properties(self) -> dict[str, str]:
        return dict(self._properties)

    def partition_key(self) -> str:
        return self._key or ""

    def ordering_key(self) -> str:
        return self._ordering_key or ""

    def event_timestamp(self) -> int:
        return self._event_timestamp or 0


class Producer:
    """Publishes to one topic. Thread-safe. Source: `pulsar.Producer`.

    Memory: at most `max_pending_messages` unanswered messages; beyond that `send_async` waits
    (`block_if_queue_full`) or answers `ProducerQueueIsFull`.
    """

    def __init__(
        self,
        topic: Topic,
        kafka: KafkaProducer,
        *,
        name: str,
        schema: Schema,
        initial_sequence_id: int | None,
        max_pending: int,
        block_if_full: bool,
        routing: PartitionsRoutingMode,
        router: MessageRouter | None,
        fixed_partition: int | None,
        renew: Callable[[], KafkaProducer],
        on_close: Callable[[Producer], None],
    ) -> None:
        self._renew = renew
        self._topic = topic
        self._kafka_topic = topic.kafka_topic
        self._origins = [
            PartitionOrigin(topic.layout, topic.partition_field(number), name)
            for number, name in enumerate(topic.partition_names)
        ]
        self._kafka = kafka
        self._produce = kafka.produce
        self._name = name
        self._schema = schema
        self._plain = type(schema) is BytesSchema
        first = initial_sequence_id + 1 if initial_sequence_id else 0  # officially 0 is as good as none
        self._sequence = itertools.count(first)
        self._last_sequence_id = first - 1
        self._producer_header = producer_suffix(0, name)
        self._max_pending = max_pending
        self._block = block_if_full
        # Officially not asked for a non-partitioned topic; a producer of one partition has nothing to choose.
        self._router = router if topic.partitioned and fixed_partition is None else None
        self._partitioned = topic.partitioned
        self._partitions = topic.partitions
        self._fixed = fixed_partition
        self._single = self._unkeyed_partition(routing)
        self._turn = itertools.count(random.randrange(self._partitions))
        self._on_close = on_close
        self._sent_counter = itertools.count(1)
        self._sent = 0
        self._looks = 0
        self._settled = 0
        self._room = threading.Condition()
        self._tickets: list[_Ticket] = []
        self._targets: list[int] = []
        self._wake_at = _NOBODY_WAITS
        self._closed = False

    def _unkeyed_partition(self, routing: PartitionsRoutingMode) -> int | None:
        """The partition of every message without a key; None when it changes from message to message."""
        if self._fixed is not None:
            return self._fixed
        if not self._partitioned:
            return 0
        if self._router is not None:
            return None
        if routing is PartitionsRoutingMode.UseSinglePartition:
            return random.randrange(self._partitions)
        return None

    # Public -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        return self._topic.partition_names[self._fixed] if self._fixed is not None else str(self._topic.name)

    def producer_name(self) -> str:
        return self._name

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last; -1 (or the initial one) before the first."""
        return self._last_sequence_id

    def is_connected(self) -> bool:
        return not self._closed

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> NativeMessageId:
        """Send one message and wait until every in-sync replica has it.

        Raises:
            MessageTooBig, ProducerQueueIsFull, Timeout, AlreadyClosed: as the official client.
        """
        answer = _Answer()
        self.send_async(
            content, answer, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        with pulsar_errors():
            answer.settled.wait()
        if answer.error is not None:
            raise answer.error
        assert answer.message_id is not None  # noqa: S101 - an answer is an id or an error
        return answer.message_id

    def send_async(  # noqa: C901 - the hot path: a call costs more than a branch
        self,
        content: Any,
        callback: SendCallback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Send one message; `callback(result, message_id)` is called from another thread or from a later send.

        A refusal (closed, too big, queue full) goes to the callback as well, as officially. What a callback raises is
        logged.
        """
        payload = content if self._plain and type(content) is bytes else self._encode(content)
        if self._closed or (payload is not None and len(payload) > MAX_MESSAGE_BYTES):
            self._refuse(callback, payload)
            return
        if (
            properties is None
            and partition_key is None
            and ordering_key is None
            and sequence_id is None
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and replication_clusters is None
            and not disable_replication
        ):
            key = extra = None
        else:
            key, extra = self._metadata(
                properties, partition_key, ordering_key, sequence_id, replication_clusters, disable_replication,
                event_timestamp, deliver_at, deliver_after,
            )  # fmt: skip
        if key is None and self._single is not None:
            partition = self._single
        elif self._router is None:
            partition = self._spread(key if partition_key else None)  # an ordering key alone does not choose it
        else:
            partition = self._routed(OutgoingMessage(payload, properties, partition_key, ordering_key, event_timestamp))
        if self._sent - self._settled - self._looks >= self._max_pending and not self._make_room(callback):
            return
        sequence = next(self._sequence) if sequence_id is None else sequence_id
        try:
            ticket = self._tickets.pop()
        except IndexError:
            ticket = _Ticket(self)
        ticket.sequence = sequence
        ticket.origin = self._origins[partition]
        ticket.callback = callback
        headers: list[tuple[str, bytes | None]] = [(PRODUCER, b"%d%b" % (sequence, self._producer_header))]
        if extra is not None:
            headers += extra
        kafka = self._kafka
        while True:
            try:
                # topic, value, key, partition, callback, its alias, timestamp (0: now), headers; keywords cost more
                self._produce(self._kafka_topic, payload, key, partition, ticket, None, 0, headers)
                break
            except BufferError:
                kafka.poll_inline(_BLOCKED_POLL_S)
            except Exception as refused:
                kafka = self._after_refusal(refused)
        # The counter is exact, this attribute may lag by what other threads are sending just now (see flush).
        self._sent = sent = next(self._sent_counter)
        if sent & _POLL_MASK == 0:
            kafka.poll_inline()
        if kafka.asleep:
            kafka.wake()

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed)."""
        self._check_open()
        with pulsar_errors():
            self._wait_settled(self._sent_so_far(), Deadline.never())

    def close(self) -> None:
        """Wait for what is under way, then refuse further calls.

        Raises:
            AlreadyClosed: it was closed before.
            Timeout: messages are still unanswered after 30 s.
        """
        self._check_open()
        self._closed = True
        target = self._sent_so_far()
        try:
            with pulsar_errors():
                if not self._wait_settled(target, Deadline.after(_CLOSE_TIMEOUT_S)):
                    raise Timeout(
                        f"producer {self._name}: {target - self._settled} messages to {self.topic()} are unanswered"
                    )
        finally:
            self._on_close(self)

    # The hot path -------------------------------------------------------------------------------------------------

    def _after_refusal(self, refused: Exception) -> KafkaProducer:
        """The producer to go on with when librdkafka gave the former one up; raises for any other refusal."""
        if self._kafka.fatal is None:
            raise as_pulsar(ours(refused, f"message to {self.topic()}")) from refused
        with pulsar_errors():
            self._kafka = self._renew()
        self._produce = self._kafka.produce
        return self._kafka

    def _refuse(self, callback: SendCallback | None, payload: bytes | None) -> None:
        if self._closed:
            self._tell(callback, AlreadyClosed(f"producer {self._name} of {self.topic()} is closed"))
        else:
            size = len(payload or b"")
            self._tell(callback, MessageTooBig(f"payload of {size} bytes is above the limit of {MAX_MESSAGE_BYTES}"))

    @staticmethod
    def _tell(callback: SendCallback | None, refusal: PulsarException) -> None:
        """A synchronous send raises, an asynchronous one gets the result in its callback."""
        if callback is None or isinstance(callback, _Answer):
            raise refusal
        callback(refusal.result, _NO_ID)

    def _failed(self, error: Any, callback: SendCallback | None) -> None:
        failure = as_pulsar(translate(error, f"message to {self.topic()}"))
        if isinstance(callback, _Answer):
            callback.error = failure
        if callback is not None:
            callback(failure.result, _NO_ID)

    def _wake_waiting(self, settled: int) -> None:
        with self._room:
            self._wake_at = min((target for target in self._targets if target > settled), default=_NOBODY_WAITS)
            self._room.notify_all()

    # Off the hot path ---------------------------------------------------------------------------------------------

    def _encode(self, content: Any) -> bytes | None:
        if content is None:
            return None
        return self._schema.encode(content)

    def _metadata(
        self,
        properties: dict[str, str] | None,
        partition_key: str | None,
        ordering_key: str | None,
        sequence_id: int | None,
        replication_clusters: Sequence[str] | None,
        disable_replication: bool,
        event_timestamp: int | None,
        deliver_at: int | None,
        deliver_after: timedelta | None,
    ) -> tuple[bytes | None, list[tuple[str, bytes | None]] | None]:
        """Kafka key and further headers of a message that has more than a payload."""
        check_type_or_none(dict, "properties", properties)
        check_type_or_none(str, "partition_key", partition_key)
        check_type_or_none(str, "ordering_key", ordering_key)
        check_type_or_none(int, "sequence_id", sequence_id)
        check_type_or_none(list, "replication_clusters", replication_clusters)
        check_type(bool, "disable_replication", disable_replication)
        check_type_or_none(int, "event_timestamp", event_timestamp)
        if sequence_id is not None and sequence_id < 0:
            raise ValueError(f"sequence_id must be 0 or more, got {sequence_id}")
        if event_timestamp is not None and event_timestamp < 0:
            raise TypeError(f"event_timestamp must be 0 or more, got {event_timestamp}")
        check_type_or_none(int, "deliver_at", deliver_at)
        check_type_or_none(timedelta, "deliver_after", deliver_after)
        not_yet("replication_clusters", when=replication_clusters is not None)
        not_yet("disable_replication", when=disable_replication)
        not_yet(
            "delayed delivery (deliver_at, deliver_after)", when=deliver_at is not None or deliver_after is not None
        )
        if partition_key and not properties and not ordering_key and event_timestamp is None:
            return partition_key.encode("utf-8"), None
        key: bytes | None = None
        ordering: bytes | None = None
        if partition_key:
            key = partition_key.encode("utf-8")
            ordering = ordering_key.encode("utf-8") if ordering_key else None
        elif ordering_key:
            key = ordering_key.encode("utf-8")
        given: dict[Any, Any] = properties or {}
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"properties are text, got {name!r:.60}: {value!r:.60}")
        metadata = MessageMetadata(
            properties=properties or {},
            event_time_ms=event_timestamp or 0,
            ordering_key=ordering,
            key_is_ordering_key=not partition_key and bool(ordering_key),
        )
        return key, encode_headers(metadata)

    def _spread(self, key: bytes | None) -> int:
        """The partition of a message that no router is asked about."""
        if self._fixed is None and key is not None:
            return partition_for_key(key, self._partitions)
        return self._single if self._single is not None else next(self._turn) % self._partitions

    def _routed(self, message: OutgoingMessage) -> int:
        assert self._router is not None  # noqa: S101 - the caller looked
        partition = self._router(message, self._partitions)
        if type(partition) is not int:
            raise TypeError(f"message_router gave {partition!r}, expected an int")
        if not 0 <= partition < self._partitions:
            raise UnknownError(f"message_router gave {partition}, expected 0 to {self._partitions - 1}")
        return partition

    def _make_room(self, callback: SendCallback | None) -> bool:
        """Wait for an answer (True), or tell the caller that the queue is full (False)."""
        if not self._block:
            self._tell(
                callback, ProducerQueueIsFull(f"producer {self._name} has {self._max_pending} unanswered messages")
            )
            return False
        # A tenth of the queue at once, or half of a short one: a wait costs more than a message.
        room = max(1, min(self._max_pending // 2, 1000))
        while (missing := self._sent - self._looks - self._settled - self._max_pending) >= 0:
            if self._closed:
                raise AlreadyClosed(f"producer {self._name} of {self.topic()} is closed")
            self._wait_settled(self._settled + missing + room, Deadline.after(_BLOCKED_POLL_S))
        return True

    def _sent_so_far(self) -> int:
        """How many sends have returned, exactly: a look at the counter takes a number of its own."""
        with self._room:
            self._looks += 1
            return next(self._sent_counter) - self._looks

    def _wait_settled(self, target: int, deadline: Deadline) -> bool:
        """True once `target` messages were answered; serves the answers itself unless another thread is at it."""
        self._kafka.wake()
        with self._room:
            self._targets.append(target)
            self._wake_at = min(self._targets)
        try:
            while self._settled < target:
                if deadline.passed():
                    return False
                if not self._kafka.poll_inline(min(_BLOCKED_POLL_S, deadline.remaining_s())):
                    with self._room:
                        if self._settled < target:
                            self._room.wait(min(_BLOCKED_POLL_S, deadline.remaining_s()))
            return True
        finally:
            with self._room:
                self._targets.remove(target)
                self._wake_at = min(self._targets, default=_NOBODY_WAITS)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"producer {self._name} of {self.topic()} is closed")
