"""One consumer's inbox, filled by the member's thread and emptied by the application's; the messages in it, and where
their acknowledgements go.

The fast path of `receive` is a bare `popleft`; both sides meet under the lock only when the inbox runs empty (the
receiver waits) or full (the member waits, `starved`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkRules
from pulsar_on_kafka.broker.subscriptions.records.decryption import RecordDecryptor
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import KeySharedRule
from pulsar_on_kafka.broker.subscriptions.records.refusal_reasons import RefusalReasons
from pulsar_on_kafka.broker.subscriptions.records.refused_in_inbox import RefusedInInbox
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.batch_entry import EntryMessages
from pulsar_on_kafka_mapping.records.message_record import RecordHeaders
from pulsar_on_kafka_mapping.state.traffic import Traffic

DEFAULT_MAX_UNACKED: Final = 50_000
"""Pulsar's `maxUnackedMessagesPerConsumer`."""
LONGEST_WAIT_S: Final = 0.5
"""A signal that comes just before a thread begins to wait is seen only when the wait ends."""

BatchAck = tuple[int, int, int]
"""(offset of a batch entry, batch index, number of its messages)."""


class PartitionAcks:
    """One partition as the consumers of this process see it; outlives revocation and a later assignment.

    `acks`, `cumulative`, their counterparts for messages of batch entries (which hold `BatchAck`s) and `nacks` are
    filled by any thread and drained by the member's. They hold offsets; what arrives for a partition that this process
    does not own any more is dropped, and the message is delivered again by its new owner.
    Bounded by what was delivered: one offset per acknowledgement not yet drained (at most one save interval's).

    Consumers acknowledge by `ack`, `ack_in_batch`, `ack_set`, `ack_upto` and `ack_upto_in_batch`, each looked up for
    each call: they are bare appends, except while the member watches.
    """

    __slots__ = (
        "ack",
        "ack_in_batch",
        "ack_set",
        "ack_sets",
        "ack_upto",
        "ack_upto_in_batch",
        "acks",
        "acks_in_batch",
        "cumulative",
        "cumulative_in_batch",
        "forgotten",
        "layout",
        "nacks",
        "nacks_in_batch",
        "number",
        "partition_field",
        "reasons",
        "topic_name",
        "wake",
    )

    def __init__(self, topic_name: str, number: int, partition_field: int, layout: LedgerLayout) -> None:
        self.topic_name = topic_name
        """Full name, with the partition's suffix on a partitioned topic."""
        self.number = number
        self.partition_field = partition_field
        """The result of `MessageId.partition()`: -1 on a non-partitioned topic."""
        self.layout = layout
        self.acks: deque[int] = deque()
        self.cumulative: deque[int] = deque()
        self.nacks: deque[tuple[float, float, int, Endpoint]] = deque()
        """(now on the monotonic clock, delay, offset, consumer)."""
        self.nacks_in_batch: deque[tuple[float, float, int, Endpoint, int, int]] = deque()
        """The same for messages of batch entries, then batch index and number of messages (Shared, Key_Shared)."""
        self.acks_in_batch: deque[BatchAck] = deque()
        self.reasons = RefusalReasons()
        self.ack_sets: deque[tuple[int, BatchAckSet]] = deque()
        """The offset of a batch entry, and which of its messages are acknowledged."""
        self.cumulative_in_batch: deque[BatchAck] = deque()
        self.forgotten = 0
        """The number of times that all delivered messages were given up for redelivery: after a seek, a rewind, or
        another owner. Written by the member's thread, before the inboxes are emptied."""
        self.wake: Callable[[], None] = lambda: None
        """Wakes the member that watched last."""
        self.ack: Callable[[int], None]
        self.ack_in_batch: Callable[[BatchAck], None]
        self.ack_set: Callable[[tuple[int, BatchAckSet]], None]
        self.ack_upto: Callable[[int], None]
        self.ack_upto_in_batch: Callable[[BatchAck], None]
        self.unwatch()

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` after the next acknowledgement. One that another thread begins during this call may be missed; it
        counts with the next one."""
        self.wake = wake
        self.ack = partial(self._first, self.acks.append)
        self.ack_in_batch = partial(self._first, self.acks_in_batch.append)
        self.ack_set = partial(self._first, self.ack_sets.append)
        self.ack_upto = partial(self._first, self.cumulative.append)
        self.ack_upto_in_batch = partial(self._first, self.cumulative_in_batch.append)

    def unwatch(self) -> None:
        self.ack = self.acks.append
        self.ack_in_batch = self.acks_in_batch.append
        self.ack_set = self.ack_sets.append
        self.ack_upto = self.cumulative.append
        self.ack_upto_in_batch = self.cumulative_in_batch.append

    def _first(self, append: Callable[[Any], None], acknowledgement: Any) -> None:
        self.unwatch()
        append(acknowledgement)
        self.wake()

    def has_acknowledgements(self) -> bool:
        waiting = self.acks or self.acks_in_batch or self.ack_sets or self.cumulative or self.cumulative_in_batch
        return bool(waiting)

    def forget_acknowledgements(self) -> bool:
        """Drop what was not drained; True when there was something."""
        lost = self.has_acknowledgements()
        self.ack_sets.clear()
        for waiting in (self.acks, self.cumulative, self.acks_in_batch, self.cumulative_in_batch):
            waiting.clear()
        return lost


class PartitionConsumer:
    """One partition's messages for one consumer; every message of it points here."""

    __slots__ = ("endpoint", "slot")

    def __init__(self, slot: PartitionAcks, endpoint: Endpoint) -> None:
        self.slot = slot
        self.endpoint = endpoint

    def decrypted(self, record: Any) -> tuple[Any | None, bool]:
        """Returns what this consumer gets of a record (`RecordDecryptor.look`)."""
        return self.endpoint.decryptor.look(record, self.slot, self.endpoint.name)


class Delivery(Struct, gc=False, eq=False):
    """One message handed to one consumer. `redeliveries` is 0 the first time.

    The garbage collector does not track deliveries, because it would visit each of them several times. So it cannot
    find a cycle through one. There is one path from a delivery back to itself: its consumer's inbox, or what the inbox
    refers to. `Endpoint.close` cuts it. A schema or key reader of an application must not refer to a received message.
    """

    record: KafkaRecord
    feed: PartitionConsumer
    offset: int
    redeliveries: int

    in_batch: ClassVar[Callable[[KafkaRecord, PartitionConsumer, int, int, int, BatchEntry], Delivery]]
    """Makes the delivery of one message of a batch entry: the same, then batch index and entry."""
    in_chunks: ClassVar[Callable[[KafkaRecord, PartitionConsumer, int, int], Delivery]]
    """Makes the delivery of a message that came in chunks; its record is a `WholeMessage`."""


Delivery.in_chunks = Delivery


class EntryDelivery(Delivery, gc=False, eq=False):
    """An entry handed to a consumer that takes it whole: nothing is unpacked, opened, or put together."""

    messages: int
    """The number of its messages that are delivered, or of its chunks."""
    acked: tuple[int, int] | None
    """The messages of a batch entry that are not delivered: their number, and a bit for each."""


class BatchEntry(Struct, gc=False, eq=False):
    """A batch entry, as its deliveries share it."""

    columns: EntryMessages
    size: int
    headers: RecordHeaders | None = None
    """The record's headers, once they were parsed."""


class DeadLetters(Protocol):
    """One consumer's way out for messages that were delivered often enough. Called by the member's thread, which it
    must not block."""

    @property
    def max_redeliver_count(self) -> int:
        """A message is delivered at most one time more than this."""

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Callable[[Delivery], None]) -> None:
        """Store the letters, in this order, and acknowledge each once it is durable; `kept`, from any thread, gets
        those that could not be stored."""

    def take_refused(self, letter_topic: str, offset: int) -> bool:
        """Whether the letter of the message at an offset was refused for good since this was asked: the message is
        delivered instead."""


class Decoder(Protocol):
    def decode(self, data: bytes) -> Any: ...


class Values(Protocol):
    def value(self, message: Any) -> Any: ...


class _AsTheyAre:
    def decode(self, data: bytes) -> bytes:
        return data


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """Rules by which a subscription delivers to a consumer, and redelivers what it does not acknowledge."""

    priority: int = 0
    max_unacked: int | None = None
    """The limit of a Shared or Key_Shared consumer; 0: none, None: that of the topic's policy."""
    ack_timeouts: AckTimeouts | None = None
    dead_letters: DeadLetters | None = None
    key_shared: KeySharedRule | None = None


MAX_INBOX_BYTES: Final = 60 * 1024 * 1024
"""Decompressed bytes in an inbox, above which it takes no more; what is handed out at once comes on top."""
MAX_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Decompressed bytes of the entries that are handed out at once, besides those of the last of them."""


class InboxBytes:
    """Counts the decompressed bytes in an inbox without a part in `popleft`: by how many messages are left of those
    that came last.

    Memory: two numbers for each time that something was put into the inbox and is there.
    """

    def __init__(self) -> None:
        self._parts: deque[tuple[int, int]] = deque()
        self._messages = 0
        self._bytes = 0

    def add(self, messages: int, size: int) -> None:
        """Count so many messages, which have so many bytes together, and which come behind all others."""
        self._parts.append((messages, size))
        self._messages += messages
        self._bytes += size

    def left(self, messages: int) -> int:
        """The bytes of the last `messages` messages; a part of which one message is left counts as a whole."""
        while self._parts and self._messages - self._parts[0][0] >= messages:
            gone, size = self._parts.popleft()
            self._messages -= gone
            self._bytes -= size
        return self._bytes


class Endpoint:
    """Inbox of at most `capacity` messages; with capacity 0 a message is handed out only to a waiting receiver."""

    is_remote = False
    """True for a consumer of another process (see `RemoteEndpoint`)."""
    node = ""
    """That process; '' for this one."""

    def __init__(
        self,
        name: str,
        capacity: int,
        *,
        delivery_type: type[Delivery],
        schema: Decoder | None = None,
        values: Values | None = None,
        rules: DeliveryRules | None = None,
        decryptor: RecordDecryptor | None = None,
        chunk_rules: ChunkRules | None = None,
    ) -> None:
        rules = rules or DeliveryRules()
        self.name = name
        self.capacity = capacity
        self.metadata: Mapping[str, str] = {}
        """The consumer's properties."""
        self.priority = rules.priority
        self.delivery_type = delivery_type
        self.schema: Decoder = schema if schema is not None else _AsTheyAre()
        """Decodes payloads for the application; used by the messages, not here."""
        self.values = values
        """The same where a payload alone is not enough."""
        self.own_max_unacked = rules.max_unacked
        self.max_unacked = DEFAULT_MAX_UNACKED if rules.max_unacked is None else rules.max_unacked
        """The limit of unacknowledged messages; 0: none. Touched by the member's thread only."""
        self.blocked_since_s: float | None = None
        """The time (monotonic clock) at which the limit was reached, until half of it is acknowledged."""
        self.ack_timeouts = ack_timeouts = rules.ack_timeouts
        self.dead_letters = rules.dead_letters
        self.key_shared = rules.key_shared
        self.refused_here: RefusedInInbox | None = None
        """With ordered redelivery: the refusals that the member has not applied yet."""
        self.decryptor = decryptor if decryptor is not None else RecordDecryptor()
        self.chunk_rules = chunk_rules if chunk_rules is not None else ChunkRules()
        self._new_queue: Callable[[], deque[Delivery]] = (
            deque if ack_timeouts is None else partial(_WatchedInbox, ack_timeouts.received)
        )
        self.queue: deque[Delivery] = self._new_queue()
        self.bytes_here = InboxBytes()
        """Counts the deliveries for this inbox, before they are put into it."""
        self.max_bytes = MAX_INBOX_BYTES
        self.delivered = 0
        """Messages put into the inbox so far, redeliveries included."""
        self.starved = False
        """The member waits for room in this inbox (see `watch`)."""
        self.unacked = 0
        """Messages of shared subscriptions handed out and not acknowledged; touched by the member's thread only."""
        self.failure: Exception | None = None
        self.on_available: Callable[[], None] | None = None
        self.wake_member: Callable[[], None] = _do_nothing
        self.draining = False
        """The consumer takes no more messages, and settles those that the application has (`ConsumerDrains`)."""
        self.emptied = False
        """The member has taken the messages out of a draining inbox."""
        self.not_received: dict[tuple[int, int], tuple[int, int]] = {}
        """The messages in a draining inbox, by partition and offset: their number, and that of the entry's messages."""
        self._level = capacity // 2
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()
        self._feeds: dict[int, PartitionConsumer] = {}

    def feed(self, slot: PartitionAcks) -> PartitionConsumer:
        """This consumer's view of a partition (always the same object)."""
        consumer = self._feeds.get(slot.number)
        if consumer is None or consumer.slot is not slot:
            consumer = self._feeds[slot.number] = PartitionConsumer(slot, self)
        return consumer

    def traffic(self) -> Traffic | None:
        """Returns the traffic of a gateway's client; None for other consumers."""
        return None

    # The member's side --------------------------------------------------------------------------------------------

    def permits(self) -> int:
        if self._closed or self.draining:
            return 0
        here = len(self.queue)
        room = (self.capacity or self._waiting) - here
        if room <= 0 or self.bytes_here.left(here) >= self.max_bytes:
            return 0
        return room

    def shared_permits(self) -> int:
        """`permits`, or 0 while the limit of unacknowledged messages is reached."""
        permits = self.permits()
        return min(permits, self.max_unacked - self.unacked) if permits and self.max_unacked else permits

    def limit_unacked(self, policy: int) -> None:
        """Apply the limit of the topic's policy, unless the consumer has its own."""
        if self.own_max_unacked is None:
            self.max_unacked = policy

    @property
    def awaits_acknowledgements(self) -> bool:
        """The limit of unacknowledged messages is reached."""
        return 0 < self.max_unacked <= self.unacked

    def resize(self, capacity: int) -> None:
        """Take another number of messages, above 0, from now on; what is in the inbox stays."""
        self.capacity = capacity
        self._level = capacity // 2

    def watch(self, left: int | None = None) -> None:
        """Wake the member when at most `left` messages are here (None: half of what it takes; below 0: never)."""
        if left is not None:
            self._level = left
        self.starved = True

    def unwatch(self) -> None:
        self.starved = False
        self._level = self.capacity // 2

    def has_room_again(self) -> bool:
        """Whether at most half of it is full, or the level that the member watches for is reached."""
        return len(self.queue) <= self._level and not self.draining

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.queue.extend(deliveries)
        self.delivered += len(deliveries)
        if self._waiting:
            with self._changed:
                self._changed.notify_all()
        self._report_available()

    def _report_available(self) -> None:
        report = self.on_available  # read once: `close` removes it
        if report is not None:
            report()

    def deliver_or_bury(self, deliveries: list[Delivery], kept: Callable[[Delivery], None]) -> None:
        """Delivers these, but publishes those that were delivered often enough as dead letters (`kept` as there)."""
        policy = self.dead_letters
        if policy is not None:
            most = policy.max_redeliver_count
            letters = [
                each
                for each in deliveries
                if each.redeliveries > most and not policy.take_refused(each.feed.slot.topic_name, each.offset)
            ]
            if letters:
                policy.publish_dead_letters(letters, kept)
                buried = set(map(id, letters))
                deliveries = [each for each in deliveries if id(each) not in buried]
        self.deliver(deliveries)

    def keep_redelivery_order(self) -> None:
        """From now on messages behind a refused one of their key wait for its acknowledgement. Call it in the member's
        thread, or before the consumer is attached."""
        if self.refused_here is None and not self._closed:
            timeouts, self.refused_here = self.ack_timeouts, RefusedInInbox()
            received = None if timeouts is None else timeouts.received
            self._new_queue = partial(_OrderedInbox, self.refused_here, received)
            self._take_out(lambda delivery: False)

    @property
    def ordered_redelivery(self) -> bool:
        """Messages behind a refused one of their key wait for its acknowledgement."""
        return self.refused_here is not None

    def discard(self, slot: PartitionAcks | None) -> list[Delivery]:
        """Takes out the messages not received yet, of one partition or all, and keeps the others in order."""
        return self._take_out(lambda delivery: slot is None or delivery.feed.slot is slot)

    def take_out(self, slot: PartitionAcks, chosen: Callable[[int], bool]) -> list[Delivery]:
        """Takes out the messages of a partition at the offsets `chosen`, and keeps the others in order."""

        def is_chosen(delivery: Delivery) -> bool:
            return delivery.feed.slot is slot and chosen(delivery.offset)

        if not any(is_chosen(delivery) for delivery in list(self.queue)):
            return []
        return self._take_out(is_chosen)

    def _take_out(self, chosen: Callable[[Delivery], bool]) -> list[Delivery]:
        waiting, self.queue = self.queue, self._new_queue()
        taken: list[Delivery] = []
        kept: list[Delivery] = []
        while True:
            try:
                delivery = deque.popleft(waiting)  # not received
            except IndexError:
                break
            (taken if chosen(delivery) else kept).append(delivery)
        self.restore(kept)
        return taken

    def empty(self) -> list[Delivery]:
        """Takes out all messages that were not received. The inbox holds nothing from now on."""
        self.emptied = True
        taken = self.discard(None)
        for delivery in taken:
            place = delivery.feed.slot.number, delivery.offset
            number, size = self.not_received.get(place, (0, 0))
            entry = getattr(delivery, "entry", None)
            self.not_received[place] = number + 1, size or (1 if entry is None else entry.size)
        return taken

    def take_back(self, slot: PartitionAcks) -> None:
        """Drops the waiting messages of a partition, and its ack timeouts: all of it is redelivered."""
        self.discard(slot)
        if self.refused_here is not None:
            self.refused_here.forget_partition(slot.number)
        if self.ack_timeouts is not None:
            self.ack_timeouts.forget_partition(slot.number)

    def sought(self) -> None:
        """The subscription was sought: messages delivered before are obsolete."""

    def notify_active(self, *, active: bool) -> None:
        """Receives whether a partition of an Exclusive or Failover subscription is this consumer's, again and again."""

    def restore(self, deliveries: Sequence[Delivery]) -> None:
        """Puts back what `discard` returned, before everything that is here."""
        self.queue.extendleft(reversed(deliveries))
        if self._closed or self.emptied:  # while `discard` replaced the queue
            self.queue = _closed_queue()
        if deliveries and self._waiting:
            with self._changed:
                self._changed.notify_all()
        if deliveries:
            self._report_available()

    def fail(self, failure: Exception) -> None:
        with self._changed:
            if not self._closed:
                self.failure = failure
            self._changed.notify_all()
        self._report_available()

    def expect(self, more: int) -> None:
        """Count `more` receivers that wait without a thread (negative: answered). They matter with capacity 0 only."""
        with self._changed:
            self._waiting += more
        self.wake_member()

    # The application's side ---------------------------------------------------------------------------------------

    def take_now(self) -> Delivery | None:
        try:
            delivery = self.queue.popleft()
        except IndexError:
            return None
        if self.starved and self.has_room_again():
            self.wake_member()
        return delivery

    def take(self, deadline: Deadline) -> Delivery:
        """The next message, waited for.

        Raises:
            DeadlineExceeded: none came in time.
            Closed: the consumer was closed.
        """
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._closed or self.draining:
                        raise Closed(f"consumer {self.name} is closed")
                    try:
                        delivery = self.queue.popleft()
                    except IndexError:
                        pass
                    else:
                        if self.starved and self.has_room_again():
                            self.wake_member()
                        return delivery
                    if self.failure is not None:
                        raise self.failure
                    if self.capacity == 0 or (self.starved and self.has_room_again()):
                        self.wake_member()
                    if deadline.passed():
                        raise DeadlineExceeded(f"no message for consumer {self.name} in time")
                    self._changed.wait(min(LONGEST_WAIT_S, deadline.remaining_s()))
            finally:
                self._waiting -= 1

    def begin_draining(self) -> None:
        """Takes no more messages from now on; those here are for the member to take out (`empty`)."""
        with self._changed:
            self.draining = True
            self._changed.notify_all()

    def close(self) -> None:
        """Drops the messages, now and later, and what refers to the application and the member (see `Delivery`)."""
        with self._changed:
            self._closed = True
            self.queue = _closed_queue()
            self.failure = None  # its traceback refers to frames of `take`'s callers
            self.on_available = None
            self.wake_member = _do_nothing
            if self.refused_here is not None:
                self.refused_here = RefusedInInbox()
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed


def _closed_queue() -> deque[Delivery]:
    """Creates a queue that holds nothing."""
    return deque(maxlen=0)


def _do_nothing() -> None:
    """Replaces the callbacks of a closed inbox."""


class _WatchedInbox(deque[Delivery]):
    """Every `popleft` of it, by whichever thread, counts as a receipt."""

    def __init__(self, received: deque[tuple[int, int]]) -> None:
        super().__init__()
        self._received = received

    def popleft(self) -> Delivery:
        delivery = super().popleft()
        self._received.append((delivery.feed.slot.number, delivery.offset))
        return delivery


class _OrderedInbox(deque[Delivery]):
    """Passes over messages that wait behind one that the application has just refused. What it returns counts as a
    receipt, if receipts are noted."""

    def __init__(self, refused: RefusedInInbox, received: deque[tuple[int, int]] | None) -> None:
        super().__init__()
        self._refused = refused
        self._received = received

    def popleft(self) -> Delivery:
        while True:
            delivery = super().popleft()
            at = delivery.feed.slot.number, delivery.offset
            if self._refused and self._refused.passes_over(*at):
                continue
            if self._received is not None:
                self._received.append(at)
            return delivery
