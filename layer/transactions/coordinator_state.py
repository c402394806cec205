"""The state of one coordinator as a fold over its partition of `__transaction_log`. Pure.

Owners, clients that ask from other processes, and tools all fold with this, so they agree about every outcome:

* A record counts if it is valid by the fence (`statelog/take_over.py`): no TAKEOVER of a higher version before it.
* A NEW is valid only if its id is above every valid one before it. So an append that was given up and arrives late
  opens nothing behind the low-water mark, and no id is given twice. What TAKEOVERs tell does not count here: two that
  claim one version tell of different ids, and who reads when compaction has taken the valid one and not yet the other
  would find a NEW of the winner below what the loser tells. (Seen in the simulation. An owner begins above its own
  TAKEOVER anyway.)
* An UPDATE counts only where it may follow (`FOLLOWS`): the first decision stands.
* Without its NEW a transaction is over: what else there is of it is an orphan.

**No two owners give the same id**, not even one of them in vain: an owner gives ids at most so far above the highest
that it has read, and its successor's TAKEOVER tells of all of these. Otherwise a NEW of a former owner, void, could
stand before a valid one with its id, and who reads when compaction has taken the TAKEOVER between them and not yet the
void record would take the first for the valid one. (Seen in the simulation.)

**No id is given again after a crash**: the highest id in the log survives. A NEW is tombstoned only while a live record
tells of a higher id, or the owner's own TAKEOVER of this one (its `max_local_id`: what it had read before it claimed;
a newer owner's is at least as high, since a claim is valid only if the one before it had been read). So whoever folds
what compaction left finds an id as high as any that was answered. This also keeps readers agreed about the second rule:
whatever makes a late NEW void stands before it and is not tombstoned before the late one is. That is why void records
go first, then NEWs of what is forgotten, then orphans, and older TAKEOVERs only when nothing is void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, NamedTuple

from layer.statelog.api import LogRecord
from layer.statelog.take_over import Owner, TakeOverFence
from layer.transactions.coordinator_rules import FINISHED, FOLLOWS, OPEN, CoordinatorSettings
from mapping.errors import CorruptRecord
from mapping.state_keys import CoordinatorTakeoverKey, TransactionAnswerKey, TransactionLogKey, decode_key
from mapping.state_records.transaction_log import (
    Answered,
    LogValue,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    TakenOver,
    TopicPartition,
    TopicSubscription,
    TxnStatus,
    decode_log_value,
)
from mapping.txn_id import TxnId

NO_ID: Final = -1
"""The low-water mark and the highest id of a coordinator that gave none."""

_COORDINATOR_SHIFT: Final = 48


def txn_id(coordinator: int, local_id: int) -> TxnId:
    return TxnId(coordinator << _COORDINATOR_SHIFT, local_id)


class Stamped(NamedTuple):
    """A value with the time that the log gave it."""

    value: LogValue
    timestamp_ms: int


@dataclass(slots=True)
class Transaction:
    """One transaction as the log tells it; others only read it. Participants are kept in the order they came in."""

    id: TxnId
    new: NewTransaction
    new_key: bytes
    status: TxnStatus = OPEN
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    subscriptions: dict[TopicSubscription, None] = field(default_factory=dict)
    finished_ms: int = 0
    """When the log took its last status in, once it is finished."""
    rest: dict[bytes, Stamped] = field(default_factory=dict)
    """Its valid records after NEW, by key, in log order."""

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    @property
    def participants(self) -> int:
        return len(self.partitions) + len(self.subscriptions)

    def deadline_ms(self) -> int:
        """Unix time at which it is aborted."""
        return self.new.start_ms + self.new.timeout_ms

    def decided_by(self) -> int:
        """The version of the owner that decided how it ends; 0 while it is open."""
        if self.status is OPEN:
            return 0
        return next(each.value.by for each in self.rest.values() if isinstance(each.value, StatusUpdated))

    def _fold(self, stamped: Stamped) -> None:
        match stamped.value:
            case PartitionsAdded(partitions=partitions) if self.status is OPEN:
                self.partitions.update(dict.fromkeys(partitions))
            case SubscriptionsAdded(subscriptions=subscriptions) if self.status is OPEN:
                self.subscriptions.update(dict.fromkeys(subscriptions))
            case StatusUpdated(status=status) if (self.status, status) in FOLLOWS:
                self.status = status
                self.finished_ms = stamped.timestamp_ms if status in FINISHED else 0
            case _:
                pass  # too late

    def put(self, key: bytes, stamped: Stamped) -> None:
        self.rest[key] = stamped
        self._fold(stamped)

    def take(self, key: bytes) -> None:
        """A record of it is gone as if it had never been there."""
        del self.rest[key]
        self.status, self.finished_ms = OPEN, 0
        self.partitions.clear()
        self.subscriptions.clear()
        for stamped in self.rest.values():
            self._fold(stamped)


class CoordinatorState:
    """A fold for `LogView`. Judge only at the end of the log.

    Memory: what the owner keeps in the log (`CoordinatorSettings`), each record once.
    """

    def __init__(self, coordinator: int, *, follow_changes: bool = False) -> None:
        """With `follow_changes` somebody calls `take_touched` regularly."""
        self.coordinator = coordinator
        self._follow_changes = follow_changes
        self._fence = TakeOverFence()
        self._transactions: dict[int, Transaction] = {}
        self._unfinished: set[int] = set()
        self._ending: set[int] = set()
        self._finished: dict[int, None] = {}
        """In the order in which they finished."""
        self._finished_by_requests = 0
        self._homes: dict[bytes, int] = {}
        """Of valid records after NEW: the transaction."""
        self._new_keys: dict[bytes, int] = {}
        self._orphans: dict[bytes, None] = {}
        self._begun: dict[str, int] = {}
        self._answers: dict[str, dict[bytes, Stamped]] = {}
        self._answer_keys: dict[bytes, str] = {}
        self._takeovers: dict[bytes, tuple[Owner, int]] = {}
        """Who claims, and the highest id that it tells of."""
        self._highest_begun = NO_ID
        self._highest_seen = NO_ID
        self._touched: set[int] = set()

    # Folding ------------------------------------------------------------------------------------------------------

    def apply(self, record: LogRecord) -> None:
        """Raises CorruptRecord, and then nothing has changed."""
        key = decode_key(record.key)
        if not isinstance(key, TransactionLogKey | TransactionAnswerKey | CoordinatorTakeoverKey):
            raise CorruptRecord(f"{type(key).__name__} in a transaction log, expected one of a coordinator's keys")
        if key.coordinator != self.coordinator:
            raise CorruptRecord(f"{key} in the log of coordinator {self.coordinator}")
        if record.value is None:
            self._forget(record.key)
            return
        value = decode_log_value(record.value)
        put = self._reader(key, value)
        self._forget(record.key)  # a key is written once; if it was not, the last record counts, as compaction has it
        put(record.key, Stamped(value, record.timestamp_ms))

    def _reader(
        self, key: TransactionLogKey | TransactionAnswerKey | CoordinatorTakeoverKey, value: LogValue
    ) -> Callable[[bytes, Stamped], None]:
        """What to do with the record, once nothing can go wrong any more."""
        match key, value:
            case CoordinatorTakeoverKey(), TakenOver():
                return lambda data, stamped: self._take_over(data, key, value)
            case TransactionAnswerKey(), Answered():
                return lambda data, stamped: self._answer(data, key.request, value.by, stamped)
            case TransactionLogKey(), NewTransaction():
                self._check(key)
                if value.max_local_id < key.txn_least:
                    raise CorruptRecord(f"{key} has max_local_id {value.max_local_id}, expected its own id or more")
                return lambda data, stamped: self._open(data, key, value)
            case TransactionLogKey(), PartitionsAdded() | SubscriptionsAdded() | StatusUpdated():
                self._check(key)
                return lambda data, stamped: self._change(data, key.txn_least, value.by, stamped)
            case _:
                raise CorruptRecord(f"{type(value).__name__} under {key}, which is for another kind of record")

    def _check(self, key: TransactionLogKey) -> None:
        if key.txn_most != self.coordinator << _COORDINATOR_SHIFT:
            raise CorruptRecord(f"{key} is of another coordinator than {self.coordinator}")

    def _take_over(self, data: bytes, key: CoordinatorTakeoverKey, value: TakenOver) -> None:
        self._takeovers[data] = Owner(key.session, key.version), value.max_local_id
        self._highest_seen = max(self._highest_seen, value.max_local_id)
        self._fence.takeover(data, key.session, key.version)

    def _answer(self, data: bytes, request: str, by: int, stamped: Stamped) -> None:
        if self._fence.record(data, by):
            self._answers.setdefault(request, {})[data] = stamped
            self._answer_keys[data] = request

    def _open(self, data: bytes, key: TransactionLogKey, value: NewTransaction) -> None:
        local_id = key.txn_least
        self._highest_seen = max(self._highest_seen, value.max_local_id)
        if not self._fence.record(data, value.by, lawful=local_id > self._highest_begun):
            return
        self._highest_begun = value.max_local_id
        self._transactions[local_id] = Transaction(txn_id(self.coordinator, local_id), value, data)
        self._new_keys[data] = local_id
        if value.request:
            self._begun.setdefault(value.request, local_id)
        self._follow(local_id)

    def _change(self, data: bytes, local_id: int, by: int, stamped: Stamped) -> None:
        if not self._fence.record(data, by):
            return
        transaction = self._transactions.get(local_id)
        if transaction is None:
            self._orphans[data] = None
            return
        self._homes[data] = local_id
        transaction.put(data, stamped)
        self._follow(local_id)

    def _follow(self, local_id: int) -> None:
        if self._follow_changes:
            self._touched.add(local_id)
        transaction = self._transactions.get(local_id)
        if transaction is None or transaction.finished:
            self._unfinished.discard(local_id)
            self._ending.discard(local_id)
            if transaction is not None and local_id not in self._finished:
                self._finished[local_id] = None
                self._finished_by_requests += bool(transaction.new.request)
            return
        if local_id in self._finished:  # its last status is gone
            self._unfinish(transaction)
        self._unfinished.add(local_id)
        if transaction.status is OPEN:
            self._ending.discard(local_id)
        else:
            self._ending.add(local_id)

    def _unfinish(self, transaction: Transaction) -> None:
        del self._finished[transaction.id.least_bits]
        self._finished_by_requests -= bool(transaction.new.request)

    def _forget(self, data: bytes) -> None:
        self._fence.tombstone(data)
        self._takeovers.pop(data, None)
        self._orphans.pop(data, None)
        if (request := self._answer_keys.pop(data, None)) is not None:
            answers = self._answers[request]
            del answers[data]
            if not answers:
                del self._answers[request]
        if (changed := self._homes.pop(data, None)) is not None:
            self._transactions[changed].take(data)
            self._follow(changed)
        if (opened := self._new_keys.pop(data, None)) is not None:
            gone = self._transactions.pop(opened)
            if opened in self._finished:
                self._unfinish(gone)
            if self._begun.get(gone.new.request) == opened:
                del self._begun[gone.new.request]
            for key in gone.rest:
                del self._homes[key]
                self._orphans[key] = None
            self._follow(opened)

    # Judging, at the end of the log -------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        return self._fence.owner

    @property
    def next_version(self) -> int:
        return self._fence.next_version

    @property
    def highest_id(self) -> int:
        """The highest id that any record here told of, void ones included; `NO_ID` before the first."""
        return self._highest_seen

    @property
    def low_water(self) -> int:
        """Every transaction at or below this id is finished for good; `NO_ID` when that is true of none."""
        return min(self._unfinished) - 1 if self._unfinished else max(self._highest_begun, self._taken_over_at())

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    @property
    def begun_by_requests(self) -> int:
        """How many of the transactions that are known other processes began."""
        return len(self._begun)

    def transaction(self, txn: TxnId) -> Transaction | None:
        """None for what never was, and for what is over and forgotten."""
        found = self._transactions.get(txn.least_bits)
        return found if found is not None and found.id == txn else None

    def transactions(self) -> Iterator[Transaction]:
        """All that are known, by id."""
        return iter(self._transactions.values())

    def ending(self) -> list[Transaction]:
        """Those that are COMMITTING or ABORTING, by id."""
        return [self._transactions[local_id] for local_id in sorted(self._ending)]

    def begun_by(self, request: str) -> Transaction | None:
        """What a request to begin opened."""
        local_id = self._begun.get(request)
        return None if local_id is None else self._transactions[local_id]

    def answer(self, request: str) -> Answered | None:
        """The first valid answer to a request; None as long as there is none, or when it is forgotten."""
        for stamped in self._answers.get(request, {}).values():
            assert isinstance(stamped.value, Answered)  # noqa: S101 - nothing else is put there
            return stamped.value
        return None

    def take_touched(self) -> list[int]:
        """Ids of the transactions that changed since this was last asked, by id."""
        touched, self._touched = sorted(self._touched), set()
        return touched

    # Cleaning -----------------------------------------------------------------------------------------------------

    def to_clean(self, owner: Owner, now_ms: int, settings: CoordinatorSettings) -> list[bytes]:
        """Keys that `owner` should tombstone now, in this order, `clean_at_once` at most; none for anyone else. Ask
        again when they are read back: what follows (see above) is named only then."""
        if owner != self._fence.owner:
            return []
        void_or_older = self._fence.to_clean(owner)
        if void_or_older and void_or_older[0] not in self._takeovers:
            return void_or_older[: settings.clean_at_once]
        named = chain(
            self._orphans, self._forgettable(now_ms, settings), self._old_answers(now_ms, settings), void_or_older
        )
        return list(islice(named, settings.clean_at_once))

    def _forgettable(self, now_ms: int, settings: CoordinatorSettings) -> Iterator[bytes]:
        if not self._finished:
            return
        # Another record than its own keeps an id from being given again: valid NEWs come by id.
        covered = max(next(reversed(self._transactions)) - 1, self._taken_over_at())
        oldest_ms = now_ms - settings.finished_kept_ms
        # What a request began is known for its whole time: the request may come again, and is executed once.
        too_many = len(self._finished) - self._finished_by_requests - settings.max_finished
        for local_id in self._finished:
            transaction = self._transactions[local_id]
            too_old = transaction.finished_ms <= oldest_ms
            if not too_old and too_many <= 0:
                break
            if local_id <= covered and (too_old or not transaction.new.request):
                too_many -= not transaction.new.request
                yield transaction.new_key

    def _taken_over_at(self) -> int:
        """What the owner's own TAKEOVER tells of; it is not tombstoned as long as it is the newest."""
        owner = self._fence.owner
        return max((highest for claim, highest in self._takeovers.values() if claim == owner), default=NO_ID)

    def _old_answers(self, now_ms: int, settings: CoordinatorSettings) -> Iterator[bytes]:
        """The later ones of a request first, so that its first answer stays the first."""
        too_many = len(self._answers) - settings.max_finished
        oldest_ms = now_ms - settings.finished_kept_ms
        for place, answers in enumerate(self._answers.values()):
            if place < too_many or all(stamped.timestamp_ms <= oldest_ms for stamped in answers.values()):
                yield from reversed(answers)
