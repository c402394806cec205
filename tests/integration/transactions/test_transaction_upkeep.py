"""Leftovers of transactions are cleaned, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.records.inspection import buffer_stats
from pulsar_on_kafka.broker.transactions.upkeep.upkeep import Upkeep
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from tests.integration.transactions_by_hand import PATIENCE_S, WrittenByHand
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def patience() -> Deadline:
    return Deadline.after(PATIENCE_S)


@pytest.fixture
def by_hand(admin: AdminClient, unique: Unique) -> Iterator[WrittenByHand]:
    topic = f"persistent://public/default/{unique()}"
    admin.create_partitioned_topic(topic, 2)
    made = WrittenByHand(admin, topic)
    yield made
    made.finish()


@pytest.fixture
def clean(admin: AdminClient, by_hand: WrittenByHand) -> Callable[[], int]:
    """Cleans what lies in the same partition of the state topics as the topic."""
    node = admin.node
    upkeep = Upkeep(node.log, node.transaction_views, node.topics, node.subscriptions, node.admin, node.clock)
    partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(by_hand.name)
    return lambda: upkeep.run([partition], patience())


def entries_of(by_hand: WrittenByHand, partition: int = 0) -> int:
    where = DataPartition(by_hand.name, partition, by_hand.topic.layout.incarnation)
    return by_hand.node.transaction_views.buffers.query(
        by_hand.name, lambda entries: buffer_stats(entries, where).entries, patience()
    )


def test_what_is_open_stays_until_it_is_over(
    admin: AdminClient, by_hand: WrittenByHand, clean: Callable[[], int]
) -> None:
    clean()
    running, over = by_hand.begin(), by_hand.begin()
    by_hand.opened(running, 0)
    by_hand.opened(over, 0)
    by_hand.aborted(over, [0, 1], 2)
    assert clean() >= 1
    assert entries_of(by_hand) == 2
    admin.delete_topic(by_hand.name)
    admin.create_partitioned_topic(by_hand.name, 2)
    again = WrittenByHand(admin, by_hand.name)
    alive = again.begin()
    again.opened(alive, 0, partition=1)
    clean()
    assert (entries_of(again), entries_of(again, 1)) == (2, 1), "they hold the topic made anew, too"
    admin.delete_topic(by_hand.name)
    clean()
    assert (entries_of(again), entries_of(again, 1)) == (2, 1), "and the next one"
    again.low_water(alive)
    assert clean() >= 3
    clean()
    assert (entries_of(again), entries_of(again, 1)) == (0, 0)
    again.finish()


def test_acks_of_a_deleted_subscription_go_and_its_successors_stay(
    admin: AdminClient, by_hand: WrittenByHand, clean: Callable[[], int]
) -> None:
    name = CursorName(by_hand.name, 0, "audit")

    def left() -> tuple[int, int]:
        """Lives that anything is on record of, and ENDs."""
        return by_hand.node.transaction_views.pending_acks.query(
            by_hand.name, lambda log: (len(log.cursor(name).lives), len(log.cursor(name).ends)), patience()
        )

    admin.create_subscription(by_hand.name, "audit")
    txn = by_hand.begin()
    by_hand.take_cursor("audit")
    by_hand.hold(txn, "audit", 1, 2)
    clean()
    assert left() == (1, 0)
    admin.unsubscribe(by_hand.name, "audit")
    admin.create_subscription(by_hand.name, "audit")
    by_hand.take_cursor("audit", 2)
    by_hand.hold(txn, "audit", 3, version=2)
    by_hand.end(txn, "audit", committed=True)
    assert left() == (2, 1)
    assert clean() >= 1
    clean()
    assert left() == (1, 1)
    admin.unsubscribe(by_hand.name, "audit")
    clean()
    clean()
    assert left() == (0, 1), "an END is kept for an hour"
