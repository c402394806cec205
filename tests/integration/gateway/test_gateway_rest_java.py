"""Pulsar's Java admin client, and its Java client with an HTTP service URL, on the gateway's REST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.compat.harness.java.bridge import Bridge
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")
java_gateway: Any = pytest.importorskip("py4j.java_gateway", reason="py4j is not installed")
protocol: Any = pytest.importorskip("py4j.protocol", reason="py4j is not installed")

pytestmark = pytest.mark.kafka


@pytest.fixture
def url(admin: AdminClient, unique: Unique) -> Iterator[str]:
    settings = GatewaySettings(port=0, fleet=unique())
    gateway = Gateway(admin.node, settings)
    rest = RestServer(admin, gateway, settings)
    yield rest.url()
    rest.close()
    gateway.close(Deadline.after(60))


def refused(kind: str, call: Any, *arguments: Any) -> None:
    with pytest.raises(protocol.Py4JJavaError) as told:
        call(*arguments)
    assert told.value.java_exception.getClass().getName().endswith(f"PulsarAdminException${kind}")


@pytest.mark.long
def test_the_java_clients_administer_and_look_up(bridge: Bridge, url: str, unique: Unique) -> None:
    jvm, tenant = bridge.jvm, unique()
    admin = jvm.org.apache.pulsar.client.admin.PulsarAdmin.builder().serviceHttpUrl(url).build()
    admin.brokers().healthcheck()
    (cluster,) = admin.clusters().getClusters()
    admin.tenants().createTenant(tenant, jvm.org.apache.pulsar.common.policies.data.TenantInfoImpl(set(), {cluster}))
    admin.namespaces().createNamespace(f"{tenant}/prod")
    assert list(admin.namespaces().getNamespaces(tenant)) == [f"{tenant}/prod"]
    orders, bills = (f"persistent://{tenant}/prod/{name}" for name in ("orders", "bills"))
    topics = admin.topics()
    topics.createPartitionedTopic(orders, 2)
    topics.updatePartitionedTopic(orders, 3)
    topics.createNonPartitionedTopic(bills)
    refused("ConflictException", topics.createNonPartitionedTopic, bills)
    assert java_gateway.get_field(topics.getPartitionedTopicMetadata(orders), "partitions") == 3
    assert list(topics.getPartitionedTopicList(f"{tenant}/prod")) == [orders]
    assert bills in list(topics.getList(f"{tenant}/prod"))
    topics.createSubscription(orders, "audit", bridge.api.MessageId.earliest)
    topics.createSubscription(bills, "audit", bridge.api.MessageId.latest)
    assert list(topics.getSubscriptions(orders)) == ["audit"]

    client = bridge.api.PulsarClient.builder().serviceUrl(url).build()
    producer = client.newProducer(bridge.api.Schema.STRING).topic(orders).create()
    for text in ("one", "two"):
        producer.send(text)
    consumer = client.newConsumer(bridge.api.Schema.STRING).topic(bridge.texts(orders)).subscriptionName("audit")
    consumer = consumer.subscribe()
    assert sorted(consumer.receive().getValue() for _ in range(2)) == ["one", "two"]
    told = topics.getPartitionedStats(orders, True)
    assert told.getSubscriptions()["audit"].getMsgBacklog() == 2
    assert len(told.getPartitions()) == 3
    assert topics.getStats(bills).getSubscriptions()["audit"].getMsgBacklog() == 0
    assert admin.schemas().getSchemaInfo(orders).getType().name() == "STRING"
    client.close()

    topics.deleteSubscription(orders, "audit")
    refused("NotFoundException", topics.deleteSubscription, orders, "audit")
    topics.deletePartitionedTopic(orders)
    topics.delete(bills)
    admin.namespaces().deleteNamespace(f"{tenant}/prod")
    admin.tenants().deleteTenant(tenant)
    refused("NotFoundException", topics.unload, bills)
    refused("NotFoundException", topics.triggerCompaction, bills)
    admin.close()


@pytest.mark.long
def test_the_java_clients_terminate_a_topic(bridge: Bridge, url: str, unique: Unique) -> None:
    api, topic = bridge.api, f"persistent://public/default/{unique()}"
    admin = bridge.jvm.org.apache.pulsar.client.admin.PulsarAdmin.builder().serviceHttpUrl(url).build()
    topics = admin.topics()
    topics.createNonPartitionedTopic(topic, {"a": "b"})
    topics.updateProperties(topic, {"c": "d"})
    topics.removeProperties(topic, "a")
    assert dict(topics.getProperties(topic)) == {"c": "d"}
    client = api.PulsarClient.builder().serviceUrl(url).build()
    producer = client.newProducer(api.Schema.STRING).topic(topic).create()
    consumer = client.newConsumer(api.Schema.STRING).topic(bridge.texts(topic)).subscriptionName("s").subscribe()
    reader = client.newReader(api.Schema.STRING).topic(topic).startMessageId(api.MessageId.earliest).create()
    sent = producer.send("x")
    topics.triggerCompaction(topic)
    assert java_gateway.get_field(topics.compactionStatus(topic), "status").name() == "SUCCESS"
    assert topics.terminateTopic(topic).toString() == sent.toString()
    with pytest.raises(protocol.Py4JJavaError) as refusal:
        producer.send("late")
    assert "TopicTerminatedException" in str(refusal.value.java_exception)
    assert not consumer.hasReachedEndOfTopic()
    consumer.acknowledge(consumer.receive())
    assert reader.readNext().getValue() == "x"
    until(consumer.hasReachedEndOfTopic, "the consumer to know the end")
    until(reader.hasReachedEndOfTopic, "the reader to know the end")
    assert not reader.hasMessageAvailable()
    topics.truncate(topic)
    client.close()
    topics.delete(topic)
    admin.close()


@pytest.mark.long
def test_the_java_client_reads_and_sets_policies(bridge: Bridge, url: str, unique: Unique) -> None:
    jvm, tenant = bridge.jvm, unique()
    data = jvm.org.apache.pulsar.common.policies.data
    admin = jvm.org.apache.pulsar.client.admin.PulsarAdmin.builder().serviceHttpUrl(url).build()
    (cluster,) = admin.clusters().getClusters()
    admin.tenants().createTenant(tenant, data.TenantInfoImpl(set(), {cluster}))
    space, topic = f"{tenant}/prod", f"persistent://{tenant}/prod/orders"
    spaces, topics = admin.namespaces(), admin.topicPolicies()
    spaces.createNamespace(space, data.Policies())
    admin.topics().createNonPartitionedTopic(topic)
    quota = data.BacklogQuota.builder().limitSize(5).limitTime(-1)
    quota = quota.retentionPolicy(data.BacklogQuota.RetentionPolicy.producer_exception).build()
    kind = data.BacklogQuota.BacklogQuotaType.destination_storage
    inactive = data.InactiveTopicPolicies(data.InactiveTopicDeleteMode.delete_when_no_subscriptions, 70, True)
    backward = data.SchemaCompatibilityStrategy.BACKWARD
    rate = data.DispatchRate.builder().dispatchThrottlingRateInMsg(10).ratePeriodInSecond(2).build()
    for policies, where in ((spaces, space), (topics, topic)):
        of_topic = policies is topics
        assert policies.getRetention(where) is None
        policies.setRetention(where, data.RetentionPolicies(60, 100))
        assert policies.getRetention(where).getRetentionTimeInMinutes() == 60
        policies.setBacklogQuota(where, quota, kind)
        read = policies.getBacklogQuotaMap(where, False) if of_topic else policies.getBacklogQuotaMap(where)
        assert read[kind].equals(quota)
        policies.removeBacklogQuota(where, kind)
        policies.setInactiveTopicPolicies(where, inactive)
        assert policies.getInactiveTopicPolicies(where).equals(inactive)
        policies.removeInactiveTopicPolicies(where)
        policies.setCompactionThreshold(where, 1024)
        assert policies.getCompactionThreshold(where) == 1024
        policies.removeCompactionThreshold(where)
        policies.setSchemaCompatibilityStrategy(where, backward)
        assert policies.getDispatchRate(where) is None
        policies.setDispatchRate(where, rate)
        assert policies.getDispatchRate(where).equals(rate)
        policies.removeDispatchRate(where)
        policies.setMaxSubscriptionsPerTopic(where, 7)
        assert policies.getMaxSubscriptionsPerTopic(where) == 7
        refused("ServerSideErrorException", policies.setPersistence, where, data.PersistencePolicies(2, 2, 2, 1.0))
        policies.removeRetention(where)
    spaces.setNamespaceMessageTTL(space, 30)
    assert spaces.getNamespaceMessageTTL(space) == topics.getMessageTTL(topic, True) == 30
    topics.setMessageTTL(topic, 600)
    assert topics.getMessageTTL(topic) == 600
    refused("PreconditionFailedException", spaces.setNamespaceMessageTTL, space, -1)
    spaces.setDeduplicationStatus(space, True)
    topics.setDeduplicationStatus(topic, False)
    assert (spaces.getDeduplicationStatus(space), topics.getDeduplicationStatus(topic)) == (True, False)
    found = spaces.getPolicies(space)
    assert java_gateway.get_field(found, "message_ttl_in_seconds") == 30
    assert java_gateway.get_field(found, "schema_compatibility_strategy").equals(backward)
    spaces.setNamespaceReplicationClusters(space, {cluster})
    assert list(spaces.getNamespaceReplicationClusters(space)) == [cluster]
    assert spaces.getBundles(space).getNumBundles() == 1
    spaces.clearNamespaceBacklog(space)
    spaces.unload(space)
    admin.close()


@pytest.mark.long
def test_the_java_admin_frees_a_stuck_consumer(bridge: Bridge, url: str, admin: AdminClient, unique: Unique) -> None:
    jvm, topic = bridge.jvm, f"persistent://public/default/{unique()}"
    java = jvm.org.apache.pulsar.client.admin.PulsarAdmin.builder().serviceHttpUrl(url).build()
    topics, ids = java.topics(), bridge.api.MessageId
    client = bridge.api.PulsarClient.builder().serviceUrl(url).build()
    texts = client.newProducer(bridge.api.Schema.STRING).topic(topic).enableBatching(False).create()
    topics.createSubscription(topic, "s", ids.earliest, False, {"team": "a"})
    assert dict(topics.getSubscriptionProperties(topic, "s")) == {"team": "a"}
    topics.updateSubscriptionProperties(topic, "s", {"team": "b"})
    sent = [texts.newMessage().key("k").property("n", str(n)).value(f"text {n}").send() for n in range(6)]

    def peeked(count: int) -> list[str]:
        return [bytes(message.getData()).decode() for message in topics.peekMessages(topic, "s", count)]

    assert peeked(3) == ["text 0", "text 1", "text 2"]
    (first,) = topics.peekMessages(topic, "s", 1)
    assert (first.getKey(), first.getProperties()["n"], first.getPublishTime() > 0) == ("k", "0", True)
    found = topics.getMessageById(topic, sent[4].getLedgerId(), sent[4].getEntryId())
    assert bytes(found.getData()) == b"text 4"
    assert bytes(topics.examineMessage(topic, "latest", 1).getData()) == b"text 5"
    assert topics.getLastMessageId(topic).getEntryId() == 5
    assert topics.getMessageIdByTimestamp(topic, 1).getEntryId() == 0
    topics.skipMessages(topic, "s", 2)
    topics.expireMessages(topic, "s", sent[2], False)
    assert peeked(9) == ["text 3", "text 4", "text 5"]
    assert topics.analyzeSubscriptionBacklog(topic, "s", jvm.java.util.Optional.empty()).getEntries() == 3
    topics.resetCursor(topic, "s", sent[1], True)
    assert peeked(1) == ["text 2"]
    topics.resetCursor(topic, "s", 1)
    assert peeked(1) == ["text 0"]
    stats = topics.getStats(topic)
    assert 0 < stats.getBacklogSize() <= stats.getStorageSize()
    assert topics.getBacklogSizeByMessageId(topic, ids.earliest) == stats.getStorageSize()
    internal = topics.getInternalStats(topic)
    assert java_gateway.get_field(internal, "entriesAddedCounter") == 6
    cursor = java_gateway.get_field(internal, "cursors")["s"]
    assert java_gateway.get_field(cursor, "readPosition").endswith(":0")
    assert '"cursors"' in topics.getInternalInfo(topic)
    topics.setReplicatedSubscriptionStatus(topic, "s", True)
    assert dict(topics.getReplicatedSubscriptionStatus(topic, "s")) == {topic: True}
    topics.skipAllMessages(topic, "s")
    refused("ConflictException", topics.expireMessages, topic, "s", 1)
    assert peeked(1) == []
    refused("NotFoundException", topics.resetCursor, topic, "none", 1)
    client.close()
    java.close()


@pytest.mark.long
def test_the_java_client_keeps_tenants_and_grants_permissions(bridge: Bridge, url: str, unique: Unique) -> None:
    jvm, tenant = bridge.jvm, unique()
    admin = jvm.org.apache.pulsar.client.admin.PulsarAdmin.builder().serviceHttpUrl(url).build()
    data = jvm.org.apache.pulsar.common.policies.data
    actions = data.AuthAction
    tenants, namespaces, topics = admin.tenants(), admin.namespaces(), admin.topics()
    (cluster,) = admin.clusters().getClusters()
    refused("NotFoundException", tenants.getTenantInfo, tenant)
    refused("NotFoundException", namespaces.createNamespace, f"{tenant}/prod")
    tenants.createTenant(tenant, data.TenantInfoImpl({"boss"}, {cluster}))
    refused("ConflictException", tenants.createTenant, tenant, data.TenantInfoImpl({"boss"}, {cluster}))
    refused("PreconditionFailedException", tenants.updateTenant, tenant, data.TenantInfoImpl({"boss"}, {"elsewhere"}))
    tenants.updateTenant(tenant, data.TenantInfoImpl({"boss", "deputy"}, {cluster}))
    assert set(tenants.getTenantInfo(tenant).getAdminRoles()) == {"boss", "deputy"}
    assert tenant in list(tenants.getTenants())
    space, topic = f"{tenant}/prod", f"persistent://{tenant}/prod/orders"
    namespaces.createNamespace(space)
    namespaces.grantPermissionOnNamespace(space, "app", {actions.produce, actions.consume})
    topics.grantPermission(topic, "audit", {actions.consume})
    namespaces.grantPermissionOnSubscription(space, "billing", {"app", "audit"})
    namespaces.setSubscriptionAuthMode(space, data.SubscriptionAuthMode.Prefix)

    def named(found: Any) -> dict[str, set[str]]:
        return {role: {str(each) for each in found[role]} for role in found}

    assert named(namespaces.getPermissions(space)) == {"app": {"produce", "consume"}}
    assert named(topics.getPermissions(topic)) == {"app": {"produce", "consume"}, "audit": {"consume"}}
    assert named(namespaces.getPermissionOnSubscription(space)) == {"billing": {"app", "audit"}}
    assert str(namespaces.getSubscriptionAuthMode(space)) == "Prefix"
    policies = java_gateway.get_field(namespaces.getPolicies(space), "auth_policies")
    assert named(policies.getNamespaceAuthentication()) == {"app": {"produce", "consume"}}
    assert named(policies.getSubscriptionAuthentication()) == {"billing": {"app", "audit"}}
    namespaces.revokePermissionsOnNamespace(space, "app")
    namespaces.revokePermissionOnSubscription(space, "billing", "audit")
    topics.revokePermissions(topic, "audit")
    refused("PreconditionFailedException", topics.revokePermissions, topic, "audit")
    assert not namespaces.getPermissions(space)
    refused("ConflictException", tenants.deleteTenant, tenant)
    tenants.deleteTenant(tenant, True)
    refused("NotFoundException", tenants.getTenantInfo, tenant)
    admin.close()
