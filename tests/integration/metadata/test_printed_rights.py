"""Programs with exactly the rights that `pok acls print` prints, in several instances on one cluster."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchTopic, NotAuthorized
from pulsar_on_kafka.base.processes import SERVICE
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import maintenance_group
from pulsar_on_kafka.broker.transactions.serving.coordinators import coordinators_group
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.service.running import RunningRoles
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import ALL, TOPICS
from tests.brokers import available
from tests.certificates import Authority
from tests.integration.secure_support import SecureCluster, secure_cluster
from tests.seeds import first_of
from tests.steps import PATIENCE_MS, Missing, payloads, receive, send
from tests.waiting import until

USERS = {"producer": "producer", "consumer": "consumer", "reader": "reader", "admin": "admin", "service": "serving"}
TENANTS = {"": "free", "acme": "shop", "acme2": "bank"}
"""Of each instance. `acme` begins the name of another one."""
SUBSCRIPTION = "billing"

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, missing: Missing) -> Iterator[SecureCluster]:
    with available(missing, secure_cluster(Authority(tmp_path_factory.mktemp("certificates")))) as made:
        yield made


def topic_of(instance: str) -> str:
    return f"persistent://{TENANTS[instance]}/eu/orders"


def printed(role: str, instance: str, *more: str) -> list[tuple[str, str, str]]:
    """What the lines of `pok acls print` grant: (operation, kind, name); a name that ends in * is a prefix."""
    user = USERS[role]
    arguments = ["--role", role, "--principal", user, "--topic", topic_of(instance), "--subscription", SUBSCRIPTION]
    told = CliRunner().invoke(app, ["acls", "print", *arguments, "--instance", instance, *more])
    assert told.exit_code == 0, told.stderr
    return [_granted_by(line, f"User:{user}") for line in told.stdout.splitlines()]


def _granted_by(line: str, principal: str) -> tuple[str, str, str]:
    tool = argparse.ArgumentParser(exit_on_error=False)
    tool.add_argument("--add", action="store_true", required=True)
    tool.add_argument("--allow-principal", choices=[principal], required=True)
    tool.add_argument("--operation", required=True)
    tool.add_argument("--resource-pattern-type", choices=["prefixed"])
    where = tool.add_mutually_exclusive_group(required=True)
    for kind in ("topic", "group", "transactional-id"):
        where.add_argument(f"--{kind}")
    program, *words = shlex.split(line)
    assert program == "kafka-acls"
    found = vars(tool.parse_args(words))
    ((kind, name),) = [(k, found[k.replace("-", "_")]) for k in ("topic", "group", "transactional-id")
                       if found[k.replace("-", "_")]]  # fmt: skip
    return found["operation"], kind, name + ("*" if found["resource_pattern_type"] else "")


def grant(cluster: SecureCluster, instance: str) -> None:
    """Each role's user may do what is printed for this instance, and nothing else."""
    for role, user in USERS.items():
        cluster.revoke_all(user)
        also = ("--also", "transactions") if role in ("producer", "consumer") else ()
        cluster.grant(user, printed(role, instance, *also))


def administer(cluster: SecureCluster, instance: str) -> None:
    """Leaves the topic, its subscription, and what services share out."""
    with cluster.admin_as("admin", instance=instance) as admin:
        topic = topic_of(instance)
        admin.create_namespace(f"{TENANTS[instance]}/eu")
        admin.create_partitioned_topic(topic, 1)
        admin.update_partitions(topic, 2)
        admin.create_topic(f"{topic}-2")
        admin.create_subscription(f"{topic}-2", "s", from_earliest=True)
        admin.skip(f"{topic}-2", "s", 1)
        admin.delete_topic(f"{topic}-2", force=True)
        assert admin.list_topics(f"{TENANTS[instance]}/eu") == [topic]
        admin.scale_transaction_coordinators(17)


def work(cluster: SecureCluster, instance: str) -> None:
    """Every other role, at the same time."""
    topic = topic_of(instance)
    with ExitStack() as stack:
        service = stack.enter_context(cluster.admin_as("serving", instance=instance))
        roles = RunningRoles(service.node, set(RoleName) - {RoleName.REPLICATION}, SERVICE)
        stack.callback(lambda: roles.close(Deadline.after(30)))
        until(lambda: all(each.joined for each in roles.states()), "the service to have its shares")

        def client(user: str) -> pulsar.Client:
            made: pulsar.Client = cluster.as_user(user, instance=instance, enable_transaction=True)
            stack.callback(made.close)
            return made

        producing, consuming = client("producer"), client("consumer")
        consumer = consuming.subscribe(topic, SUBSCRIPTION, pulsar.ConsumerType.Shared)
        send(producing, topic, 10)
        messages = receive(consumer, 10)
        for message in messages[::2]:
            consumer.acknowledge(message, wait=True)
        txn = producing.new_transaction()
        producing.create_producer(topic).send(b"kept", txn=txn)
        txn.commit()
        # What was not acknowledged may come again before it: where the machine is busy, a session may have been lost.
        until(lambda: payloads(receive(consumer, 1)) == ["kept"], "the transaction's message")
        reader = client("reader").create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(PATIENCE_MS).data() in {str(number).encode() for number in range(10)}
        ledgers = stack.enter_context(cluster.admin_as("admin", instance=instance))
        until(lambda: ledgers.list_ledgers(f"{topic}-partition-0"), "the service to keep the lists of ledgers")
        consumer.unsubscribe()


@pytest.mark.parametrize("instance", first_of(2, list(TENANTS), later=0))
def test_each_role_can_do_its_work_with_what_is_printed(cluster: SecureCluster, instance: str) -> None:
    grant(cluster, instance)
    administer(cluster, instance)
    work(cluster, instance)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("acme", "acme2"),
        ("", "acme"),
        pytest.param("acme2", "acme", marks=pytest.mark.soak),
        pytest.param("acme", "", marks=pytest.mark.soak),
    ],
)
def test_nobody_reads_or_writes_the_state_of_another_instance(cluster: SecureCluster, own: str, other: str) -> None:
    grant(cluster, own)
    for name in (own, other):  # so that there is something to be seen
        with AdminClient(f"kafka://{cluster.broker.bootstrap}", instance=name) as everything:
            for topic in ALL:
                everything.node.log.end_offset(topic, 0, Deadline.after(60))
    theirs = [Instance(other).state_topic(topic) for topic in ALL]
    groups = [maintenance_group(Instance(other)), coordinators_group(Instance(other))]
    for user in USERS.values():
        with ExitStack() as stack:
            admin = KafkaAdmin(cluster.as_user(user)._settings.common())
            stack.callback(admin.close)
            ours = Instance(own).state_topic(TOPICS)
            assert "Read" in admin.access.allowed_on_topics([ours], Deadline.after(60))[ours], user
            assert admin.access.allowed_on_topics(theirs, Deadline.after(60)) == dict.fromkeys(theirs, frozenset()), (
                user
            )
            for group in groups:
                assert not admin.access.allowed_on_group(group, Deadline.after(60)), user
    try_both(cluster.as_user("admin")._settings, theirs[ALL.index(TOPICS)])
    client = cluster.as_user("consumer", instance=other, operation_timeout_seconds=10)
    with pytest.raises(pulsar.AuthorizationError, match=f"topic {re.escape(Instance(other).prefix)}"):
        client.subscribe(topic_of(other), SUBSCRIPTION)
    client.close()


def try_both(settings: KafkaSettings, topic: str) -> None:
    """librdkafka takes a topic that may not be seen for one that is not there."""
    fetcher = Fetcher(settings.of_state(settings.reader(fetch_queue_kbytes=1024)))
    producer = KafkaProducer(settings.producer(compression="none", message_timeout_ms=5000, linger_ms=0))
    try:
        with pytest.raises((NotAuthorized, NoSuchTopic)):
            fetcher.watermarks(topic, 0, Deadline.after(60))
        with pytest.raises(NotAuthorized):
            producer.append(topic, 0, b"key", b"forged", Deadline.after(60))
    finally:
        fetcher.close()
        producer.close(Deadline.after(5))
