"""Dispatches a Key_Shared subscription: each key goes to one consumer, in order.

All of it runs in the member's thread; `hash_ranges` and `key_order` decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.metadata.policies import MAX_NUMBER
from pulsar_on_kafka.broker.subscriptions.dispatching.delivery_counts import DeadLettering, DeliveryCounting
from pulsar_on_kafka.broker.subscriptions.dispatching.ordered_redelivery import OrderedRedelivery
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import RecordsFound, RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.partition.delayed import MAX_DELAYED, deliver_at_ms
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KeyOrder, Waiting
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import WaitingFor
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import HashRanges, KeySharedRule
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka.kafka.records import headers_of, packed_headers_of
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import ORDERING_KEY
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS, sticky_key_hash

LOOK_AHEAD_PER_CONSUMER: Final = 2_000
"""Pulsar's `keySharedLookAheadMsgInReplayThresholdPerConsumer`."""
LOOK_AHEAD: Final = 20_000
"""Pulsar's `keySharedLookAheadMsgInReplayThresholdPerSubscription`, for each partition as there. Here it counts only
due delayed messages that wait until a former owner of their keys is done."""
MAX_PARKED: Final = 100_000_000

_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
_ADMIT_BATCH: Final = 1000
_MAX_CACHED_KEYS: Final = 100_000
_LONGEST_CACHED_KEY: Final = 100
"""Bytes; a longer one is hashed each time."""
_AT_ONCE: Final = 1000
_LOOKS: Final = 5
"""Readings for one consumer, which may return none of its messages, before the next consumer's turn."""


class KeyShared:
    """Serves the Key_Shared consumers of one member.

    While a consumer has no room, the others continue. Its waiting messages are parked, and read again later. Reading
    pauses when 100 million messages of a partition are parked. Payloads of waiting messages above 16 MiB are dropped,
    and read again.

    If deliveries are counted durably, a redelivery and all later messages of its slot wait for the save that counts it.
    After a crash one message of the partition is out at a time, the first of its slot.

    Memory: those 16 MiB and the parked messages of `KeyOrder` (some megabytes) for each partition, and the slots of
    100,000 keys of up to 100 bytes.
    """

    def __init__(
        self,
        clock: Clock,
        read_again: RedeliveryReads,
        dead_lettering: DeadLettering,
        counting: DeliveryCounting,
        owned: Mapping[int, OwnedPartition],
        endpoints: list[Endpoint],
        ordered: OrderedRedelivery,
    ) -> None:
        self._clock = clock
        self._ordered = ordered
        self._read_again = read_again
        self._dead_lettering = dead_lettering
        self._counting = counting
        self._owned = owned
        self._endpoints = endpoints
        self._ranges: HashRanges[Endpoint] = HashRanges()
        self._slots: dict[bytes, int] = {}
        self._since: dict[tuple[int, Endpoint], float] = {}
        """The time since when messages of a partition wait for a consumer, on the monotonic clock."""
        self._turn = 0
        self._room = MAX_NUMBER
        """New messages that the limit of unacknowledged messages leaves for this step."""
        self._held_back: set[int] = set()
        """Partitions with messages that wait for a save, or for the acknowledgement of an isolated message."""

    @property
    def _only_again(self) -> bool:
        """Only redeliveries may be delivered."""
        return self._room <= 0

    def attach(self, endpoint: Endpoint) -> None:
        """Give a consumer its keys. Keys with messages in flight follow when these are acknowledged.

        Raises:
            SubscriptionBusy: the other consumers have another mode or order.
            HashRangeConflict: its ranges overlap with another consumer's.
        """
        if not endpoint.draining:
            self._ranges.add(endpoint, endpoint.name, endpoint.key_shared or KeySharedRule())
        self._endpoints.append(endpoint)
        self._assign()

    def stop_serving(self, endpoint: Endpoint) -> None:
        """Give the keys of a draining consumer to the others. They wait for the messages that it holds of a key."""
        self._ranges.remove(endpoint)
        self._assign()

    def detach(self, endpoint: Endpoint) -> None:
        """Give the consumer's keys to the others. Its entries were returned to the partitions before."""
        self._since = {key: since for key, since in self._since.items() if key[1] is not endpoint}
        self._ranges.remove(endpoint)  # first: redeliveries go to the remaining consumers
        self._assign()
        for owned in self._owned.values():
            self._take_back(owned, self._order(owned))

    def still_held(self, owned: OwnedPartition, endpoint: Endpoint, offsets: Sequence[int]) -> None:
        """The consumer holds these entries of a partition that was taken over: their keys stay with it until it is
        done."""
        keys = self._order(owned)
        for start in range(0, len(offsets), _AT_ONCE):
            for offset, record in self._read_again.read(owned, offsets[start : start + _AT_ONCE]).records.items():
                slot = self.slot(offset, record)
                keys.hold(offset, slot, endpoint)
                if self._ordered.in_use and owned.redeliveries.count(offset):
                    owned.refused.add(offset, slot, self._clock.monotonic())

    def _assign(self) -> None:
        for owned in self._owned.values():
            if owned.keys is not None:
                self._assign_in(owned.keys)

    def _assign_in(self, keys: KeyOrder[Endpoint]) -> None:
        keys.keep_order = not (self._ranges.rule or KeySharedRule()).allow_out_of_order
        keys.assign(self._ranges.table, self._endpoints)

    def _order(self, owned: OwnedPartition) -> KeyOrder[Endpoint]:
        if owned.keys is None:
            owned.keys = KeyOrder(keep_order=True, refused=owned.refused)
            self._since = {key: since for key, since in self._since.items() if key[0] != owned.number}
            self._assign_in(owned.keys)
        return owned.keys

    def is_stuck(self) -> bool:
        """Messages wait, and reading more has no use before some of them are delivered."""
        some = False
        for owned in self._owned.values():
            if owned.refused.unplaced and self._ordered.in_use:
                return True
            if self._is_hungry(self._order(owned)):
                return False
            if owned.number not in self._held_back:  # room would not help those
                some = some or bool(owned.buffered or owned.has_redeliveries or self._order(owned).waiting)
        return some

    def takes_any(self) -> bool:
        """Some inbox is at most half full, and messages for it wait here."""
        return not self._only_again and any(
            endpoint.has_room_again() and endpoint.shared_permits() > 0
            for number, owned in self._owned.items()
            if number not in self._held_back
            for endpoint in self._order(owned).consumers_waited_for()
        )

    def _is_hungry(self, keys: KeyOrder[Endpoint]) -> bool:
        full = self._only_again or keys.parked >= MAX_PARKED
        return not full and any(
            not keys.has_for(endpoint) and endpoint.shared_permits() > 0 for endpoint in self._endpoints
        )

    def _takes_due(self, keys: KeyOrder[Endpoint]) -> bool:
        """Few enough due delayed messages wait to look at more."""
        return keys.stuck() < self._look_ahead() and keys.coming_again() < MAX_DELAYED

    def _look_ahead(self) -> int:
        return min(LOOK_AHEAD, LOOK_AHEAD_PER_CONSUMER * len(self._endpoints))

    def dispatch(self, room: int) -> bool:
        """Move messages to inboxes by their permits, up to `room` new ones; True when any moved."""
        self._room = room
        self._held_back.clear()
        self._held_back.update(owned.number for owned in self._owned.values() if owned.is_held_back)
        partitions = list(self._owned.values())
        for owned in self._owned.values():
            if owned.guard is not None:
                owned.guard.begin(self._counting.nodes())
        self._turn += 1  # rotate: the first partition can fill every inbox alone
        first = self._turn % len(partitions) if partitions else 0
        handed = False
        for owned in (*partitions[first:], *partitions[:first]):
            if not (owned.quiet or owned.is_held_back):
                handed = self._dispatch(owned) or handed
        return handed

    def _dispatch(self, owned: OwnedPartition) -> bool:
        keys = self._order(owned)
        if owned.refused.unplaced and self._ordered.in_use and not self._place_refused(owned):
            return False
        delayed, waiting = owned.intake.delayed, owned.redeliveries.waiting
        if not waiting and delayed is not None and delayed.has_due and self._takes_due(keys):
            owned.release_due(_AT_ONCE)
        handed = False
        while True:
            if waiting:
                self._take_back(owned, keys)
            for endpoint in keys.consumers_waited_for():
                handed = self._serve(owned, keys, endpoint) or handed
            if owned.is_held_back:
                self._held_back.add(owned.number)
                break
            if not owned.buffered or not self._is_hungry(keys) or not self._admit_more(owned, keys):
                break
        if keys.waiting_bytes > _MAX_WAITING_BYTES:
            keys.shed()
        self._note_who_is_awaited(owned, keys)
        return handed

    def _note_who_is_awaited(self, owned: OwnedPartition, keys: KeyOrder[Endpoint]) -> None:
        now_s, number, since = self._clock.monotonic(), owned.number, self._since
        awaited = keys.holders_awaited().union(keys.consumers_waited_for())
        for key in [key for key in since if key[0] == number and key[1] not in awaited]:
            del since[key]
        for endpoint in awaited:
            since.setdefault((number, endpoint), now_s)

    def waiting(self, owned: OwnedPartition) -> tuple[WaitingFor, ...]:
        """The consumers that messages wait for, and since when."""
        if owned.keys is None:
            return ()
        now_s = self._clock.monotonic()
        return tuple(
            WaitingFor(
                endpoint.name,
                endpoint.node if isinstance(endpoint, RemoteEndpoint) else "",
                messages,
                round(now_s - self._since.get((owned.number, endpoint), now_s), 1),
            )
            for endpoint, messages in owned.keys.awaited().items()
        )

    def _serve(self, owned: OwnedPartition, keys: KeyOrder[Endpoint], endpoint: Endpoint) -> bool:
        handed = False
        while keys.has_for(endpoint) and (permits := owned.room(endpoint.shared_permits())) > 0:
            if not keys.has_at_hand(endpoint) and not self._read_back(owned, keys, endpoint):
                break
            most = permits if self._only_again else min(permits, self._room)
            entries = keys.take(endpoint, min(most, _AT_ONCE), only_again=self._only_again)
            if keys.acknowledged_early:
                entries = _without_acknowledged(owned, keys, entries)
            if not self._hand_out(owned, keys, endpoint, entries):
                break
            handed = True
        return handed

    def _admit_more(self, owned: OwnedPartition, keys: KeyOrder[Endpoint]) -> bool:
        """False if a save must come first, or all messages were acknowledged by id."""
        offsets, records = owned.take(_ADMIT_BATCH, after_replay=keys.keep_order)
        if not offsets:
            return False
        slots = [self.slot(offset, record) for offset, record in zip(offsets, records, strict=True)]
        self._meet_refused(owned, zip(offsets, slots, strict=True))
        if owned.guard is not None:
            suspects = owned.guard.decide(offsets, slots)
            if suspects:
                admitted: list[Waiting] = []
                for entry in zip(offsets, slots, records, strict=True):
                    if entry[0] in suspects:
                        owned.entries.forget(keys.readmit(*entry))
                    else:
                        admitted.append(entry)
                offsets, slots, records = ([entry[part] for entry in admitted] for part in range(3))
        apart = None
        if keys.by_ranges and offsets:
            apart = owned.cursor.unacknowledged(offsets[0], offsets[-1] + 1) - BitMap64(offsets)
        parked = keys.admit(offsets, slots, records, apart)
        if owned.guard is not None:
            owned.guard.keep(offsets, slots, parked)
        owned.entries.forget(parked)
        return True

    def _read_back(self, owned: OwnedPartition, keys: KeyOrder[Endpoint], endpoint: Endpoint) -> bool:
        """Read some of a consumer's parked messages again; False if none can be delivered now."""
        for _ in range(0 if self._only_again else _LOOKS):
            look = keys.look(endpoint, _AT_ONCE, owned.next_unacked, owned.is_acknowledged)
            if look is None:
                return False
            found = self._read_again.read(owned, look.offsets) if look.offsets else RecordsFound({}, [])
            handled = {*found.records, *found.gone}
            late = next((o for o in look.offsets if o not in handled), None)  # later ones wait, too
            slots = {o: self.slot(o, r) for o, r in found.records.items() if late is None or o < late}
            slots = {o: slot for o, slot in slots.items() if keys.is_parked(endpoint, o, slot)}
            held = owned.held.take_from(BitMap64(slots))
            if owned.guard is not None:
                owned.guard.unpark(slots)
            readable = sorted(owned.readable({o: found.records[o] for o in slots if o not in held}))
            entries = [(offset, slots[offset], found.records[offset]) for offset in readable]
            upto = look.upto if late is None else late - 1
            keys.read_back(endpoint, upto, entries, [(offset, slots[offset]) for offset in held])
            if entries or late is not None:
                return bool(entries)
        return False

    def _hand_out(
        self, owned: OwnedPartition, keys: KeyOrder[Endpoint], endpoint: Endpoint, entries: list[Waiting]
    ) -> bool:
        guard = owned.guard
        redelivered = bool(owned.redeliveries.counts)
        if guard is not None and (redelivered := not guard.is_new([entry[0] for entry in entries])):
            entries = self._admitted(owned, keys, endpoint, entries)
        absent = [offset for offset, _, record in entries if record is None]
        if absent:
            entries = self._with_records(owned, keys, entries, absent)
        if not entries:
            return False
        if redelivered:
            records = {offset: record for offset, _, record in entries}
            left = frozenset(self._dead_lettering.divert(owned, [*records], records))
            entries = [entry for entry in entries if entry[0] in left]
        offsets = [entry[0] for entry in entries]
        if owned.entries.differ:
            count = owned.entries.fitting(offsets, owned.room(endpoint.shared_permits()))
            keys.put_back(entries[count:])
            offsets, entries = offsets[:count], entries[:count]
        if guard is not None and offsets:
            guard.handed_out_in_turn(offsets)
            guard.isolation.flowed(endpoint.node, len(offsets))
        before = endpoint.unacked
        owned.deliver(endpoint.feed(owned.slot), offsets, [entry[2] for entry in entries], hold=True)
        self._room -= endpoint.unacked - before
        return True

    def _admitted(
        self, owned: OwnedPartition, keys: KeyOrder[Endpoint], endpoint: Endpoint, entries: list[Waiting]
    ) -> list[Waiting]:
        """The entries whose deliveries may be counted now; the others go back, with all later ones of their slots."""
        offsets, place = [entry[0] for entry in entries], None
        if owned.guard is not None and owned.guard.isolates:
            place = self._counting.place(owned, endpoint.node, new=False)
            offsets = _not_behind(self._counting.lasts(owned, offsets), entries)
        allowed = frozenset(self._counting.admit(owned, offsets, place, in_order=False))
        admitted: list[Waiting] = []
        held_back: list[Waiting] = []
        slots: set[int] = set()
        for entry in entries:
            if entry[0] in allowed and entry[1] not in slots:
                admitted.append(entry)
            else:
                slots.add(entry[1])
                held_back.append(entry)
        if held_back:
            keys.put_back(held_back)
            self._held_back.add(owned.number)
        return admitted

    def _with_records(
        self, owned: OwnedPartition, keys: KeyOrder[Endpoint], entries: list[Waiting], absent: list[int]
    ) -> list[Waiting]:
        """Read missing records. Unreadable entries go back, with all later ones of their slots."""
        found = self._read_again.read(owned, absent)
        readable = frozenset(owned.readable(found.records))
        gone = {*found.gone, *(offset for offset in found.records if offset not in readable)}
        if found.gone:  # Kafka may have deleted entries beside them
            gone.update(offset for offset, _, _ in entries if owned.is_acknowledged(offset))
        complete: list[Waiting] = []
        late: list[Waiting] = []
        late_slots: set[int] = set()
        for entry in entries:
            offset, slot, record = entry
            if offset in gone:
                continue
            if slot in late_slots or (record is None and offset not in found.records):
                late_slots.add(slot)
                late.append(entry)
            elif record is None:
                complete.append((offset, slot, found.records[offset]))
            else:
                complete.append(entry)
        keys.put_back(late)
        return complete

    def _take_back(self, owned: OwnedPartition, keys: KeyOrder[Endpoint]) -> None:
        """Put redeliveries into their slots, before all new messages."""
        if owned.quiet:
            return
        redeliveries = owned.redeliveries
        owned.held.take_from(redeliveries.waiting)
        offsets = _comes_now(owned, keys)
        unknown = [offset for offset in offsets if not keys.returned(offset)]
        if unknown:
            found = self._read_again.read(owned, unknown[:_AT_ONCE])
            handled = {*found.records, *found.gone}
            left = [offset for offset in unknown if offset not in handled]
            redeliveries.taken(set(offsets).difference(left))  # first: a chunk may complete a message to redeliver
            for offset in owned.readable(found.records, redelivered=True):
                record = found.records[offset]
                slot = self.slot(offset, record)
                self._meet_refused(owned, ((offset, slot),))
                waits = keys.is_behind_parked(offset, slot) and not deliver_at_ms(headers_of(record))
                owned.entries.forget((keys.park_again if waits else keys.readmit)(offset, slot, record))
        else:
            redeliveries.taken(offsets)

    def _meet_refused(self, owned: OwnedPartition, entries: Iterable[tuple[int, int]]) -> None:
        """Entries that were refused under a former owner hold back later ones of their slots."""
        if owned.refused.recovered and self._ordered.in_use:
            now_s = self._clock.monotonic()
            for offset, slot in entries:
                owned.refused.met(offset, slot, now_s)

    def _place_refused(self, owned: OwnedPartition) -> bool:
        """Read refused entries whose slots are not known; False while some are unread."""
        refused, now_s = owned.refused, self._clock.monotonic()
        refused.settled([offset for offset in refused.unplaced if owned.is_acknowledged(offset)])
        found = self._read_again.read(owned, list(islice(refused.unplaced, _AT_ONCE)))
        for offset, record in found.records.items():
            refused.add(offset, self.slot(offset, record), now_s)
        refused.settled(found.gone)
        return not refused.unplaced

    def slot(self, offset: int, record: Any) -> int:
        """The hash slot of a message: by ordering key, else by key, else by offset."""
        key = sticky_key(record)
        if key is None:
            return (offset * 40_503 & 0xFFFF_FFFF) % SLOTS
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= _MAX_CACHED_KEYS:
                self._slots.clear()
            slot = sticky_key_hash(key)
            if len(key) <= _LONGEST_CACHED_KEY:
                self._slots[key] = slot
        return slot


def sticky_key(record: Any) -> bytes | None:
    """The ordering key of a record, else its key."""
    key: bytes | None = record.key()
    headers: Headers | bytes | None = packed_headers_of(record)
    if headers and not isinstance(headers, bytes) and (len(headers) > 1 or headers[0][0] == ORDERING_KEY):
        for name, value in headers:
            if name == ORDERING_KEY and value is not None:
                key = value
    return key


def _comes_now(owned: OwnedPartition, keys: KeyOrder[Endpoint]) -> list[int]:
    """The redeliveries below the read position. Deliveries by a former owner may lie beyond. Those wait, because an
    unread message before them may have the same key, and they release their keys."""
    waiting, below = owned.redeliveries.waiting, owned.intake.taken_upto
    if not keys.keep_order:
        return list(waiting)
    if owned.guard is not None:
        below = max(below, owned.guard.reported_below)
    keys.let_go(offset for offset in waiting if offset >= below)
    return [offset for offset in waiting if offset < below]


def _not_behind(lasts: BitMap64, entries: Sequence[Waiting]) -> list[int]:
    """The offsets of these entries, without `lasts` that are not the first of their slot, and without entries after one
    of `lasts` in their slot."""
    met: set[int] = set()
    closed: set[int] = set()
    found: list[int] = []
    for offset, slot, _ in entries:
        if offset in lasts and slot in met:
            closed.add(slot)
        if slot not in closed:
            found.append(offset)
        met.add(slot)
        if offset in lasts:
            closed.add(slot)
    return found


def _without_acknowledged(owned: OwnedPartition, keys: KeyOrder[Endpoint], entries: list[Waiting]) -> list[Waiting]:
    done = {entry[0] for entry in entries if owned.is_acknowledged(entry[0])}
    if done:
        keys.acknowledged(done)
    held = owned.held.take_from(BitMap64(entry[0] for entry in entries))
    if held:
        keys.held_by_transaction(held)
        done.update(held)
    return [entry for entry in entries if entry[0] not in done]
