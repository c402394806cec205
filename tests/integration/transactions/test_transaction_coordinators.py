"""Coordinators on a real broker: who serves them, and what they leave in the log, read with plain Kafka clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidTxnStatus
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.transactions.buffer.entries import TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.client_transaction import (
    ClientTransaction,
    TransactionClient,
    TransactionState,
)
from pulsar_on_kafka.broker.transactions.effects.kafka_partitions import KafkaDataPartitions
from pulsar_on_kafka.broker.transactions.serving.coordinator_client import ClusterAccess, RemoteCoordinator
from pulsar_on_kafka.broker.transactions.serving.coordinators import Coordinators
from pulsar_on_kafka.broker.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import TXN
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_COORDINATOR_ASSIGN
from tests.clocks import PacedClock
from tests.integration.transaction_support import (
    PATIENCE_S,
    Seen,
    buffer_of,
    data_of,
    markers_of,
    on_record,
    topic_config,
)
from tests.state_log_requests import coordinator_logs
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

ALL = list(range(TRANSACTION_COORDINATOR_ASSIGN.partitions))


def patience() -> Deadline:
    return Deadline.after(PATIENCE_S)


@pytest.fixture
def nodes(bootstrap: str) -> Iterator[Callable[[], Node]]:
    """Makes processes' presences, all in this one."""
    made: list[Node] = []

    def make() -> Node:
        made.append(Node(KafkaSettings(bootstrap), patience()))
        return made[-1]

    yield make
    for node in made:
        node.close(patience())


def open_topic(node: Node, name: str) -> Topic:
    return node.topics.open(TopicName.parse(name), patience())


def send(bootstrap: str, topic: Topic, txn: ClientTransaction, *values: bytes) -> None:
    """Send as a producer of another program would: registered first, the transaction's id in a header."""
    txn.register_partition(str(topic.name), 0, patience())
    plain = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        plain.produce(topic.kafka_topic, value, partition=0, headers=[(TXN, txn.id.to_bytes())])
    assert plain.flush(PATIENCE_S) == 0


def without_coordinators(node: Node) -> TransactionClient:
    """The client of a process that serves none."""

    def remote(number: int) -> RemoteCoordinator:
        return RemoteCoordinator(node.log, number, coordinator_logs(node.log, node.clock), node.clock)

    def none(number: int) -> object:
        raise AssertionError(f"coordinator {number} was assigned to nobody")

    return TransactionClient(ClusterAccess(Coordinators(none), remote, lambda: len(ALL)), node.clock)  # type: ignore[arg-type]


def test_a_commit_and_an_abort_as_plain_kafka_programs_see_them(
    nodes: Callable[[], Node], bootstrap: str, unique: Unique
) -> None:
    node = nodes()
    topic = open_topic(node, unique())
    where = DataPartition(str(topic.name), 0, topic.layout.incarnation)
    before_max = "message.timestamp.before.max.ms"
    node.admin.set_topic_configs(topic.kafka_topic, {before_max: "120000"}, patience())  # as earlier versions did
    client = node.transactions.client(patience())
    until(lambda: node.transactions.owned() == ALL, "the client to own all coordinators")
    kept, dropped = client.begin(60_000, patience()), client.begin(60_000, patience())
    send(bootstrap, topic, kept, b"a", b"b")
    assert buffer_of(bootstrap, str(topic.name)).open_bounds(where) == {kept.id: 0}
    send(bootstrap, topic, dropped, b"c")
    assert buffer_of(bootstrap, str(topic.name)).status(where, dropped.id) is TxnEntryStatus.OPEN
    assert topic_config(bootstrap, topic.kafka_topic, before_max) != "120000", "nothing old is refused any more"

    kept.commit(patience())
    dropped.abort(patience())
    assert (kept.state, dropped.state) == (TransactionState.COMMITTED, TransactionState.ABORTED)
    with pytest.raises(InvalidTxnStatus):
        dropped.commit(patience())

    assert data_of(bootstrap, topic.kafka_topic) == [
        Seen(0, b"a", kept.id, None),
        Seen(1, b"b", kept.id, None),
        Seen(2, b"c", dropped.id, None),
        Seen(3, None, kept.id, True),
        Seen(4, None, dropped.id, False),
    ]
    entries = buffer_of(bootstrap, str(topic.name))
    assert entries.open_bounds(where) == {}
    assert entries.status(where, kept.id) is TxnEntryStatus.COMMITTED
    aborted = entries.aborted(where, dropped.id)
    assert aborted is not None
    assert list(aborted.offsets) == [2]


@pytest.mark.long
def test_a_time_out_aborts(nodes: Callable[[], Node], bootstrap: str, unique: Unique) -> None:
    node = nodes()
    topic = open_topic(node, unique())
    txn = node.transactions.client(patience()).begin(8_000, patience())
    send(bootstrap, topic, txn, b"a")
    until(lambda: markers_of(bootstrap, topic.kafka_topic) == {txn.id: {False}}, "the abort's marker")
    assert txn.state is TransactionState.TIME_OUT
    with pytest.raises(InvalidTxnStatus):
        txn.commit(patience())


def test_another_process_takes_over_what_a_closed_one_left_open(
    nodes: Callable[[], Node], bootstrap: str, unique: Unique
) -> None:
    first, second = nodes(), nodes()
    topic = open_topic(first, unique())
    left = first.transactions.client(patience()).begin(300_000, patience())
    send(bootstrap, topic, left, b"a")
    client = second.transactions.client(patience())
    until(
        lambda: (
            len(second.transactions.owned()) == len(ALL) // 2
            and sorted([*first.transactions.owned(), *second.transactions.owned()]) == ALL
        ),
        "the coordinators to be shared out",
    )
    first.close(patience())
    until(lambda: second.transactions.owned() == ALL, "the second one to own all coordinators")

    own = client.begin(60_000, patience())
    send(bootstrap, topic, own, b"b")
    own.commit(patience())
    found = on_record(bootstrap, left.id)
    assert found is not None
    assert not found.finished

    heir = nodes()
    heir_access = without_coordinators(heir)
    resumed = ClientTransaction(left.id, 300_000, heir_access._access, heir.clock)
    resumed.commit(patience())
    assert markers_of(bootstrap, topic.kafka_topic) == {own.id: {True}, left.id: {True}}


def test_a_process_without_coordinators(nodes: Callable[[], Node], bootstrap: str, unique: Unique) -> None:
    server, asker = nodes(), nodes()
    server.transactions.join(patience())
    topic = open_topic(asker, unique())
    client = without_coordinators(asker)
    begun = [client.begin(60_000, patience()) for _ in range(3)]
    assert len({txn.id.coordinator for txn in begun}) == 3
    for txn in begun:
        send(bootstrap, topic, txn, b"x")
    begun[0].commit(patience())
    begun[1].abort(patience())
    begun[2].commit(patience())
    assert markers_of(bootstrap, topic.kafka_topic) == {
        begun[0].id: {True},
        begun[1].id: {False},
        begun[2].id: {True},
    }
    assert asker.transactions.owned() == []


def test_old_records_are_taken_after_a_transaction_and_aborts_are_sealed_where_an_operator_has_them_refused(
    nodes: Callable[[], Node], bootstrap: str, unique: Unique
) -> None:
    node = nodes()
    topic = open_topic(node, unique())
    where = DataPartition(str(topic.name), 0, topic.layout.incarnation)
    txn = node.transactions.client(patience()).begin(60_000, patience())
    send(bootstrap, topic, txn, b"a")
    txn.abort(patience())
    refused: list[KafkaError | None] = []
    plain = Producer({"bootstrap.servers": bootstrap})

    def late(age_s: float) -> KafkaError | None:
        refused.clear()
        stamp = int((time.time() - age_s) * 1000)
        plain.produce(
            topic.kafka_topic, b"late", partition=0, timestamp=stamp, headers=[(TXN, txn.id.to_bytes())],
            on_delivery=lambda error, _: refused.append(error),
        )  # fmt: skip
        assert plain.flush(PATIENCE_S) == 0
        return refused[0]

    assert late(1_000) is None, "whatever waited for the end of an outage is stored"
    node.admin.set_topic_configs(topic.kafka_topic, {"message.timestamp.before.max.ms": "120000"}, patience())
    until(lambda: late(1_000) is not None, "the broker to refuse old records")
    assert late(0) is None
    error = late(1_000)
    assert error is not None
    assert error.code() == KafkaError.INVALID_TIMESTAMP

    end = node.admin.end_offsets(topic.kafka_topic, [0], patience())[0]
    entry = buffer_of(bootstrap, str(topic.name)).aborted(where, txn.id)
    assert entry is not None
    assert (list(entry.offsets), entry.sealed) == ([0], False)
    later = PacedClock()
    reading = node.settings.reader(fetch_queue_kbytes=1024)
    data = KafkaDataPartitions(node.topics, node.admin, node.fetcher, node.state_producer, SystemClock(), reading)
    sealing = Sealing(node.log, node.transaction_views, data, later, "0123")
    partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(str(topic.name))
    later.ms = entry.late_until_ms
    sealing.run([partition], patience())
    assert buffer_of(bootstrap, str(topic.name)).aborted(where, txn.id) == entry
    later.ms += 1
    sealing.run([partition], patience())
    entry = buffer_of(bootstrap, str(topic.name)).aborted(where, txn.id)
    assert entry is not None
    assert entry.sealed
    assert list(entry.offsets) == [0, *range(2, end)], "between them lies the marker"
