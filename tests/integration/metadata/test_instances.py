"""Instances: several on one Kafka cluster, none of which sees, or writes, another's state."""

from __future__ import annotations

import asyncio
import random

import pytest
from confluent_kafka.admin import AdminClient as KafkasAdminClient

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import SERVICE
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.service.running import RunningRoles
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE, Instance
from pulsar_on_kafka_mapping.state.state_topics import ALL
from tests.integration.command_line import CommandLine
from tests.steps import PATIENCE_MS, payloads, receive, send, send_fast
from tests.waiting import until

pytestmark = pytest.mark.kafka

ACME, ACME2 = Instance("acme"), Instance("acme2")
NAMESPACE = "shop/eu"
ORDERS = f"persistent://{NAMESPACE}/orders"
MANY = "persistent://public/default/many"
HOLES = 50_000
PATIENCE = Deadline.after


class Tick(pulsar.schema.Record):
    price = pulsar.schema.Double()


@pytest.fixture
def url(own_broker: EmbeddedBroker) -> str:
    return f"kafka://{own_broker.bootstrap}"


def topics_of(kafka: KafkasAdminClient) -> set[str]:
    return set(kafka.list_topics(timeout=30).topics) - {"__consumer_offsets", "__transaction_state"}


def groups_of(kafka: KafkasAdminClient) -> set[str]:
    return {group.group_id for group in kafka.list_consumer_groups().result(30).valid}


def use_everything(url: str, instance: Instance) -> None:
    """Something of each part that keeps state."""
    with AdminClient(url, instance=instance.name) as admin:
        admin.create_namespace(NAMESPACE)
        admin.create_partitioned_topic(ORDERS, 2)
        admin.set_policy(NAMESPACE, "deduplication", True)
        admin.create_cluster("here", url)
        admin.set_local_cluster("here")
        admin.assign_tenant("shop", "here")
        client = pulsar.Client(url, instance=instance.name, enable_transaction=True, stand_in=False)
        consumer = client.subscribe(ORDERS, "s", pulsar.ConsumerType.Shared)
        producer = client.create_producer(ORDERS, "p", schema=pulsar.schema.AvroSchema(Tick))
        for price in range(10):
            producer.send(Tick(price=float(price)))
        messages = receive(consumer, 10)
        for message in messages[::2]:
            consumer.acknowledge(message)
        txn = client.new_transaction()
        producer.send(Tick(price=10.0), txn=txn)
        consumer.acknowledge(messages[1], txn=txn)
        txn.commit()
        receive(consumer, 1)
        consumer.flush()
        client.create_reader(ORDERS, pulsar.MessageId.earliest).read_next(PATIENCE_MS)
        leave_many_holes(client)
        roles = RunningRoles(admin.node, set(RoleName), SERVICE)
        try:
            until(lambda: all(each.joined for each in roles.states()), "the service to have its shares")
            until(lambda: admin.list_ledgers(f"{ORDERS}-partition-0"), "the service to keep the lists of ledgers")
        finally:
            roles.close(PATIENCE(30))
        client.close()


def leave_many_holes(client: pulsar.Client) -> None:
    """More than a commit's metadata takes, so that the cursor writes to its state topic."""
    consumer = client.subscribe(MANY, "s")
    send_fast(client, MANY, HOLES)
    picked = random.Random(1)
    for message in receive(consumer, HOLES):
        if picked.random() < 0.5:
            consumer.acknowledge(message)
    consumer.flush()


def test_all_state_and_all_groups_of_it_lie_under_the_prefix(own_broker: EmbeddedBroker, url: str) -> None:
    use_everything(url, ACME)
    kafka = KafkasAdminClient({"bootstrap.servers": own_broker.bootstrap})
    topics, groups = topics_of(kafka), groups_of(kafka)
    data = {"shop.eu.orders", "public.default.many"}
    assert {name for name in topics if not name.startswith(ACME.prefix)} == data
    assert not {group for group in groups if not group.startswith((ACME.prefix, *(f"{topic}/" for topic in data)))}
    made = {ACME.state_topic(topic) for topic in ALL}
    assert made - topics == set(), "not used by this test, so that it proves nothing of it"
    assert ACME.group(ALL[0], "x").rpartition("/")[0] in topics


def test_instances_do_not_see_one_another_s_topics(url: str) -> None:
    admins = [AdminClient(url, instance=name) for name in ("", "acme", "acme2")]
    for admin, tenant in zip(admins, ("free", "shop", "bank"), strict=True):
        admin.create_namespace(f"{tenant}/eu")
        admin.create_topic(f"{tenant}/eu/orders")
    for admin, tenant in zip(admins, ("free", "shop", "bank"), strict=True):
        assert admin.list_topics(f"{tenant}/eu") == [f"persistent://{tenant}/eu/orders"]
        for other in {"free", "shop", "bank"} - {tenant}:
            with pytest.raises(pulsar.TopicNotFound):
                admin.list_topics(f"{other}/eu")
    with pytest.raises(pulsar.InvalidConfiguration, match="holds this project's own state"):
        admins[1].bind_topic("shop/eu/theirs", ACME2.prefix + "topics")
    for admin in admins:
        admin.close()


def test_the_environment_the_commands_and_asyncio_say_whose(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with AdminClient(url, instance="acme") as admin:
        admin.create_namespace(NAMESPACE)
        admin.create_topic(ORDERS)
    pok = CommandLine(url, "topics")
    assert pok.json("list", NAMESPACE, "--instance", "acme") == [ORDERS]
    assert "does not exist" in pok.refused("list", NAMESPACE)
    doctor = CommandLine(url, "doctor").json("--instance", "acme", "--state")
    (found,) = [each["found"] for each in doctor if each["check"] == "state topics"]
    assert not found.startswith("0 "), found
    monkeypatch.setenv(INSTANCE_VARIABLE, "acme")
    assert pok.json("list", NAMESPACE) == [ORDERS]
    assert "does not exist" in pok.refused("list", NAMESPACE, "--instance", "")
    client = pulsar.Client(url)
    send(client, ORDERS, 1)
    client.close()
    with AdminClient(url) as admin:
        assert admin.list_topics(NAMESPACE) == [ORDERS]
    with AdminClient(url, instance="") as admin, pytest.raises(pulsar.TopicNotFound):
        admin.list_topics(NAMESPACE)

    async def read() -> bytes:
        aio = pulsar_on_kafka.asyncio.Client(url, instance="acme")
        consumer = await aio.subscribe(ORDERS, "s", initial_position=pulsar.InitialPosition.Earliest)
        message = await consumer.receive()
        await aio.close()
        return bytes(message.data())

    monkeypatch.delenv(INSTANCE_VARIABLE)
    assert asyncio.run(read()) == b"0"


def test_a_cluster_s_entry_says_whose_state_is_there(url: str) -> None:
    """Both clusters are one here: a registry knows another instance by the entry's address and instance."""
    with AdminClient(url, instance="acme") as admin:
        admin.create_cluster("other", url, instance="acme2")
        assert [each.instance for each in admin.clusters()] == ["acme2"]
        with pytest.raises(pulsar.InvalidConfiguration, match="instance is 'A', expected 1 to 40"):
            admin.create_cluster("third", url, instance="A")
    clusters = CommandLine(url, "clusters")
    clusters("update", "other", "--service-url", url, "--peer-instance", "acme3", "--instance", "acme")
    assert clusters.json("get", "other", "--instance", "acme")["instance"] == "acme3"


def test_one_topic_in_two_instances(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can refuse it, since neither may read the other's state; the log says so when the second one comes."""
    one, other = (pulsar.Client(url, instance=name) for name in ("acme", "acme2"))
    send(one, "orders", 2)
    assert "public.default.orders" not in caplog.text
    consumer = other.subscribe("orders", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert payloads(receive(consumer, 2)) == ["0", "1"]
    assert "Kafka topic public.default.orders was there before instance acme2 knew of it" in caplog.text
    one.close()
    other.close()
