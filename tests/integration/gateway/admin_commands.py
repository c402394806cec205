"""The commands of Pulsar's Java admin client, each with what it must return or the status that must refuse it.

They are in the order in which they run: later ones use what earlier ones created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

MINUTE_MS: Final = 60_000


def _anything(_: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    run: Callable[[], Any]
    expects: Callable[[Any], object] = _anything
    status: int | None = None
    """The status of the refusal that is expected."""


class Commands:
    """All commands for one tenant, whose name is new."""

    def __init__(self, jvm: Any, admin: Any, client: Any, tenant: str, cluster: str, web: str) -> None:
        """`client`: a Pulsar client; `web`: host and port of the REST."""
        self._jvm = jvm
        self._admin = admin
        self._client = client
        self._tenant = tenant
        self._cluster = cluster
        self._web = web
        self._ns = f"{tenant}/ns"
        self._t = f"persistent://{tenant}/ns/t"
        self._pt = f"persistent://{tenant}/ns/pt"
        self._spare = f"persistent://{tenant}/ns/spare"
        self._data = jvm.org.apache.pulsar.common.policies.data
        self._ids: list[Any] = []

    def __iter__(self) -> Iterator[Command]:
        for part in (
            self._of_clusters,
            self._of_brokers,
            self._of_tenants,
            self._of_namespaces,
            self._of_topics,
            self._of_subscriptions,
            self._of_messages,
            self._of_topic_policies,
            self._of_schemas,
            self._of_the_rest,
            self._of_ends,
        ):
            yield from part()

    def _info(self, *roles: str) -> Any:
        return self._data.TenantInfoImpl(set(roles), {self._cluster})

    def _of_clusters(self) -> Iterator[Command]:
        clusters, name = self._admin.clusters(), self._cluster
        yield Command("clusters list", clusters.getClusters, lambda found: list(found) == [name])
        yield Command("clusters get", lambda: clusters.getCluster(name), lambda found: found.getBrokerServiceUrl())
        yield Command("clusters list-failure-domains", lambda: clusters.getFailureDomains(name), lambda it: not len(it))

    def _of_brokers(self) -> Iterator[Command]:
        brokers, stats = self._admin.brokers(), self._admin.brokerStats()
        yield Command("brokers list", lambda: brokers.getActiveBrokers(self._cluster), lambda it: self._web in list(it))
        yield Command("brokers list (no cluster)", brokers.getActiveBrokers, lambda found: self._web in list(found))
        yield Command("brokers leader-broker", brokers.getLeaderBroker, lambda found: found.getServiceUrl())
        yield Command("brokers namespaces", lambda: brokers.getOwnedNamespaces(self._cluster, self._web))
        yield Command("brokers healthcheck", brokers.healthcheck)
        yield Command("brokers version", brokers.getVersion, lambda found: "pulsar-on-kafka" in found)
        yield Command("brokers list-dynamic-config", brokers.getDynamicConfigurationNames)
        yield Command("brokers get-all-dynamic-config", brokers.getAllDynamicConfigurations)
        yield Command("brokers get-runtime-config", brokers.getRuntimeConfigurations, len)
        yield Command("brokers get-internal-config", brokers.getInternalConfigurationData)
        yield Command("brokers backlog-quota-check", brokers.backlogQuotaCheck)
        yield Command("broker-stats topics", stats.getTopics)
        yield Command("broker-stats load-report", stats.getLoadReport)
        yield Command("broker-stats monitoring-metrics", stats.getMetrics)

    def _of_tenants(self) -> Iterator[Command]:
        tenants, mine = self._admin.tenants(), self._tenant
        yield Command("tenants create", lambda: tenants.createTenant(mine, self._info()))
        yield Command("tenants list", tenants.getTenants, lambda found: mine in list(found))
        yield Command("tenants get", lambda: tenants.getTenantInfo(mine), lambda it: list(it.getAllowedClusters()))
        yield Command("tenants create --admin-roles", lambda: tenants.createTenant(f"{mine}b", self._info("boss")))
        yield Command(
            "tenants update --admin-roles",
            lambda: tenants.updateTenant(f"{mine}b", self._info("boss", "other")),
            lambda _: set(tenants.getTenantInfo(f"{mine}b").getAdminRoles()) == {"boss", "other"},
        )
        yield Command("tenants create (again: 409)", lambda: tenants.createTenant(mine, self._info()), status=409)
        yield Command("tenants get (none such: 404)", lambda: tenants.getTenantInfo(f"{mine}none"), status=404)
        yield Command("tenants delete", lambda: tenants.deleteTenant(f"{mine}b"))

    def _of_namespaces(self) -> Iterator[Command]:
        namespaces, ns, data = self._admin.namespaces(), self._ns, self._data
        tenant = self._tenant
        yield Command("namespaces create", lambda: namespaces.createNamespace(ns))
        yield Command(
            "namespaces create --clusters", lambda: namespaces.createNamespace(f"{tenant}/c", {self._cluster})
        )
        yield Command("namespaces create --bundles", lambda: namespaces.createNamespace(f"{tenant}/b", 4))
        yield Command("namespaces list", lambda: namespaces.getNamespaces(tenant), lambda found: ns in list(found))
        yield Command("namespaces create (again: 409)", lambda: namespaces.createNamespace(ns), status=409)
        yield Command("namespaces policies", lambda: namespaces.getPolicies(ns))
        yield Command("namespaces topics", lambda: namespaces.getTopics(ns), lambda found: not list(found))
        yield Command("namespaces bundles", lambda: namespaces.getBundles(ns), lambda found: found.getNumBundles() >= 1)
        yield Command("namespaces set-retention", lambda: namespaces.setRetention(ns, data.RetentionPolicies(60, 10)))
        yield Command(
            "namespaces get-retention",
            lambda: namespaces.getRetention(ns),
            lambda found: found.getRetentionTimeInMinutes() == 60 and found.getRetentionSizeInMB() == 10,
        )
        yield Command("namespaces remove-retention", lambda: namespaces.removeRetention(ns))
        yield Command("namespaces set-message-ttl", lambda: namespaces.setNamespaceMessageTTL(ns, 60))
        yield Command("namespaces get-message-ttl", lambda: namespaces.getNamespaceMessageTTL(ns), lambda it: it == 60)
        yield Command("namespaces remove-message-ttl", lambda: namespaces.removeNamespaceMessageTTL(ns))
        yield Command("namespaces set-backlog-quota", lambda: namespaces.setBacklogQuota(ns, self._quota()))
        yield Command("namespaces get-backlog-quotas", lambda: namespaces.getBacklogQuotaMap(ns), len)
        yield Command("namespaces remove-backlog-quota", lambda: namespaces.removeBacklogQuota(ns))
        yield Command("namespaces set-deduplication", lambda: namespaces.setDeduplicationStatus(ns, True))
        yield Command("namespaces get-deduplication", lambda: namespaces.getDeduplicationStatus(ns))
        yield Command("namespaces remove-deduplication", lambda: namespaces.removeDeduplicationStatus(ns))
        persistence = data.PersistencePolicies(2, 2, 2, 0.0)
        yield Command("namespaces set-persistence", lambda: namespaces.setPersistence(ns, persistence))
        yield Command("namespaces get-persistence", lambda: namespaces.getPersistence(ns))
        yield Command("namespaces set-auto-topic-creation", lambda: namespaces.setAutoTopicCreation(ns, self._topics()))
        yield Command("namespaces get-auto-topic-creation", lambda: namespaces.getAutoTopicCreation(ns))
        yield Command("namespaces remove-auto-topic-creation", lambda: namespaces.removeAutoTopicCreation(ns))
        creation = data.AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(True).build()
        yield Command(
            "namespaces set-auto-subscription-creation", lambda: namespaces.setAutoSubscriptionCreation(ns, creation)
        )
        yield Command(
            "namespaces remove-auto-subscription-creation", lambda: namespaces.removeAutoSubscriptionCreation(ns)
        )
        yield Command("namespaces set-dispatch-rate", lambda: namespaces.setDispatchRate(ns, self._rate()))
        yield Command("namespaces get-dispatch-rate", lambda: namespaces.getDispatchRate(ns))
        yield Command("namespaces set-publish-rate", lambda: namespaces.setPublishRate(ns, data.PublishRate(10, 10)))
        yield Command("namespaces get-publish-rate", lambda: namespaces.getPublishRate(ns))
        yield Command(
            "namespaces set-subscription-dispatch-rate",
            lambda: namespaces.setSubscriptionDispatchRate(ns, self._rate()),
        )
        yield Command(
            "namespaces set-subscribe-rate", lambda: namespaces.setSubscribeRate(ns, data.SubscribeRate(1, 9))
        )
        yield Command("namespaces set-max-producers-per-topic", lambda: namespaces.setMaxProducersPerTopic(ns, 50))
        yield Command(
            "namespaces get-max-producers-per-topic",
            lambda: namespaces.getMaxProducersPerTopic(ns),
            lambda found: found == 50,
        )
        yield Command("namespaces set-max-consumers-per-topic", lambda: namespaces.setMaxConsumersPerTopic(ns, 50))
        yield Command(
            "namespaces set-max-consumers-per-subscription",
            lambda: namespaces.setMaxConsumersPerSubscription(ns, 50),
        )
        yield Command(
            "namespaces set-max-unacked-messages-per-consumer",
            lambda: namespaces.setMaxUnackedMessagesPerConsumer(ns, 50_000),
        )
        yield Command(
            "namespaces set-max-unacked-messages-per-subscription",
            lambda: namespaces.setMaxUnackedMessagesPerSubscription(ns, 200_000),
        )
        full = data.SchemaCompatibilityStrategy.FULL
        yield Command(
            "namespaces set-schema-compatibility-strategy", lambda: namespaces.setSchemaCompatibilityStrategy(ns, full)
        )
        yield Command(
            "namespaces get-schema-compatibility-strategy",
            lambda: namespaces.getSchemaCompatibilityStrategy(ns),
            lambda found: found == full,
        )
        yield Command(
            "namespaces set-is-allow-auto-update-schema", lambda: namespaces.setIsAllowAutoUpdateSchema(ns, True)
        )
        yield Command("namespaces get-is-allow-auto-update-schema", lambda: namespaces.getIsAllowAutoUpdateSchema(ns))
        yield Command(
            "namespaces set-schema-validation-enforce", lambda: namespaces.setSchemaValidationEnforced(ns, False)
        )
        yield Command("namespaces get-schema-validation-enforce", lambda: namespaces.getSchemaValidationEnforced(ns))
        delayed = data.DelayedDeliveryPolicies.builder().active(True).tickTime(1000).build()
        yield Command("namespaces set-delayed-delivery", lambda: namespaces.setDelayedDeliveryMessages(ns, delayed))
        mode = data.InactiveTopicDeleteMode.delete_when_no_subscriptions
        inactive = data.InactiveTopicPolicies(mode, 3600, False)
        yield Command(
            "namespaces set-inactive-topic-policies", lambda: namespaces.setInactiveTopicPolicies(ns, inactive)
        )
        yield Command(
            "namespaces set-subscription-expiration-time", lambda: namespaces.setSubscriptionExpirationTime(ns, 600)
        )
        yield Command("namespaces set-compaction-threshold", lambda: namespaces.setCompactionThreshold(ns, 1 << 20))
        yield Command(
            "namespaces get-compaction-threshold",
            lambda: namespaces.getCompactionThreshold(ns),
            lambda found: found == 1 << 20,
        )
        yield Command("namespaces set-offload-threshold", lambda: namespaces.setOffloadThreshold(ns, 1 << 30))
        yield Command("namespaces set-encryption-required", lambda: namespaces.setEncryptionRequiredStatus(ns, True))
        yield Command(
            "namespaces set-clusters", lambda: namespaces.setNamespaceReplicationClusters(ns, {self._cluster})
        )
        yield Command("namespaces get-clusters", lambda: namespaces.getNamespaceReplicationClusters(ns))
        consume = {data.AuthAction.consume}
        yield Command("namespaces grant-permission", lambda: namespaces.grantPermissionOnNamespace(ns, "app", consume))
        yield Command("namespaces permissions", lambda: namespaces.getPermissions(ns), lambda found: "app" in found)
        yield Command("namespaces revoke-permission", lambda: namespaces.revokePermissionsOnNamespace(ns, "app"))
        yield Command("namespaces set-property", lambda: namespaces.setProperty(ns, "k", "v"))
        yield Command("namespaces get-properties", lambda: namespaces.getProperties(ns), lambda it: it["k"] == "v")
        yield Command("namespaces unload", lambda: namespaces.unload(ns))
        yield Command("namespaces clear-backlog", lambda: namespaces.clearNamespaceBacklog(ns))
        prefix = data.SubscriptionAuthMode.Prefix
        yield Command("namespaces set-subscription-auth-mode", lambda: namespaces.setSubscriptionAuthMode(ns, prefix))

    def _quota(self) -> Any:
        builder = self._data.BacklogQuota.builder().limitSize(1 << 30)
        return builder.retentionPolicy(self._data.BacklogQuota.RetentionPolicy.producer_exception).build()

    def _rate(self) -> Any:
        builder = self._data.DispatchRate.builder().dispatchThrottlingRateInMsg(10)
        return builder.dispatchThrottlingRateInByte(1000).ratePeriodInSecond(1).build()

    def _topics(self) -> Any:
        builder = self._data.AutoTopicCreationOverride.builder().allowAutoTopicCreation(True)
        return builder.topicType("non-partitioned").build()

    def _produce(self, topic: str, count: int) -> None:
        producer = self._client.newProducer().topic(topic).create()
        self._ids = [producer.send(b"message %d" % number) for number in range(count)]
        producer.close()

    def _of_topics(self) -> Iterator[Command]:
        topics, t, pt, spare = self._admin.topics(), self._t, self._pt, self._spare
        lookup = self._admin.lookups()
        yield Command("topics create", lambda: topics.createNonPartitionedTopic(t))
        yield Command("topics create (again: 409)", lambda: topics.createNonPartitionedTopic(t), status=409)
        yield Command("topics create --metadata", lambda: topics.createNonPartitionedTopic(spare, {"a": "b"}))
        yield Command("topics create-partitioned-topic", lambda: topics.createPartitionedTopic(pt, 2))
        yield Command("topics get-partitioned-topic-metadata", lambda: topics.getPartitionedTopicMetadata(pt))
        yield Command("topics update-partitioned-topic", lambda: topics.updatePartitionedTopic(pt, 3))
        yield Command("topics create-missed-partitions", lambda: topics.createMissedPartitions(pt))
        yield Command("topics list", lambda: topics.getList(self._ns), lambda found: t in list(found))
        yield Command("topics list-partitioned-topics", lambda: topics.getPartitionedTopicList(self._ns), len)
        yield Command("topics lookup", lambda: lookup.lookupTopic(t), lambda found: found.startswith("pulsar://"))
        yield Command("topics partitioned-lookup", lambda: lookup.lookupPartitionedTopic(pt), lambda it: len(it) == 3)
        yield Command("topics bundle-range", lambda: lookup.getBundleRange(t))
        self._produce(t, 10)
        earliest, latest = (
            getattr(self._jvm.org.apache.pulsar.client.api.MessageId, n) for n in ("earliest", "latest")
        )
        yield Command("topics create-subscription (earliest)", lambda: topics.createSubscription(t, "s", earliest))
        yield Command("topics create-subscription (latest)", lambda: topics.createSubscription(t, "s2", latest))
        yield Command(
            "topics create-subscription --property",
            lambda: topics.createSubscription(t, "s3", earliest, False, {"p": "q"}),
        )
        yield Command("topics subscriptions", lambda: topics.getSubscriptions(t), lambda it: "s" in list(it))
        yield Command("topics stats", lambda: topics.getStats(t))
        yield Command(
            "topics stats: backlog of s",
            lambda: topics.getStats(t).getSubscriptions()["s"].getMsgBacklog(),
            lambda found: found == 10,
        )
        yield Command("topics stats: msgInCounter", lambda: topics.getStats(t).getMsgInCounter())
        yield Command("topics stats: storageSize", lambda: topics.getStats(t).getStorageSize(), lambda it: it > 0)
        yield Command("topics stats: backlogSize", lambda: topics.getStats(t).getBacklogSize(), lambda it: it > 0)
        producer = self._client.newProducer().topic(t).create()
        yield Command(
            "topics stats: publishers", lambda: topics.getStats(t).getPublishers(), lambda found: len(found) == 1
        )
        yield Command("topics delete (has a producer: 412)", lambda: topics.delete(t), status=412)
        producer.close()
        yield Command(
            "topics create-subscription (again: 409)", lambda: topics.createSubscription(t, "s", earliest), status=409
        )
        none = self._t.replace("/ns/", "/none/")
        yield Command(
            "topics create (no such namespace: 404)", lambda: topics.createNonPartitionedTopic(none), status=404
        )
        consumer = self._client.newConsumer().topics([t]).subscriptionName("held").property("x", "y").subscribe()
        yield Command(
            "topics unsubscribe (has a consumer: 412)", lambda: topics.deleteSubscription(t, "held"), status=412
        )
        yield Command(
            "topics stats: metadata of a consumer",
            lambda: topics.getStats(t).getSubscriptions()["held"].getConsumers()[0].getMetadata(),
            lambda found: found["x"] == "y",
        )
        options = self._jvm.org.apache.pulsar.client.admin.GetStatsOptions.builder()
        less = options.excludeConsumers(True).excludePublishers(True).build()
        yield Command(
            "topics stats --exclude-consumers",
            lambda: topics.getStats(t, less).getSubscriptions()["held"].getConsumers(),
            lambda found: len(found) == 0,
        )
        yield Command(
            "topics stats --exclude-publishers",
            lambda: topics.getStats(t, less).getPublishers(),
            lambda it: not len(it),
        )
        consumer.close()
        yield Command(
            "topics stats --get-precise-backlog --get-subscription-backlog-size --get-earliest-time-in-backlog",
            lambda: topics.getStats(t, True, True, True),
        )
        yield Command("topics partitioned-stats", lambda: topics.getPartitionedStats(pt, False))
        yield Command(
            "topics partitioned-stats --per-partition",
            lambda: topics.getPartitionedStats(pt, True).getPartitions(),
            lambda found: len(found) == 3,
        )
        yield Command("topics stats-internal", lambda: topics.getInternalStats(t))
        yield Command("topics partitioned-stats-internal", lambda: topics.getPartitionedInternalStats(pt))
        yield Command("topics info-internal", lambda: topics.getInternalInfo(t))

    def _of_subscriptions(self) -> Iterator[Command]:
        topics, t = self._admin.topics(), self._t

        def backlog(name: str) -> Any:
            return topics.getStats(t).getSubscriptions()[name].getMsgBacklog()

        yield Command("topics skip", lambda: topics.skipMessages(t, "s", 3), lambda _: backlog("s") == 7)
        yield Command("topics skip-all / clear-backlog", lambda: topics.skipAllMessages(t, "s2"))
        yield Command(
            "topics reset-cursor --time",
            lambda: topics.resetCursor(t, "s", self._jvm.java.lang.System.currentTimeMillis() - 60 * MINUTE_MS),
            lambda _: backlog("s") == 10,
        )
        yield Command(
            "topics reset-cursor --messageId",
            lambda: topics.resetCursor(t, "s", self._ids[4]),
            lambda _: backlog("s") in (5, 6),
        )
        yield Command("topics expire-messages (time)", lambda: topics.expireMessages(t, "s", 3600))
        yield Command("topics expire-messages (position)", lambda: topics.expireMessages(t, "s3", self._ids[2], False))
        yield Command(
            "topics expire-messages-all-subscriptions (one has no backlog: 409)",
            lambda: topics.expireMessagesForAllSubscriptions(t, 3600),
            status=409,
        )
        yield Command(
            "topics update-subscription-properties", lambda: topics.updateSubscriptionProperties(t, "s", {"a": "b"})
        )
        yield Command(
            "topics get-subscription-properties",
            lambda: topics.getSubscriptionProperties(t, "s"),
            lambda found: found["a"] == "b",
        )
        yield Command(
            "topics get-replicated-subscription-status", lambda: topics.getReplicatedSubscriptionStatus(t, "s")
        )
        yield Command(
            "topics set-replicated-subscription-status", lambda: topics.setReplicatedSubscriptionStatus(t, "s", True)
        )
        yield Command("topics unload", lambda: topics.unload(t))

    def _of_messages(self) -> Iterator[Command]:
        topics, t = self._admin.topics(), self._t
        yield Command("topics last-message-id", lambda: topics.getLastMessageId(t))
        yield Command("topics peek-messages", lambda: topics.peekMessages(t, "s3", 2), lambda found: len(found) == 2)
        first = self._ids[3]
        yield Command(
            "topics get-message-by-id",
            lambda: topics.getMessageById(t, first.getLedgerId(), first.getEntryId()),
            lambda found: bytes(found.getData()) == b"message 3",
        )
        yield Command("topics examine-messages", lambda: topics.examineMessage(t, "earliest", 1))
        yield Command("topics get-message-id (by time)", lambda: topics.getMessageIdByTimestamp(t, 0))
        yield Command("topics get-backlog-size", lambda: topics.getBacklogSizeByMessageId(t, first))
        yield Command(
            "topics analyze-backlog",
            lambda: topics.analyzeSubscriptionBacklog(t, "s3", self._jvm.java.util.Optional.empty()),
        )
        yield Command("topics update-properties", lambda: topics.updateProperties(t, {"k": "v"}))
        yield Command("topics get-properties", lambda: topics.getProperties(t), lambda found: found["k"] == "v")
        yield Command("topics remove-properties", lambda: topics.removeProperties(t, "k"))
        yield Command("topics compact", lambda: topics.triggerCompaction(t))
        yield Command("topics compaction-status", lambda: topics.compactionStatus(t))
        yield Command("topics offload", lambda: topics.triggerOffload(t, first))
        yield Command("topics offload-status", lambda: topics.offloadStatus(t))
        produce = {self._data.AuthAction.produce}
        yield Command("topics grant-permission", lambda: topics.grantPermission(t, "app", produce))
        yield Command("topics permissions", lambda: topics.getPermissions(t), lambda found: "app" in found)
        yield Command("topics revoke-permission", lambda: topics.revokePermissions(t, "app"))
        yield Command("topics trim-topic", lambda: topics.trimTopic(t))

    def _of_topic_policies(self) -> Iterator[Command]:
        policies, t, data = self._admin.topicPolicies(), self._spare, self._data
        kept = data.RetentionPolicies(60, 10)
        yield Command("topicPolicies set-retention", lambda: policies.setRetention(t, kept))
        yield Command(
            "topicPolicies get-retention",
            lambda: policies.getRetention(t),
            lambda found: found.getRetentionTimeInMinutes() == 60,
        )
        yield Command("topicPolicies set-message-ttl", lambda: policies.setMessageTTL(t, 60))
        yield Command("topicPolicies get-message-ttl", lambda: policies.getMessageTTL(t), lambda found: found == 60)
        yield Command("topicPolicies set-backlog-quota", lambda: policies.setBacklogQuota(t, self._quota()))
        yield Command("topicPolicies get-backlog-quota", lambda: policies.getBacklogQuotaMap(t), len)
        yield Command("topicPolicies set-deduplication", lambda: policies.setDeduplicationStatus(t, True))
        yield Command("topicPolicies get-deduplication", lambda: policies.getDeduplicationStatus(t))
        yield Command("topicPolicies set-publish-rate", lambda: policies.setPublishRate(t, data.PublishRate(10, 10)))
        yield Command("topicPolicies set-dispatch-rate", lambda: policies.setDispatchRate(t, self._rate()))
        yield Command("topicPolicies set-max-producers", lambda: policies.setMaxProducers(t, 5))
        yield Command("topicPolicies set-max-consumers", lambda: policies.setMaxConsumers(t, 5))
        yield Command("topicPolicies set-compaction-threshold", lambda: policies.setCompactionThreshold(t, 1 << 20))
        yield Command(
            "topicPolicies set-schema-compatibility-strategy",
            lambda: policies.setSchemaCompatibilityStrategy(t, data.SchemaCompatibilityStrategy.FULL),
        )
        delayed = data.DelayedDeliveryPolicies.builder().active(True).tickTime(1000).build()
        yield Command("topicPolicies set-delayed-delivery", lambda: policies.setDelayedDeliveryPolicy(t, delayed))
        yield Command(
            "topicPolicies set-max-unacked-messages-on-consumer",
            lambda: policies.setMaxUnackedMessagesOnConsumer(t, 50_000),
        )

    def _of_schemas(self) -> Iterator[Command]:
        schemas, topic = self._admin.schemas(), f"persistent://{self._tenant}/ns/st"
        text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
        payload = self._jvm.org.apache.pulsar.common.protocol.schema.PostSchemaPayload("AVRO", text, {})
        yield Command("schemas upload", lambda: schemas.createSchema(topic, payload))
        yield Command("schemas get", lambda: schemas.getSchemaInfo(topic), lambda it: it.getType().name() == "AVRO")
        yield Command("schemas get --version", lambda: schemas.getSchemaInfo(topic, 0))
        yield Command("schemas get --all-version", lambda: schemas.getAllSchemas(topic), lambda it: len(it) == 1)
        yield Command(
            "schemas compatibility",
            lambda: schemas.testCompatibility(topic, payload),
            lambda found: found.isCompatibility(),
        )
        yield Command(
            "schemas get version by schema", lambda: schemas.getVersionBySchema(topic, payload), lambda it: it == 0
        )
        yield Command("schemas metadata", lambda: schemas.getSchemaMetadata(topic))
        yield Command("schemas delete", lambda: schemas.deleteSchema(topic))

    def _of_the_rest(self) -> Iterator[Command]:
        transactions, unit = self._admin.transactions(), self._jvm.java.util.concurrent.TimeUnit.SECONDS
        yield Command("transactions coordinators-list", transactions.listTransactionCoordinators, len)
        yield Command("transactions coordinator-stats", transactions.getCoordinatorStats, len)
        yield Command("transactions slow-transactions", lambda: transactions.getSlowTransactions(3600, unit))
        yield Command("resource-quotas get", self._admin.resourceQuotas().getDefaultResourceQuota)
        yield Command("resourcegroups list", self._admin.resourcegroups().getResourceGroups)
        clusters = self._admin.clusters()
        yield Command("ns-isolation-policy list", lambda: clusters.getNamespaceIsolationPolicies(self._cluster))
        yield Command("bookies racks-placement", self._admin.bookies().getBookiesRackInfo)
        yield Command("non-persistent list", lambda: self._admin.nonPersistentTopics().getList(self._ns))

    def _of_ends(self) -> Iterator[Command]:
        topics, namespaces = self._admin.topics(), self._admin.namespaces()
        t, pt, spare, ns = self._t, self._pt, self._spare, self._ns
        yield Command("topics truncate", lambda: topics.truncate(spare))
        yield Command("topics unsubscribe", lambda: topics.deleteSubscription(t, "s2"))
        yield Command("topics unsubscribe --force", lambda: topics.deleteSubscription(t, "s", True))
        yield Command("topics terminate", lambda: topics.terminateTopic(t))
        yield Command(
            "topics partitioned-terminate", lambda: topics.terminatePartitionedTopic(pt), lambda found: len(found) == 3
        )
        yield Command("namespaces delete (not empty: 409)", lambda: namespaces.deleteNamespace(ns), status=409)
        yield Command("topics delete", lambda: topics.delete(spare))
        yield Command("topics delete (none such: 404)", lambda: topics.delete(f"{t}none"), status=404)
        yield Command("topics delete-partitioned-topic", lambda: topics.deletePartitionedTopic(pt))
        yield Command("topics stats (none such: 404)", lambda: topics.getStats(f"{t}none"), status=404)
        yield Command("namespaces delete (not empty, --force)", lambda: namespaces.deleteNamespace(ns, True))
        yield Command("namespaces delete", lambda: namespaces.deleteNamespace(f"{self._tenant}/b"))
