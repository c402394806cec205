"""The state of one coordinator as a fold over its partition of `__transaction_log`. Pure.

Owners, clients in other processes, and tools all use this fold, so they agree about every outcome:

* A record counts if it is valid by the fence (`statelog/take_over.py`): no TAKEOVER of a higher version before it.
* A NEW is valid only if its id is above every valid one before it. So an append that was abandoned and arrives late
  opens nothing behind the low-water mark, and no id is given twice. The ids in TAKEOVERs do not count here: two claims
  of one version name different ids. A reader that comes when compaction has deleted only the valid claim would find a
  NEW of the winner below the loser's id. (Seen in the simulation. An owner begins above its own TAKEOVER anyway.)
* An UPDATE counts only where it may follow (`FOLLOWS`): the first decision stands.
* Without its NEW a transaction has ended: its other records are orphans.

**No two owners give the same id**, not even in a void record. An owner gives ids only within a limit above the highest
that it has read, and its successor's TAKEOVER covers all of these. Otherwise a void NEW of a former owner could precede
a valid one with the same id. A reader that comes when compaction has deleted the TAKEOVER between them but not the void
record would accept the void one. (Seen in the simulation.)

**No id is given again after a crash**: the highest id in the log survives. A NEW is tombstoned only while a live record
names a higher id, or the owner's own TAKEOVER names this one. (Its `max_local_id` is the highest id read before the
claim; a newer owner's is at least as high, since a claim is valid only if the one before it had been read.) So a fold
of the compacted log finds an id as high as any in a reply. Readers also agree about the second rule: the record that
makes a late NEW void precedes it and is not tombstoned before it. That is why void records are deleted first, then NEWs
of forgotten transactions, then orphans, and older TAKEOVERs only when nothing is void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from typing import Final, NamedTuple, cast

from pulsar_on_kafka.broker.transactions.coordinator.rules import FINISHED, FOLLOWS, OPEN, CoordinatorSettings
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.take_over import Owner, TakeOverFence
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import (
    CoordinatorTakeoverKey,
    TransactionAnswerKey,
    TransactionLogKey,
    decode_key,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
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

NO_ID: Final = -1
"""The low-water mark and the highest id of a coordinator that gave none."""

_COORDINATOR_SHIFT: Final = 48


def txn_id(coordinator: int, local_id: int) -> TxnId:
    return TxnId(coordinator << _COORDINATOR_SHIFT, local_id)


class Stamped(NamedTuple):
    """An answer with the time that the log gave it."""

    value: Answered
    timestamp_ms: int


@dataclass(slots=True)
class LoggedTransaction:
    """One transaction as logged; other modules only read it. Participants keep the order of their registration."""

    id: TxnId
    new: NewTransaction
    records: dict[bytes, bytes]
    """Its valid records: values by key, in log order, NEW first."""
    status: TxnStatus = OPEN
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    subscriptions: dict[TopicSubscription, None] = field(default_factory=dict)
    finished_ms: int = 0
    """The log's timestamp of the last status, once the transaction is finished."""
    decided_by: int = 0
    """The version of the owner that decided how it ends; 0 while it is open."""

    @property
    def new_key(self) -> bytes:
        return next(iter(self.records))

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    @property
    def participants(self) -> int:
        return len(self.partitions) + len(self.subscriptions)

    def deadline_ms(self) -> int:
        """Unix time at which it is aborted."""
        return self.new.start_ms + self.new.timeout_ms

    def fold(self, value: LogValue, timestamp_ms: int) -> None:
        """Applies a record after NEW. Only a last status needs `timestamp_ms`."""
        match value:
            case PartitionsAdded(partitions=partitions) if self.status is OPEN:
                self.partitions.update(dict.fromkeys(partitions))
            case SubscriptionsAdded(subscriptions=subscriptions) if self.status is OPEN:
                self.subscriptions.update(dict.fromkeys(subscriptions))
            case StatusUpdated(by=by, status=status) if (self.status, status) in FOLLOWS:
                self.decided_by = self.decided_by or by
                self.status = status
                self.finished_ms = timestamp_ms if status in FINISHED else 0
            case _:
                pass  # too late


class CoordinatorState:
    """A fold for `LogView`. Judge only at the end of the log.

    Memory: what the owner keeps in the log (`CoordinatorSettings`), each record once. Thousands of transactions are
    kept that are over; of them there are only their records as the bytes that they are, in dictionaries of nothing
    else. Python's garbage collector, which stops all threads of the process while it looks at what might be garbage,
    passes over these.
    """

    def __init__(self, coordinator: int, *, follow_changes: bool = False) -> None:
        """With `follow_changes` the caller must call `take_touched` regularly."""
        self.coordinator = coordinator
        self._follow_changes = follow_changes
        self._fence = TakeOverFence()
        self._transactions: dict[int, LoggedTransaction | dict[bytes, bytes]] = {}
        """Transactions by id; finished ones keep only their `records`."""
        self._unfinished: set[int] = set()
        self._ending: set[int] = set()
        self._finished: dict[int, int] = {}
        """Finish times, in the order in which the transactions finished."""
        self._finished_by_requests: set[int] = set()
        self._last_status_ms: dict[bytes, int] = {}
        """The log's timestamp of the record that finishes a transaction."""
        self._homes: dict[bytes, int] = {}
        """Valid records after NEW, each with its transaction."""
        self._new_keys: dict[bytes, int] = {}
        self._orphans: dict[bytes, None] = {}
        self._begun: dict[str, int] = {}
        self._answers: dict[str, dict[bytes, Stamped]] = {}
        self._answer_keys: dict[bytes, str] = {}
        self._takeovers: dict[bytes, tuple[Owner, int]] = {}
        """Each claim's owner, and the highest id that the claim names."""
        self._highest_begun = NO_ID
        self._highest_seen = NO_ID
        self._touched: dict[int, LoggedTransaction | None] = {}

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
        if self._fence.has(record.key):  # a key is written once; if not, the last record counts, as compaction has it
            self._forget(record.key)
        put(record, record.value)

    def _reader(
        self, key: TransactionLogKey | TransactionAnswerKey | CoordinatorTakeoverKey, value: LogValue
    ) -> Callable[[LogRecord, bytes], None]:
        """The function that applies the record and its value; called only after all validation."""
        match key, value:
            case CoordinatorTakeoverKey(), TakenOver():
                return lambda record, _: self._take_over(record.key, key, value)
            case TransactionAnswerKey(), Answered():
                return lambda record, _: self._answer(record, key.request, value)
            case TransactionLogKey(), NewTransaction():
                self._check(key)
                if value.max_local_id < key.txn_least:
                    raise CorruptRecord(f"{key} has max_local_id {value.max_local_id}, expected its own id or more")
                return lambda record, data: self._open(record.key, data, key, value)
            case TransactionLogKey(), PartitionsAdded() | SubscriptionsAdded() | StatusUpdated():
                self._check(key)
                return lambda record, data: self._change(record, data, key.txn_least, value)
            case _:
                raise CorruptRecord(f"{type(value).__name__} under {key}, which is for another kind of record")

    def _check(self, key: TransactionLogKey) -> None:
        if key.txn_most != self.coordinator << _COORDINATOR_SHIFT:
            raise CorruptRecord(f"{key} is of another coordinator than {self.coordinator}")

    def _take_over(self, data: bytes, key: CoordinatorTakeoverKey, value: TakenOver) -> None:
        self._takeovers[data] = Owner(key.session, key.version), value.max_local_id
        self._highest_seen = max(self._highest_seen, value.max_local_id)
        self._fence.takeover(data, key.session, key.version)

    def _answer(self, record: LogRecord, request: str, value: Answered) -> None:
        if self._fence.record(record.key, value.by):
            self._answers.setdefault(request, {})[record.key] = Stamped(value, record.timestamp_ms)
            self._answer_keys[record.key] = request

    def _open(self, key: bytes, data: bytes, named: TransactionLogKey, value: NewTransaction) -> None:
        local_id = named.txn_least
        self._highest_seen = max(self._highest_seen, value.max_local_id)
        if not self._fence.record(key, value.by, lawful=local_id > self._highest_begun):
            return
        self._highest_begun = value.max_local_id
        transaction = LoggedTransaction(txn_id(self.coordinator, local_id), value, {key: data})
        self._transactions[local_id] = transaction
        self._new_keys[key] = local_id
        if value.request:
            self._begun.setdefault(value.request, local_id)
        self._follow(local_id, transaction)

    def _change(
        self, record: LogRecord, data: bytes, local_id: int, value: PartitionsAdded | SubscriptionsAdded | StatusUpdated
    ) -> None:
        if not self._fence.record(record.key, value.by):
            return
        transaction = self._found(local_id)
        if transaction is None:
            self._orphans[record.key] = None
            return
        self._homes[record.key] = local_id
        transaction.records[record.key] = data
        if isinstance(value, StatusUpdated) and value.status in FINISHED:
            self._last_status_ms[record.key] = record.timestamp_ms
        transaction.fold(value, record.timestamp_ms)
        self._follow(local_id, transaction)

    def _found(self, local_id: int) -> LoggedTransaction | None:
        found = self._transactions.get(local_id)
        return self._folded(local_id, found) if isinstance(found, dict) else found

    def _folded(self, local_id: int, records: dict[bytes, bytes]) -> LoggedTransaction:
        """The transaction that these records make, NEW being the first."""
        new, *rest = [(key, decode_log_value(data)) for key, data in records.items()]
        transaction = LoggedTransaction(txn_id(self.coordinator, local_id), cast("NewTransaction", new[1]), records)
        for key, value in rest:
            transaction.fold(value, self._last_status_ms.get(key, 0))
        return transaction

    def _follow(self, local_id: int, transaction: LoggedTransaction | None) -> None:
        """Applies a change of a transaction; None when it was deleted."""
        if self._follow_changes:
            self._touched[local_id] = transaction
        if transaction is None:
            self._unfinished.discard(local_id)
            self._ending.discard(local_id)
            self._finished.pop(local_id, None)
            self._finished_by_requests.discard(local_id)
            return
        if transaction.finished:
            self._unfinished.discard(local_id)
            self._ending.discard(local_id)
            self._transactions[local_id] = transaction.records
            self._finished[local_id] = transaction.finished_ms
            if transaction.new.request:
                self._finished_by_requests.add(local_id)
            return
        self._transactions[local_id] = transaction
        self._finished.pop(local_id, None)  # its last status is gone
        self._finished_by_requests.discard(local_id)
        self._unfinished.add(local_id)
        if transaction.status is OPEN:
            self._ending.discard(local_id)
        else:
            self._ending.add(local_id)

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
            found = self._transactions[changed]
            records = found if isinstance(found, dict) else found.records
            del records[data]
            self._last_status_ms.pop(data, None)
            self._follow(changed, self._folded(changed, records))
        if (opened := self._new_keys.pop(data, None)) is not None:
            self._close(opened)

    def _close(self, local_id: int) -> None:
        """Its NEW is gone: it is over."""
        found = self._transactions.pop(local_id)
        if isinstance(found, dict):
            records = found
            request = self._folded(local_id, found).new.request if local_id in self._finished_by_requests else ""
        else:
            records, request = found.records, found.new.request
        if self._begun.get(request) == local_id:
            del self._begun[request]
        for key in islice(records, 1, None):
            del self._homes[key]
            self._last_status_ms.pop(key, None)
            self._orphans[key] = None
        self._follow(local_id, None)

    # Judging, at the end of the log -------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        return self._fence.owner

    @property
    def next_version(self) -> int:
        return self._fence.next_version

    @property
    def highest_id(self) -> int:
        """The highest id in any record here, void ones included; `NO_ID` before the first."""
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
        """The number of known transactions that other processes began."""
        return len(self._begun)

    def transaction(self, txn: TxnId) -> LoggedTransaction | None:
        """None for what never was, and for what is over and forgotten."""
        found = self._found(txn.least_bits)
        return found if found is not None and found.id == txn else None

    def transactions(self) -> Iterator[LoggedTransaction]:
        return filter(None, map(self._found, self._transactions))

    def ending(self) -> list[LoggedTransaction]:
        return list(filter(None, map(self._found, sorted(self._ending))))

    def begun_by(self, request: str) -> LoggedTransaction | None:
        local_id = self._begun.get(request)
        return None if local_id is None else self._found(local_id)

    def answer(self, request: str) -> Answered | None:
        """The first valid answer to a request; None as long as there is none, or when it is forgotten."""
        for stamped in self._answers.get(request, {}).values():
            return stamped.value
        return None

    def take_touched(self) -> list[tuple[int, LoggedTransaction | None]]:
        """Transactions that changed since the last call, by id; None for a forgotten one."""
        touched, self._touched = self._touched, {}
        return sorted(touched.items(), key=itemgetter(0))

    def to_clean(self, owner: Owner, now_ms: int, settings: CoordinatorSettings) -> list[bytes]:
        """Keys that `owner` should tombstone now, in this order, `clean_at_once` at most; none for any other owner.
        Call again after they are read back: the next group (see above) is named only then."""
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
        # A transaction that a request began is known for its whole time: the request may be resent, and is executed
        # once.
        too_many = len(self._finished) - len(self._finished_by_requests) - settings.max_finished
        for local_id, finished_ms in self._finished.items():
            too_old = finished_ms <= oldest_ms
            if not too_old and too_many <= 0:
                break
            requested = local_id in self._finished_by_requests
            if local_id <= covered and (too_old or not requested):
                too_many -= not requested
                yield next(iter(cast("dict[bytes, bytes]", self._transactions[local_id])))

    def _taken_over_at(self) -> int:
        """The id in the owner's own TAKEOVER; the TAKEOVER is not tombstoned while it is the newest."""
        owner = self._fence.owner
        return max((highest for claim, highest in self._takeovers.values() if claim == owner), default=NO_ID)

    def _old_answers(self, now_ms: int, settings: CoordinatorSettings) -> Iterator[bytes]:
        """The later ones of a request first, so that its first answer stays the first."""
        too_many = len(self._answers) - settings.max_finished
        oldest_ms = now_ms - settings.finished_kept_ms
        for place, answers in enumerate(self._answers.values()):
            if place < too_many or all(stamped.timestamp_ms <= oldest_ms for stamped in answers.values()):
                yield from reversed(answers)
