"""Upkeep keeps the state of transactions small, on the state log in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized, StoreError
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType
from pulsar_on_kafka.broker.metadata.topics import LastLife, Topic
from pulsar_on_kafka.broker.transactions.buffer.cleaning import KEPT_FOR_MS
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.records.inspection import buffer_stats, pending_ack_stats
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.broker.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka.broker.transactions.upkeep.upkeep import WARN_AT, StateSizes, Upkeep, UpkeepRounds
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_keys import (
    CursorTakeoverKey,
    LowWaterKey,
    PendingAckEndKey,
    PendingAckKey,
    encode_key,
)
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CursorIncarnation,
    PendingAck,
    TxnAck,
    TxnOutcome,
    encode_cursor_takeover,
    encode_end,
    encode_pending_ack,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import BufferEntry, buffer_records, encode_low_water
from tests.clocks import PacedClock
from tests.memory_log import MemoryStateLog
from tests.unit.broker.transactions.buffer_records import COORDINATOR, HERE, aborted, key_of, opened, txn, void
from tests.unit.broker.transactions.upkeep.test_sealing import Data

NEVER = Deadline.never()
PARTITION = TRANSACTION_BUFFER_SNAPSHOT.partition_for(HERE.topic)
NAME = CursorName(HERE.topic, 0, "audit")
LIFE = CursorIncarnation(HERE.incarnation, 3)
HOUR_MS = 3_600_000
T1, T2 = txn(1), txn(2)


def topic(incarnation: int = HERE.incarnation) -> Topic:
    return Topic(TopicName.parse(HERE.topic), "kafka", "id", 1, False, LedgerLayout(incarnation, 100))


def subscription(incarnation: int = LIFE.subscription_incarnation) -> Subscription:
    return Subscription(topic(), "audit", SubscriptionType.SHARED, "group", incarnation, {})


@dataclass
class Cluster:
    """The cluster's answers about one topic and one subscription."""

    life: LastLife | None = field(default_factory=lambda: LastLife(HERE.incarnation, topic()))
    subscription: Subscription | None = field(default_factory=subscription)
    log_start: int = 0
    forbidden: bool = False

    def last_life(self, name: TopicName, deadline: Deadline) -> LastLife | None:
        if self.forbidden:
            raise NotAuthorized(f"describing {name}")
        return self.life

    def find(self, topic: Topic, name: str, deadline: Deadline) -> Subscription | None:
        return self.subscription

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, self.log_start)

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, self.log_start)


class Rig:
    """Upkeep of the one partition that has records."""

    def __init__(self) -> None:
        self.clock = PacedClock()
        self.log = MemoryStateLog(self.clock)
        self.views = TransactionViews(self.log, self.clock)
        self.cluster = Cluster()
        self.upkeep = Upkeep(self.log, self.views, self.cluster, self.cluster, self.cluster, self.clock)

    def run(self) -> int:
        return self.upkeep.run([PARTITION], NEVER)

    def put(self, entry: BufferEntry, which: TxnId = T1, session: str = "aa", where: DataPartition = HERE) -> None:
        for key, value in buffer_records(key_of(which, entry, session, where), entry):
            self.log.append(TRANSACTION_BUFFER_SNAPSHOT, PARTITION, encode_key(key), value, NEVER)

    def low(self, mark: int, session: str = "aa") -> None:
        key = encode_key(LowWaterKey(COORDINATOR, session))
        self.log.append(TRANSACTION_BUFFER_SNAPSHOT, PARTITION, key, encode_low_water(mark), NEVER)

    def entries(self) -> int:
        return self.views.buffers.query_partition(PARTITION, lambda found: buffer_stats(found, HERE).entries, NEVER)

    def take_cursor(self, life: CursorIncarnation = LIFE, session: str = "s1", version: int = 1) -> None:
        self._ack(encode_key(CursorTakeoverKey(*NAME, session, version)), encode_cursor_takeover(life))

    def hold(self, *offsets: int, life: CursorIncarnation = LIFE, session: str = "s1", version: int = 1) -> None:
        key = encode_key(PendingAckKey(*NAME, *T1, session, offsets[0]))
        self._ack(key, encode_pending_ack(PendingAck(life, version, TxnAck(BitMap64(offsets)))))

    def end(self) -> None:
        self._ack(encode_key(PendingAckEndKey(*NAME, *T1)), encode_end(TxnOutcome.COMMITTED))

    def _ack(self, key: bytes, value: bytes) -> None:
        self.log.append(TRANSACTION_PENDING_ACK, PARTITION, key, value, NEVER)

    def acks(self, life: CursorIncarnation = LIFE) -> tuple[int, int, int]:
        """Entries that are held by this life, records of other lives, ENDs."""
        stats = self.views.pending_acks.query_partition(
            PARTITION, lambda log: pending_ack_stats(log.cursor(NAME), NAME, life), NEVER
        )
        return stats.entries, stats.former_lives, stats.ended


@pytest.fixture
def rig() -> Rig:
    return Rig()


# Buffers --------------------------------------------------------------------------------------------------------------


def test_what_is_open_or_still_in_the_log_stays(rig: Rig) -> None:
    rig.put(opened(5), T2)
    rig.put(aborted([6, 7]))
    rig.low(1)
    for _ in range(3):
        assert rig.run() == 0
        rig.clock.ms += KEPT_FOR_MS
    assert rig.entries() == 2


def test_an_open_that_is_void_goes_at_once(rig: Rig) -> None:
    rig.put(opened(5))
    assert rig.run() == 0
    rig.low(1)
    assert rig.run() == 1
    assert rig.entries() == 0


def test_an_aborted_entry_goes_an_hour_after_its_records(rig: Rig) -> None:
    rig.put(aborted([6, 7]))
    rig.low(1)
    rig.cluster.log_start = 8
    assert rig.run() == 0
    rig.clock.ms += KEPT_FOR_MS
    assert rig.run() == 1
    assert (rig.entries(), rig.run()) == (0, 0)


def test_what_speaks_of_a_deleted_topic_goes(rig: Rig) -> None:
    rig.put(opened(5), T2)
    rig.put(aborted([6, 7], sealed=False, late_until_ms=rig.clock.ms + 1))
    rig.cluster.life = LastLife(HERE.incarnation, None)
    rig.low(1)
    assert rig.run() == 0, "the one may go on to write, of the other something may come late"
    rig.clock.ms += 2
    assert rig.run() == 1
    rig.low(2)
    assert rig.run() == 1
    assert rig.entries() == 0


def test_of_partitions_that_the_next_topic_does_not_have_everything_goes_that_is_over(rig: Rig) -> None:
    rig.put(void([5]), where=HERE._replace(partition=3))
    rig.put(void([5]))
    rig.cluster.life = LastLife(HERE.incarnation, topic())
    assert rig.run() == 1


def test_a_topic_made_anew_after_it_was_looked_up_keeps_its_entries(rig: Rig) -> None:
    rig.put(opened(5))
    rig.cluster.life = LastLife(HERE.incarnation - 4, topic(HERE.incarnation - 4))
    assert rig.run() == 0
    assert rig.entries() == 1


def test_a_topic_that_cannot_be_asked_about_is_told_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.put(opened(5))
    rig.low(1)
    rig.cluster.forbidden = True
    with caplog.at_level(logging.WARNING):
        assert (rig.run(), rig.run()) == (0, 0)
    (record,) = caplog.records
    assert HERE.topic in record.getMessage()
    rig.cluster.forbidden = False
    assert rig.run() == 1


def test_low_water_marks_of_sessions_that_are_over_go_after_a_day(rig: Rig) -> None:
    rig.low(4, "former")
    rig.low(7, "present")
    assert rig.run() == 0
    rig.clock.ms += 24 * HOUR_MS + 1
    assert rig.run() == 1
    assert rig.views.buffers.query_partition(PARTITION, lambda entries: entries.low_water(COORDINATOR), NEVER) == 7


# Pending acks ---------------------------------------------------------------------------------------------------------


def test_what_a_living_subscription_has_is_left_to_its_owner(rig: Rig) -> None:
    rig.take_cursor()
    rig.hold(3, 4)
    rig.end()
    rig.clock.ms += 48 * HOUR_MS
    assert rig.run() == 0
    assert rig.acks() == (2, 0, 1)


def test_what_a_former_owner_wrote_goes_and_then_the_end_that_nobody_waits_for(rig: Rig) -> None:
    rig.take_cursor()
    rig.take_cursor(session="s2", version=2)
    rig.hold(3, session="s1", version=1)
    rig.hold(4, session="s2", version=2)
    rig.end()
    rig.clock.ms += HOUR_MS
    assert [rig.run() for _ in range(2)] == [1, 0]
    assert rig.acks() == (1, 0, 1)


def test_an_end_without_acks_goes_an_hour_after_it_was_written(rig: Rig) -> None:
    rig.take_cursor()
    rig.end()
    assert rig.run() == 0
    rig.clock.ms += HOUR_MS
    assert (rig.run(), rig.acks()) == (1, (0, 0, 0))


def test_a_deleted_subscription_leaves_nothing_in_the_end(rig: Rig) -> None:
    rig.take_cursor()
    rig.hold(3, 4)
    rig.end()
    rig.cluster.subscription = None
    assert rig.run() == 1  # the ack; then what made it valid
    assert rig.run() == 1
    assert (rig.run(), rig.acks()) == (0, (0, 0, 1))
    rig.clock.ms += HOUR_MS
    assert (rig.run(), rig.acks()) == (1, (0, 0, 0))


def test_a_deleted_topic_leaves_nothing_in_the_end(rig: Rig) -> None:
    rig.take_cursor()
    rig.hold(3, 4)
    rig.end()
    rig.cluster.life = LastLife(HERE.incarnation, None)
    rig.clock.ms += HOUR_MS
    assert [rig.run() for _ in range(3)] == [1, 2, 0]
    assert rig.acks() == (0, 0, 0)


def test_of_a_subscription_that_was_made_anew_only_the_former_life_goes(rig: Rig) -> None:
    rig.take_cursor()
    rig.hold(3, 4)
    again = CursorIncarnation(HERE.incarnation, LIFE.subscription_incarnation + 8)
    rig.take_cursor(again, "s2")
    rig.hold(9, life=again, session="s2")
    rig.end()
    rig.cluster.subscription = subscription(again.subscription_incarnation)
    rig.clock.ms += 48 * HOUR_MS
    assert [rig.run() for _ in range(3)] == [1, 1, 0]
    assert rig.acks(again) == (1, 0, 1)


def test_a_partition_that_a_subscription_was_removed_from_counts_as_deleted(rig: Rig) -> None:
    rig.take_cursor()
    rig.cluster.subscription = Subscription(
        topic(), "audit", SubscriptionType.SHARED, "group", 3, {}, partitions=(1,), rebirths={0: 1}
    )
    assert (rig.run(), rig.acks()) == (1, (0, 0, 0))


def test_an_end_stays_while_an_ack_of_its_transaction_does(rig: Rig) -> None:
    rig.take_cursor()
    rig.hold(3)
    rig.end()
    rig.cluster.subscription = None
    rig.clock.ms += HOUR_MS
    assert rig.run() == 1
    assert rig.acks()[2] == 1


# Both -----------------------------------------------------------------------------------------------------------------


def test_nothing_is_begun_after_the_deadline(rig: Rig) -> None:
    rig.put(opened(5))
    rig.low(1)
    assert rig.upkeep.run([PARTITION], Deadline.after(-1)) == 0
    assert rig.run() == 1


def test_partitions_that_others_clean_are_left_alone(rig: Rig) -> None:
    rig.put(opened(5))
    rig.low(1)
    assert rig.upkeep.run([(PARTITION + 1) % 16], NEVER) == 0
    assert rig.upkeep.sizes.totals() == (0, 0)
    assert rig.run() == 1
    assert rig.upkeep.sizes.totals() == (1, 0)
    assert rig.run() == 0
    assert rig.upkeep.sizes.totals() == (0, 0)


def test_rounds_go_on_after_one_that_failed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    again = threading.Event()

    def run(partitions: Collection[int], deadline: Deadline) -> int:
        done.extend(partitions)
        if len(done) == 1:
            raise StoreError("no broker")
        again.set()
        return 0

    monkeypatch.setattr(rig.upkeep, "run", run)
    sealing = Sealing(rig.log, rig.views, Data(), rig.clock, "s")
    rounds = UpkeepRounds(rig.upkeep, sealing, lambda: [PARTITION], first_s=0, every_s=0.001)
    assert again.wait(60)
    rounds.close(Deadline.after(60))
    assert set(done) == {PARTITION}
    rounds.close(NEVER)


def test_growth_is_warned_about_when_it_doubles(caplog: pytest.LogCaptureFixture) -> None:
    sizes = StateSizes()
    with caplog.at_level(logging.WARNING):
        for records in (WARN_AT - 1, WARN_AT, WARN_AT + 5, 2 * WARN_AT, 3 * WARN_AT, 10, WARN_AT):
            sizes.note(TRANSACTION_PENDING_ACK, 3, records)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert all("__transaction_pending_ack-3 has" in each for each in told)
