"""A subscription whose partitions are served in memory: the real dispatcher on records and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import OffsetOutOfRange, StoreError
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.rates.dispatch_rates import TopicDispatchRates
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.batch_nacks import HeldHere
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import KeySharedRule
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAcks
from pulsar_on_kafka.client.values.message import ReceivedMessage
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.batch_entry import encode_columns
from pulsar_on_kafka_mapping.records.record_headers import BATCH, DELIVER_AT
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, RemoteConsumer
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation
from tests.clocks import SetClock
from tests.memory_log import MemoryStateLog
from tests.same_incarnation import SAME_INCARNATION

TOPIC = "persistent://public/default/orders"
_HALVES = ((0, 32_767), (32_768, 65_535))


class Record:
    def __init__(
        self,
        key: bytes | None = None,
        *,
        batch: int = 0,
        deliver_at_ms: int | None = None,
        headers: Mapping[str, bytes | None] | None = None,
    ) -> None:
        self.at = -1
        self._key = key
        self._value = encode_columns([b"%d" % i for i in range(batch)]) if batch else b"0123456789"
        self._headers: list[tuple[str, bytes | None]] = [(BATCH, b"1:%d" % batch)] if batch else []
        if deliver_at_ms is not None:
            self._headers.append((DELIVER_AT, b"%d" % deliver_at_ms))
        self._headers += (headers or {}).items()

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers

    def value(self) -> bytes:
        return self._value

    def __len__(self) -> int:
        return len(self._value)


class Letters:
    """A dead letter policy, what it stored, and what it could not."""

    def __init__(self, most: int) -> None:
        self.max_redeliver_count = most
        self.stored: list[int] = []
        self.fails = False

    def take_refused(self, letter_topic: str, offset: int) -> bool:
        return False

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Callable[[Delivery], None]) -> None:
        for letter in letters:
            if self.fails:
                kept(letter)
            else:
                self.stored.append(letter.offset)
                letter.feed.slot.ack(letter.offset)


class Served:
    """It is the fetcher and the group's consumer, too: what Kafka has is `log`, by partition and offset."""

    def __init__(
        self,
        kind: SubscriptionType = SubscriptionType.SHARED,
        partitions: int = 1,
        dispatch_rates: TopicDispatchRates | None = None,
    ) -> None:
        self.clock = SetClock(1000.0)
        self.log: dict[int, dict[int, Record]] = {number: {} for number in range(partitions)}
        self.begin = 0
        self.fails = False
        self.reads: list[list[int]] = []
        self.seeks: list[tuple[int, int]] = []
        self.consumers: list[Endpoint] = []
        self.owned: dict[int, OwnedPartition] = {}
        self.slots = [PartitionAcks(TOPIC, number, number, LedgerLayout(1, 10)) for number in range(partitions)]
        self._stores = CursorStore(MemoryStateLog())
        handle = self.handle = SimpleNamespace(
            policies=SubscriptionPolicies(),
            dispatch_rates=dispatch_rates or TopicDispatchRates(),
            type=kind,
            kafka_topic="orders",
            buffer=None,
            slots=lambda: self.slots,
            incarnation=SAME_INCARNATION,
        )
        fake = cast("Any", self)
        self.late_elsewhere: list[tuple[int, list[int]]] = []
        """Entries of other processes' partitions that were not acknowledged in time."""
        self.dispatcher = Dispatcher(cast("Any", handle), fake, self.clock, fake, self.owned, self.consumers, self)
        for number in range(partitions):
            self.own(number, delays=kind.is_shared)

    def own(self, number: int, *, delays: bool = False, cursor: CursorState | None = None) -> OwnedPartition:
        identity = CursorIdentity(TOPIC, number, "audit", "orders", "t" * 22, 1, 2, 10)
        terms = PartitionTerms(now_ms=self.clock.now_ms, delays=delays, chunks=self.dispatcher.chunk_assembly())
        saved = SavedCursor(identity.lineage(b"", 1, 0))
        cursor = cursor or CursorState(0, 10)
        owned = self.owned[number] = OwnedPartition(self.slots[number], identity, cursor, saved, terms)
        name = CursorName(TOPIC, number, "audit")
        owned.held.attach(PendingAcks(name, CursorIncarnation(1, 2), "me", 1).held)
        return owned

    # Entries of other processes' partitions -----------------------------------------------------------------------

    def held(self, partition: int) -> HeldHere | None:
        return None

    def slot_of(self, partition: int, offset: int) -> int | None:
        return None

    def passed_over(self, partition: int, offsets: Sequence[int], endpoint: Endpoint) -> None:
        self.late_elsewhere.append((partition, list(offsets)))

    def late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        self.late_elsewhere.append((partition, list(offsets)))

    # Kafka --------------------------------------------------------------------------------------------------------

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
        assert topic == "orders"
        self.reads.append(list(offsets))
        if self.fails:
            raise StoreError("no broker answers")
        if offsets[0] < self.begin:
            raise OffsetOutOfRange("deleted")
        found = [self.log[partition][offset] for offset in offsets if offset in self.log[partition]]
        if found:
            yield found

    def slow(self, each_s: float) -> None:
        """Each record takes this long from now on."""
        at_once = self.read_at

        def slowly(topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
            for batch in at_once(topic, partition, offsets, deadline):
                for record in batch:
                    self.clock.seconds += each_s
                    yield [record]

        self.read_at = slowly  # type: ignore[method-assign]

    def watermarks(self, *wanted: Any) -> tuple[int, int]:
        if self.fails:
            raise StoreError("no broker answers")
        partition = next(one for one in wanted if isinstance(one, int))
        return self.begin, max(self.log[partition], default=-1) + 1

    def log_start(self, *_: object) -> int:
        if self.fails:
            raise StoreError("no broker answers")
        return self.begin

    def seek(self, partition: int, offset: int) -> None:
        self.seeks.append((partition, offset))

    def write(self, *records: Record, partition: int = 0) -> None:
        """Kafka has these, and nobody has read them."""
        log = self.log[partition]
        for record in records:
            record.at = max(log, default=-1) + 1
            log[record.at] = record

    def publish(self, *records: Record, partition: int = 0) -> None:
        self.write(*records, partition=partition)
        self.read_on(partition)

    def read_on(self, partition: int = 0) -> None:
        """Have everything read that was not."""
        owned = self.owned[partition]
        offsets = [offset for offset in sorted(self.log[partition]) if offset >= owned.read_position]
        if offsets:
            owned.intake.accept(offsets, [self.log[partition][offset] for offset in offsets])

    def save(self, partition: int = 0) -> None:
        """What there is to be saved is saved."""
        owned = self.owned[partition]
        saves = owned.saves
        save = self._stores.prepare(owned.identity, owned.cursor, saves.saved, saves.begin(), Deadline.never())
        saves.accepted(save)

    # Consumers ----------------------------------------------------------------------------------------------------

    def consumer(
        self,
        name: str,
        capacity: int = 1000,
        *,
        priority: int = 0,
        ack_timeout_s: float | None = None,
        dead_letters: Letters | None = None,
        half: int | None = None,
    ) -> Endpoint:
        """`half`: it gets the keys of one half of all slots."""
        rules = DeliveryRules(
            priority,
            ack_timeouts=None if ack_timeout_s is None else AckTimeouts(ack_timeout_s),
            dead_letters=dead_letters,
            key_shared=None if half is None else KeySharedRule((_HALVES[half],)),
        )
        endpoint = Endpoint(name, capacity, delivery_type=ReceivedMessage, rules=rules)
        self.dispatcher.attach(endpoint)
        return endpoint

    def remote(self, name: str, allowed: int = 1000, most: int | None = None) -> tuple[RemoteEndpoint, list[int]]:
        """A consumer of another process, and the offsets that it is leased."""
        leased: list[int] = []

        def lend(partition: int, consumer: int, entries: Sequence[LeasedEntry], *, needed: bool) -> None:
            leased.extend(entry.offset for entry in entries)

        said = RemoteConsumer(1, name, max_redeliver_count=most)
        endpoint = RemoteEndpoint(said, "elsewhere", lend, lambda partition: None, lambda: True)
        endpoint.allow(allowed)
        self.dispatcher.attach(endpoint)
        return endpoint, leased

    def turn(self, after_s: float = 0.0) -> bool:
        """One round of the member; True when something went out."""
        self.clock.seconds += after_s
        self.dispatcher.drain()
        self.dispatcher.redelivery.redeliver_due()
        return self.dispatcher.dispatch()

    def received(self, endpoint: Endpoint, after_s: float | None = None) -> list[int]:
        """The offsets in its inbox, which it receives; after a round of the member that many seconds later."""
        if after_s is not None:
            self.turn(after_s)
        return [endpoint.queue.popleft().offset for _ in range(len(endpoint.queue))]

    def ack(self, *offsets: int, partition: int = 0) -> None:
        for offset in offsets:
            self.slots[partition].ack(offset)
        self.dispatcher.drain()

    def refuse(self, endpoint: Endpoint, *offsets: int, delay_s: float = 0.0, partition: int = 0) -> None:
        for offset in offsets:
            self.slots[partition].nacks.append((self.clock.seconds, delay_s, offset, endpoint))
        self.dispatcher.drain()

    def put_off(self, partition: int = 0) -> list[int]:
        return sorted(offset for offsets in self.dispatcher._nacks.waiting(partition).values() for offset in offsets)


def records(count: int, key: bytes | None = None) -> list[Record]:
    return [Record(key) for _ in range(count)]
