"""A fold of one partition of `__transaction_pending_ack`: valid acks and the outcomes of their transactions. Pure.

Acks are written by the cursor's owner and fenced by its TAKEOVERs (`statelog.take_over`); an owner's acks stay valid
when another one takes over. Coordinators write ENDs, any number of times, before or after the acks that they end. An
ack behind the END of its transaction is void: the owner wrote it too late.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings, apply_to
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.take_over import TakeOverFence
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import (
    CursorTakeoverKey,
    PendingAckEndKey,
    PendingAckKey,
    decode_key,
    encode_key,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CursorIncarnation,
    TxnAck,
    TxnOutcome,
    decode_cursor_takeover,
    decode_end,
    decode_pending_ack,
)


@dataclass(frozen=True, slots=True)
class StoredAck:
    """An ack as it lies in the log."""

    txn: TxnId
    offset: int
    ack: TxnAck


@dataclass(frozen=True, slots=True)
class StoredEnd:
    """The end of a transaction; `offset` and `timestamp_ms` (Unix time) are those of the first END that is known and
    not tombstoned."""

    offset: int
    outcome: TxnOutcome
    timestamp_ms: int


class LifeAcks:
    """Pending acks of one life of a cursor; void ones too (see `fence`)."""

    def __init__(self) -> None:
        self.fence = TakeOverFence()
        self._acks: dict[bytes, StoredAck] = {}
        self._keys: dict[TxnId, dict[bytes, None]] = {}
        self.takeovers: set[bytes] = set()
        """Keys of those that are not tombstoned."""

    def __len__(self) -> int:
        return len(self._acks)

    def __bool__(self) -> bool:
        return bool(self._acks or self.takeovers)

    def copy(self) -> LifeAcks:
        made = LifeAcks()
        made.fence = self.fence.copy()
        made._acks = self._acks.copy()
        made._keys = {txn: keys.copy() for txn, keys in self._keys.items()}
        made.takeovers = self.takeovers.copy()
        return made

    def take_over(self, key: bytes, session: str, version: int) -> None:
        self.fence.takeover(key, session, version)
        self.takeovers.add(key)

    def put(self, key: bytes, version: int, stored: StoredAck) -> None:
        self.fence.record(key, version)
        self._acks[key] = stored
        self._keys.setdefault(stored.txn, {})[key] = None

    def pop(self, key: bytes) -> None:
        """Take what stood under this key away."""
        self.fence.tombstone(key)
        self.takeovers.discard(key)
        stored = self._acks.pop(key, None)
        if stored is not None:
            keys = self._keys[stored.txn]
            del keys[key]
            if not keys:
                del self._keys[stored.txn]

    def get(self, key: bytes) -> StoredAck | None:
        return self._acks.get(key)

    def transactions(self) -> list[TxnId]:
        """Transactions with acks here; the one with the oldest ack is first."""
        return list(self._keys)

    def keys_of(self, txn: TxnId) -> list[bytes]:
        """Keys of its acks, void ones too, in log order."""
        return list(self._keys.get(txn, ()))


class CursorAcks:
    """Pending acks of one cursor, by its lives."""

    def __init__(self) -> None:
        self.lives: dict[CursorIncarnation, LifeAcks] = {}
        self.ends: dict[TxnId, StoredEnd] = {}

    def count(self) -> int:
        """The number of acks and ENDs, those of former lives among them."""
        return len(self.ends) + sum(len(acks) for acks in self.lives.values())

    def __bool__(self) -> bool:
        return bool(self.lives or self.ends)

    def copy(self) -> CursorAcks:
        """An independent copy, for use in another thread."""
        made = CursorAcks()
        made.lives = {life: acks.copy() for life, acks in self.lives.items()}
        made.ends = self.ends.copy()
        return made

    def life(self, life: CursorIncarnation) -> LifeAcks:
        """Empty when nothing is on record."""
        return self.lives.get(life) or LifeAcks()

    def counts(self, life: CursorIncarnation, key: bytes) -> bool:
        """Whether this ack is valid: it exists, is not fenced, and precedes the END of its transaction."""
        acks = self.lives.get(life)
        if acks is None or not acks.fence.is_valid(key):
            return False
        stored = acks.get(key)
        if stored is None:
            return False
        end = self.ends.get(stored.txn)
        return end is None or stored.offset < end.offset

    def counted(self, life: CursorIncarnation, txn: TxnId) -> list[TxnAck]:
        """The acks of a transaction that count, in log order."""
        acks = self.life(life)
        keys = [key for key in acks.keys_of(txn) if self.counts(life, key)]
        return [stored.ack for key in keys if (stored := acks.get(key)) is not None]


class PendingAckLog:
    """A fold for `LogView`. Its methods hold only at the end of the log.

    Memory: for each ack of a transaction that is open, or whose outcome its cursor's owner has not cleaned away, some
    hundred bytes and its record's size; a few hundred bytes for each cursor and earlier incarnation that has records
    here.
    """

    def __init__(self) -> None:
        self._cursors: dict[CursorName, CursorAcks] = {}

    def apply(self, record: LogRecord) -> None:
        """Raises CorruptRecord, also for an END that contradicts another; then nothing has changed."""
        key = decode_key(record.key)
        if not isinstance(key, CursorTakeoverKey | PendingAckKey | PendingAckEndKey):
            return
        name = CursorName(key.topic, key.partition, key.subscription)
        match key:
            case PendingAckEndKey():
                self._end(name, TxnId(key.txn_most, key.txn_least), record)
            case _ if record.value is None:
                self._gone(name, record.key)
            case CursorTakeoverKey():
                life = decode_cursor_takeover(record.value)
                self._life(name, life).take_over(record.key, key.session, key.version)
            case PendingAckKey():
                pending = decode_pending_ack(record.value)
                stored = StoredAck(TxnId(key.txn_most, key.txn_least), record.offset, pending.ack)
                self._life(name, pending.life).put(record.key, pending.version, stored)

    def cursor(self, name: CursorName) -> CursorAcks:
        """The live acks of a cursor; do not keep the object. Empty without records."""
        return self._cursors.get(name) or CursorAcks()

    def cursors(self) -> Mapping[CursorName, CursorAcks]:
        """All cursors with records, including those of subscriptions without an owner."""
        return self._cursors

    def count(self) -> int:
        return sum(acks.count() for acks in self._cursors.values())

    def _end(self, name: CursorName, txn: TxnId, record: LogRecord) -> None:
        if record.value is None:
            self.cursor(name).ends.pop(txn, None)
            self._drop_if_empty(name)
            return
        outcome = decode_end(record.value)
        cursor = self._cursors.setdefault(name, CursorAcks())
        known = cursor.ends.get(txn)
        if known is None:
            cursor.ends[txn] = StoredEnd(record.offset, outcome, record.timestamp_ms)
        elif known.outcome is not outcome:
            raise CorruptRecord(
                f"transaction {txn.most_bits}:{txn.least_bits} is {outcome.name} for {name.subscription} on "
                f"{name.topic}[{name.partition}], at offset {known.offset} it was {known.outcome.name}"
            )

    def _life(self, name: CursorName, life: CursorIncarnation) -> LifeAcks:
        return self._cursors.setdefault(name, CursorAcks()).lives.setdefault(life, LifeAcks())

    def _gone(self, name: CursorName, key: bytes) -> None:
        lives = self.cursor(name).lives
        for life, acks in list(lives.items()):
            acks.pop(key)
            if not acks:
                del lives[life]
        self._drop_if_empty(name)

    def _drop_if_empty(self, name: CursorName) -> None:
        cursor = self._cursors.get(name)
        if cursor is not None and not cursor.lives and not cursor.ends:
            del self._cursors[name]


KEPT_FOR_MS: Final = 3_600_000


def left_over(name: CursorName, acks: CursorAcks, dead: Collection[CursorIncarnation], now_ms: int) -> list[bytes]:
    """Keys to tombstone now, in this order, that no cursor owner cleans. Call again after they were read back.

    The owner of a cursor tombstones acks and ENDs when the cursor has applied the outcome, and reads the log only while
    it holds an ack. So these are left over:

    * Records of an earlier incarnation (its topic or subscription was deleted and perhaps recreated) have no owner. Its
      acks and TAKEOVERs are deleted at once: acks first, then the TAKEOVERs, so that no void ack ever looks valid.
    * Void acks of the present incarnation: a former owner woke up and wrote them. They are deleted at once.
    * ENDs without acks: of transactions whose acks were refused, or written once more by a coordinator that continued
      another one's work. They name no incarnation; they are deleted an hour after they were written, when no ack of
      their transaction is left.

    `dead`: incarnations that were on record before the present one was looked up, without the present one. (An
    incarnation that appeared since may be newer.)
    """
    found: list[bytes] = []
    for life in dead:
        log = acks.life(life)
        found += [key for txn in log.transactions() for key in log.keys_of(txn)] or sorted(log.takeovers)
    for life, log in acks.lives.items():
        if life not in dead:
            found += log.fence.void_keys()
    on_record = {txn for log in acks.lives.values() for txn in log.transactions()}
    for txn, end in acks.ends.items():
        if txn not in on_record and now_ms - end.timestamp_ms >= KEPT_FOR_MS:
            found.append(encode_key(PendingAckEndKey(*name, *txn)))
    return found


def held_by_open(
    acks: CursorAcks, low_waters: Mapping[int, int], life: CursorIncarnation, cursor: CursorState
) -> Holdings:
    """Acks that open transactions hold. Those of committed ones are acknowledged in `cursor`, which may have them
    already.

    As an owner that takes over: an ack without END at or below its coordinator's low-water mark was left over, and
    counts as aborted.

    Raises:
        StoreError: what the cursor knows is out of memory and cannot be read back.
    """
    held = Holdings()
    for txn in acks.life(life).transactions():
        end = acks.ends.get(txn)
        if end is None and txn.least_bits <= low_waters.get(txn.coordinator, -1):
            continue
        for ack in acks.counted(life, txn):
            if end is None:
                held.hold(txn, ack)
            elif end.outcome is TxnOutcome.COMMITTED:
                apply_to(cursor, ack)
    return held
