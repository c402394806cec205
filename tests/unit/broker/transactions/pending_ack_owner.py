"""A cursor's owner on the state log in memory: what the wiring does, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import (
    PendingAckAnswer,
    PendingAcks,
    SettledAck,
)
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import PendingAckEndKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK as TOPIC
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CumulativeAck,
    CursorIncarnation,
    TxnAck,
    TxnOutcome,
    encode_end,
)
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
NAME = CursorName("persistent://public/default/orders", 0, "audit")
LIFE = CursorIncarnation(7, 3)
COORDINATOR = 2


def txn(number: int) -> TxnId:
    return TxnId(COORDINATOR << 48, number)


def whole(*offsets: int) -> TxnAck:
    return TxnAck(BitMap64(offsets))


def batch(offset: int, size: int, *indexes: int) -> TxnAck:
    return TxnAck(batches={offset: (size, sum(1 << index for index in indexes))})


def upto(offset: int, size: int = 0, acked: int = 0) -> TxnAck:
    return TxnAck(cumulative=CumulativeAck(offset, size, acked))


def end(log: MemoryStateLog, which: TxnId, *, committed: bool, name: CursorName = NAME) -> None:
    """What a coordinator appends."""
    key = PendingAckEndKey(*name, *which)
    log.append(TOPIC, 0, encode_key(key), encode_end(TxnOutcome(committed)), NEVER)


class CursorOwner:
    """`cursor` is what its process knows; `saved` stands for what the group's commit has."""

    def __init__(
        self,
        log: StateLog,
        session: str,
        version: int,
        cursor: CursorState | None = None,
        life: CursorIncarnation = LIFE,
    ) -> None:
        self.log = log
        self.view = LogView(log, TOPIC, 0, PendingAckLog, SystemClock())
        self.cursor = cursor or CursorState(0, 1000)
        self.acks = PendingAcks(NAME, life, session, version)
        self.low_waters: Mapping[int, int] = {}

    def start(self) -> CursorOwner:
        self.log.append(TOPIC, 0, *self.acks.take_over(), NEVER)
        self.view.query(lambda log: self.acks.replayed(log.cursor(NAME), self.low_waters, self.cursor.revision), NEVER)
        return self

    def round(self) -> dict[int, PendingAckAnswer]:
        """Decide, append, read back; what was answered, by ticket."""
        decision = self.acks.decide(self.cursor)
        if decision.records:
            self.log.append_many(TOPIC, 0, decision.records, NEVER)
        answers = self.view.query(lambda log: self.acks.read_back(log.cursor(NAME), self.low_waters), NEVER)
        return {answer.ticket: answer for answer in [*decision.answers, *answers]}

    def acknowledge(self, which: TxnId, ack: TxnAck) -> None:
        """Raises what the answer says."""
        ticket = self.acks.request(which, ack)
        answer = self.round()[ticket]
        if answer.failure is not None:
            raise answer.failure

    def settle(self) -> list[SettledAck]:
        self.round()
        return self.acks.settle(self.cursor)

    def save(self) -> None:
        self.acks.saved(self.cursor.revision)

    def clean(self) -> int:
        keys = self.view.query(lambda log: self.acks.to_clean(log.cursor(NAME)), NEVER)
        for key in keys:
            self.log.append(TOPIC, 0, key, None, NEVER)
        return len(keys)

    def clean_up(self) -> None:
        """Clean until nothing is due; no record may be named twice."""
        for _ in range(5):
            if not self.clean():
                return
        raise AssertionError("cleaning does not come to an end")

    def left(self) -> int:
        """Records that are not tombstoned."""
        return len(values_of(self.log))


def values_of(log: StateLog) -> dict[bytes, bytes]:
    """The newest value of each key."""
    found: dict[bytes, bytes] = {}
    for run in log.read(TOPIC, 0, 0, log.end_offset(TOPIC, 0, NEVER), NEVER):
        for record in run:
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
    return found
