"""V5 clients look up layouts of topics, and get each later one."""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.handlers import topic_layouts
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.rest import Rest
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def look_up(wire: Wire, topic: str, session_id: int = 1, *, create: bool = False) -> Any:
    update = wire.ask(Type.SCALABLE_TOPIC_LOOKUP, session_id=session_id, topic=topic, create_if_missing=create or None)
    assert update.session_id == session_id
    return update


def segments(update: Any) -> list[tuple[int, int, int, str]]:
    assert all(each.state == 0 for each in update.dag.segments)
    return [(each.segment_id, each.hash_start, each.hash_end, each.legacy_topic_name) for each in update.dag.segments]


def test_connected_announces_scalable_topics(wire: Wire) -> None:
    flags = wire.connect()[1].feature_flags
    assert (flags.supports_scalable_topics, flags.supports_tc_metadata_discovery) == (True, True)


def test_a_layout_has_a_segment_for_each_partition_and_follows_added_partitions(
    wire: Wire, gateway: Gateway, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    full = f"persistent://public/default/{topic}"
    admin.create_partitioned_topic(topic, 2)
    wire.connect()
    first = look_up(wire, f"topic://public/default/{topic}")
    assert first.resolved_topic_name == f"topic://public/default/{topic}"
    assert segments(first) == [(0, 0, 32767, f"{full}-partition-0"), (1, 32768, 65535, f"{full}-partition-1")]
    brokers = {each.segment_id: each.broker_url for each in first.dag.segment_brokers}
    assert brokers == dict.fromkeys((0, 1), gateway.address())
    assert first.dag.controller_broker_url == gateway.address()
    admin.update_partitions(topic, 3)
    kind, second = wire.hear()
    assert (kind, second.session_id) == (Type.SCALABLE_TOPIC_UPDATE, 1)
    assert [each[0] for each in segments(second)] == [0, 1, 2]
    assert second.dag.epoch > first.dag.epoch


def test_a_layout_of_another_incarnation_has_a_greater_epoch(wire: Wire, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    wire.connect()
    first = look_up(wire, topic)
    admin.delete_topic(topic)
    admin.create_topic(topic)
    kind, second = wire.hear()
    assert kind is Type.SCALABLE_TOPIC_UPDATE
    assert segments(second) == [(0, 0, 65535, f"persistent://public/default/{topic}")]
    assert second.dag.epoch > first.dag.epoch


def test_a_closed_session_gets_no_layout(wire: Wire, admin: AdminClient, unique: Unique) -> None:
    topics = [unique(), unique()]
    for topic in topics:
        admin.create_partitioned_topic(topic, 1)
    wire.connect()
    for number, topic in enumerate(topics):
        look_up(wire, topic, number)
    wire.say(Type.SCALABLE_TOPIC_CLOSE, session_id=0)
    wire.say(Type.SCALABLE_TOPIC_CLOSE, session_id=9)
    wire.ask(Type.PING)
    for topic in topics:
        admin.update_partitions(topic, 2)
    assert wire.hear()[1].session_id == 1


def test_missing_topics_are_created_with_the_partitions_of_the_policy(
    wire: Wire, admin: AdminClient, unique: Unique
) -> None:
    namespace = f"public/{unique()}"
    admin.create_namespace(namespace)
    wire.connect()
    missing = look_up(wire, f"topic://{namespace}/a")
    assert (missing.error, missing.HasField("dag")) == (ServerError.TOPIC_NOT_FOUND, False)
    assert len(look_up(wire, f"topic://{namespace}/a", create=True).dag.segments) == 4
    admin.set_policy(namespace, "v5_default_partitions", 2)
    assert len(look_up(wire, f"persistent://{namespace}/b", create=True).dag.segments) == 2
    found = wire.ask(Type.PARTITIONED_TOPIC_METADATA, request_id=5, topic=f"topic://{namespace}/c")
    assert found.partitions == 2
    admin.set_policy(namespace, "v5_default_partitions", 0)
    assert [each[3] for each in segments(look_up(wire, f"topic://{namespace}/d", create=True))] == [
        f"persistent://{namespace}/d"
    ]
    admin.set_policy(namespace, "allow_auto_topic_creation", False)
    assert look_up(wire, f"topic://{namespace}/e", create=True).error == ServerError.TOPIC_NOT_FOUND
    admin.set_policies(namespace, {"allow_auto_topic_creation": True, "max_topics_per_namespace": 1})
    assert look_up(wire, f"topic://{namespace}/e", create=True).error == ServerError.NOT_ALLOWED


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("non-persistent://public/default/x", ServerError.INVALID_TOPIC_NAME),
        ("persistent://public/default/x-partition-0", ServerError.INVALID_TOPIC_NAME),
        ("a/b", ServerError.INVALID_TOPIC_NAME),
        ("topic://public/missing/x", ServerError.TOPIC_NOT_FOUND),
    ],
)
def test_other_names_are_refused(wire: Wire, topic: str, code: ServerError) -> None:
    wire.connect()
    refused = look_up(wire, topic, create=True)
    assert (refused.error, refused.HasField("dag")) == (code, False)
    assert refused.message


def test_sessions_of_a_connection_are_limited(
    wire: Wire, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique()
    admin.create_topic(topic)
    monkeypatch.setattr(topic_layouts, "MAX_SESSIONS", 1)
    wire.connect()
    look_up(wire, topic, 1)
    assert look_up(wire, topic, 2).error == ServerError.TOO_MANY_REQUESTS
    assert look_up(wire, topic, 1).HasField("dag"), "the same session again"


def test_each_segment_names_its_gateway_of_the_fleet(admin: AdminClient, unique: Unique) -> None:
    topic, fleet = unique(), unique()
    admin.create_partitioned_topic(topic, 16)
    gateways = [Gateway(admin.node, GatewaySettings(port=0, fleet=fleet)) for _ in range(2)]
    try:
        expected = {gateway.address() for gateway in gateways}
        deadline = Deadline.after(60)
        while {gateways[0].serving(f"{topic}-partition-{each}", deadline) for each in range(16)} != expected:
            deadline.check("both gateways to serve partitions")
        with Wire(gateways[0]) as wire:
            wire.connect()
            update = look_up(wire, topic)
        for each in update.dag.segment_brokers:
            assert each.broker_url == gateways[0].serving(f"{topic}-partition-{each.segment_id}", deadline)
        assert {each.broker_url for each in update.dag.segment_brokers} == expected
    finally:
        for gateway in gateways:
            gateway.close(Deadline.after(60))


def test_rest_takes_the_domain_of_v5_clients(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    here = f"/admin/v2/topic/public/default/{topic}"
    assert rest.get(f"{here}/partitions", checkAllowAutoCreation="true")["partitions"] == 4
    assert len(admin.list_partitions(f"topic://public/default/{topic}")) == 4
    assert rest.get(f"/lookup/v2/topic/topic/public/default/{topic}")["brokerUrl"]
    assert f"persistent://public/default/{topic}" in rest.get("/admin/v2/topic/public/default/partitioned")
    admin.set_policy(f"topic://public/default/{topic}", "message_ttl_in_seconds", 60)
    assert admin.policies(f"persistent://public/default/{topic}") == {"message_ttl_in_seconds": 60}


def test_the_sdk_takes_the_domain_of_v5_clients(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(f"topic://public/default/{topic}")
    producer.send(b"sent", partition_key="k")
    assert len(client.get_topic_partitions(topic)) == 4
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(60_000).data() == b"sent"
