"""Lists that are made anew while deletions are on their way: who may begin where is not changed by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict, PartitionNow, judge
from pulsar_on_kafka.broker.managed_ledger.first_left import first_kept
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange, Measured
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner, Stretch, TopicLogs
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
TOPIC = "persistent://public/default/orders"
LAYOUT = LedgerLayout(7, 10)
PLACE = LedgerPlace(TOPIC, 7, 0)
LOG = LogRange(0, 35)


@dataclass
class OneTopic:
    """Kafka with one topic of one partition, which keeps all of its data."""

    log: LogRange = LOG

    def living(self, state_partition: int, deadline: Deadline) -> list[TopicLogs]:
        return [TopicLogs(TOPIC, "public.default.orders", LAYOUT, {0: self.log})]

    def measure(self, stretches: Sequence[Stretch], deadline: Deadline) -> list[Measured]:
        return [Measured(each.end - each.start, 0, 1, 2) for each in stretches]


def an_owner(data: OneTopic) -> LedgerOwner:
    owner = LedgerOwner(MemoryStateLog(), 0, data, SystemClock())
    owner.take_over(NEVER)
    return owner


def listed(owner: LedgerOwner) -> list[Ledger]:
    return owner.lists(NEVER).ledgers(PLACE)


def test_a_subscription_begins_behind_what_was_taken_off_also_where_the_list_was_made_anew_since() -> None:
    owner = an_owner(OneTopic())
    owner.turn(NEVER)
    off = listed(owner)[:2]
    owner.restate(off, LedgerState.DELETING, NEVER)
    owner.restate(off, LedgerState.REMOVED, NEVER)
    owner.rebuild(NEVER)
    assert [(each.ledger_index, each.state) for each in listed(owner)] == [
        (2, LedgerState.CLOSED),
        (3, LedgerState.OPEN),
    ]
    # The process that took them off trusts itself: it looked at who needs the log, and reads no list.
    found = judge(TOPIC, 0, off[-1].id, PartitionNow(PLACE, LAYOUT, (), LOG, Needs()), trusted=True)
    assert found.verdict is DeletionVerdict.DELETE
    assert first_kept(listed(owner)) >= found.before, "whoever begins now does not begin with what goes"


def test_what_is_being_deleted_stays_so_and_what_is_behind_it_is_measured_anew() -> None:
    owner = an_owner(OneTopic())
    owner.turn(NEVER)
    owner.restate(listed(owner)[:1], LedgerState.DELETING, NEVER)
    assert owner.rebuild(NEVER).written == 4
    states = [each.state for each in listed(owner)]
    assert states == [LedgerState.DELETING, LedgerState.CLOSED, LedgerState.CLOSED, LedgerState.OPEN]


def test_a_list_that_was_lost_begins_at_the_logs_start() -> None:
    owner = an_owner(OneTopic(LogRange(13, 35)))
    assert owner.rebuild(NEVER).written == 3
    assert [(each.first, each.end) for each in listed(owner)] == [(13, 20), (20, 30), (30, 35)]


def test_where_the_log_lost_all_that_was_listed_the_next_turn_lists_what_is_left() -> None:
    data = OneTopic(LogRange(20, 35))
    owner = an_owner(data)
    owner.turn(NEVER)
    data.log = LogRange(0, 15)  # an unclean election, and a replica that had been away for long
    owner.rebuild(NEVER)
    owner.turn(NEVER)
    assert [(each.ledger_index, each.first, each.end) for each in listed(owner)] == [(0, 0, 10), (1, 10, 15)]
