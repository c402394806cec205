"""A tenant moves to another cluster and back while its programs go on, on two brokers."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded, Refused
from pulsar_on_kafka.clusters.migration.tenant_cutover import TenantSides
from pulsar_on_kafka.clusters.migration.worker import MigrationWorker
from pulsar_on_kafka_mapping.state.clusters.tenant_records import MigrationStep
from tests.clusters.cluster import PATIENCE_S, Cluster, refuse_again
from tests.clusters.program import Program
from tests.integration.command_line import CommandLine
from tests.waiting import until


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer()


class OrderWithNote(pulsar.schema.Record):
    number = pulsar.schema.Integer()
    note = pulsar.schema.String()


class Killed(BaseException):
    """The worker is killed, as far as it can tell: nothing of it runs any more."""


@pytest.mark.long
def test_a_tenant_moves_and_comes_back(
    clusters: dict[str, Cluster], tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu", properties={"team": "billing"})
    west.set_policy(f"{tenant}/eu", "schema_compatibility_strategy", "ALWAYS_COMPATIBLE")
    west.create_partitioned_topic(topic, 2, entries_per_ledger=500)
    described = f"persistent://{tenant}/eu/described"
    for record in (Order, OrderWithNote):
        clusters["west"].client.create_producer(described, schema=pulsar.schema.AvroSchema(record)).close()
    west.assign_tenant(tenant, "west")

    def worker() -> MigrationWorker:
        record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
        return MigrationWorker(west, west, east, record, PATIENCE_S, news.append)

    news: list[str] = []
    with ExitStack() as stack:
        for cluster in clusters.values():
            stack.enter_context(cluster.replicating())
        port = stack.enter_context(clusters["west"].lookup_port())
        program = Program(f"pok+lookup://127.0.0.1:{port}", topic)
        until(lambda: len(program.received) > 500, "500 messages")
        west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))
        with pytest.raises(Refused, match="cannot switch"):
            worker().switch()
        assert worker().run(lambda record: None).step is MigrationStep.READY
        assert east.namespace_properties(f"{tenant}/eu") == {"team": "billing"}
        assert [entry.sha256 for entry in east.list_schema_versions(described)] == [
            entry.sha256 for entry in west.list_schema_versions(described)
        ]

        def killed(*_: object) -> None:
            raise Killed

        monkeypatch.setattr(TenantSides, "bring_over", killed)
        with pytest.raises(Killed):
            worker().switch()
        monkeypatch.undo()
        assert worker().record.step is MigrationStep.SWITCHING
        before = len(program.received)
        assert worker().switch().step is MigrationStep.SWITCHED
        assert [line.split(" after ")[0] for line in news[-3:]] == [
            "no program is on west", "everything is on east, and compared,", "programs go on, on east,",
        ]  # fmt: skip
        until(lambda: len(program.received) > before + 200, "the program to go on")
        assert worker().roll_back().step is MigrationStep.ROLLED_BACK
        before = len(program.received)
        until(lambda: len(program.received) > before + 200, "the program to go on")
        program.end()

    program.check(20)
    cursors = west.subscription_cursors(topic, "billing")
    kept = sum(cursor.end - max(cursor.start, cursor.mark_delete + 1) - cursor.acknowledged for cursor in cursors)
    assert kept == sum(number % 10 == 0 for number in range(program.sent))
    assert west.tenant_place(tenant).cluster == "west"  # type: ignore[union-attr]


@pytest.mark.long
def test_deliveries_are_counted_on_and_put_off_on_the_next_cluster(clusters: dict[str, Cluster], tenant: str) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_topic(topic)
    west.assign_tenant(tenant, "west")
    producer = clusters["west"].client.create_producer(topic)
    for text in (b"done", b"poison", b"put off"):
        producer.send(text)
    producer.close()

    def subscribe(cluster: str, delay_ms: int, name: str = topic, queue: int = 1000) -> pulsar.Consumer:
        policy = pulsar.ConsumerDeadLetterPolicy(3, f"{topic}-dead", "dead")
        return clusters[cluster].client.subscribe(
            name, "s", pulsar.ConsumerType.Shared, dead_letter_policy=policy,
            negative_ack_redelivery_delay_ms=delay_ms, initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=queue,
        )  # fmt: skip

    consumer = subscribe("west", 3_600_000)
    for message in (consumer.receive(20_000) for _ in range(3)):
        if message.data() == b"done":
            consumer.acknowledge(message)
        elif message.data() == b"put off":
            consumer.negative_acknowledge(message)
    consumer.flush()
    consumer.close()
    refuse_again(subscribe("west", 100, queue=0), [0, 1])
    west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))
    with clusters["west"].replicating(), clusters["east"].replicating():
        record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
        worker = MigrationWorker(west, west, east, record, PATIENCE_S)
        worker.run(lambda record: None)
        assert worker.switch().step is MigrationStep.SWITCHED
        refuse_again(subscribe("east", 100, queue=0), [2])
        assert worker.roll_back().step is MigrationStep.ROLLED_BACK
    consumer = subscribe("west", 100)
    last = consumer.receive(20_000)
    assert (last.data(), last.redelivery_count()) == (b"poison", 3)
    consumer.negative_acknowledge(last)
    dead = clusters["west"].client.subscribe(f"{topic}-dead", "dead")
    assert dead.receive(30_000).data() == b"poison"
    dead.close()
    with pytest.raises(pulsar.Timeout):
        consumer.receive(1_000)
    consumer.close()


def test_programs_need_not_stop_while_replication_is_far_behind(
    clusters: dict[str, Cluster], tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_topic(topic)
    west.assign_tenant(tenant, "west")
    before = west.tenant_place(tenant)
    west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))
    record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
    with clusters["west"].replicating():
        worker = MigrationWorker(west, west, east, record, PATIENCE_S)
        worker.run(lambda record: None)
    producer = clusters["west"].client.create_producer(topic)
    for _ in range(3):
        producer.send(b"not copied")
    producer.close()
    monkeypatch.setattr("pulsar_on_kafka.clusters.migration.tenant_cutover.NEAR", 2)
    impatient = MigrationWorker(west, west, east, worker.record, 0)
    with pytest.raises(DeadlineExceeded, match=r"is not copied to east after 0 s, 3 entries are left"):
        impatient.switch()
    assert impatient.record.step is MigrationStep.READY
    assert west.tenant_place(tenant) == before, "nobody was told to stop"


def test_a_tenant_moves_for_good(clusters: dict[str, Cluster], tenant: str) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_topic(topic)
    west.update_tenant(tenant, ["boss"])
    west.grant_permission(f"{tenant}/eu", "app", ["produce"])
    west.assign_tenant(tenant, "west")
    west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))
    record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
    worker = MigrationWorker(west, west, east, record, PATIENCE_S)
    client = clusters["west"].client
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=100)
    for number in range(10):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    for message in [consumer.receive(10_000) for _ in range(10)][::2]:
        consumer.acknowledge(message)
    with clusters["west"].replicating():
        worker.run(lambda record: None)
        impatient = MigrationWorker(west, west, east, worker.record, 0)
        with pytest.raises(Refused, match="programs stay on the cluster"):
            impatient.switch()
        assert "programs stay" in west.node.migrations.require(tenant, Deadline.after(PATIENCE_S)).problem
        consumer.close()
        producer.close()
        worker = MigrationWorker(west, west, east, impatient.record, PATIENCE_S)
        worker.switch()
        assert worker.compare().good
        pok = CommandLine(clusters["west"].url, "migrate")
        assert "no.such.option" in pok.refused("verify", tenant, "--cluster-config", "east:no.such.option=1")
        assert worker.clean().step is MigrationStep.DONE
    assert west.list_namespaces(tenant) == []
    assert east.get_tenant_info(tenant).admin_roles == ("boss",)
    assert east.permissions(f"{tenant}/eu").namespace == {"app": ("produce",)}
    left = clusters["east"].client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(left.receive(10_000).data() for _ in range(5)) == [b"1", b"3", b"5", b"7", b"9"]
    left.close()
