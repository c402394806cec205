"""TLS, SASL and ACLs: a broker that lets nobody in without a login, and forbids what nothing allows."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NotAuthorized
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.clusters.migration.acls import carry
from pulsar_on_kafka.kafka.acls import Acl
from pulsar_on_kafka.kafka.groups.group_members import GroupMembers
from pulsar_on_kafka.kafka.reading.events import Forbidden, KafkaPartition
from pulsar_on_kafka.kafka.reading.fetch_client import FetchClient
from pulsar_on_kafka.kafka.reading.fetch_sessions import Fetched, FetchEvent, Reported
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.group_messages import HeartbeatRequest
from pulsar_on_kafka.service.ledgers.maintenance import Maintenance
from pulsar_on_kafka.service.running import LedgerDeletion
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.brokers import available
from tests.certificates import Authority, Identity
from tests.integration.secure_support import (
    SecureCluster,
    granted_by_the_page,
    secure_cluster,
    unsecured_token,
)
from tests.steps import PATIENCE_MS, Missing, Unique, payloads, receive, send
from tests.waiting import until

TOPIC, SUBSCRIPTION = "orders", "billing"

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Identity:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def cluster(authority: Authority, missing: Missing) -> Iterator[SecureCluster]:
    with available(missing, secure_cluster(authority)) as made:
        for user in ("CN=alice", "alice"):
            made.grant(user, [("Read", "group", "*"), ("Write", "transactional-id", "*")])
            made.grant(user, [(operation, "topic", "*") for operation in ("Read", "Write", "Create")])
        with AdminClient(f"kafka://{made.broker.bootstrap}") as admin:
            admin.create_topic(TOPIC)
        yield made


class Reading(pulsar.schema.Record):
    celsius = pulsar.schema.Double()


@pytest.mark.parametrize("listener", ["TLS", "SASL"])
def test_a_plain_url_to_a_tls_port_is_told_which_url_it_takes(cluster: SecureCluster, listener: Any) -> None:
    address = cluster.broker.bootstrap_of(listener)
    said = re.escape(f"{address} speaks TLS, and was contacted without: name it kafka+ssl://{address}")
    client = pulsar.Client(f"kafka://{address}")
    with pytest.raises(pulsar.ConnectError, match=said):
        client.create_producer(TOPIC)
    client.close()
    with pytest.raises(pulsar.ConnectError, match=said):
        AdminClient(f"kafka://{address}")
    found = CliRunner().invoke(app, ["--url", f"kafka://{address}", "topics", "list"])
    assert (found.exit_code, len(found.stderr.splitlines())) == (1, 1)
    assert f"kafka+ssl://{address}" in found.stderr
    examined = CliRunner().invoke(app, ["--url", f"kafka://{address}", "doctor"])
    assert examined.exit_code == 1
    assert f"kafka+ssl://{address}" in examined.stdout


def topic_of(topic: str) -> str:
    return kafka_topic(TopicName.parse(topic))


def round_trip(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    send(client, topic, 3)
    messages = receive(consumer, 3)
    assert payloads(messages) == ["0", "1", "2"]
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()


# Logins ---------------------------------------------------------------------------------------------------------------


def test_mutual_tls(cluster: SecureCluster, alice: Identity, unique: Unique) -> None:
    login = pulsar.AuthenticationTLS(str(alice.certificate), str(alice.key))
    client = cluster.client(login, "TLS", tls_validate_hostname=True)
    round_trip(client, unique())
    client.close()


def test_tls_by_the_client_s_own_arguments(cluster: SecureCluster, alice: Identity, unique: Unique) -> None:
    client = pulsar.Client(
        f"kafka://{cluster.broker.bootstrap_of('TLS')}",
        use_tls=True,
        tls_allow_insecure_connection=True,
        tls_certificate_file_path=str(alice.certificate),
        tls_private_key_file_path=str(alice.key),
    )
    round_trip(client, unique())
    client.close()


def test_a_name_and_a_password(cluster: SecureCluster, unique: Unique) -> None:
    client = cluster.as_user("alice")
    round_trip(client, unique())
    client.close()


def test_an_administrator_logs_in_too(cluster: SecureCluster) -> None:
    with cluster.admin_as("alice") as admin:
        assert f"persistent://public/default/{TOPIC}" in admin.list_topics()


@pytest.mark.long
def test_a_token_is_renewed_while_it_is_used(cluster: SecureCluster, unique: Unique) -> None:
    asked: list[float] = []

    def supply() -> str:
        asked.append(time.monotonic())
        return unsecured_token("alice", 7.0)

    client = cluster.client(pulsar.AuthenticationToken(supply))
    round_trip(client, topic := unique())
    until(lambda: time.monotonic() - asked[0] > 8, "the first tokens to be over")
    consumer = client.subscribe(topic, "late", initial_position=pulsar.InitialPosition.Earliest)
    send(client, topic, 1, start=3)
    assert payloads(receive(consumer, 4)) == ["0", "1", "2", "3"]
    client.close()


@contextmanager
def group_members(client: Any) -> Iterator[GroupMembers]:
    wire = WireClient(client._settings.common())
    yield GroupMembers(wire)
    wire.close(Deadline.after(60))


@pytest.mark.parametrize("login", ["certificate", "password", "token"])
def test_members_are_removed_by_the_login_of_the_client(
    cluster: SecureCluster, alice: Identity, unique: Unique, login: str
) -> None:
    if login == "certificate":
        client = cluster.client(pulsar.AuthenticationTLS(str(alice.certificate), str(alice.key)), "TLS")
    elif login == "password":
        client = cluster.as_user("alice")
    else:
        client = cluster.client(pulsar.AuthenticationToken(lambda: unsecured_token("alice", 60.0)))
    consumer = client.subscribe(topic := unique(), "s")
    group = group_id(topic_of(topic), "s")
    with AdminClient(f"kafka://{cluster.broker.bootstrap}") as admin, group_members(client) as members:
        there = until(lambda: admin.node.admin.describe_group(group, Deadline.after(20)).members, "a member")
        gone = there[0].member_id
        listed = members.members_of([group], Deadline.after(60))[group]
        assert not isinstance(listed, LayerError)
        assert [each.member_id for each in listed] == [gone]
        assert members.remove({group: ["nobody", gone]}, Deadline.after(60)) == {group: None}
        there = admin.node.admin.describe_group(group, Deadline.after(20)).members
        assert gone not in {member.member_id for member in there}
    consumer.close()
    client.close()


def test_removing_members_needs_the_right_to_read_the_group(cluster: SecureCluster) -> None:
    client = cluster.as_user("nobody")
    with group_members(client) as members:
        refused = members.remove({"some-group": ["some-member"]}, Deadline.after(60))["some-group"]
    assert isinstance(refused, NotAuthorized)
    assert "on group some-group; granted by: kafka-acls" in str(refused)
    client.close()


def test_a_connection_logs_in_again_before_its_login_expires(cluster: SecureCluster, unique: Unique) -> None:
    """Logins last 3 s there, and the broker ends a connection that sends something after that."""
    client, group = cluster.as_user("alice"), unique("group")
    wire = WireClient(client._settings.common())

    async def beat(brokers: KafkaBrokers) -> tuple[object, int]:
        request = HeartbeatRequest(group, 1, "nobody")
        response = await brokers.send_to_coordinator(group, ConnectionLane.HEARTBEATS, request, "c", 60)
        return brokers.open_connection(
            brokers.coordinator(group) or 0, ConnectionLane.HEARTBEATS, group
        ), response.error_code

    def answered() -> Any:
        with suppress(LayerError):
            connection, code = wire.call(beat, Deadline.after(60), "a heartbeat")
            return connection if code == ErrorCode.UNKNOWN_MEMBER_ID else None

    first, since = until(answered, "the group's coordinator"), time.monotonic()
    while time.monotonic() - since < 7:
        assert wire.call(beat, Deadline.after(60), "a heartbeat") == (first, ErrorCode.UNKNOWN_MEMBER_ID)
    wire.close(Deadline.after(60))
    client.close()


@contextmanager
def events_of_watch(client: Any, where: KafkaPartition) -> Iterator[queue.SimpleQueue[FetchEvent]]:
    wire, events = WireClient(client._settings.common()), queue.SimpleQueue[FetchEvent]()
    fetching = FetchClient(wire)
    fetching.watch(where, 0, 1_000_000, events.put)
    yield events
    fetching.close(Deadline.after(60))
    wire.close(Deadline.after(60))


def test_a_fetch_that_outlasts_its_login_is_followed_by_another(
    cluster: SecureCluster, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """Logins last 3 s there, and a fetch waits 5 s for records."""
    client, topic = cluster.as_user("alice"), unique()
    producer = client.create_producer(topic)
    caplog.set_level(logging.INFO, "pulsar_on_kafka.kafka.reading")
    with events_of_watch(client, KafkaPartition(topic_of(topic), 0)) as events:
        assert isinstance(first := events.get(timeout=60), Reported), first
        with suppress(queue.Empty):
            raise AssertionError(events.get(timeout=12))
        producer.send(b"v")
        assert isinstance(later := events.get(timeout=60), Fetched), later
    assert "fetching from broker" not in caplog.text
    client.close()


@pytest.mark.parametrize("described", ["another-topic", "public.default.orders"])
def test_a_watch_without_the_right_to_read_ends_and_names_it(cluster: SecureCluster, described: str) -> None:
    cluster.grant("nobody", [("Describe", "topic", described)])
    client, where = cluster.as_user("nobody"), KafkaPartition(topic_of(TOPIC), 0)
    with events_of_watch(client, where) as events:
        assert isinstance(reported := events.get(timeout=60), Reported)
        assert isinstance(reported.event, Forbidden)
        assert f"on topic {where.topic}; granted by: kafka-acls" in str(reported.event.failure)
    cluster.revoke_all("nobody")
    client.close()


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_wrong_password_is_told_at_once_and_never_shown(
    cluster: SecureCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = cluster.client(pulsar.AuthenticationBasic("alice", "a-wrong-secret"))
    start = time.monotonic()
    with pytest.raises(pulsar.AuthenticationError) as refused:
        client.create_producer(TOPIC)
    assert time.monotonic() - start < 25  # the operation's time-out is 30 s
    assert "a-wrong-secret" not in str(refused.value) + repr(client._settings) + caplog.text
    client.close()


@pytest.mark.parametrize("listener", ["TLS", "SASL"])
def test_an_unknown_authority_is_told_at_once(cluster: SecureCluster, folder: Path, listener: Any) -> None:
    stranger = Authority(folder, "another authority")
    client = pulsar.Client(cluster.url(listener), tls_trust_certs_file_path=str(stranger.file))
    start = time.monotonic()
    with pytest.raises(pulsar.ConnectError, match="certificate"):
        client.create_producer(TOPIC)
    assert time.monotonic() - start < 25  # the operation's time-out is 30 s
    client.close()


def test_a_supplier_that_fails_is_told_at_once(cluster: SecureCluster) -> None:
    def supply() -> str:
        raise RuntimeError("the vault's secret is 12345")

    client = cluster.client(pulsar.AuthenticationToken(supply))
    with pytest.raises(pulsar.AuthenticationError, match="RuntimeError") as refused:
        client.create_producer(TOPIC)
    assert "12345" not in str(refused.value)
    client.close()


def test_acls_of_a_tenant_are_carried_over_or_told(cluster: SecureCluster) -> None:
    """Source and target are one cluster here; a topic that is bound has another name on the target."""
    with AdminClient(f"kafka://{cluster.broker.bootstrap}") as admin:
        admin.create_namespace("acme/shop")
        deadline = Deadline.after(60)
        admin.node.admin.create_topic("acme-foreign", 1, {}, deadline)
        admin.bind_topic("persistent://acme/shop/bound", "acme-foreign")
        cluster.grant("bob", [("Read", "topic", "acme-foreign"), ("Read", "group", "acme-foreign/*")])
        cluster.grant("bob", [("DescribeConfigs", "topic", "acme.shop.*"), ("Read", "topic", "elsewhere")])
        cluster.grant("bob", [("Write", "transactional-id", "acme-foreign/billing")])
        expected = {
            Acl("topic", "acme.shop.bound", False, "User:bob", "*", "Read", allows=True),
            Acl("group", "acme.shop.bound/", True, "User:bob", "*", "Read", allows=True),
            Acl("transactional-id", "acme.shop.bound/billing", False, "User:bob", "*", "Write", allows=True),
        }
        planned = [f"to be run on the target: {acl.command()}" for acl in sorted(expected)]
        mine = [each for each in carry(admin, admin, "acme", deadline, dry=True) if "bob" in each]
        assert mine == planned
        assert not expected & set(admin.node.admin.access.acls(deadline) or ())
        cluster.grant("alice", [("Describe", "cluster", "kafka-cluster")])
        with cluster.admin_as("alice") as alice:
            refused, *commands = [each for each in carry(admin, alice, "acme", deadline) if "not of this" not in each]
            assert "ACLs cannot be made on the target" in refused
            assert commands == planned
        assert not [each for each in carry(admin, admin, "acme", deadline) if "bob" in each]
        until(lambda: expected <= set(admin.node.admin.access.acls(deadline) or ()), "the rights to be in force")
        cluster.revoke_all("bob")


def test_what_no_acl_allows_names_the_missing_right(cluster: SecureCluster) -> None:
    client = cluster.as_user("nobody")
    with pytest.raises(pulsar.AuthorizationError, match=r"Describe on topic pulsar\.system\.topics.*kafka-acls"):
        client.create_producer(TOPIC)
    cluster.grant("nobody", [("Read", "topic", "pulsar.system.*"), ("Describe", "topic", "public.default.*")])
    cluster.grant("nobody", [(operation, "topic", "pulsar.system.producers") for operation in ("Write", "Create")])
    producer = client.create_producer(TOPIC)
    with pytest.raises(pulsar.AuthorizationError, match=r"--operation Write --topic 'public\.default\.orders'"):
        producer.send(b"x")
    told: list[pulsar.Result] = []
    answered = threading.Event()
    producer.send_async(b"x", lambda result, _: (told.append(result), answered.set()))
    assert answered.wait(PATIENCE_MS / 1000)
    assert told == [pulsar.Result.AuthorizationError]
    cluster.grant("nobody", [(operation, "topic", "pulsar.system.*") for operation in ("Write", "Create")])
    with pytest.raises(pulsar.AuthorizationError, match=r"--operation Read --group 'public\.default\.orders/s'"):
        client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared).receive(PATIENCE_MS)
    client.shutdown()


# The rights that docs/acls.md lists -----------------------------------------------------------------------------------


def test_the_page_s_rights_are_enough_and_its_producer_may_not_consume(cluster: SecureCluster) -> None:
    cluster.grant("producer", granted_by_the_page("Producer"))
    cluster.grant("consumer", granted_by_the_page("Consumer"))
    producing, consuming = cluster.as_user("producer"), cluster.as_user("consumer")
    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared):
        consumer = consuming.subscribe(TOPIC, SUBSCRIPTION, kind)
        send(producing, TOPIC, 20)
        messages = receive(consumer, 20)
        for message in messages[::2]:
            consumer.acknowledge(message)
        consumer.flush()
        consumer.seek(messages[0].message_id())
        consumer.receive(PATIENCE_MS)
        consumer.unsubscribe()
    with pytest.raises(pulsar.AuthorizationError):
        producing.subscribe(TOPIC, SUBSCRIPTION)
    with pytest.raises(pulsar.AuthorizationError, match=r"pulsar\.system\.producers"):
        consuming.create_producer(TOPIC)
    producing.close()
    consuming.close()


def test_a_consumer_works_without_the_right_to_hear_what_others_ask(
    cluster: SecureCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.revoke_all("consumer")
    cluster.grant("consumer", [right for right in granted_by_the_page("Consumer") if "deliveries" not in right[2]])
    client = cluster.as_user("consumer")
    for subscription in (SUBSCRIPTION, SUBSCRIPTION):
        consumer = client.subscribe(TOPIC, subscription, pulsar.ConsumerType.Shared)
        writing = cluster.as_user("alice")
        send(writing, TOPIC, 3)
        for message in receive(consumer, 3):
            consumer.acknowledge(message, wait=True)
        consumer.seek(pulsar.MessageId.latest)  # its own partition
        until(lambda: "other processes cannot seek" in caplog.text, "the log to tell what cannot be done")
        consumer.unsubscribe()
        writing.close()
    warnings = [record for record in caplog.records if "other processes cannot seek" in record.message]
    assert len(warnings) == 1
    assert "Read on topic pulsar.system.deliveries" in warnings[0].message.replace("Describe", "Read")
    client.close()


def test_an_exclusive_producer_needs_no_more_rights(cluster: SecureCluster, unique: Unique) -> None:
    cluster.grant("producer", granted_by_the_page("Producer"))
    first, second = cluster.as_user("producer"), cluster.as_user("producer")
    held = first.create_producer(TOPIC, access_mode=pulsar.ProducerAccessMode.Exclusive)
    held.send(b"x")
    with pytest.raises(pulsar.ProducerFenced):
        second.create_producer(TOPIC, access_mode=pulsar.ProducerAccessMode.Exclusive)
    taking = second.create_producer(TOPIC, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
    taking.send(b"y")
    with pytest.raises(pulsar.ProducerFenced):
        held.send(b"z")
    first.close()
    second.close()


def test_a_reader_s_rights_are_enough_and_named_when_they_are_missing(cluster: SecureCluster) -> None:
    writing = cluster.as_user("alice")
    writing.create_producer(TOPIC).send(b"v", partition_key="k")
    table = granted_by_the_page("Reader")
    cluster.grant("reader", table)
    reading = cluster.as_user("reader")
    reading.create_reader(TOPIC, pulsar.MessageId.earliest).read_next(PATIENCE_MS)
    assert reading.create_table_view(TOPIC).get("k") == b"v"
    reading.close()
    for missing in table:
        if missing[2] == "pulsar.system.producers":  # without it only what is met while reading counts
            continue
        cluster.revoke_all("reader")
        cluster.grant("reader", [right for right in table if right != missing])
        reading = cluster.as_user("reader", operation_timeout_seconds=10)
        with pytest.raises(pulsar.AuthorizationError) as refused:
            reading.create_reader(TOPIC, pulsar.MessageId.earliest).read_next(PATIENCE_MS)
        assert f"on topic {missing[2]};" in str(refused.value)
        reading.close()
    writing.close()


def test_the_page_s_rights_are_enough_for_schemas(cluster: SecureCluster) -> None:
    reading, *registering = granted_by_the_page("Schemas")
    schema = pulsar.schema.JsonSchema(Reading)
    cluster.grant("producer", [*granted_by_the_page("Producer"), reading])
    cluster.grant("consumer", [*granted_by_the_page("Consumer"), reading])
    producing, consuming = cluster.as_user("producer", operation_timeout_seconds=10), cluster.as_user("consumer")
    with pytest.raises(pulsar.AuthorizationError, match=r"pulsar\.system\.schemas"):
        producing.create_producer(TOPIC, schema=schema)
    cluster.grant("producer", registering)
    producer = producing.create_producer(TOPIC, schema=schema)
    for read_with in (schema, pulsar.schema.AutoConsumeSchema()):
        consumer = consuming.subscribe(TOPIC, SUBSCRIPTION, schema=read_with)
        producer.send(Reading(celsius=1.5))
        value = receive(consumer, 1)[0].value()
        assert value == {"celsius": 1.5} if read_with is not schema else value.celsius == 1.5
        consumer.unsubscribe()
    producing.close()
    consuming.close()
    cluster.revoke_all("consumer")
    cluster.grant("consumer", granted_by_the_page("Consumer"))
    consuming = cluster.as_user("consumer", operation_timeout_seconds=10)
    with pytest.raises(pulsar.AuthorizationError, match=r"pulsar\.system\.schemas"):
        consuming.subscribe(TOPIC, SUBSCRIPTION, schema=schema)
    consuming.close()
    cluster.revoke_all("producer")


def test_the_page_s_rights_are_enough_for_transactions(
    cluster: SecureCluster, caplog: pytest.LogCaptureFixture
) -> None:
    table = granted_by_the_page("Transactions")
    cluster.grant("serving", [*table, *granted_by_the_page("Coordinators")])
    own = [right for section in ("Producer", "Consumer") for right in granted_by_the_page(section)]
    cluster.grant("transactional", [*own, *table])
    serving = cluster.as_user("serving", enable_transaction=True)
    serving.new_transaction().abort()
    client = cluster.as_user("transactional", enable_transaction=True)
    consumer = client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC)
    producer.send(b"in")
    message = consumer.receive(PATIENCE_MS)
    kept = client.new_transaction()
    producer.send(b"out", txn=kept)
    consumer.acknowledge(message, txn=kept)
    kept.commit()
    assert consumer.receive(PATIENCE_MS).data() == b"out"
    dropped = client.new_transaction()
    producer.send(b"dropped", txn=dropped)
    dropped.abort()
    until(lambda: "this process coordinates no transactions" in caplog.text, "the log to tell that others serve")
    assert "topic pulsar.system.transaction_coordinator_assign;" in caplog.text
    consumer.unsubscribe()
    client.close()
    for missing in table:
        if missing[2] not in ("pulsar.system.transaction_requests", "pulsar.system.__transaction_log"):
            continue
        cluster.revoke_all("transactional")
        cluster.grant("transactional", [*own, *(right for right in table if right[2] != missing[2])])
        client = cluster.as_user("transactional", enable_transaction=True, operation_timeout_seconds=10)
        with pytest.raises(pulsar.AuthorizationError, match=f"on topic {re.escape(missing[2])};"):
            client.new_transaction()
        client.close()
    serving.close()


def letters_client(cluster: SecureCluster, *without: tuple[str, str, str]) -> Any:
    """A client with the rights of Consumer, Dead letters and Retry letters, but for these."""
    cluster.revoke_all("letters")
    tables = [granted_by_the_page(section) for section in ("Consumer", "Dead letters", "Retry letters")]
    cluster.grant("letters", [right for table in tables for right in table if right not in without])
    return cluster.as_user("letters")


def test_the_page_s_rights_are_enough_for_dead_and_retry_letters(cluster: SecureCluster) -> None:
    client = letters_client(cluster)
    consumer = client.subscribe(
        TOPIC,
        SUBSCRIPTION,
        pulsar.ConsumerType.Shared,
        retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
    )
    writing = cluster.as_user("alice")
    send(writing, TOPIC, 1)
    consumer.reconsume_later(receive(consumer, 1)[0], 0)
    again = receive(consumer, 1)[0]
    assert again.properties()["RECONSUMETIMES"] == "1"
    consumer.reconsume_later(again, 0)  # once too often: a dead letter
    dead = writing.create_reader(f"{TOPIC}-{SUBSCRIPTION}-DLQ", pulsar.MessageId.earliest)
    assert dead.read_next(PATIENCE_MS).data() == b"0"
    client.close()
    writing.close()


def test_letters_name_the_right_that_is_missing(cluster: SecureCluster, caplog: pytest.LogCaptureFixture) -> None:
    letters_client(cluster).close()
    retry = ("Write", "topic", f"public.default.{TOPIC}-{SUBSCRIPTION}-RETRY")
    dead = ("Write", "topic", f"public.default.{TOPIC}-{SUBSCRIPTION}-DLQ")
    client = letters_client(cluster, retry, dead)
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    consumer = client.subscribe(
        TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared, retry_enable=True, dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=50,
    )  # fmt: skip
    writing = cluster.as_user("alice")
    send(writing, TOPIC, 1)
    message = receive(consumer, 1)[0]
    with pytest.raises(pulsar.AuthorizationError, match=rf"missing is \w+ on topic {retry[2]};"):
        consumer.reconsume_later(message, 0)
    consumer.negative_acknowledge(message)
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    until(lambda: f"on topic {dead[2]};" in caplog.text, "the log to name the dead letter topic's right")
    client.close()
    writing.close()


def test_the_page_s_rights_are_enough_to_delete_ledgers(cluster: SecureCluster, unique: Unique) -> None:
    table = [right for section in ("Transactions", "Coordinators", "Service") for right in granted_by_the_page(section)]
    cluster.grant("serving", [right for right in table if right[0] != "Delete"])
    topic, patience = unique("deleted"), Deadline.after(60)
    client, writing = cluster.as_user("serving"), cluster.as_user("alice")
    with cluster.admin_as("serving") as serving, cluster.admin_as("alice") as admin:
        deletion = LedgerDeletion(client, serving.node, visible_after_s=0.1, retry_s=1.0)
        worker = deletion.work()
        maintenance = Maintenance(serving.node, every_s=0.5, retirement=deletion.retirement)
        try:
            admin.create_topic(topic, entries_per_ledger=10)
            admin.create_subscription(topic, "s", from_earliest=True)
            send(writing, topic, 25)
            admin.clear_backlog(topic, "s")
            until(lambda: worker.counts()["FAILED"] > 0, "the deletion to be refused")
            until(
                lambda: any("missing is Delete on topic" in found.reason for found in admin.list_deletions().first),
                "the right that is missing to be told",
            )
            assert admin.topic_stats(topic).start_offsets == {0: 0}
            cluster.grant("serving", table)
            until(lambda: admin.topic_stats(topic).start_offsets == {0: 20}, "the ledgers to be deleted")
        finally:
            maintenance.close(patience)
            deletion.close(patience)
    client.close()
    writing.close()
    cluster.revoke_all("serving")


def test_a_pattern_serves_what_it_may_and_tells_of_the_rest(
    cluster: SecureCluster, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = unique("family")
    writing = cluster.as_user("alice")
    send(writing, f"{prefix}-open", 1)
    system = [right for right in granted_by_the_page("Consumer") if "pulsar.system" in right[2]]
    family = [("Read", kind, f"public.default.{prefix}-open*") for kind in ("topic", "group")]
    cluster.revoke_all("consumer")
    cluster.grant("consumer", [*system, *family])
    client = cluster.as_user("consumer")
    consumer = client.subscribe(
        re.compile(f"public/default/{prefix}-.*"), "s", pattern_auto_discovery_period=1,
        initial_position=pulsar.InitialPosition.Earliest,
    )  # fmt: skip
    assert payloads(receive(consumer, 1)) == ["0"]
    send(writing, f"{prefix}-closed", 1)
    send(writing, f"{prefix}-open-too", 1, start=1)
    assert payloads(receive(consumer, 1)) == ["1"]
    until(lambda: f"{prefix}-closed" in caplog.text, "the log to tell of the topic that may not be read")
    assert "missing is" in caplog.text
    client.close()
    writing.close()


@pytest.mark.parametrize(
    "needed",
    [
        right
        for right in granted_by_the_page("Consumer")
        if right[0] == "Read" and right[2] in ("pulsar.system.topics", f"public.default.{TOPIC}")
    ],
    ids=str,
)
def test_what_a_consumer_must_read_is_named_when_it_may_not(
    cluster: SecureCluster, needed: tuple[str, str, str]
) -> None:
    cluster.revoke_all("consumer")
    cluster.grant("consumer", [right for right in granted_by_the_page("Consumer") if right != needed])
    client = cluster.as_user("consumer", operation_timeout_seconds=10)
    with pytest.raises(pulsar.AuthorizationError) as refused:
        client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared).receive(PATIENCE_MS)
    assert f"on {needed[1]} {needed[2]};" in str(refused.value)
    client.shutdown()


def test_the_page_s_rights_are_enough_for_an_administrator(cluster: SecureCluster, unique: Unique) -> None:
    cluster.grant("admin", granted_by_the_page("Administrator"))
    with cluster.admin_as("admin") as admin:
        plain, parted = unique(), unique("parted")
        admin.create_topic(plain)
        admin.create_partitioned_topic(parted, 2)
        admin.update_partitions(parted, 3)
        admin.create_subscription(plain, "s", from_earliest=True)
        assert admin.list_subscriptions(plain) == ["s"]
        assert f"persistent://public/default/{plain}" in admin.list_topics()
        admin.topic_stats(parted)
        send(cluster.as_user("alice"), plain, 5)
        assert admin.subscription_stats(plain, "s").backlog == 5
        cluster.revoke_all("admin")
        cluster.grant("admin", [right for right in granted_by_the_page("Administrator") if "-id" not in right[1]])
        with pytest.raises(pulsar.AuthorizationError, match=f"Write on transactional-id public.default.{plain}/s;"):
            admin.skip(plain, "s", 2)
        cluster.grant("admin", granted_by_the_page("Administrator"))
        assert admin.skip(plain, "s", 2) == 2
        admin.reset_cursor(plain, "s", timestamp_ms=1)
        admin.clear_backlog(plain, "s")
        admin.unsubscribe(plain, "s")
        admin.delete_topic(plain)
        admin.delete_topic(parted)
