"""Roles may do what they were granted and nothing else: a table, tried by the protocol, an official client and REST."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
import requests

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, message_class
from tests.integration.gateway.wire import COMMIT, Wire, begun
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

ROOT, BOSS, PRODUCER, CONSUMER, OF_TOPIC, STRANGER = "root", "boss", "producer", "consumer", "of-topic", "stranger"
ROLES: Final = (ROOT, BOSS, PRODUCER, CONSUMER, OF_TOPIC, STRANGER)
"""A super user, an admin role of the tenant, roles with one right on the namespace, one with both on a topic."""
PRODUCES: Final = {ROOT, BOSS, PRODUCER, OF_TOPIC}
CONSUMES: Final = {ROOT, BOSS, CONSUMER, OF_TOPIC}
LOOKS_UP: Final = PRODUCES | CONSUMES
LISTS: Final = {ROOT, BOSS, CONSUMER}
ADMINISTERS: Final = {ROOT, BOSS}
_PATIENCE_MS: Final = 60_000


@dataclass(frozen=True)
class Site:
    gateway: Gateway
    rest: RestServer
    admin: AdminClient
    key: bytes
    namespace: str

    @property
    def topic(self) -> str:
        return f"persistent://{self.namespace}/orders"

    def token(self, role: str) -> str:
        return jwt.encode({"sub": role}, self.key)

    @contextmanager
    def wire(self, role: str) -> Iterator[Wire]:
        with Wire(self.gateway) as wire:
            assert wire.connect(auth_method_name="token", auth_data=self.token(role).encode())[0] is Type.CONNECTED
            yield wire

    @contextmanager
    def official(self, role: str) -> Iterator[Any]:
        client = pulsar.Client(
            self.gateway.address(),
            authentication=pulsar.AuthenticationToken(self.token(role)),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            yield client
        finally:
            client.close()

    def ask(self, role: str, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token(role)}"}
        path = path.replace("{ns}", self.namespace).replace("{tenant}", self.namespace.partition("/")[0])
        return requests.request(method, f"{self.rest.url()}{path}", headers=headers, timeout=60, **more)


@pytest.fixture
def site(admin: AdminClient, unique: Unique, tmp_path: Path) -> Iterator[Site]:
    key = tmp_path / "secret.key"
    key.write_bytes(secrets.token_bytes(32))
    tenant = unique()
    admin.create_tenant(tenant, [BOSS])
    namespace = f"{tenant}/prod"
    admin.create_namespace(namespace)
    admin.create_topic(f"persistent://{namespace}/orders")
    admin.grant_permission(namespace, PRODUCER, ["produce"])
    admin.grant_permission(namespace, CONSUMER, ["consume"])
    admin.grant_topic_permission(f"persistent://{namespace}/orders", OF_TOPIC, ["produce", "consume"])
    key_of_tokens = TokenKey.secret(str(key))
    access = GatewayAccess(key_of_tokens, super_users=frozenset({ROOT}), authorization=True, anonymous_role=CONSUMER)
    settings = GatewaySettings(port=0, access=access, fleet=unique())
    gateway = Gateway(admin.node, settings)
    try:
        rest = RestServer(admin, gateway, settings)
        try:
            yield Site(gateway, rest, admin, key.read_bytes(), namespace)
        finally:
            rest.close()
    finally:
        gateway.close(Deadline.after(60))


COMMANDS: Final[dict[Type, tuple[dict[str, Any], set[str], str]]] = {
    Type.PARTITIONED_TOPIC_METADATA: ({}, LOOKS_UP, "Client is not authorized to Get Partition Metadata"),
    Type.LOOKUP_TOPIC: ({}, LOOKS_UP, "Client is not authorized to Lookup"),
    Type.PRODUCER: ({"producer_id": 1}, PRODUCES, "Client is not authorized to Produce"),
    Type.SUBSCRIBE: (
        {"consumer_id": 1, "subscription": "s", "subType": 1, "durable": True},
        CONSUMES,
        "Client is not authorized to subscribe",
    ),
    Type.SCALABLE_TOPIC_SUBSCRIBE: (
        {"consumer_id": 2, "subscription": "s", "consumer_name": "c"},
        CONSUMES,
        "Client is not authorized to ScalableTopicSubscribe",
    ),
    Type.GET_SCHEMA: ({}, LOOKS_UP, "Client is not authorized to get the schema"),
    Type.GET_OR_CREATE_SCHEMA: (
        {"schema": {"name": "s", "type": 1, "schema_data": b""}},
        PRODUCES,
        "Client is not authorized to Produce",
    ),
    Type.GET_TOPICS_OF_NAMESPACE: ({"mode": 0}, LISTS, "Client is not authorized to GetTopicsOfNamespace"),
    Type.WATCH_TOPIC_LIST: (
        {"watcher_id": 1, "topics_pattern": ".*"},
        LISTS,
        "Client is not authorized to WatchTopicList",
    ),
    Type.SCALABLE_TOPIC_LOOKUP: ({"session_id": 1}, LOOKS_UP, "Client is not authorized to Lookup"),
    Type.WATCH_SCALABLE_TOPICS: ({"watch_id": 1}, LISTS, "Client is not authorized to WatchScalableTopics"),
    Type.WATCH_TC_ASSIGNMENTS: ({"watch_id": 1}, set(ROLES), ""),
}  # fmt: skip
"""Commands with their fields, the roles that may send them, and the words for the others."""


def _error_of(said: Any) -> tuple[int, str] | None:
    """The code and the words of an error, by the fields of this command."""
    for code, words in (("error", "message"), ("error_code", "error_message")):
        try:
            if said.HasField(code):
                return getattr(said, code), getattr(said, words)
        except ValueError:
            continue
    return None


def test_a_role_sends_the_commands_that_it_was_granted(site: Site) -> None:
    for role in ROLES:
        with site.wire(role) as wire:
            for number, (kind, (fields, allowed, words)) in enumerate(COMMANDS.items()):
                known = {"namespace": site.namespace, "topic": site.topic, "request_id": number}
                has = message_class(kind.message).DESCRIPTOR.fields_by_name
                said = wire.ask(kind, **{name: value for name, value in known.items() if name in has}, **fields)
                error = _error_of(said)
                refused = error is not None and error[0] == ServerError.AUTHORIZATION
                assert refused is (role not in allowed), (role, kind, error)
                if refused:
                    assert error is not None
                    assert error[1] == words


def test_a_consumer_seeks_and_unsubscribes_and_a_transaction_is_its_role_s(site: Site) -> None:
    with site.wire(CONSUMER) as wire:
        subscribed = wire.ask(
            Type.SUBSCRIBE, topic=site.topic, subscription="s", subType=1, consumer_id=1, request_id=1, durable=True
        )
        assert _error_of(subscribed) is None
        wire.say(Type.SEEK, consumer_id=1, request_id=2, message_publish_time=1)
        seen = {wire.hear()[0], wire.hear()[0]}  # CLOSE_CONSUMER, as a client that was sought opens it anew
        assert Type.SUCCESS in seen
        wire.ask(
            Type.SUBSCRIBE, topic=site.topic, subscription="s", subType=1, consumer_id=1, request_id=3, durable=True
        )
        assert _error_of(wire.ask(Type.UNSUBSCRIBE, consumer_id=1, request_id=4)) is None
    for role, mine in ((PRODUCER, True), (CONSUMER, False), (STRANGER, False)):
        with site.wire(role) as wire:
            found = wire.ask(Type.LOOKUP_TOPIC, request_id=1, topic=(
                "persistent://pulsar/system/transaction_coordinator_assign-partition-3"
            ))  # fmt: skip
            assert _error_of(found) is None
            txn = begun(wire)
            added = _error_of(wire.ask(Type.ADD_PARTITION_TO_TXN, request_id=3, partitions=[site.topic], **txn))
            assert (added is None) is mine, (role, added)
            assert _error_of(wire.ask(Type.END_TXN, request_id=4, txn_action=COMMIT, **txn)) is None


def test_an_official_client_gets_pulsar_s_exception(site: Site) -> None:
    tried: tuple[tuple[set[str], Callable[[Any], object]], ...] = (
        (LOOKS_UP, lambda client: client.get_topic_partitions(site.topic)),
        (PRODUCES, lambda client: client.create_producer(site.topic).send(b"x")),
        (CONSUMES, lambda client: client.subscribe(site.topic, "s").close()),
        (CONSUMES, lambda client: client.create_reader(site.topic, pulsar.MessageId.earliest).close()),
    )
    for role in ROLES:
        with site.official(role) as client:
            for allowed, attempt in tried:
                if role in allowed:
                    attempt(client)
                else:
                    with pytest.raises(pulsar.AuthorizationError):
                        attempt(client)


def test_a_client_without_a_token_has_the_anonymous_role(site: Site) -> None:
    subscribe = {"topic": site.topic, "subscription": "s", "subType": 1, "consumer_id": 1, "request_id": 1}
    with Wire(site.gateway) as wire:
        assert wire.connect()[0] is Type.CONNECTED
        assert _error_of(wire.ask(Type.SUBSCRIBE, durable=True, **subscribe)) is None
        refused = _error_of(wire.ask(Type.PRODUCER, topic=site.topic, producer_id=1, request_id=2))
        assert refused == (ServerError.AUTHORIZATION, "Client is not authorized to Produce")
    topics = f"{site.rest.url()}/admin/v2/namespaces/{site.namespace}/topics"
    assert requests.get(topics, timeout=60).json() == [site.topic]
    assert requests.delete(f"{site.rest.url()}/admin/v2/namespaces/{site.namespace}", timeout=60).status_code == 403


ROUTES: Final[tuple[tuple[str, str, object, set[str], str], ...]] = (
    ("GET", "/admin/v2/clusters", None, set(ROLES), ""),
    ("GET", "/admin/v2/tenants", None, {ROOT}, "This operation requires super-user access"),
    ("GET", "/admin/v2/tenants/{tenant}", None, ADMINISTERS, "Don't have permission to administrate resources"),
    ("GET", "/admin/v2/namespaces/{tenant}", None, ADMINISTERS, "Don't have permission to administrate resources"),
    ("GET", "/admin/v2/namespaces/{ns}/topics", None, LISTS, "operation [GET_TOPICS] on namespace"),
    ("GET", "/admin/v2/namespaces/{ns}/permissions", None, ADMINISTERS, "administrate resources on this tenant"),
    ("POST", "/admin/v2/namespaces/{ns}/permissions/x", ["produce"], ADMINISTERS, "administrate resources"),
    ("GET", "/lookup/v2/topic/persistent/{ns}/orders", None, LOOKS_UP, "operation [LOOKUP] on topic"),
    ("GET", "/lookup/v2/topic/topic/{ns}/orders", None, LOOKS_UP, "operation [LOOKUP] on topic"),
    ("GET", "/admin/v2/topic/{ns}/orders/partitions", None, LOOKS_UP, "operation [LOOKUP] on topic"),
    ("GET", "/admin/v2/persistent/{ns}", None, LISTS, "operation [GET_TOPICS] on namespace"),
    ("GET", "/admin/v2/persistent/{ns}/orders/partitions", None, LOOKS_UP, "operation [LOOKUP] on topic"),
    ("GET", "/admin/v2/persistent/{ns}/orders/stats", None, LOOKS_UP, "operation [LOOKUP] on topic"),
    ("GET", "/admin/v2/persistent/{ns}/orders/subscriptions", None, CONSUMES, "operation [CONSUME] on topic"),
    ("PUT", "/admin/v2/persistent/{ns}/orders/unload", None, ADMINISTERS, "administrate resources on this tenant"),
    ("PUT", "/admin/v2/persistent/{ns}/none-of-these/partitions", 0, ADMINISTERS, "administrate resources"),
    ("PUT", "/admin/v2/tenants/{tenant}", {}, {ROOT}, "This operation requires super-user access"),
    ("DELETE", "/admin/v2/tenants/{tenant}", None, {ROOT}, "This operation requires super-user access"),
)
"""Requests with their bodies, the roles that may send them, and the words for the others."""


@pytest.mark.parametrize(("method", "path", "body", "allowed", "words"), ROUTES)
def test_a_role_uses_the_routes_that_it_was_granted(
    site: Site, method: str, path: str, body: object, allowed: set[str], words: str
) -> None:
    for role in ROLES:
        found = site.ask(role, method, path, json=body)
        assert (found.status_code != 403) is (role in allowed), (role, found.status_code, found.text)
        if role not in allowed:
            assert words in found.json()["reason"]


def test_a_missing_tenant_is_reported_before_a_missing_right(site: Site) -> None:
    found = site.ask(STRANGER, "GET", "/admin/v2/namespaces/none-of-these/n/retention")
    assert (found.status_code, found.json()["reason"]) == (404, "Tenant does not exist")


def test_subscriptions_are_for_their_roles_and_begin_with_the_role_in_prefix_mode(site: Site) -> None:
    mode, restricted = "/admin/v2/namespaces/{ns}/subscriptionAuthMode", "/admin/v2/namespaces/{ns}/permissions"
    with site.official(CONSUMER) as client:
        assert site.ask(BOSS, "POST", f"{restricted}/subscription/audit", json=[OF_TOPIC]).status_code == 204
        assert site.ask(BOSS, "GET", f"{restricted}/subscription").json() == {"audit": [OF_TOPIC]}

        def is_refused(subscription: str) -> bool:
            try:
                client.subscribe(site.topic, subscription).close()
            except pulsar.AuthorizationError:
                return True
            return False

        until(lambda: is_refused("audit"), "the grant to apply")
        refused = site.ask(CONSUMER, "DELETE", "/admin/v2/persistent/{ns}/orders/subscription/audit")
        assert (refused.status_code, "subscription audit" in refused.json()["reason"]) == (403, True)
        with site.official(OF_TOPIC) as other:
            other.subscribe(site.topic, "audit").close()
        assert site.ask(BOSS, "DELETE", f"{restricted}/audit/{OF_TOPIC}").status_code == 204
        until(lambda: not is_refused("audit"), "the subscription to be open again")
        assert site.ask(BOSS, "DELETE", f"{restricted}/audit/{OF_TOPIC}").status_code == 404
        assert site.ask(BOSS, "POST", mode, json="Prefix").status_code == 204
        assert site.ask(BOSS, "GET", mode).json() == "Prefix"
        until(lambda: is_refused("billing"), "the mode to apply")
        assert not is_refused(f"{CONSUMER}-1")


def test_revoked_permissions_close_producers_and_consumers(site: Site) -> None:
    def publishers() -> int:
        return len(site.admin.topic_stats(site.topic).publishers)

    def consumers() -> int:
        return len([each for each in site.admin.subscription_consumers(site.topic, "s") if each.permits >= 0])

    with site.official(PRODUCER) as sends, site.official(CONSUMER) as receives:
        producer = sends.create_producer(site.topic, send_timeout_millis=3_000)
        consumer = receives.subscribe(site.topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer.send(b"one")
        first = consumer.receive(_PATIENCE_MS)
        assert first.data() == b"one"
        consumer.acknowledge(first)
        until(lambda: (publishers(), consumers()) == (1, 1), "both to be connected")
        site.admin.revoke_permission(site.namespace, PRODUCER)
        until(lambda: publishers() == 0, "the producer to be closed")
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"two")
        assert consumers() == 1
        site.admin.grant_permission(site.namespace, CONSUMER, ["produce"])
        until(lambda: consumers() == 0, "the consumer to be closed")
        site.admin.grant_permission(site.namespace, CONSUMER, ["consume"])
        site.admin.grant_permission(site.namespace, PRODUCER, ["produce"])
        with site.official(PRODUCER) as again:

            def sent() -> bool:
                try:
                    again.create_producer(site.topic).send(b"three")
                except pulsar.AuthorizationError:
                    return False
                return True

            until(sent, "the new grant to apply")
        assert consumer.receive(_PATIENCE_MS).data() == b"three"  # its client has subscribed again


def test_a_watcher_of_topics_ends_with_its_permission(site: Site) -> None:
    with site.wire(CONSUMER) as wire:
        watch = {"namespace": site.namespace, "topics_pattern": f"persistent://{site.namespace}/.*"}
        wire.ask(Type.WATCH_TOPIC_LIST, request_id=1, watcher_id=1, **watch)
        site.admin.create_topic(f"persistent://{site.namespace}/seen")
        kind, update = wire.hear()
        assert (kind, list(update.new_topics)) == (Type.WATCH_TOPIC_UPDATE, [f"persistent://{site.namespace}/seen"])
        site.admin.revoke_permission(site.namespace, CONSUMER)
        watchers = site.gateway.context.watchers._watchers
        until(lambda: not watchers, "the watcher to end")
        error = _error_of(wire.ask(Type.WATCH_TOPIC_LIST, request_id=2, watcher_id=1, **watch))
        assert error == (ServerError.AUTHORIZATION, "Client is not authorized to WatchTopicList")


def test_a_v5_client_s_watches_end_with_their_permission(site: Site) -> None:
    with site.wire(CONSUMER) as wire:
        assert wire.ask(Type.SCALABLE_TOPIC_LOOKUP, session_id=1, topic=site.topic).HasField("dag")
        assert wire.ask(Type.WATCH_SCALABLE_TOPICS, watch_id=1, namespace=site.namespace).HasField("snapshot")
        site.admin.revoke_permission(site.namespace, CONSUMER)
        watchers, layouts = site.gateway.context.watchers._watchers, site.gateway.context.layouts._watched
        until(lambda: not (watchers or layouts), "both to end")
        error = _error_of(wire.ask(Type.SCALABLE_TOPIC_LOOKUP, session_id=1, topic=site.topic))
        assert error == (ServerError.AUTHORIZATION, "Client is not authorized to Lookup")


def test_a_stream_consumer_gives_its_partitions_with_its_permission(site: Site) -> None:
    of = {"topic": site.topic, "subscription": "s"}
    with site.wire(CONSUMER) as wire, site.wire(BOSS) as other:
        wire.ask(Type.SCALABLE_TOPIC_SUBSCRIBE, request_id=1, consumer_id=1, consumer_name="a", **of)
        found = other.ask(Type.SCALABLE_TOPIC_SUBSCRIBE, request_id=1, consumer_id=1, consumer_name="b", **of)
        assert len(found.assignment.segments) == 0
        site.admin.revoke_permission(site.namespace, CONSUMER)
        kind, update = other.hear()
        assert (kind, len(update.assignment.segments)) == (Type.SCALABLE_TOPIC_ASSIGNMENT_UPDATE, 1)
        refused = wire.ask(Type.SCALABLE_TOPIC_SUBSCRIBE, request_id=2, consumer_id=1, consumer_name="a", **of)
        assert _error_of(refused) == (
            ServerError.AUTHORIZATION, "Client is not authorized to ScalableTopicSubscribe",
        )  # fmt: skip


def test_an_admin_role_of_the_tenant_ends_with_it(site: Site) -> None:
    tenant = site.namespace.partition("/")[0]
    with site.official(BOSS) as client:
        client.create_producer(site.topic)
        until(lambda: len(site.admin.topic_stats(site.topic).publishers) == 1, "the producer to be connected")
        site.admin.update_tenant(tenant, [])
        until(lambda: not site.admin.topic_stats(site.topic).publishers, "the producer to be closed")
        path = "/admin/v2/persistent/{ns}/orders/unload"
        until(lambda: site.ask(BOSS, "PUT", path).status_code == 403, "the role to be refused")


def test_permissions_live_over_rest(site: Site) -> None:
    on_namespace, on_topic = "/admin/v2/namespaces/{ns}/permissions", "/admin/v2/persistent/{ns}/orders/permissions"

    def ask(method: str, path: str, json: object = None) -> tuple[int, Any]:
        found = site.ask(ROOT, method, path, json=json)
        return found.status_code, found.json() if found.content else None

    assert ask("POST", f"{on_namespace}/app", ["consume", "produce"]) == (204, None)
    assert ask("GET", on_namespace) == (
        200, {PRODUCER: ["produce"], CONSUMER: ["consume"], "app": ["produce", "consume"]},
    )  # fmt: skip
    assert ask("POST", f"{on_topic}/app", ["produce"]) == (204, None)
    assert ask("POST", f"{on_topic}/of%2Fslash", ["produce"]) == (204, None)
    assert ask("GET", on_topic) == (
        200,
        {
            PRODUCER: ["produce"], CONSUMER: ["consume"], "app": ["produce", "consume"],
            OF_TOPIC: ["produce", "consume"], "of/slash": ["produce"],
        },
    )  # fmt: skip
    assert ask("DELETE", f"{on_namespace}/app") == (204, None)
    assert ask("DELETE", f"{on_namespace}/app") == (204, None)
    assert ask("DELETE", f"{on_topic}/app") == (204, None)
    assert ask("DELETE", f"{on_topic}/app") == (412, {"reason": "Permissions are not set at the topic level"})
    for status, body in ((501, ["functions"]), (400, ["sell"]), (400, None), (400, {"a": 1})):
        assert ask("POST", f"{on_namespace}/app", body)[0] == status
    assert ask("GET", "/admin/v2/namespaces/public/none/permissions")[0] == 404
    site.admin.delete_topic(site.topic)
    assert site.admin.permissions(site.namespace).topics == {}
    tenant = site.namespace.partition("/")[0]
    policies = {
        "auth_policies": {
            "namespace_auth": {"app": ["produce"]},
            "destination_auth": {f"persistent://{tenant}/more/x": {"app": ["consume"]}},
            "subscription_auth_roles": {"s": ["app"]},
        },
        "subscription_auth_mode": "Prefix",
    }
    assert ask("PUT", "/admin/v2/namespaces/{tenant}/more", policies) == (204, None)
    found = site.admin.permissions(f"{tenant}/more")
    assert (found.namespace, found.subscriptions, found.subscription_auth_mode) == (
        {"app": ("produce",)}, {"s": ("app",)}, "Prefix",
    )  # fmt: skip
    assert found.topics == {f"persistent://{tenant}/more/x": {"app": ("consume",)}}
