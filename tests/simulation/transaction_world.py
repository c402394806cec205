"""A small world in which transactions consume, process and produce: two coordinators' hands, two owners of one cursor,
clients and readers, on logs in memory. What stands for parts that are not under test is kept simple: a coordinator's
decision is one atomic fact (`Txn.decided`), the group's commit one accepted or refused assignment.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import Cleanup, PartitionedBy, StateTopic
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation, TxnAck
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import BufferEntry, buffer_records, kind_of
from tests.memory_log import MemoryStateLog
from tests.simulation.broker import SimulatedBroker
from tests.simulation.turns import (
    COMPACTION_LAG_S,
    NEVER,
    RETENTION_S,
    Actor,
    ActorsLog,
    ManualClock,
    kafka_cleans,
)

CURSOR = CursorName("persistent://public/default/in", 0, "workers")
LIFE = CursorIncarnation(1, 1)
OUT = (DataPartition("persistent://public/default/out", 0, 2), DataPartition("persistent://public/default/out", 1, 2))
INPUTS = 16
BATCH_SIZE = 3

Unit = tuple[int, int]
"""An input message: offset, and batch index (0 for what is no batch)."""


def _compacted(name: str) -> StateTopic:
    configs = {
        "delete.retention.ms": str(RETENTION_S * 1000),
        "min.compaction.lag.ms": str(COMPACTION_LAG_S * 1000),
        "message.timestamp.type": "LogAppendTime",
    }
    return StateTopic(name, 1, Cleanup.COMPACT, PartitionedBy.TOPIC, "simulations", "gone", configs)


BUFFER = _compacted("simulated_buffer")
ACKS = _compacted("simulated_acks")
DATA = StateTopic("simulated_data", 2, Cleanup.DELETE, PartitionedBy.TOPIC, "simulations", "nothing", {})


def is_batch(offset: int) -> bool:
    return offset % 4 == 3


UNITS: tuple[Unit, ...] = tuple(
    (offset, index) for offset in range(INPUTS) for index in range(BATCH_SIZE if is_batch(offset) else 1)
)


@dataclass
class Txn:
    """The truth of a transaction."""

    id: TxnId
    began_s: int
    decided: bool | None = None
    finished: bool = False
    """Its outcome is durable wherever it has to be."""
    fates_known: bool = False
    bounds: dict[int, int] = field(default_factory=dict)
    """Registered partitions of OUT, and where each ended then."""
    subscribed: bool = False
    held: set[Unit] = field(default_factory=set)
    """What an owner answered to be held."""


@dataclass
class Request:
    """A client's wish to acknowledge, and the owner's answer."""

    txn: Txn
    units: list[Unit]
    answer: bool | None = None


class Logs:
    """The three logs as one actor meets them."""

    def __init__(self, world: World, actor: Actor) -> None:
        def meet(log: MemoryStateLog) -> ActorsLog:
            return ActorsLog(log, actor, world.rng, world.broker, unknown_share=0.06)

        self.buffer, self.acks, self.data = meet(world.buffer), meet(world.acks), meet(world.data)
        self.entries = LogView(self.buffer, BUFFER, 0, BufferEntries, world.clock)
        self.pending = LogView(self.acks, ACKS, 0, PendingAckLog, world.clock)

    def put(self, where: DataPartition, txn: TxnId, entry: BufferEntry, session: str) -> None:
        key = TransactionBufferKey(where.topic, where.partition, *txn, kind_of(entry).value, session, 0)
        for part, value in buffer_records(key, entry):
            self.buffer.append(BUFFER, 0, encode_key(part), value, NEVER)


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.buffer, self.acks, self.data = (MemoryStateLog(self.clock) for _ in range(3))
        self.broker = SimulatedBroker(self.rng)
        self.txns: list[Txn] = []
        self.names = 0
        self.generation = 0
        self.stored = Stored()
        self.owners: dict[object, Serving] = {}
        """Those that serve, or believe so."""

    def name(self) -> str:
        """Of a session, a data record: never twice."""
        self.names += 1
        return f"{self.names:04x}"

    # What a coordinator decides -----------------------------------------------------------------------------------

    def begin(self) -> Txn:
        txn = Txn(TxnId(0, len(self.txns)), self.clock.seconds)
        self.txns.append(txn)
        return txn

    def decide(self, txn: Txn, *, commit: bool) -> bool:
        """The outcome that stands."""
        if txn.decided is None:
            txn.decided = commit
        return txn.decided

    def low_water(self) -> int:
        """The low-water mark of now; it only grows."""
        return min((txn.id.least_bits for txn in self.txns if not txn.finished), default=len(self.txns)) - 1

    def committed_units(self) -> set[Unit]:
        return {unit for txn in self.txns if txn.decided for unit in txn.held}

    # Data ---------------------------------------------------------------------------------------------------------

    def output(self, txn: TxnId, unit: Unit) -> tuple[bytes, bytes]:
        """A record that says what it was made from."""
        return self.name().encode(), json.dumps([*txn, None, *unit]).encode()

    def marker(self, txn: TxnId, *, committed: bool) -> tuple[bytes, bytes]:
        return self.name().encode(), json.dumps([*txn, committed, 0, 0]).encode()

    # Kafka --------------------------------------------------------------------------------------------------------

    def clean(self) -> None:
        log, topic = self.rng.choice([(self.buffer, BUFFER), (self.acks, ACKS)])
        kafka_cleans(log, topic, self.clock, self.rng)


def met_of(offset: int, value: bytes | None) -> tuple[MetRecord, Unit]:
    most, least, ended, position, index = json.loads(value or b"")
    return MetRecord(offset, TxnId(most, least), ended), (position, index)


@dataclass
class Stored:
    """The cursor as the group's commit has it."""

    version: int = 0
    next_unacked: int = 0
    deleted: frozenset[int] = frozenset()
    batches: dict[int, BatchAckSet] = field(default_factory=dict)

    def open(self) -> CursorState:
        cursor = CursorState(self.next_unacked, 1000)
        cursor.acknowledge(list(self.deleted))
        cursor.acknowledge_batches(self.batches)
        return cursor

    def units(self) -> set[Unit]:
        return acknowledged(self.open())


def stored(cursor: CursorState, version: int) -> Stored:
    return Stored(version, cursor.next_unacked, frozenset(cursor.deleted), dict(cursor.batches.items()))


def acknowledged(cursor: CursorState) -> set[Unit]:
    def has(unit: Unit) -> bool:
        batch = cursor.batches.get(unit[0]) if is_batch(unit[0]) else None
        return cursor.is_acknowledged(unit[0]) or (batch is not None and bool(batch.acked >> unit[1] & 1))

    return {unit for unit in UNITS if has(unit)}


def ack_of(units: list[Unit]) -> TxnAck:
    batches: dict[int, tuple[int, int]] = {}
    for offset, index in units:
        if is_batch(offset):
            batches[offset] = (BATCH_SIZE, batches.get(offset, (0, 0))[1] | 1 << index)
    return TxnAck(BitMap64(offset for offset, _ in units if not is_batch(offset)), batches)


@dataclass
class Serving:
    """An owner's desk: what it has to hand out, what is out, and what clients want of it."""

    available: set[Unit]
    out: set[Unit] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)

    def take(self, rng: random.Random) -> list[Unit]:
        units = rng.sample(sorted(self.available), min(len(self.available), rng.randint(1, 3)))
        self.available.difference_update(units)
        self.out.update(units)
        return units
