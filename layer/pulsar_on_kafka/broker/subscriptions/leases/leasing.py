"""A membership's leases, to other processes and from them, in the member's loop.

Where all consumers are in the process that owns the partitions nothing is written and nothing costs. A process that
owns no partition announces its consumers (`Lessee`), and every owner leases to them as to its own (`Lessor`). On
Failover a process that does not own all of them does, because the active consumer of each is chosen from those of all
processes. All of it runs in the member's thread, but for `heard`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.commands import settle
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.leases.group_monitor import GroupLooks, LeaseClaims
from pulsar_on_kafka.broker.subscriptions.leases.inbox import LeaseInbox
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import LeaseTerms, ReceivedLeaseRecord
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartition
from pulsar_on_kafka.broker.subscriptions.leases.leased_records import LeasedRecords
from pulsar_on_kafka.broker.subscriptions.leases.lessee import ACKS_S, Lessee
from pulsar_on_kafka.broker.subscriptions.leases.lessor import Lessor
from pulsar_on_kafka.broker.subscriptions.leases.members import Recalled, has_heard
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import EVERYBODY
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Lease,
    LeaseRecord,
    Nack,
    Recall,
    Report,
    TakeOver,
    concerns,
    decode,
    is_report,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_LOOK_AT_PACE_S: Final = 1.0
_ASK_AFTER_S: Final = 0.5
"""Without a partition for so long: while processes join, partitions move."""
_RETRY_INTERVAL_S: Final = 0.2
_FORBIDDEN_RETRY_INTERVAL_S: Final = 30.0
_BUSY_POLL_S: Final = 0.01
_HOLDING_POLL_S: Final = ACKS_S / 2
_MUCH: Final = 100
_MAX_RECEIVED_BYTES: Final = 16 * 1024 * 1024
_GATHER_LEASES_S: Final = 0.02
_FINISH_S: Final = 2.0

_log = logging.getLogger(__name__)


class Leasing:
    """`owned` and `endpoints` are the member's own, seen from here.

    Memory: what Lessor, Lessee and LeaseInbox say, with 20,000 records or 16 MiB in the inbox.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        terms: LeaseTerms,
        clock: Clock,
        dispatcher: Dispatcher,
        lessee: Lessee,
        seek: Callable[[int, int], None],
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        wake: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._terms = terms
        self._clock = clock
        self._dispatcher = dispatcher
        self._seek = seek
        self._owned = owned
        self._endpoints = endpoints
        self._wake = wake
        self._inbox = LeaseInbox(
            terms.traffic.read, wake, self._can_wait, most_records=terms.most_heard, most_bytes=_MAX_RECEIVED_BYTES
        )
        self._outbox: list[tuple[int, LeaseRecord]] = []
        self._heard_since: int | None = None
        """The first record that was taken in."""
        self._heard_upto = 0
        """Behind the last one."""
        self._flushes: deque[tuple[int, Future[None]]] = deque()
        """Those who wait until what this process acknowledged is durable, and the number of the report that says it."""
        self._writing: tuple[Future[list[int]], int, bool] | None = None
        """An append: how many records of ours as an owner it has, and whether a report comes behind them."""
        self._write_s = 0.0
        self._leases_s = 0.0
        """Leases that nobody waits for are written then."""
        self._held_by_transactions: deque[tuple[int, TxnAck]] = deque()
        """Acknowledgements of others' partitions that transactions hold, and that the lessee has not heard of."""
        self._refused = False
        self._in_order = handle.type is SubscriptionType.FAILOVER
        """A partition's messages go to one consumer at a time, wherever it is."""
        self._had_enough_s = 0.0
        """When this process owned a partition last (Failover: all), or had not joined the group."""
        self._looks = GroupLooks(terms.traffic.group, terms.traffic.read)
        self._claims = LeaseClaims(terms.traffic.saved_version, wake)
        self._recalled: dict[int, Recalled] = {}
        """By former owners, of partitions that are about to be opened."""
        self._unheard: dict[int, BitMap64] = {}
        """What was leased to this process of these, and did not come to be heard."""
        self._reports_heard = 0
        self._paced = (0, 0.0)
        """How many there were at the last look, and when that was."""
        in_order = self._in_order
        self.lessor = Lessor(
            terms.session, terms.life, terms.client_id, owned, dispatcher, self._say, in_order=in_order
        )
        self.lessee = lessee
        self._records = LeasedRecords(
            str(handle), handle.kafka_topic, terms.reader, clock, self.lessee, handle.incarnation
        )
        terms.traffic.listen(self.heard, self.is_patient)

    # Any thread ---------------------------------------------------------------------------------------------------

    def heard(self, records: Sequence[ReceivedLeaseRecord]) -> None:
        """Records about this subscription, in the order of the log."""
        self._inbox.hear(records)

    def is_patient(self) -> bool:
        """Nobody waits for what other processes say: this one owns nothing, and half of what each consumer takes, and a
        hundred messages at least, lie in its inbox."""
        if self._owned or self._flushes:
            return False
        own = [each for each in self._endpoints if not each.is_remote]
        return bool(own) and all(len(each.queue) > max(each.capacity // 2, _MUCH) for each in own)

    def _can_wait(self, value: bytes) -> bool:
        """Where many processes share a partition most of what they write is for its owner."""
        self._reports_heard += is_report(value)
        return not self._owned and not concerns(value, self._terms.client_id)

    # The member's loop --------------------------------------------------------------------------------------------

    def step(self, *, joined: bool) -> None:
        """Whatever can be done now. `joined`: the group has said which partitions are ours."""
        now_s = self._clock.monotonic()
        self.lessor.now_s = self.lessee.now_s = now_s
        if self.tells_owners or (joined and not self._refused):
            self._drain()  # first: it is about what was held before owners recalled it and leased it anew
        self.take_in()
        lessee = self.lessee
        if now_s - self._paced[1] >= _LOOK_AT_PACE_S:
            before, since_s = self._paced
            lessee.pace((self._reports_heard - before) / (now_s - since_s))
            self._paced = self._reports_heard, now_s
        while self._held_by_transactions:
            lessee.hold_for_transaction(*self._held_by_transactions.popleft())
        if self._owns_enough() or not joined:
            self._had_enough_s = now_s
        without = now_s - self._had_enough_s >= _ASK_AFTER_S
        lessee.asking = without and any(not each.is_remote for each in self._endpoints)
        if self._in_order:
            lessee.announces = lessee.announces and not (lessee.asking or self._owns_enough())
        if lessee.to_read:
            self._records.read()
        else:
            self._records.rest()
        self._look_at_claims()
        if self.lessor.in_use:
            self._look_after_members(now_s)
        self.send()
        if self._flushes:
            self._end_flushes()

    def _owns_enough(self) -> bool:
        """Nobody else's partitions concern this process."""
        partitions = self._terms.partitions
        if not self._in_order or partitions is None:
            return bool(self._owned)
        partitions = max(partitions, max(self._owned, default=0) + 1)
        return len(self._owned) == partitions and (partitions == 1 or not self.lessor.has_members)

    def send(self) -> None:
        """Write what was said, unless an append is under way."""
        now_s = self._clock.monotonic()
        self._written(now_s)
        self._write(now_s)

    def poll_limit(self) -> float:
        """How long the member may wait, in seconds."""
        if self._inbox.is_urgent:
            return 0.0
        if self.lessor.in_use or self._flushes or self._inbox.is_behind:
            return _BUSY_POLL_S
        if self.lessee.holds_any or self._writing is not None:
            return _HOLDING_POLL_S if self.waits_for_owners else _BUSY_POLL_S
        return inf

    def watch_inboxes(self) -> bool:
        """Have this process's consumers wake the member as soon as owners are to hear of the room in their inboxes.
        False when they are to hear of it now."""
        waits = self._writing is not None or self._clock.monotonic() < self._write_s
        watched = [each for each in self._endpoints if not each.is_remote]
        for endpoint in watched:
            more = None if waits else self.lessee.until_worth_telling(endpoint)
            endpoint.watch(-1 if more is None else len(endpoint.queue) - more)
        # A receiver that took something before it could see that is seen here instead.
        return not any(endpoint.has_room_again() for endpoint in watched)

    def unwatch_inboxes(self) -> None:
        for endpoint in self._endpoints:
            if not endpoint.is_remote:
                endpoint.unwatch()

    @property
    def waits_for_owners(self) -> bool:
        """Messages come from them, and none by this process's own membership."""
        return not self._owned and self.tells_owners

    @property
    def tells_owners(self) -> bool:
        """This process waits for messages of others' partitions, or has some."""
        return self.lessee.asking or self.lessee.holds_any

    @property
    def reaches_owners(self) -> bool:
        """What is acknowledged here of others' partitions reaches their owners: nothing forbids to tell them."""
        return not self._refused

    @property
    def has_heard(self) -> bool:
        """Something that cannot wait."""
        return self._inbox.is_urgent

    def take_in(self) -> None:
        """Fold in what was heard; what cannot be yet stays."""
        if not self._inbox.catch_up(self._clock.monotonic()):
            _log.warning("subscription=%s what other members said is gone: everybody begins anew", self._handle)
            self.lessee.begin_anew()
            self.lessor.not_heard()
        for _ in range(self._inbox.begin()):
            offset, partition, value = self._inbox.first()
            if self._heard_since is None:
                self._heard_since = offset
            try:
                record = decode(value, self._terms.client_id, reports=bool(self._owned))
                if record is not None:
                    self._hear(offset, partition, record)
            except CorruptRecord as reason:
                _log.warning("subscription=%s offset=%d skipped a record: %s", self._handle, offset, reason)
            except errors.StoreError as failure:
                _log.warning("subscription=%s acknowledgements have to wait: %s", self._handle, failure)
                return
            self._inbox.took_in()
            self._heard_upto = offset + 1

    def _hear(self, offset: int, partition: int, record: LeaseRecord) -> None:
        if isinstance(record, Report):
            if self._owned:
                self.lessor.hear(offset, record)
        elif partition == EVERYBODY:
            self.lessee.hear(None, record)
        elif isinstance(record, TakeOver):
            if record.life == self._terms.life:
                self._is_claimed(partition, record)
        elif partition in self._owned:
            if isinstance(record, Lease | Recall):
                self.lessee.pass_over(record)
        else:
            self.lessee.hear(self._handle.slot(partition), record)

    def _is_claimed(self, partition: int, record: TakeOver) -> None:
        """Somebody says to have taken it over. Of an owner's nothing more goes out until that is settled."""
        owned = self._owned.get(partition)
        if owned is not None:
            if record.version <= owned.version:
                return
            owned.quiet = True
        self._claims.heard(partition, record)

    def _look_at_claims(self) -> None:
        for partition, version, records in self._claims.settled():
            owned = self._owned.get(partition)
            if owned is None:
                for record in records:
                    if record.version <= version:
                        self.lessee.hear(self._handle.slot(partition), record)
            elif version <= owned.version:  # else it is true, and the group tells this member soon
                self._is_ours(partition, owned)

    def _is_ours(self, partition: int, owned: OwnedPartition) -> None:
        """Nobody has taken it over, as far as was asked."""
        _log.warning("cursor=%s a TAKE_OVER that nobody saved is passed over", owned.identity)
        if owned.quiet and partition not in self._claims and not self.lessor.is_being_taken_over(partition):
            owned.quiet = False
            self._dispatcher.choose_active()
            self._go_on([partition])

    def _look_after_members(self, now_s: float) -> None:
        for owned in self._owned.values():
            if owned.leased_from is None:
                owned.folded_since = max(owned.folded_since, self._heard_since or 0)
                self._lease_from(owned, self._heard_upto)
        self._go_on(self.lessor.take_complete())  # at once: what is read from now on must not be behind what was passed
        try:
            seen = self._looks.seen()
            if seen is not None and self.lessor.misses_any(*seen):
                folded = [each.folded for each in self._owned.values() if each.leased_from is not None]
                self._looks.hear_first(seen, max(self._heard_upto, min(folded, default=0)))
                seen = None
            seen = seen or self._looks.counts(self._heard_upto)
        except errors.LayerError as failure:
            _log.info("subscription=%s cannot look at its group: %s", self._handle, failure)
            return
        if seen is not None:
            self._go_on(self.lessor.group_is(*seen))
        self._looks.ask(now_s, hurries=self.lessor.is_asking)

    def _lease_from(self, owned: OwnedPartition, offset: int) -> None:
        """What stands in `deliveries` below this offset is folded in, or concerns nobody: the next save says that
        others may hold messages of the partition."""
        owned.folded = max(owned.folded, offset)
        owned.lease_from(owned.folded)

    def _go_on(self, partitions: Collection[int]) -> None:
        """Everybody has said what they hold of these: read and hand out the rest."""
        for number in partitions:
            self._seek(number, self._owned[number].read_position)

    # Writing ------------------------------------------------------------------------------------------------------

    def _say(self, partition: int, record: LeaseRecord) -> None:
        self._outbox.append((partition, record))

    def _written(self, now_s: float) -> None:
        if self._writing is None or not self._writing[0].done():
            return
        (answer, of_owner, has_report), self._writing = self._writing, None
        failure = answer.exception()
        if failure is None:
            if has_report:
                self.lessee.written(answer.result()[-1], self._owned)
            return
        forbidden = isinstance(failure, errors.NotAuthorized)
        self._write_s = now_s + (_FORBIDDEN_RETRY_INTERVAL_S if forbidden else _RETRY_INTERVAL_S)
        known, self._refused = self._refused, self._refused or forbidden
        level = logging.DEBUG if known else logging.WARNING
        _log.log(level, "subscription=%s could not write to other members: %s", self._handle, failure)
        if of_owner:
            self.lessor.not_written()

    def _write(self, now_s: float) -> None:
        if self._writing is not None or now_s < self._write_s:
            return
        report = self.lessee.report()
        if report is None and (not self._outbox or (not self.lessor.hurries and now_s < self._leases_s)):
            return
        records, self._outbox, self.lessor.hurries = self._outbox, [], False
        self._leases_s = now_s + _GATHER_LEASES_S
        of_owner = len(records)
        if report is not None:
            records.append((EVERYBODY, report))
        answer = self._terms.traffic.write(records)
        self._writing = (answer, of_owner, report is not None)
        answer.add_done_callback(lambda _: self._wake())

    # Partitions come and go ---------------------------------------------------------------------------------------

    def take_over(self, owned: OwnedPartition, deadline: Deadline) -> dict[int, Nack] | None:
        """The group has accepted that we own the partition. Fence former owners, and fold in what members wrote.

        Gives what was refused meanwhile, by offset; None where nobody can hold anything. Raises StoreError.
        """
        leased_from = owned.leased_from
        if leased_from is None:
            return None
        version = owned.version
        record = TakeOver(self._terms.life, self.lessor.owner, version)
        number = owned.number
        at, said = self._terms.traffic.take_over(number, record, leased_from, deadline)
        nacked: dict[int, Nack] = {}
        recalled = {(each.to, each.owner): each.number for each in said if isinstance(each, Recall)}
        for report in [each for each in said if isinstance(each, Report)]:
            if report.life != self._terms.life:
                continue
            owned.acknowledge_elsewhere(list(report.acks.get(number, ())), report.batch_acks.get(number, {}))
            if has_heard(report.member, report.heard, recalled):
                nacked.update((nack.offset, nack) for nack in report.nacks.get(number, ()))
        self._recalled[number] = recalled
        self._unheard[number] = self.lessee.unheard([each for each in said if isinstance(each, Lease)])
        self.lessee.taken_in(number, leased_from)
        owned.folded_since, owned.folded = leased_from, at + 1
        return {offset: nack for offset, nack in nacked.items() if not owned.is_acknowledged(offset)}

    def opened(self, owned: OwnedPartition, nacked: Mapping[int, Nack] | None) -> None:
        """It is served from now on, as far as members do not hold it: `nacked` as `take_over` gave it."""
        number = owned.number
        recalled = self._recalled.pop(number, {})
        self.lessor.now_s = self._clock.monotonic()
        acks, ours = self.lessee.take_unsaved(number)
        if acks:
            owned.acknowledge_elsewhere(list(acks.whole), acks.batches)
        if nacked is None:
            owned.folded_since = self._heard_upto
        else:
            if has_heard(self.lessee.id, self.lessee.heard_of_owners, recalled):
                nacked = {**nacked, **ours}
            owned.never_received(self._unheard.pop(number, BitMap64()) | self.lessee.unread(number))
        leased = self.lessee.owned_now(number, asks=nacked is not None)
        if nacked is not None:
            self.lessor.took_over(owned, nacked, recalled)
        if leased is None:
            return
        self._terms.reader.leave(number)
        held = leased.held()
        messages, chunks = dict(leased.in_flight.unacked_in), leased.chunks
        leased.in_flight.let_go_of_all()
        for (endpoint, redeliveries), offsets in held.items():
            left = {o: messages.get(o, 1) for o in offsets}
            self.lessor.still_held(owned, endpoint, left, redeliveries, chunks)

    def about_to_seek(self, owned: OwnedPartition) -> None:
        """What members have told by now, heard or not, acknowledges nothing behind the seek.

        Raises:
            StoreError: how much that is cannot be asked for.
        """
        if owned.leased_from is None:
            if self._heard_since is None:
                return  # nobody has told anything
            self._lease_from(owned, self._heard_upto)
        self.lessor.sought(owned, self._terms.traffic.end(Deadline.after(_FINISH_S)))

    def keep_what_is_out(self, leaving: Collection[int]) -> None:
        """These partitions are about to be given up in good order, by one more save: what this process's consumers have
        received of them stays with them. Whoever owns them next asks, and this process answers as a member. Where it
        may not write to other members everything comes again elsewhere.

        What was leased and not written yet is written now: behind the next owner's TAKE_OVER it is void, and counts as
        delivered though nobody got it.
        """
        if self._in_order:
            self._keep_in_order(leaving)
            return
        holding: list[OwnedPartition] = []
        for owned in (self._owned[number] for number in leaving):
            self._dispatcher.withdraw(owned)
            if any(not feed.endpoint.is_remote for feed in owned.holders.values()):
                holding.append(owned)
        if self._outbox or self._writing is not None:
            self.say_all()
        if holding and self._is_known():
            for owned in holding:
                owned.stays_out = True
                if owned.leased_from is None:
                    self._lease_from(owned, max(self._heard_upto, self.lessee.said_at))

    def _keep_in_order(self, leaving: Collection[int]) -> None:
        """The next owner is to ask also where nothing is out: it must know every consumer before it chooses."""
        stays = any(not each.is_remote for each in self._endpoints)
        if not leaving or not stays or not self._is_known():
            return
        for owned in (self._owned[number] for number in leaving):
            self._dispatcher.withdraw_in_order(owned, unanswered=self.lessor.is_unanswered(owned.number))
            if owned.stays_out and owned.leased_from is None:
                self._lease_from(owned, max(self._heard_upto, self.lessee.said_at))

    def _is_known(self) -> bool:
        """Whoever takes a partition over from now on waits for this process's answer."""
        self.lessee.announces = True
        if not self.lessee.is_known:
            self.say_all()
        return self.lessee.is_known

    def giving_up(self, owned: OwnedPartition) -> None:
        """The partition is about to be forgotten; what was handed out of it may be acknowledged here all the same."""
        leased = self.lessee.owned_before(owned.slot, owned.version)
        # Its next owner asks only when the last save says so.
        owned.stays_out = owned.stays_out and owned.saved.leased_from is not None
        if self._in_order:
            self._gives_up_in_order(owned, leased)
        elif owned.stays_out:
            for feed, entries in owned.received().items():
                leased.hold(entries, feed)

    def _gives_up_in_order(self, owned: OwnedPartition, leased: LeasedPartition) -> None:
        if owned.stays_out:
            keeper = self.lessor.holder_here(owned) if owned.active is None else owned.active
            if keeper is not None and not keeper.endpoint.is_remote:
                leased.hold(owned.received_in_order(), keeper)
                return
        chunks = owned.chunks
        known = {last: list(each.offsets) for last, each in chunks.known.items()}
        handed = BitMap64()
        if owned.read_position > owned.next_unacked:
            handed.add_range(owned.next_unacked, owned.read_position)
        if chunks:
            handed -= BitMap64(chunks.ending_behind(owned.read_position - 1))
            for offsets in known.values():
                handed -= BitMap64(offsets)
        leased.held_before.add(handed, known)

    def gave_up(self, number: int) -> None:
        if self._in_order:
            self._had_enough_s = -inf  # until its consumers are known by what they ask for they stay announced
        else:
            self.lessee.announces = False
        self.lessor.gave_up(number)

    def retire(self) -> None:
        """The partitions are given up in good order, after one more save: whether the next owner has to ask others."""
        if self.lessor.is_through:
            for owned in self._owned.values():
                # After a seek the next owner may not have heard what was told before, which must not count.
                if owned.leased_from is not None and not owned.stays_out and not owned.acks_from:
                    owned.lease_from(None)

    def saved(self, owned: OwnedPartition) -> None:
        self.lessor.saved(owned)

    # Consumers ----------------------------------------------------------------------------------------------------

    def detach(self, endpoint: Endpoint) -> None:
        self._drain()
        self.lessee.detach(endpoint)

    def _drain(self) -> None:
        self.lessee.drain([slot for slot in self._handle.slots() if slot.number not in self._owned])

    def have_saved(self) -> Future[None] | None:
        """Have the owners of other partitions save what was acknowledged of them here up to now; None where they know
        that already. The future is settled when they have, and fails with Closed when this membership ends before."""
        self._drain()
        if not self.lessee.unsaved:
            return None
        done: Future[None] = Future()
        self._flushes.append((self.lessee.mark(), done))
        self.lessee.save_wanted = True
        return done

    def _end_flushes(self) -> None:
        while self._flushes and self.lessee.is_saved(self._flushes[0][0]):
            _, done = self._flushes.popleft()
            settle(done, None)
        self.lessee.save_wanted = bool(self._flushes)

    # Transactions -------------------------------------------------------------------------------------------------

    def ask_owner(self, partition: int, txn: TxnId, ack: TxnAck, answer: Future[None], deadline: Deadline) -> None:
        """Have the partition's owner let a transaction hold this. Raises as `TransactionAcksElsewhere.ask`."""
        answered: Future[None] = Future()

        def told(done: Future[None]) -> None:
            """In the asking thread: the message is in nobody's hands before its consumer hears of it."""
            failure = done.exception()
            if failure is None:
                self._held_by_transactions.append((partition, ack))
                self._wake()
            settle(answer, failure)

        answered.add_done_callback(told)
        self._terms.ask_owner(partition, txn, ack, answered, deadline)

    # The end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Say the last word, in two seconds at most."""
        self.lessee.asking = self.lessee.announces = False
        self.say_all()
        self.stop()

    def say_all(self) -> None:
        """Return when what there is to say is written, after two seconds at most."""
        deadline = Deadline.after(_FINISH_S)
        self.lessor.hurries = True
        while not deadline.passed():
            now_s = self._clock.monotonic()
            self.lessor.now_s = self.lessee.now_s = now_s
            self._written(now_s)
            self._write(now_s)
            if self._writing is None:
                break
            try:
                self._writing[0].result(deadline.remaining_s())
            except Exception as failure:  # it leaves all the same: who owns the partition finds out by itself
                _log.info("subscription=%s could not say everything: %s", self._handle, failure)
                break

    def stop(self) -> None:
        self._terms.traffic.stop()
        self._terms.reader.close()
        for _, done in self._flushes:
            settle(done, errors.Closed(f"subscription {self._handle} was closed"))
        self._flushes.clear()
