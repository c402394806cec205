"""Policies over the gateway's REST, as Pulsar's admin clients set and read them."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from tests.integration.gateway.rest import Rest
from tests.steps import Unique

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

NO_LIMIT: Final = {"limit": -1, "limitSize": -1, "limitTime": -1}
RETENTION: Final = {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 20480}
INACTIVE: Final = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 70,
    "deleteWhileInactive": True,
}
QUOTA: Final = {"limitSize": 10_737_418_240, "limitTime": -1, "policy": "producer_exception"}


@pytest.fixture
def namespace(rest: Rest, unique: Unique) -> str:
    """A new namespace, tenant/name."""
    tenant = unique()
    rest.does("PUT", f"/admin/v2/tenants/{tenant}", json={"adminRoles": [], "allowedClusters": ["standalone"]})
    rest.does("PUT", f"/admin/v2/namespaces/{tenant}/prod")
    return f"{tenant}/prod"


def official_client(rest: Rest) -> Any:
    """An official client of the gateway, by the binary protocol: its errors name their reason."""
    url = rest.get("/lookup/v2/topic/persistent/public/default/any")["brokerUrl"]
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=5)


def unset(rest: Rest, path: str, **query: str) -> bool:
    found = rest.ask("GET", path, params=query)
    assert found.status_code in (200, 204), (found.status_code, found.text)
    return found.status_code == 204


@pytest.mark.parametrize(
    ("step", "verb", "value", "kept"),
    [
        ("retention", "POST", RETENTION, {"retention_time_in_minutes": 1440, "retention_size_in_mb": 20480}),
        ("messageTTL", "POST", 600, {"message_ttl_in_seconds": 600}),
        ("deduplication", "POST", True, {"deduplication": True}),
        ("compactionThreshold", "PUT", 1024, {"compaction_threshold": 1024}),
        ("subscriptionExpirationTime", "POST", 60, {"subscription_expiration_time_minutes": 60}),
        (
            "inactiveTopicPolicies",
            "POST",
            INACTIVE,
            {
                "inactive_topic_delete_mode": "delete_when_subscriptions_caught_up",
                "max_inactive_duration_seconds": 70,
                "delete_while_inactive": True,
            },
        ),
    ],
)
def test_a_policy_of_a_namespace_is_set_read_and_removed(
    rest: Rest, admin: AdminClient, namespace: str, step: str, verb: str, value: Any, kept: dict[str, Any]
) -> None:
    path = f"/admin/v2/namespaces/{namespace}/{step}"
    assert unset(rest, path)
    rest.does(verb, path, json=value)
    assert rest.get(path) == value
    assert admin.policies(namespace) == kept
    rest.does("DELETE", path)
    rest.does("DELETE", path)
    assert unset(rest, path)
    assert admin.policies(namespace) == {}
    other = "PUT" if verb == "POST" else "POST"
    rest.refuses(405, f"{step} is set by {verb}", other, path, json=value)
    for where, reason in (("public/none", "Namespace does not exist"), ("none/at-all", "Tenant does not exist")):
        rest.refuses(404, reason, "GET", f"/admin/v2/namespaces/{where}/{step}")
        rest.refuses(404, reason, verb, f"/admin/v2/namespaces/{where}/{step}", json=value)
        rest.refuses(404, reason, "DELETE", f"/admin/v2/namespaces/{where}/{step}")


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize(
    ("step", "verb", "value", "default"),
    [
        ("retention", "POST", RETENTION, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}),
        ("deduplicationEnabled", "POST", True, False),
        ("compactionThreshold", "POST", 1024, 0),
        (
            "inactiveTopicPolicies",
            "POST",
            INACTIVE,
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": False,
            },
        ),
        ("schemaCompatibilityStrategy", "PUT", "BACKWARD", "FULL"),
    ],
)
def test_a_policy_of_a_topic_is_set_read_and_removed(
    rest: Rest, unique: Unique, domain: str, step: str, verb: str, value: Any, default: Any
) -> None:
    topic = f"/admin/v2/{domain}/public/default/{unique()}"
    path = f"{topic}/{step}"
    rest.refuses(404, "does not exist", "GET", path)
    rest.does("PUT", f"{topic}/partitions", json=2)
    assert unset(rest, path)
    assert rest.get(path, applied="true") == default
    rest.does(verb, path, json=value)
    assert rest.get(path) == rest.get(path, applied="true") == value
    rest.does("DELETE", path)
    assert unset(rest, path)
    rest.refuses(412, "for a partition", "GET", f"{topic}-partition-1/{step}")
    assert unset(rest, path, isGlobal="true")
    rest.refuses(501, "isGlobal", verb, f"{path}?isGlobal=true", json=value)


def test_a_topic_has_the_policies_of_its_namespace_where_it_has_none(rest: Rest, namespace: str) -> None:
    topic = f"/admin/v2/persistent/{namespace}/orders"
    rest.does("PUT", topic)
    rest.does("POST", f"/admin/v2/namespaces/{namespace}/messageTTL", json=30)
    assert unset(rest, f"{topic}/messageTTL")
    assert rest.get(f"{topic}/messageTTL", applied="true") == 30
    rest.does("POST", f"{topic}/messageTTL?messageTTL=600")  # as Pulsar's clients send it
    assert rest.get(f"{topic}/messageTTL") == rest.get(f"{topic}/messageTTL", applied="true") == 600
    rest.refuses(412, "Invalid value for message TTL", "POST", f"{topic}/messageTTL?messageTTL=-1")
    rest.refuses(400, "expected a number", "POST", f"{topic}/messageTTL?messageTTL=ten")
    rest.does("DELETE", f"{topic}/messageTTL")
    assert rest.get(f"{topic}/messageTTL", applied="true") == 30
    rest.does("POST", f"{topic}/retention", json=RETENTION)
    rest.does("DELETE", f"{topic}/policies")
    assert unset(rest, f"{topic}/retention")


@pytest.mark.parametrize(
    ("verb", "step", "value", "status", "reason"),
    [
        ("POST", "messageTTL", -1, 412, "Invalid value for message TTL"),
        ("POST", "subscriptionExpirationTime", -60, 412, "Invalid value for subscription expiration time"),
        ("PUT", "compactionThreshold", -1, 412, "compactionThreshold must be 0 or more"),
        ("POST", "messageTTL", 2**31, 412, "a whole number of 0 to 2147483647"),
        ("POST", "messageTTL", "ten", 400, "takes a whole number"),
        ("POST", "messageTTL", None, 400, "has no value"),
        ("POST", "deduplication", 1, 412, "takes true or false"),
        ("POST", "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}, 412, "keeps nothing"),
        ("POST", "retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 5}, 412, "-1 to 2147483647"),
        ("POST", "retention", 7, 412, "takes retentionTimeInMinutes, retentionSizeInMB"),
        ("POST", "inactiveTopicPolicies", {**INACTIVE, "maxInactiveDurationSeconds": 0}, 412, "1 to 2147483647"),
        ("PUT", "schemaCompatibilityStrategy", "SIDEWAYS", 400, "SIDEWAYS"),
        ("POST", "replication", [], 412, "ClusterIds should not be null or empty"),
        ("POST", "replication", ["elsewhere"], 412, "elsewhere"),
        ("POST", "replication", "west", 400, "expected a list of names"),
        ("POST", "backlogQuota", {**QUOTA, "limitTime": 9}, 412, "only in a quota of backlogQuotaType message_age"),
        ("POST", "backlogQuota", {**QUOTA, "policy": "none"}, 412, "producer_request_hold"),
        ("POST", "backlogQuota?backlogQuotaType=heap", QUOTA, 400, "expected one of destination_storage"),
    ],
)
def test_a_wrong_value_is_refused(
    rest: Rest, admin: AdminClient, namespace: str, verb: str, step: str, value: Any, status: int, reason: str
) -> None:
    rest.refuses(status, reason, verb, f"/admin/v2/namespaces/{namespace}/{step}", json=value)
    assert admin.policies(namespace) == {}


@pytest.mark.parametrize("of_topic", [False, True])
def test_backlog_quotas_are_by_type(rest: Rest, namespace: str, of_topic: bool) -> None:
    path = f"/admin/v2/namespaces/{namespace}"
    if of_topic:
        path = f"/admin/v2/persistent/{namespace}/orders"
        rest.does("PUT", path)
    assert rest.get(f"{path}/backlogQuotaMap") == {}
    rest.does("POST", f"{path}/backlogQuota", json=QUOTA)
    size = {**NO_LIMIT, "limit": 10_737_418_240, "limitSize": 10_737_418_240, "policy": "producer_exception"}
    assert rest.get(f"{path}/backlogQuotaMap") == {"destination_storage": size}
    rest.does("POST", f"{path}/backlogQuota", json={"limit": "5", "policy": "producer_exception"})  # its former name
    assert rest.get(f"{path}/backlogQuotaMap")["destination_storage"]["limitSize"] == 5
    age = {"limitSize": -(2**30), "limitTime": 3600, "policy": "consumer_backlog_eviction"}  # Java's default size
    rest.does("POST", f"{path}/backlogQuota", json=age, backlogQuotaType="message_age")
    rest.does("DELETE", f"{path}/backlogQuota", backlogQuotaType="destination_storage")
    age = {**NO_LIMIT, "limitTime": 3600, "policy": "consumer_backlog_eviction"}
    assert rest.get(f"{path}/backlogQuotaMap") == {"message_age": age}
    if of_topic:
        applied = rest.get(f"{path}/backlogQuotaMap", applied="true")
        assert applied == {"destination_storage": {**NO_LIMIT, "policy": "producer_request_hold"}, "message_age": age}


def test_schemas_have_policies(rest: Rest, namespace: str) -> None:
    path, topic = f"/admin/v2/namespaces/{namespace}", f"/admin/v2/persistent/{namespace}/orders"
    rest.does("PUT", topic)
    assert rest.get(f"{path}/isAllowAutoUpdateSchema") is True
    rest.does("POST", f"{path}/isAllowAutoUpdateSchema", json=False)
    assert rest.get(f"{path}/isAllowAutoUpdateSchema") is False
    for place in (path, topic):
        assert rest.get(f"{place}/schemaValidationEnforced") is False
        rest.does("POST", f"{place}/schemaValidationEnforced", json=True)
        assert rest.get(f"{place}/schemaValidationEnforced") is True


def test_replication_names_clusters(rest: Rest, admin: AdminClient, namespace: str) -> None:
    topic = f"/admin/v2/persistent/{namespace}/orders"
    rest.does("PUT", topic)
    path = f"/admin/v2/namespaces/{namespace}/replication"
    assert rest.get(path) == rest.get(f"{topic}/replication", applied="true") == ["standalone"]
    assert unset(rest, f"{topic}/replication")
    rest.does("POST", path, json=["standalone"])
    assert rest.get(path) == ["standalone"]
    assert admin.policies(namespace) == {}  # a cluster without a name has no others


def test_all_policies_of_a_namespace(rest: Rest, namespace: str) -> None:
    path = f"/admin/v2/namespaces/{namespace}"
    found = rest.get(path)
    assert found["auth_policies"] == {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}
    assert found["replication_clusters"] == ["standalone"]
    assert found["bundles"] == rest.get(f"{path}/bundles")
    assert found["backlog_quota_map"] == {}
    assert found["schema_compatibility_strategy"] == "UNDEFINED"
    assert "retention_policies" not in found
    rest.does("POST", f"{path}/retention", json=RETENTION)
    rest.does("POST", f"{path}/backlogQuota", json=QUOTA)
    found = rest.get(path)
    assert found["retention_policies"] == RETENTION
    assert found["backlog_quota_map"]["destination_storage"]["limitSize"] == QUOTA["limitSize"]
    rest.refuses(404, "Tenant does not exist", "GET", "/admin/v2/namespaces/none/at-all")


def test_a_namespace_is_made_with_policies(rest: Rest, admin: AdminClient, namespace: str) -> None:
    path = f"/admin/v2/namespaces/{namespace}-2"
    rest.does("PUT", path, json={**rest.get(f"/admin/v2/namespaces/{namespace}"), "message_ttl_in_seconds": 7})
    assert rest.get(path)["message_ttl_in_seconds"] == 7
    again = f"/admin/v2/namespaces/{namespace}-3"
    asked = {
        "retention_policies": RETENTION,
        "inactive_topic_policies": INACTIVE,
        "deduplicationEnabled": True,
        "backlog_quota_map": {"destination_storage": QUOTA},
        "schema_auto_update_compatibility_strategy": "Full",
        "offload_threshold": -1,
    }
    rest.does("PUT", again, json=asked)
    found = rest.get(again)
    for name in ("retention_policies", "inactive_topic_policies", "deduplicationEnabled"):
        assert found[name] == asked[name]
    assert admin.policies(f"{namespace}-3")["backlog_quota_limit_size"] == QUOTA["limitSize"]
    wrong = f"/admin/v2/namespaces/{namespace}-4"
    for status, body in (
        (501, {"encryption_required": True}),
        (501, {"persistence": {"bookkeeperEnsemble": 3}}),
        (412, {"message_ttl_in_seconds": -1}),
        (400, {"backlog_quota_map": {"heap": QUOTA}}),
        (400, {"replication_clusters": ["elsewhere"]}),
    ):
        rest.refuses(status, "", "PUT", wrong, json=body)
    rest.refuses(404, "", "GET", wrong)


def test_rates(rest: Rest, admin: AdminClient, namespace: str) -> None:
    space, topic = f"/admin/v2/namespaces/{namespace}", f"/admin/v2/persistent/{namespace}/orders"
    rest.does("PUT", topic)
    publish = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}
    dispatch = {
        "dispatchThrottlingRateInMsg": 5,
        "dispatchThrottlingRateInByte": 1000,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 60,
    }
    for step, rate in (
        ("publishRate", publish),
        ("dispatchRate", dispatch),
        ("subscriptionDispatchRate", dispatch),
        ("replicatorDispatchRate", dispatch),
    ):
        for place in (space, topic):
            assert unset(rest, f"{place}/{step}")
            rest.does("POST", f"{place}/{step}", json=rate)
            assert rest.get(f"{place}/{step}") == rate
        rest.does("DELETE", f"{topic}/{step}")
        assert unset(rest, f"{topic}/{step}")
        assert rest.get(f"{topic}/{step}", applied="true") == rate
        rest.refuses(412, "takes", "POST", f"{topic}/{step}", json=dict.fromkeys(rate, -2))
    shown = rest.get(space)
    assert shown["publishMaxMessageRate"] == {"standalone": publish}
    for name in ("topicDispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate"):
        assert shown[name] == {"standalone": dispatch}
    rest.does("PUT", f"{space}-2", json=shown)
    assert admin.policies(f"{namespace}-2") == admin.policies(namespace)
    for step in ("publishRate", "dispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate"):
        rest.does("DELETE", f"{space}/{step}")
    assert rest.get(space)["topicDispatchRate"] == {}
    assert admin.policies(namespace) == {}


def test_policies_that_are_not_kept_are_unset_and_refused(rest: Rest, namespace: str) -> None:
    space, topic = f"/admin/v2/namespaces/{namespace}", f"/admin/v2/persistent/{namespace}/orders"
    rest.does("PUT", topic)
    rate = {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 1}
    for place, step, verb in (
        (space, "subscribeRate", "POST"),
        (topic, "subscribeRate", "POST"),
        (topic, "persistence", "POST"),
        (topic, "delayedDelivery", "POST"),
        (space, "offloadDeletionLagMs", "PUT"),
    ):
        assert unset(rest, f"{place}/{step}")
        rest.refuses(501, f"{step} is not kept by this gateway", verb, f"{place}/{step}", json=rate)
        rest.does("DELETE", f"{place}/{step}")
    rest.does("POST", f"{space}/encryptionRequired", json=False)
    for step, value in (("encryptionRequired", False), ("subscriptionTypesEnabled", []), ("offloadThreshold", -1)):
        assert rest.get(f"{space}/{step}") == value
    rest.refuses(404, "does not exist", "GET", f"/admin/v2/persistent/{namespace}/none/subscribeRate")
    rest.refuses(501, "GET /admin/v2/namespaces", "GET", f"{space}/fireworks")
    rest.refuses(501, "fireworks", "POST", f"{topic}/fireworks")


def test_the_backlog_of_a_namespace_is_cleared(
    rest: Rest, admin: AdminClient, client: sdk.Client, namespace: str
) -> None:
    space = f"/admin/v2/namespaces/{namespace}"
    topics = [f"persistent://{namespace}/{name}" for name in ("plain", "parted")]
    admin.create_topic(topics[0])
    admin.create_partitioned_topic(topics[1], 2)

    def filled() -> None:
        for topic in topics:
            producer = client.create_producer(topic)
            for name in ("one", "two"):
                if name not in admin.list_subscriptions(topic):
                    admin.create_subscription(topic, name)
            for _ in range(3):
                producer.send(b"x")
            producer.close()

    def backlogs() -> list[dict[str, int]]:
        return [dict(admin.topic_stats(topic).subscriptions) for topic in topics]

    filled()
    rest.does("POST", f"{space}/clearBacklog/one")
    assert backlogs() == [{"one": 0, "two": 3}] * 2
    rest.does("POST", f"{space}/0x00000000_0xffffffff/clearBacklog")
    assert backlogs() == [{"one": 0, "two": 0}] * 2
    filled()
    rest.does("POST", f"{space}/clearBacklog")
    assert backlogs() == [{"one": 0, "two": 0}] * 2
    rest.refuses(412, "0x00000000_0x80000000", "POST", f"{space}/0x00000000_0x80000000/clearBacklog")
    rest.does("PUT", f"{space}/unload")
    rest.does("PUT", f"{space}/0x00000000_0xffffffff/unload")


def test_clients_create_topics_as_the_namespace_allows(
    rest: Rest, admin: AdminClient, client: sdk.Client, namespace: str
) -> None:
    path = f"/admin/v2/namespaces/{namespace}/autoTopicCreation"
    assert unset(rest, path)
    rest.does("POST", path, json={"allowAutoTopicCreation": False})
    assert rest.get(path) == {"allowAutoTopicCreation": False, "topicType": "non-partitioned"}
    topic = f"persistent://{namespace}/orders"
    with closing(official_client(rest)) as official:
        for creates in (client.create_producer, official.create_producer):
            with pytest.raises((sdk.TopicNotFound, pulsar.TopicNotFound)):
                creates(topic)
        with pytest.raises(sdk.TopicNotFound):
            client.subscribe(topic, "s")
        assert admin.list_topics(namespace) == []
        rest.does(
            "POST", path, json={"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
        )
        official.create_producer(topic).send(b"x")
        assert len(official.get_topic_partitions(topic)) == 3
    assert len(client.get_topic_partitions(f"{topic}-4")) == 3
    client.create_producer(f"{topic}-2").close()
    assert admin.topic_stats(f"{topic}-2").partitions == 3
    rest.does("DELETE", path)
    client.create_producer(f"{topic}-3").close()
    assert not admin.topic_stats(f"{topic}-3").partitioned
    invalid = "Invalid configuration for autoTopicCreationOverride. the detail is [defaultNumPartitions] "
    for kind, partitions, reason in (
        ("partitioned", None, "cannot be null when the type is partitioned."),
        ("partitioned", -1, "cannot be less than 1 for partition type."),
        ("non-partitioned", 3, "is not allowed to be set when the type is non-partition."),
    ):
        body = {"allowAutoTopicCreation": True, "topicType": kind, "defaultNumPartitions": partitions}
        rest.refuses(412, f"{invalid}{reason}", "POST", path, json=body)


@pytest.mark.parametrize("of_topic", [False, True])
def test_consumers_create_subscriptions_where_they_may(
    rest: Rest, admin: AdminClient, client: sdk.Client, namespace: str, of_topic: bool
) -> None:
    topic = f"persistent://{namespace}/orders"
    admin.create_topic(topic)
    place = f"/admin/v2/persistent/{namespace}/orders" if of_topic else f"/admin/v2/namespaces/{namespace}"
    rest.does("POST", f"{place}/autoSubscriptionCreation", json={"allowAutoSubscriptionCreation": False})
    assert rest.get(f"{place}/autoSubscriptionCreation") == {"allowAutoSubscriptionCreation": False}
    with closing(official_client(rest)) as official:
        for subscribes in (client.subscribe, official.subscribe):
            with pytest.raises((sdk.SubscriptionNotFound, pulsar.Timeout)):  # the C++ client retries
                subscribes(topic, "billing")
        official.create_reader(topic, pulsar.MessageId.earliest).close()
        assert admin.list_subscriptions(topic) == []
        admin.create_subscription(topic, "billing")
        official.subscribe(topic, "billing").close()
    client.subscribe(topic, "billing").close()
    rest.does("DELETE", f"{place}/autoSubscriptionCreation")
    client.subscribe(topic, "audit").close()


def test_a_topic_has_only_so_many_subscriptions(
    rest: Rest, admin: AdminClient, client: sdk.Client, namespace: str
) -> None:
    topic, path = f"persistent://{namespace}/orders", f"/admin/v2/persistent/{namespace}/orders"
    rest.does("PUT", path)
    rest.does("POST", f"/admin/v2/namespaces/{namespace}/maxSubscriptionsPerTopic", json=1)
    rest.does("POST", f"{path}/maxSubscriptionsPerTopic", json=2)
    assert rest.get(f"{path}/maxSubscriptionsPerTopic") == 2
    rest.does("PUT", f"{path}/subscription/one")
    client.subscribe(topic, "two").close()
    client.subscribe(topic, "two").close()
    with pytest.raises(sdk.NotAllowedError, match="maximum number of subscriptions"):
        client.subscribe(topic, "three")
    rest.refuses(412, "maximum number of subscriptions", "PUT", f"{path}/subscription/three")
    client.create_reader(topic, sdk.MessageId.earliest).close()
    rest.does("DELETE", f"{path}/maxSubscriptionsPerTopic")
    rest.does("DELETE", f"/admin/v2/namespaces/{namespace}/maxSubscriptionsPerTopic")
    rest.does("PUT", f"{path}/subscription/three")
    rest.refuses(412, "must be 0 or more", "POST", f"{path}/maxSubscriptionsPerTopic", json=-1)


def test_a_namespace_has_only_so_many_topics(rest: Rest, client: sdk.Client, namespace: str) -> None:
    path = f"/admin/v2/persistent/{namespace}"
    rest.does("POST", f"/admin/v2/namespaces/{namespace}/maxTopicsPerNamespace", json=3)
    rest.does("PUT", f"{path}/parted/partitions", json=2)
    rest.refuses(412, "Exceed maximum number of topics", "PUT", f"{path}/more/partitions", json=2)
    rest.refuses(412, "Exceed maximum number of topics", "POST", f"{path}/parted/partitions", json=4)
    rest.does("PUT", f"{path}/plain")
    with pytest.raises(sdk.NotAllowedError, match="Exceed maximum number of topics"):
        client.create_producer(f"persistent://{namespace}/more")
    rest.does("DELETE", f"/admin/v2/namespaces/{namespace}/maxTopicsPerNamespace")
    client.create_producer(f"persistent://{namespace}/more").close()


@pytest.mark.parametrize("of_topic", [False, True])
def test_a_topic_has_only_so_many_producers(
    rest: Rest, admin: AdminClient, client: sdk.Client, namespace: str, of_topic: bool
) -> None:
    topic = f"persistent://{namespace}/orders"
    admin.create_partitioned_topic(topic, 2)
    path = f"/admin/v2/namespaces/{namespace}/maxProducersPerTopic"
    if of_topic:
        path = f"/admin/v2/persistent/{namespace}/orders/maxProducers"
    rest.does("POST", path, json=2)
    assert rest.get(path) == 2
    with closing(official_client(rest)) as official:
        first = official.create_producer(topic)
        second = client.create_producer(topic, producer_name="mine")
        for creates in (client.create_producer, official.create_producer):
            with pytest.raises((sdk.ProducerBusy, pulsar.ProducerBusy)):
                creates(topic)
        first.close()
        official.create_producer(topic).send(b"x")
        with pytest.raises(pulsar.ProducerBusy):
            official.create_producer(topic)
    second.close()


def test_a_namespace_has_properties(rest: Rest, namespace: str) -> None:
    path = f"/admin/v2/namespaces/{namespace}"
    assert rest.get(f"{path}/properties") == {}
    rest.does("PUT", f"{path}/property/team/a+b")
    rest.does("PUT", f"{path}/properties", json={"cost": "7", "site": "eu"})
    assert rest.get(f"{path}/properties") == rest.get(path)["properties"] == {"team": "a b", "cost": "7", "site": "eu"}
    assert rest.ask("GET", f"{path}/property/team").text == "a b"
    assert rest.ask("DELETE", f"{path}/property/team").text == "a b"
    assert unset(rest, f"{path}/property/team")
    rest.does("DELETE", f"{path}/properties")
    assert rest.get(f"{path}/properties") == {}
    rest.refuses(400, "expected an object of texts", "PUT", f"{path}/properties", json={"cost": 7})
    rest.does("PUT", f"{path}-2", json={"properties": {"team": "x"}})
    assert rest.get(f"{path}-2/properties") == {"team": "x"}
    rest.refuses(404, "Namespace does not exist", "GET", "/admin/v2/namespaces/none/at-all/properties")
    assert rest.get("/admin/v2/namespaces/public/default/properties") == {}


@pytest.mark.parametrize(
    ("step", "limit"), [("maxConsumersPerTopic", 3), ("maxConsumersPerSubscription", 2), ("of topic", 3)]
)
def test_a_topic_has_only_so_many_consumers(
    rest: Rest, admin: AdminClient, client: sdk.Client, namespace: str, step: str, limit: int
) -> None:
    topic, path = f"persistent://{namespace}/orders", f"/admin/v2/namespaces/{namespace}/{step}"
    if step == "of topic":
        path = f"/admin/v2/persistent/{namespace}/orders/maxConsumers"
    admin.create_topic(topic)
    rest.does("POST", path, json=limit)
    shared, other = sdk.ConsumerType.Shared, {"consumer_type": pulsar.ConsumerType.Shared}
    with closing(official_client(rest)) as official:
        official.subscribe(topic, "billing", **other)
        mine = client.subscribe(topic, "billing", consumer_type=shared)
        if limit == 3:
            client.subscribe(topic, "audit", consumer_type=shared)
        with pytest.raises(sdk.ConsumerBusy, match="max consumers limit"):
            client.subscribe(topic, "billing", consumer_type=shared)
        with pytest.raises(pulsar.ConsumerBusy):
            official.subscribe(topic, "billing", **other)
        mine.close()
        official.subscribe(topic, "billing", **other)
        client.create_reader(topic, sdk.MessageId.earliest).close()
    rest.does("DELETE", path)
