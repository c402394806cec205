"""Histories of coordinators are judged by a naive truth that sees every append as it happens, and by simulated
effects."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.transactions.records.outcomes import (
    Announcement,
    Ended,
    OpenedTransaction,
    PartitionsFailed,
)
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import (
    CoordinatorTakeoverKey,
    TransactionAnswerKey,
    TransactionLogKey,
    decode_key,
)
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_LOG, StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
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
from tests.memory_log import MemoryStateLog
from tests.simulation.turns import COMPACTION_LAG_S, RETENTION_S

TOPIC = replace(
    TRANSACTION_LOG,
    configs={
        "delete.retention.ms": str(RETENTION_S * 1000),
        "min.compaction.lag.ms": str(COMPACTION_LAG_S * 1000),
        "message.timestamp.type": "LogAppendTime",
    },
)


@dataclass
class Fate:
    """One transaction, by the valid records of the whole log; nothing is ever forgotten here."""

    request: str
    status: TxnStatus = TxnStatus.OPEN
    partitions: set[TopicPartition] = field(default_factory=set)
    subscriptions: set[TopicSubscription] = field(default_factory=set)
    marked: set[TopicPartition] = field(default_factory=set)
    acked: bool = False
    settled: set[TopicPartition] = field(default_factory=set)

    @property
    def committed(self) -> bool:
        return self.status in (TxnStatus.COMMITTING, TxnStatus.COMMITTED)

    @property
    def decided(self) -> bool:
        return self.status is not TxnStatus.OPEN

    @property
    def finished(self) -> bool:
        return self.status in (TxnStatus.COMMITTED, TxnStatus.ABORTED)

    @property
    def everywhere(self) -> bool:
        """Markers where it wrote, and the buffers settled; ENDs where it acknowledged."""
        return self.partitions <= self.marked & self.settled and (self.acked or not self.subscriptions)


class Truth:
    """One coordinator: reads each record when it gets its place in the log, before anybody else can."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: tuple[str, int] | None = None
        self.highest = -1
        self.fates: dict[TxnId, Fate] = {}
        self.told: set[TxnId] = set()
        self.timed_out: set[TxnId] = set()
        self.requests: set[str] = set()
        self.news: dict[bytes, TxnId] = {}

    def see(self, raw_key: bytes, value: bytes | None) -> None:
        key = decode_key(raw_key)
        if value is None:
            txn = self.news.get(raw_key)
            if txn is not None:
                assert self.fates[txn].finished, f"{self.name}: {txn} is forgotten as {self.fates[txn].status}"
            return
        record = decode_log_value(value)
        version = 0 if self.owner is None else self.owner[1]
        if isinstance(record, TakenOver):
            assert isinstance(key, CoordinatorTakeoverKey)
            if key.version > version:
                self.owner = (key.session, key.version)
                self.highest = max(self.highest, record.max_local_id)
        elif record.by >= version and not isinstance(key, TransactionAnswerKey):
            assert isinstance(key, TransactionLogKey)
            self._valid(raw_key, TxnId(key.txn_most, key.txn_least), record)

    def _valid(self, raw_key: bytes, txn: TxnId, record: object) -> None:
        if isinstance(record, NewTransaction):
            if txn.least_bits > self.highest:
                self.highest = txn.least_bits
                self.fates[txn] = Fate(record.request)
                self.news[raw_key] = txn
                assert not record.request or record.request not in self.requests, f"{self.name}: one request, two NEWs"
                self.requests.add(record.request)
            return
        fate = self.fates[txn]
        if isinstance(record, PartitionsAdded) and not fate.decided:
            fate.partitions.update(record.partitions)
        elif isinstance(record, SubscriptionsAdded) and not fate.decided:
            fate.subscriptions.update(record.subscriptions)
        elif isinstance(record, StatusUpdated):
            self._updated(txn, fate, record.status)

    def _updated(self, txn: TxnId, fate: Fate, status: TxnStatus) -> None:
        if status in (TxnStatus.COMMITTING, TxnStatus.ABORTING):
            if not fate.decided:
                fate.status = status
                assert not fate.committed or txn not in self.timed_out, f"{self.name}: {txn} was told as timed out"
            return
        assert fate.decided, f"{self.name}: {txn} is {status} out of the blue"
        assert fate.committed == (status is TxnStatus.COMMITTED), f"{self.name}: {txn} was {fate.status}, now {status}"
        assert fate.everywhere, f"{self.name}: {txn} is {status}, and that is not everywhere: {fate}"
        fate.status = status

    # What somebody is told ----------------------------------------------------------------------------------------

    def told_begun(self, txn: TxnId) -> None:
        assert txn in self.fates, f"{self.name}: {txn} was told, and is not in the log"
        assert txn not in self.told, f"{self.name}: {txn} was given twice"
        self.told.add(txn)

    def told_registered(self, txn: TxnId, each: TopicPartition | TopicSubscription, announced: bool) -> None:
        fate = self.fates[txn]
        assert each in fate.partitions or each in fate.subscriptions, f"{self.name}: {each} is not registered"
        assert announced or isinstance(each, TopicSubscription), f"{self.name}: {each} was not announced"

    def told_ended(self, txn: TxnId, committed: bool) -> None:
        fate = self.fates[txn]
        assert fate.decided, f"{self.name}: {txn} was told as ended, and is {fate.status}"
        assert fate.everywhere, f"{self.name}: {txn} was told as ended, and is not everywhere"
        assert fate.committed == committed, f"{self.name}: {txn} was told as {committed=}, and is {fate.status}"

    def told_timed_out(self, txn: TxnId) -> None:
        """Its client lets nobody commit it any more, so it must not be."""
        assert not self.fates[txn].committed, (
            f"{self.name}: {txn} was told as timed out, and is {self.fates[txn].status}"
        )
        self.timed_out.add(txn)

    def told_refused(self, txn: TxnId, commit: bool) -> None:
        fate = self.fates[txn]
        assert fate.decided, f"{self.name}: {txn} was refused while {fate.status}"
        assert fate.committed != commit, f"{self.name}: {txn} was refused to end as it does: {fate.status}"


class WatchedLog(MemoryStateLog):
    """The log in memory; truths see what is appended to the logs of coordinators."""

    def __init__(self, clock: Clock, truths: dict[int, Truth]) -> None:
        super().__init__(clock)
        self._truths = truths

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        offsets = super().append_many(topic, partition, records, deadline)
        if topic.name == TOPIC.name:
            for key, value in records:
                self._truths[partition].see(key, value)
        return offsets


class SimulatedOutcomes:
    """Effects in memory. They may fail before or after they happened, and the owner may be stopped at any point."""

    def __init__(self, truth: Truth, rng: random.Random, pause: Callable[[], object], failing: float) -> None:
        self._truth = truth
        self._rng = rng
        self.pause = pause
        self._failing = failing
        self.announced: set[tuple[TxnId, TopicPartition]] = set()
        self.low_water = -1

    def trouble(self) -> None:
        """Others have their turns, or it fails."""
        if self._rng.random() < self._failing:
            raise StoreError("simulated")
        if self._rng.random() < 0.1:
            self.pause()

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        self.trouble()
        bad = self.bad_partitions([each for _, partitions in participants for each in partitions])
        if bad:
            raise PartitionsFailed(bad, "simulated")
        for txn, partitions in participants:
            assert set(partitions) <= self._truth.fates[txn].partitions, f"{txn} announced before it was registered"
            self.announced.update((txn, each) for each in partitions)
        self.trouble()
        return {}

    def _ended(self, ended: Sequence[Ended]) -> list[Fate]:
        fates = []
        for each in ended:
            fate = self._truth.fates[each.txn]
            assert fate.decided, f"{self._truth.name}: effects of {each.txn} before it was decided"
            assert fate.committed == each.committed, f"{self._truth.name}: {each} is {fate.status}"
            assert set(each.partitions) <= fate.partitions, f"{self._truth.name}: {each} has {fate.partitions}"
            assert set(each.subscriptions) == fate.subscriptions, f"{self._truth.name}: {each}"
            fates.append(fate)
        return fates

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        self.trouble()
        bad = self.bad_partitions([each for one in ended for each in one.partitions])
        self.mark(ended, bad)
        if bad:
            raise PartitionsFailed(bad, "simulated")
        self.trouble()

    def mark(self, ended: Sequence[Ended], bad: AbstractSet[TopicPartition] = frozenset()) -> None:
        """Their markers are there."""
        for one, fate in zip(ended, self._ended(ended), strict=True):
            fate.marked.update(each for each in one.partitions if each not in bad)

    def bad_partitions(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        return {self._rng.choice(partitions)} if partitions and self._rng.random() < self._failing else set()

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        self.trouble()
        for fate in self._ended(ended):
            fate.acked = True
        self.trouble()

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        self.announce(along, session, deadline)
        self.settle(ended)
        return {}

    def settle(self, ended: Sequence[Ended], bad: AbstractSet[TopicPartition] = frozenset()) -> None:
        self.trouble()
        for one, fate in zip(ended, self._ended(ended), strict=True):
            settled = {each for each in one.partitions if each not in bad}
            assert settled <= fate.marked, f"{self._truth.name}: {one} is settled before its markers are there"
            fate.settled |= settled
        self.trouble()

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        self.trouble()
        open_below = [
            txn for txn, fate in self._truth.fates.items() if txn.least_bits <= low_water and not fate.finished
        ]
        assert not open_below, f"{self._truth.name}: low water {low_water} lies above {open_below}"
        self.low_water = max(self.low_water, low_water)
