"""The gateway's REST: what clients and tools begin with, asked over HTTP and by the official client."""

from __future__ import annotations

import json
import re
import secrets
import socket
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import jwt
import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import asgi_server
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
from tests.certificates import Authority
from tests.integration.gateway.rest import Rest, ServingRest
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

_PATIENCE_MS: Final = 60_000
EARLIEST: Final = pulsar.InitialPosition.Earliest


class Order(sdk.schema.Record):
    item = sdk.schema.String()


def test_the_official_client_looks_up_over_http(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    client = pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    prefix = unique()
    admin.create_partitioned_topic(f"{prefix}-b", 2)
    for name in ("a", "b"):
        producer = client.create_producer(f"{prefix}-{name}", schema=pulsar.schema.StringSchema())
        producer.send(name)
    consumer = client.subscribe(f"{prefix}-a", "one", initial_position=EARLIEST)
    assert consumer.receive(_PATIENCE_MS).data() == b"a"
    pattern = re.compile(f"persistent://public/default/{re.escape(prefix)}-.*")
    both = client.subscribe(pattern, "both", initial_position=EARLIEST)
    assert sorted(both.receive(_PATIENCE_MS).data() for _ in range(2)) == [b"a", b"b"]
    assert len(client.get_topic_partitions(f"{prefix}-b")) == 2
    client.close()
    schema = rest.get(f"/admin/v2/schemas/public/default/{prefix}-a/schema")
    assert (schema["version"], schema["type"], schema["data"]) == (0, "STRING", "null")  # as that client says it
    assert rest.get(f"/admin/v2/schemas/public/default/{prefix}-a/schema/0") == schema
    rest.refuses(404, "", "GET", f"/admin/v2/schemas/public/default/{prefix}-a/schema/7")


def test_a_schema_is_found_by_a_name_without_its_domain(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    """As Pulsar keeps them; where there are two topics of a name, the persistent one counts."""
    topic = unique()
    path = f"/admin/v2/schemas/public/default/{topic}/schema"
    rest.refuses(404, f"persistent://public/default/{topic}", "GET", path)
    client.create_producer(f"non-persistent://public/default/{topic}", schema=sdk.schema.StringSchema())
    assert rest.get(path)["type"] == rest.get(f"{path}/0")["type"] == "STRING"
    rest.refuses(404, "", "GET", f"{path}/1")
    client.create_producer(topic, schema=sdk.schema.JsonSchema(Order))
    assert rest.get(path)["type"] == "JSON"
    assert [each["type"] for each in rest.get(f"{path}s")["getSchemaResponses"]] == ["JSON"]


def test_a_schema_of_keys_and_values_is_told_as_pulsar_does(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    path = f"/admin/v2/schemas/public/default/{topic}/schemas"
    rest.refuses(404, topic, "GET", path)
    schema = sdk.schema.KeyValueSchema(sdk.schema.StringSchema(), sdk.schema.JsonSchema(Order))
    client.create_producer(topic, schema=schema)
    (told,) = rest.get(path)["getSchemaResponses"]
    assert (told["version"], told["type"], told["properties"]["value.schema.type"]) == (0, "KEY_VALUE", "JSON")
    assert json.loads(told["data"])["key"] == ""
    assert json.loads(told["data"])["value"]["name"] == "Order"


@pytest.mark.parametrize("partitions", [0, 2])
def test_clients_go_on_after_their_topic_was_unloaded(
    rest: Rest, admin: AdminClient, unique: Unique, partitions: int
) -> None:
    topic, other = unique(), unique()
    here = f"/admin/v2/persistent/public/default/{topic}/unload"
    rest.refuses(404, topic, "PUT", here)
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(rest.url, logger=quiet)) as client:
        producers = [client.create_producer(name) for name in (topic, other)]
        consumer, elsewhere = client.subscribe(topic, "s"), client.subscribe(other, "s")
        for number in range(3):
            rest.does("PUT", here)
            for each in producers:
                each.send(b"%d" % number)
            assert elsewhere.receive(_PATIENCE_MS).data() == b"%d" % number
            received = b""
            while received != b"%d" % number:  # what is not acknowledged comes again
                received = consumer.receive(_PATIENCE_MS).data()
    if partitions:
        rest.does("PUT", here.replace("/unload", "-partition-1/unload"))
        rest.refuses(404, "none is 2", "PUT", here.replace("/unload", "-partition-2/unload"))


def test_clients_go_on_at_once_after_their_topic_was_deleted_by_force(rest: Rest, unique: Unique) -> None:
    """As in Pulsar they make it anew; librdkafka alone would tell them after 30 s that it is gone."""
    topic = unique()
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(rest.url, logger=quiet)) as client:
        producer = client.create_producer(topic, send_timeout_millis=20_000)
        client.subscribe(topic, "s")
        producer.send(b"gone")
        rest.does("DELETE", f"/admin/v2/persistent/public/default/{topic}?force=true")
        producer.send(b"there")
        again = client.subscribe(topic, "t", initial_position=EARLIEST)
        assert again.receive(_PATIENCE_MS).data() == b"there"


def test_a_namespace_has_a_strategy_of_schemas(rest: Rest, unique: Unique) -> None:
    tenant = unique()
    namespace = f"/admin/v2/namespaces/{tenant}/prod"
    strategy = f"{namespace}/schemaCompatibilityStrategy"
    rest.does("PUT", f"/admin/v2/tenants/{tenant}", json={"allowedClusters": ["standalone"]})
    rest.refuses(404, "does not exist", "PUT", strategy, json="FULL")
    rest.does("PUT", namespace)
    assert rest.get(strategy) == "UNDEFINED"
    rest.does("PUT", strategy, json="FORWARD")
    assert rest.get(strategy) == "FORWARD"
    rest.refuses(400, "SIDEWAYS", "PUT", strategy, json="SIDEWAYS")
    rest.refuses(400, "takes one of", "PUT", strategy, json={"strategy": "FULL"})


def test_it_is_in_health_and_tells_where_topics_are_served(rest: Rest, unique: Unique) -> None:
    assert rest.ask("GET", "/admin/v2/brokers/health").text == "ok"
    assert rest.ask("GET", "/admin/v2/brokers/version").text.startswith("pulsar-on-kafka ")
    assert rest.get("/admin/v2/clusters") == ["standalone"]
    told = rest.get(f"/lookup/v2/topic/persistent/public/default/{unique()}")
    assert re.fullmatch(r"pulsar://127.0.0.1:\d+", told["brokerUrl"])
    assert (told["nativeUrl"], told["httpUrl"]) == (told["brokerUrl"], rest.url)
    assert told["brokerUrlTls"] is told["httpUrlTls"] is None
    rest.refuses(404, "Namespace does not exist", "GET", "/lookup/v2/topic/persistent/nowhere/at-all/x")


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_topics_live(rest: Rest, unique: Unique, domain: str) -> None:
    plain, parted = unique(), unique()
    here = f"/admin/v2/{domain}/public/default"
    rest.refuses(404, plain, "GET", f"{here}/{plain}/partitions")
    assert rest.get(f"{here}/{plain}/partitions", checkAllowAutoCreation="true") == {"partitions": 0}
    rest.refuses(404, plain, "GET", f"{here}/{plain}/partitions")  # the question has not made it
    rest.does("PUT", f"{here}/{plain}")
    rest.refuses(409, "exists", "PUT", f"{here}/{plain}")
    rest.does("PUT", f"{here}/{parted}/partitions", json=2)
    rest.refuses(409, "exists", "PUT", f"{here}/{parted}/partitions", json=2)
    assert rest.get(f"{here}/{parted}/partitions") == {"partitions": 2}
    rest.does("POST", f"{here}/{parted}/partitions", json=3)
    for wrong, status in ((0, 406), (-1, 406), ("two", 400), (True, 400), ([], 400)):
        rest.refuses(status, "partitions", "POST", f"{here}/{parted}/partitions", json=wrong)
    names = {f"{domain}://public/default/{parted}-partition-{number}" for number in range(3)}
    found = set(rest.get(here))
    assert {*names, f"{domain}://public/default/{plain}"} <= found
    assert all(each.startswith(f"{domain}://") for each in found)
    assert f"{domain}://public/default/{parted}" in rest.get(f"{here}/partitioned")
    assert f"{domain}://public/default/{plain}" not in rest.get(f"{here}/partitioned")
    mode = "PERSISTENT" if domain == "persistent" else "NON_PERSISTENT"
    assert names <= set(rest.get("/admin/v2/namespaces/public/default/topics", mode=mode))
    assert names <= set(rest.get("/admin/v2/namespaces/public/default/topics", mode="ALL"))
    rest.refuses(412, "/partitions", "DELETE", f"{here}/{parted}")
    rest.refuses(412, "no partitions", "DELETE", f"{here}/{plain}/partitions")
    rest.does("DELETE", f"{here}/{parted}/partitions")
    rest.does("DELETE", f"{here}/{plain}")
    rest.refuses(404, plain, "DELETE", f"{here}/{plain}")


def test_a_name_in_a_path_is_as_java_encodes_it(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    name = f"{unique()} + ! & ? % # [ ]"
    here = f"/admin/v2/persistent/public/default/{quote_plus(name)}"
    rest.does("PUT", f"{here}/partitions", json=2)
    assert admin.topic_stats(name).partitions == 2
    for subscription in ("a + b", "a/b", "a%2Fb", "x?y"):
        rest.does("PUT", f"{here}/subscription/{quote_plus(subscription)}")
        assert rest.get(f"{here}/subscriptions") == [subscription]
        rest.does("DELETE", f"{here}/subscription/{quote_plus(subscription)}")
    rest.does("DELETE", f"{here}/partitions")


def test_subscriptions_have_what_comes_to_a_new_partition_before_their_consumers(
    rest: Rest, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    with closing(pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))) as client:
        client.subscribe(topic, "one").close()
        rest.does("POST", f"/admin/v2/persistent/public/default/{topic}/partitions", json=3)
        client.create_producer(f"{topic}-partition-2").send(b"early")
        assert client.subscribe(topic, "one").receive(_PATIENCE_MS).data() == b"early"


def test_tenants_and_namespaces_live(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    tenant = unique()
    path, here = f"/admin/v2/tenants/{tenant}", f"/admin/v2/namespaces/{tenant}/prod"
    for method, where in (("GET", path), ("DELETE", path), ("PUT", here)):
        rest.refuses(404, "Tenant does not exist", method, where)
    rest.refuses(404, "Tenant does not exist", "POST", path, json={"allowedClusters": ["standalone"]})
    rest.refuses(412, "Clusters can not be empty", "PUT", path, json={"adminRoles": ["me"]})
    rest.refuses(412, "elsewhere", "PUT", path, json={"allowedClusters": ["elsewhere"]})
    rest.refuses(412, "Tenant name is not valid", "PUT", "/admin/v2/tenants/a%20b", json={})
    rest.does("PUT", path, json={"adminRoles": ["me"], "allowedClusters": ["standalone"]})
    rest.refuses(409, "Tenant already exist", "PUT", path, json={"allowedClusters": ["standalone"]})
    assert rest.get(path) == {"adminRoles": ["me"], "allowedClusters": ["standalone"]}
    rest.does("POST", path, json={"adminRoles": ["me", "you"], "allowedClusters": ["standalone"]})
    assert admin.get_tenant_info(tenant).admin_roles == ("me", "you")
    rest.does("PUT", here, json={"bundles": {"numBundles": 4}, "replication_clusters": ["standalone"]})
    rest.refuses(409, "exists", "PUT", here)
    rest.refuses(501, "encryption_required", "PUT", f"{here}2", json={"encryption_required": True})
    rest.refuses(400, "elsewhere", "PUT", f"{here}2", json={"replication_clusters": ["elsewhere"]})
    rest.refuses(400, "tenant/namespace", "PUT", f"/admin/v2/namespaces/{tenant}/a%20b")
    assert rest.get(f"/admin/v2/namespaces/{tenant}") == [f"{tenant}/prod"]
    assert {tenant, "public", "pulsar"} <= set(rest.get("/admin/v2/tenants"))
    rest.does("PUT", f"/admin/v2/persistent/{tenant}/prod/orders")
    rest.refuses(409, "has 1 topics", "DELETE", here)
    rest.refuses(409, f"{tenant}/prod", "DELETE", path)
    rest.does("DELETE", here, force="true")
    rest.refuses(404, "Namespace does not exist", "GET", f"{here}/topics")
    rest.does("DELETE", path)
    rest.refuses(404, "Tenant does not exist", "GET", path)
    assert tenant not in rest.get("/admin/v2/tenants")


def test_a_tenant_exists_by_its_namespace_and_is_deleted_with_it(
    rest: Rest, admin: AdminClient, unique: Unique
) -> None:
    tenant = unique()
    path = f"/admin/v2/tenants/{tenant}"
    admin.create_namespace(f"{tenant}/prod")
    admin.create_topic(f"persistent://{tenant}/prod/orders")
    assert rest.get(path) == {"adminRoles": [], "allowedClusters": ["standalone"]}
    rest.refuses(409, "Tenant already exist", "PUT", path, json={"allowedClusters": ["standalone"]})
    rest.refuses(409, "The tenant still has active namespaces", "DELETE", path)
    rest.does("DELETE", path, force="true")
    rest.refuses(404, "Tenant does not exist", "GET", path)
    rest.refuses(
        412, "public/default cannot be deleted", "DELETE", "/admin/v2/tenants/public", params={"force": "true"}
    )


def test_subscriptions_live_and_have_statistics(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    here = f"/admin/v2/persistent/public/default/{topic}"
    producer = client.create_producer(topic, producer_name="mine", properties={"of": "me"})
    ids = [producer.send(b"%d" % number) for number in range(3)]
    place = {"ledgerId": ids[1].ledger_id(), "entryId": ids[1].entry_id(), "partitionIndex": -1, "properties": {}}
    latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
    for name, body in (("none", None), ("latest", latest), ("first", "earliest"), ("id", place)):
        rest.does("PUT", f"{here}/subscription/{name}", json=body)
    rest.does("PUT", f"{here}/subscription/earliest", json={"ledgerId": -1, "entryId": -1, "partitionIndex": -1})
    rest.refuses(409, "id", "PUT", f"{here}/subscription/id", json=place)
    rest.refuses(400, "expected ledgerId", "PUT", f"{here}/subscription/x", json=7)
    rest.refuses(400, "properties", "PUT", f"{here}/subscription/x", json={**place, "properties": {"a": 1}})
    assert sorted(rest.get(f"{here}/subscriptions")) == ["earliest", "first", "id", "latest", "none"]
    consumer = client.subscribe(topic, "first", sdk.ConsumerType.Shared, consumer_name="reader")
    consumer.acknowledge(consumer.receive(_PATIENCE_MS))
    consumer.flush()
    told = rest.get(f"{here}/stats")
    backlogs = {name: each["msgBacklog"] for name, each in told["subscriptions"].items()}
    assert backlogs == {"none": 0, "latest": 0, "first": 2, "earliest": 3, "id": 2}
    (reader,) = told["subscriptions"]["first"]["consumers"]
    assert (reader["consumerName"], told["subscriptions"]["first"]["type"]) == ("reader", "Shared")
    (publisher,) = told["publishers"]
    assert (publisher["producerName"], publisher["accessMode"], publisher["metadata"]) == (
        "mine",
        "Shared",
        {"of": "me"},
    )
    rest.refuses(412, "", "DELETE", f"{here}/subscription/first")
    rest.does("DELETE", f"{here}/subscription/first", force="true")
    rest.does("DELETE", f"{here}/subscription/id")
    rest.refuses(404, "id", "DELETE", f"{here}/subscription/id")
    rest.refuses(412, "active producers: mine", "DELETE", here)
    rest.does("DELETE", here, force="true")


def test_a_consumer_is_in_the_statistics_as_soon_as_it_has_subscribed(
    rest: Rest, client: sdk.Client, unique: Unique
) -> None:
    official = pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    subscribes: dict[str, Any] = {"SDK": client.subscribe, "official client": official.subscribe}
    for subscribe in subscribes.values():
        for round_ in range(3):
            topic = unique()
            consumer = subscribe(topic, "s", properties={"round": str(round_)})
            told = rest.get(f"/admin/v2/persistent/public/default/{topic}/stats")["subscriptions"]["s"]
            assert [each["metadata"] for each in told["consumers"]] == [{"round": str(round_)}], told
            consumer.close()
    official.close()


def test_statistics_count_what_is_connected_and_leave_out_what_is_excluded(rest: Rest, unique: Unique) -> None:
    topic = unique()
    here = f"/admin/v2/persistent/public/default/{topic}/stats"
    official = pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer, producer = official.subscribe(topic, "s"), official.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number)
        consumer.receive(_PATIENCE_MS)
    told = until(lambda: (now := rest.get(here))["msgInCounter"] == 3 and now, "the producer's next heartbeat")
    assert isinstance(told, dict)
    assert told["msgOutCounter"] == told["subscriptions"]["s"]["msgOutCounter"] == 3
    assert told["bytesInCounter"] > 0
    assert told["bytesOutCounter"] == told["subscriptions"]["s"]["consumers"][0]["bytesOutCounter"] > 0
    left = rest.get(here, excludePublishers="true", excludeConsumers="true")
    assert (left["publishers"], left["subscriptions"]["s"]["consumers"], left["msgInCounter"]) == ([], [], 3)
    rest.refuses(400, "excludeConsumers", "GET", here, params={"excludeConsumers": "maybe"})
    official.close()


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_topic_goes_with_subscriptions_that_nobody_consumes(
    rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique, partitions: int
) -> None:
    """As on Pulsar; over `AdminClient` they keep it."""
    topic = unique()
    here = f"/admin/v2/persistent/public/default/{topic}"
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
        here += "/partitions"
    consumer = client.subscribe(topic, "used")
    official = pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    other = official.subscribe(topic, "by-a-client-of-the-gateway")
    client.subscribe(topic, "left").close()
    with closing(client.create_producer(topic)) as producer:
        producer.send(b"backlog")
    rest.refuses(412, "active consumers of", "DELETE", here)
    consumer.close()
    rest.refuses(412, "active consumers of by-a-client-of-the-gateway;", "DELETE", here)
    other.close()
    with pytest.raises(sdk.NotAllowedError, match="has subscriptions"):
        admin.delete_topic(topic)
    rest.does("DELETE", here)
    rest.refuses(404, topic, "DELETE", here)
    official.close()


def test_a_subscription_makes_its_topic(rest: Rest, unique: Unique) -> None:
    """As on Pulsar."""
    here = f"/admin/v2/persistent/public/default/{unique()}"
    rest.does("PUT", f"{here}/subscription/first")
    assert rest.get(f"{here}/subscriptions") == ["first"]


def test_clients_of_the_gateway_have_rates(serving_rest: ServingRest, unique: Unique) -> None:
    """Those of the last interval, by consumer and producer, and of all of them."""
    topic = unique()
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with serving_rest(rates_interval_s=2) as running, closing(pulsar.Client(running.url(), logger=quiet)) as client:
        rest, here = Rest(running.url()), f"/admin/v2/persistent/public/default/{topic}/stats"
        shared = pulsar.ConsumerType.Shared
        consumer = client.subscribe(topic, "s", shared, negative_ack_redelivery_delay_ms=100)
        producer = client.create_producer(topic)
        found: list[dict[str, Any]] = []

        def passes() -> bool:
            """Four messages, one of which is refused; of producers the answer is up to 3 s old."""
            for _ in range(4):
                producer.send(b"x" * 100)
            for number in range(4):
                message = consumer.receive(_PATIENCE_MS)
                (consumer.acknowledge if number else consumer.negative_acknowledge)(message)
            told = rest.get(here)
            ((it,), (of_it,)) = told["subscriptions"]["s"]["consumers"], told["publishers"]
            found[:] = [told, told["subscriptions"]["s"], it, of_it]
            return all((it["msgRateRedeliver"], it["messageAckRate"], it["msgRateOut"], of_it.get("msgRateIn")))

        until(passes, lambda: f"rates: {found}")
        told, subscription, it, of_it = found
    assert it["msgThroughputOut"] > 50 * it["msgRateOut"]
    assert it["bytesOutCounter"] > 50 * it["msgOutCounter"]
    assert not it["blockedConsumerOnUnackedMsgs"]
    assert it["address"] == of_it["address"]
    assert it["clientVersion"] == of_it["clientVersion"]
    assert it["clientVersion"].startswith("Pulsar-CPP-v")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", it["address"])
    assert it["connectedSince"] <= of_it["connectedSince"]
    last = [it[f"last{name}Timestamp"] for name in ("ConsumedFlow", "Consumed", "Acked")]
    assert last == [subscription[f"last{name}Timestamp"] for name in ("ConsumedFlow", "Consumed", "Acked")]
    assert min(last) > 0
    assert told["lastPublishTimeStamp"] > told["topicCreationTimeStamp"] > 0
    for name in ("msgRateOut", "msgThroughputOut", "msgRateRedeliver", "messageAckRate"):
        assert subscription[name] == it[name]
        assert told.get(name) in (None, it[name])
    assert 50 < told["averageMsgSize"] == of_it["averageMsgSize"] < 200
    assert (told["msgRateIn"], told["msgThroughputIn"]) == (of_it["msgRateIn"], of_it["msgThroughputIn"])


def test_the_active_consumer_of_a_partition_is_told(
    rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    for name in ("a", "b"):
        client.subscribe(topic, "s", sdk.ConsumerType.Failover, consumer_name=name)
    here = f"/admin/v2/persistent/public/default/{topic}"

    def active(path: str) -> str | None:
        found: str | None = rest.get(f"{here}{path}")["subscriptions"]["s"].get("activeConsumerName")
        return found

    until(lambda: [active(f"-partition-{number}/stats") for number in (0, 1)] == ["a", "b"], "the consumers' turns")
    assert active("/partitioned-stats") is None


def test_partitions_have_statistics_each(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s")
    here = f"/admin/v2/persistent/public/default/{topic}"
    told = rest.get(f"{here}/partitioned-stats")
    assert told["metadata"] == {"partitions": 2}
    assert told["subscriptions"]["s"]["msgBacklog"] == 0
    one = f"persistent://public/default/{topic}-partition-1"
    assert told["partitions"][one] == rest.get(f"{here}-partition-1/stats")
    assert rest.get(f"{here}/partitioned-stats", perPartition="false")["partitions"] == {}
    assert told["lastPublishTimeStamp"] == 0 < told["topicCreationTimeStamp"]
    rest.refuses(404, "partitioned-stats", "GET", f"{here}/stats")
    rest.refuses(404, "none is 2", "GET", f"{here}-partition-2/stats")
    rest.refuses(400, "perPartition", "GET", f"{here}/partitioned-stats", params={"perPartition": "maybe"})


def test_a_client_has_a_producer_and_a_consumer_in_each_partition(
    serving_rest: ServingRest, admin: AdminClient, unique: Unique
) -> None:
    """In the statistics of the whole topic its producers are one."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    here = f"/admin/v2/persistent/public/default/{topic}"
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with serving_rest() as running, closing(pulsar.Client(running.url(), logger=quiet)) as client:
        rest = Rest(running.url())
        client.subscribe(topic, "s", consumer_name="c")
        mode = pulsar.PartitionsRoutingMode.RoundRobinDistribution
        producer = client.create_producer(topic, "p", message_routing_mode=mode)
        for _ in range(4):
            producer.send(b"x")

        def parts() -> list[dict[str, Any]]:
            return [rest.get(f"{here}-partition-{number}/stats") for number in (0, 1)]

        until(lambda: all(each.get("msgInCounter") == 2 for each in parts()), "the producers' report")
        for each in parts():
            assert [one["producerName"] for one in each["publishers"]] == ["p"]
            assert [one["consumerName"] for one in each["subscriptions"]["s"]["consumers"]] == ["c"]
            assert each["lastPublishTimeStamp"] > each["topicCreationTimeStamp"]
        of_gateway = rest.get("/admin/v2/broker-stats/topics")["public/default"]["0x00000000_0xffffffff"]["persistent"]
        names = [f"persistent://public/default/{topic}-partition-{number}" for number in (0, 1)]
        assert [of_gateway[name]["msgInCounter"] for name in names] == [2, 2]
        whole = rest.get(f"{here}/partitioned-stats", perPartition="false")
        assert [(one["producerName"], whole["msgInCounter"]) for one in whole["publishers"]] == [("p", 4)]
        assert whole["lastPublishTimeStamp"] == max(each["lastPublishTimeStamp"] for each in parts())


def test_topics_have_properties(rest: Rest, unique: Unique) -> None:
    topics = "/admin/v2/persistent/public/default"
    plain, parted = f"{topics}/{unique()}", f"{topics}/{unique()}"
    rest.does("PUT", plain, json={"a": "b"})
    rest.does("PUT", f"{parted}/partitions", json={"partitions": 2, "properties": {"c": "d"}})
    assert rest.get(f"{plain}/properties") == {"a": "b"}
    assert rest.get(f"{parted}/properties") == rest.get(f"{parted}-partition-1/properties") == {"c": "d"}
    rest.does("PUT", f"{plain}/properties", json={"a": "1", "x y": "2"})
    rest.does("DELETE", f"{plain}/properties", key="a")
    assert rest.get(f"{plain}/properties") == {"x y": "2"}
    rest.refuses(400, "properties", "PUT", f"{plain}/properties", json={"a": 1})
    rest.refuses(404, "none", "GET", f"{topics}/none/properties")
    rest.refuses(405, "non-persistent", "GET", "/admin/v2/non-persistent/public/default/x/properties")


def test_topics_are_compacted_truncated_and_completed(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    topics, topic, parted = "/admin/v2/persistent/public/default", unique(), unique()
    producer = client.create_producer(topic)
    ids = [producer.send(b"x", partition_key="k") for _ in range(3)]
    here = f"{topics}/{topic}"
    assert rest.get(f"{here}/compaction") == {"status": "NOT_RUN", "lastError": ""}
    rest.does("PUT", f"{here}/compaction")
    assert rest.get(f"{here}/compaction") == {"status": "SUCCESS", "lastError": ""}
    reader = client.create_reader(topic, sdk.MessageId.earliest, is_read_compacted=True)
    assert reader.read_next(_PATIENCE_MS).message_id() == ids[-1]
    rest.does("PUT", f"{topics}/{parted}/partitions", json=2)
    rest.does("PUT", f"{topics}/{parted}-partition-1/compaction")
    statuses = [rest.get(f"{topics}/{parted}-partition-{number}/compaction")["status"] for number in range(2)]
    assert statuses == ["NOT_RUN", "SUCCESS"]
    rest.does("POST", f"{topics}/{parted}/createMissedPartitions")
    rest.refuses(404, "zero partitions", "POST", f"{here}/createMissedPartitions")
    rest.does("DELETE", f"{here}/truncate")
    assert not client.create_reader(topic, sdk.MessageId.earliest).has_message_available()
    rest.refuses(412, "not persistent", "DELETE", "/admin/v2/non-persistent/public/default/x/truncate")
    rest.refuses(501, "pok serve", "POST", f"{here}/trim")


def test_topics_are_terminated(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    topics, topic, parted = "/admin/v2/persistent/public/default", unique(), unique()
    last = client.create_producer(topic).send(b"x")
    rest.does("PUT", f"{topics}/{parted}/partitions", json=2)
    for _ in range(2):
        found = rest.ask("POST", f"{topics}/{topic}/terminate").json()
        assert found == {"ledgerId": last.ledger_id(), "entryId": last.entry_id(), "partitionIndex": -1}
    rest.refuses(405, "partitioned topic", "POST", f"{topics}/{parted}/terminate")
    rest.refuses(405, "non-partitioned topic", "POST", f"{topics}/{topic}/terminate/partitions")
    ends = rest.ask("POST", f"{topics}/{parted}/terminate/partitions").json()
    assert {number: end["entryId"] for number, end in ends.items()} == {"0": -1, "1": -1}
    rest.refuses(404, "none", "POST", f"{topics}/none/terminate")
    rest.refuses(405, "non-persistent", "POST", "/admin/v2/non-persistent/public/default/x/terminate")
    with pytest.raises(sdk.TopicTerminated):
        client.create_producer(parted)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/admin/v2/persistent/public/default/x/unload"),
        ("DELETE", "/admin/v2/brokers/health"),
        ("GET", "/admin/v3/functions/public/default"),
        ("GET", "/admin/v2/bookies/all"),
    ],
)
def test_what_is_not_served_says_its_name(rest: Rest, method: str, path: str) -> None:
    rest.refuses(501, f"{method} {path} is not served by this gateway", method, path)


def test_what_no_tool_sends_is_refused(rest: Rest) -> None:
    here = "/admin/v2/persistent/public/default/x"
    rest.refuses(413, "65536", "PUT", f"{here}/partitions", data=b"1" * 70_000)
    rest.refuses(400, "no JSON", "PUT", f"{here}/partitions", data=b"{")
    rest.refuses(400, "no JSON", "PUT", f"{here}/partitions", data=b"[" * 60_000)
    rest.refuses(403, "browser", "PUT", here, headers={"Origin": "http://example.com"})
    assert rest.ask("GET", "/").status_code == 404


def test_who_takes_long_to_ask_is_closed(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asgi_server, "ASKER_S", 0.2)
    port = int(rest.url.rpartition(":")[2])
    body = b"PUT /admin/v2/persistent/a/b/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    for said in (b"", b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n", body):
        with socket.create_connection(("127.0.0.1", port), 60) as slow:
            slow.sendall(said)
            assert slow.recv(1000) == b""
    assert rest.ask("GET", "/admin/v2/clusters").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_super_users_administer_and_others_look_up(serving_rest: ServingRest, unique: Unique, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))

    def bearer(role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {jwt.encode({'sub': role}, key.read_bytes())}"}

    with serving_rest(GatewayAccess(TokenKey.secret(str(key)), super_users=frozenset({"admin"}))) as running:
        rest, topic = Rest(running.url()), unique()
        here = f"/admin/v2/persistent/public/default/{topic}"
        rest.refuses(401, "expected token", "GET", "/admin/v2/clusters")
        rest.refuses(401, "not valid", "GET", "/admin/v2/clusters", headers={"Authorization": "Bearer x"})
        rest.refuses(401, "expected token", "GET", "/admin/v2/nothing")
        rest.refuses(403, "billing is no super user", "PUT", here, headers=bearer("billing"))
        assert rest.ask("PUT", here, headers=bearer("admin")).status_code == 204
        assert rest.ask("GET", f"{here}/partitions", headers=bearer("billing")).json() == {"partitions": 0}
        token = bearer("billing")["Authorization"].partition(" ")[2]
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(running.url(), authentication=pulsar.AuthenticationToken(token), logger=quiet)
        client.create_producer(topic).send(b"one")
        client.close()


def test_certificates_log_in_over_https(serving_rest: ServingRest, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server_s, admin_s = authority.issue("server", address="127.0.0.1"), authority.issue("admin")
    tls = ServerTls(str(server_s.certificate), str(server_s.key))
    access = GatewayAccess(certificates=True, super_users=frozenset({"admin"}))
    with serving_rest(access, tls=tls, trusted=str(authority.file)) as running:
        rest = Rest(running.url(), verify=str(authority.file), cert=(str(admin_s.certificate), str(admin_s.key)))
        assert running.url().startswith("https://")
        told = rest.get("/lookup/v2/topic/persistent/public/default/x")
        assert told["brokerUrl"] is told["httpUrl"] is None
        assert told["httpUrlTls"] == running.url()
        assert "public" in rest.get("/admin/v2/tenants")
        Rest(running.url(), verify=str(authority.file)).refuses(401, "expected tls", "GET", "/admin/v2/tenants")


def test_a_port_that_is_taken_is_named(serving_rest: ServingRest) -> None:
    with (
        serving_rest() as running,
        pytest.raises(InvalidOption, match="name another one with --http-port"),
        serving_rest(http_port=running.port),
    ):
        pytest.fail("two listen on one port")
