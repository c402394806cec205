"""The administration that scenarios need, alike for both sides: Pulsar's REST API, and our `AdminClient`."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.context import methods_within
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.metadata.policies import (
    BACKLOG_QUOTA_LIMIT_SIZE,
    BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
    BACKLOG_QUOTA_LIMIT_TIME,
    BACKLOG_QUOTA_LIMIT_TIME_ACTION,
    DELETE_WHILE_INACTIVE,
    INACTIVE_TOPIC_DELETE_MODE,
    MAX_INACTIVE_DURATION_SECONDS,
    MESSAGE_TTL_IN_SECONDS,
    SUBSCRIPTION_EXPIRATION_TIME_MINUTES,
    Policy,
)
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from pulsar_on_kafka.service.ledgers.maintenance import Maintenance
from tests.compat.harness.secured import ADMIN, Logins


class Request(NamedTuple):
    """A POST to `/namespaces/<namespace>/<path>`."""

    path: str
    body: Any


_NUMBERS: Final = {
    "messageTTL": MESSAGE_TTL_IN_SECONDS,
    "subscriptionExpirationTime": SUBSCRIPTION_EXPIRATION_TIME_MINUTES,
}
_OBJECTS: Final[Mapping[str, Mapping[str, Policy]]] = {
    "backlogQuota?backlogQuotaType=destination_storage": {
        "limitSize": BACKLOG_QUOTA_LIMIT_SIZE,
        "policy": BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
    },
    "backlogQuota?backlogQuotaType=message_age": {
        "limitTime": BACKLOG_QUOTA_LIMIT_TIME,
        "policy": BACKLOG_QUOTA_LIMIT_TIME_ACTION,
    },
    "inactiveTopicPolicies": {
        "deleteWhileInactive": DELETE_WHILE_INACTIVE,
        "inactiveTopicDeleteMode": INACTIVE_TOPIC_DELETE_MODE,
        "maxInactiveDurationSeconds": MAX_INACTIVE_DURATION_SECONDS,
    },
}


def requests_for(policies: Mapping[str, Any]) -> list[Request]:
    """What sets these; of an object that is set in part the other parts have their defaults, as in ours.

    Raises:
        ValueError: one of them is not known here.
    """
    known = {each.name for each in _NUMBERS.values()}.union(*({p.name for p in o.values()} for o in _OBJECTS.values()))
    if strange := sorted(policies.keys() - known):
        raise ValueError(f"no request is known that sets {', '.join(strange)}; those known: {', '.join(sorted(known))}")
    found = [Request(path, policies[policy.name]) for path, policy in _NUMBERS.items() if policy.name in policies]
    for path, parts in _OBJECTS.items():
        if any(policy.name in policies for policy in parts.values()):
            body = {part: policies.get(policy.name, policy.default) for part, policy in parts.items()}
            found.append(Request(path, body))
    return found


_TIMEOUT_S: Final = 30.0
_KEEP_UP_S: Final = 1.0
_NOT_FOUND: Final = 404
_FIRST_SERVER_ERROR: Final = 500


class AdminError(Exception):
    """An administrative wish that failed for a reason that is not the wish."""


class AdminNotFound(AdminError):
    """The topic, namespace or subscription does not exist."""


class AdminRefused(AdminError):
    """It exists, and its state does not allow this; or the wish makes no sense."""


class PulsarRest:
    """Pulsar's REST API, version 2. Topics are full names. Calls of both classes raise AdminNotFound, AdminRefused or
    AdminError."""

    def __init__(self, url: str, logins: Logins | None = None) -> None:
        self._root = url.rstrip("/") + "/admin/v2"
        self._headers = {"Content-Type": "application/json"}
        self._tls: ssl.SSLContext | None = None
        if logins is not None:
            self._headers["Authorization"] = f"Bearer {logins.tokens[ADMIN]}"
            self._tls = ssl.create_default_context(cafile=logins.authority)

    def create_topic(self, topic: str) -> None:
        self._ask("PUT", _path(topic))

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        self._ask("PUT", f"{_path(topic)}/partitions", partitions)

    def update_partitions(self, topic: str, partitions: int) -> None:
        self._ask("POST", f"{_path(topic)}/partitions", partitions)

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        partitions = "/partitions" if self._partitions(topic) else ""
        self._ask("DELETE", f"{_path(topic)}{partitions}?force={str(force).lower()}")

    def list_topics(self, namespace: str) -> list[str]:
        """Full names, a partitioned topic once."""
        partitioned = self._ask("GET", f"/persistent/{namespace}/partitioned")
        plain = [name for name in self._ask("GET", f"/persistent/{namespace}") if "-partition-" not in name]
        return sorted({*partitioned, *plain})

    def create_namespace(self, namespace: str) -> None:
        self._ask("PUT", f"/namespaces/{namespace}", {})

    def delete_namespace(self, namespace: str) -> None:
        self._ask("DELETE", f"/namespaces/{namespace}")

    def list_namespaces(self, tenant: str) -> list[str]:
        return sorted(self._ask("GET", f"/namespaces/{tenant}"))

    def create_subscription(self, topic: str, subscription: str, *, from_earliest: bool = False) -> None:
        end = 2**63 - 1
        start = {"ledgerId": -1, "entryId": -1} if from_earliest else {"ledgerId": end, "entryId": end}
        self._ask("PUT", _path(topic, subscription), start)

    def list_subscriptions(self, topic: str) -> list[str]:
        return sorted(self._ask("GET", f"{_path(topic)}/subscriptions"))

    def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        self._ask("DELETE", f"{_path(topic, subscription)}?force={str(force).lower()}")

    def backlog(self, topic: str, subscription: str) -> int:
        """Messages that are not acknowledged."""
        return int(self._statistics(topic, subscription)["msgBacklog"])

    def is_replicated(self, topic: str, subscription: str) -> bool:
        """Whether the subscription's state is to be replicated to other clusters."""
        return bool(self._statistics(topic, subscription)["isReplicated"])

    def _statistics(self, topic: str, subscription: str) -> dict[str, Any]:
        which = "partitioned-stats?perPartition=false&" if self._partitions(topic) else "stats?"
        precise = "getPreciseBacklog=true&subscriptionBacklogSize=false"
        subscriptions: dict[str, dict[str, Any]] = self._ask("GET", f"{_path(topic)}/{which}{precise}")["subscriptions"]
        if subscription not in subscriptions:
            raise AdminNotFound(f"no subscription {subscription}")
        return subscriptions[subscription]

    def publishers(self, topic: str) -> list[dict[str, Any]]:
        """The producers of a topic that is not partitioned: name, access mode and properties of each, by name."""
        found = self._ask("GET", f"{_path(topic)}/stats")["publishers"]
        return _by_name([(p["producerName"], p["accessMode"], p["metadata"]) for p in found])

    def skip(self, topic: str, subscription: str, count: int) -> None:
        self._ask("POST", f"{_path(topic, subscription)}/skip/{count}")

    def clear_backlog(self, topic: str, subscription: str) -> None:
        self._ask("POST", f"{_path(topic, subscription)}/skip_all")

    def reset_cursor(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        self._ask("POST", f"{_path(topic, subscription)}/resetcursor/{timestamp_ms}")

    def reset_cursor_to(self, topic: str, subscription: str, message_id: Any) -> None:
        """This message comes next."""
        place = {"ledgerId": message_id.ledger_id(), "entryId": message_id.entry_id(),
                 "partitionIndex": message_id.partition()}  # fmt: skip
        self._ask("POST", f"{_path(topic, subscription)}/resetcursor", place)

    def set_deduplication(self, where: str, *, enabled: bool | None) -> None:
        """Set the policy of a namespace or a topic; None removes it."""
        if enabled is None:
            self._ask("DELETE", _deduplication(where))
        else:
            self._ask("POST", _deduplication(where), enabled)

    def deduplication(self, where: str) -> bool | None:
        """The value that is set there itself."""
        answer: bool | None = self._ask("GET", _deduplication(where))
        return answer

    def compact(self, topic: str) -> None:
        """Returns when it is done."""
        self._ask("PUT", f"{_path(topic)}/compaction")

        def done() -> bool:
            status = self._ask("GET", f"{_path(topic)}/compaction")
            if status["status"] == "ERROR":
                raise AdminError(f"compaction of {topic}: {status['lastError']}")
            return bool(status["status"] == "SUCCESS")

        if not wait_until(done, Deadline.after(_TIMEOUT_S)):
            raise AdminError(f"compaction of {topic} took more than {_TIMEOUT_S:.0f} s")

    def set_policies(self, namespace: str, **policies: Any) -> None:
        """Set policies by the names of `metadata.policies`."""
        for request in requests_for(policies):
            self._ask("POST", f"/namespaces/{namespace}/{request.path}", request.body)

    def keep_up(self) -> None:
        """Have policies acted on as often as this cluster can; brokers do, as their configuration says."""

    def set_schema_compatibility_strategy(self, namespace: str, strategy: str) -> None:
        self._ask("PUT", f"/namespaces/{namespace}/schemaCompatibilityStrategy", strategy)

    def set_schema_validation_enforced(self, namespace: str, *, enforced: bool) -> None:
        self._ask("POST", f"/namespaces/{namespace}/schemaValidationEnforced", enforced)

    def set_is_allow_auto_update_schema(self, namespace: str, *, allowed: bool) -> None:
        self._ask("POST", f"/namespaces/{namespace}/isAllowAutoUpdateSchema", allowed)

    def schema(self, topic: str) -> dict[str, Any]:
        """The newest one: version, type, definition (parsed where it is JSON), properties."""
        return _schema_of(self._ask("GET", f"{_schemas(topic)}/schema"))

    def schemas(self, topic: str) -> list[dict[str, Any]]:
        """All that live, the oldest first."""
        found = self._ask("GET", f"{_schemas(topic)}/schemas")["getSchemaResponses"]
        return sorted(map(_schema_of, found), key=lambda each: int(each["version"]))

    def upload_schema(self, topic: str, kind: str, definition: str) -> None:
        self._ask("POST", f"{_schemas(topic)}/schema", {"type": kind, "schema": definition, "properties": {}})

    def delete_schema(self, topic: str) -> None:
        self._ask("DELETE", f"{_schemas(topic)}/schema")

    def _partitions(self, topic: str) -> int:
        return int(self._ask("GET", f"{_path(topic)}/partitions")["partitions"])

    def version(self) -> str:
        """The version of the broker, such as "4.0.7"."""
        return self._reply("GET", "/brokers/version").decode()  # it is no JSON

    def _ask(self, method: str, path: str, body: object | None = None) -> Any:
        text = self._reply(method, path, body)
        return json.loads(text) if text else None

    def _reply(self, method: str, path: str, body: object | None = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the address was given by whoever runs us
            self._root + path, data, self._headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
                return bytes(answer.read())
        except urllib.error.HTTPError as refusal:
            words = f"{method} {path}: {refusal.code} {refusal.read()[:200]!r}"
            if refusal.code == _NOT_FOUND:
                raise AdminNotFound(words) from refusal
            raise (AdminRefused if refusal.code < _FIRST_SERVER_ERROR else AdminError)(words) from refusal
        except OSError as error:
            raise AdminError(f"{method} {self._root}{path}: {error}") from error


@contextmanager
def _alike() -> Iterator[None]:
    """Our errors in the words of this module."""
    try:
        yield
    except exceptions.NotSupported:
        raise
    except (exceptions.TopicNotFound, exceptions.SubscriptionNotFound) as error:
        raise AdminNotFound(str(error)) from error
    except (
        exceptions.NotAllowedError,
        exceptions.ConsumerBusy,
        exceptions.InvalidConfiguration,
        exceptions.InvalidTopicName,
        exceptions.IncompatibleSchema,
    ) as error:
        raise AdminRefused(str(error)) from error
    except exceptions.PulsarException as error:
        raise AdminError(str(error)) from error


@methods_within(_alike)
class LayerAdmin:
    """Our own `AdminClient`."""

    def __init__(self, client: AdminClient) -> None:
        """The client is closed by `close`."""
        self._client = client
        self._maintenance: Maintenance | None = None
        # What takes and means the same in both.
        self.create_topic = _alike()(client.create_topic)
        self.create_partitioned_topic = _alike()(client.create_partitioned_topic)
        self.update_partitions = _alike()(client.update_partitions)
        self.delete_topic = _alike()(client.delete_topic)
        self.create_namespace = _alike()(client.create_namespace)
        self.delete_namespace = _alike()(client.delete_namespace)
        self.create_subscription = _alike()(client.create_subscription)
        self.unsubscribe = _alike()(client.unsubscribe)
        self.skip = _alike()(client.skip)
        self.clear_backlog = _alike()(client.clear_backlog)
        self.compact = _alike()(client.compact)
        self.set_schema_compatibility_strategy = _alike()(client.set_schema_compatibility_strategy)
        self.delete_schema = _alike()(client.delete_schema)

    def close(self) -> None:
        if self._maintenance is not None:
            self._maintenance.close(Deadline.after(_TIMEOUT_S))
        self._client.close()

    def list_topics(self, namespace: str) -> list[str]:
        return sorted(self._client.list_topics(namespace))

    def list_namespaces(self, tenant: str) -> list[str]:
        return sorted(self._client.list_namespaces(tenant))

    def list_subscriptions(self, topic: str) -> list[str]:
        return sorted(self._client.list_subscriptions(topic))

    def backlog(self, topic: str, subscription: str) -> int:
        return self._client.subscription_stats(topic, subscription).backlog

    def is_replicated(self, topic: str, subscription: str) -> bool:
        return self._client.subscription_stats(topic, subscription).replicated

    def publishers(self, topic: str) -> list[dict[str, Any]]:
        found = self._client.topic_stats(topic).publishers
        return _by_name([(p.producer_name, p.access_mode, dict(p.properties)) for p in found])

    def reset_cursor(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        self._client.reset_cursor(topic, subscription, timestamp_ms=timestamp_ms)

    def reset_cursor_to(self, topic: str, subscription: str, message_id: Any) -> None:
        """`message_id` is of our SDK, or of an official client on a gateway."""
        self._client.reset_cursor(topic, subscription, message_id=MessageId.deserialize(message_id.serialize()))

    def set_deduplication(self, where: str, *, enabled: bool | None) -> None:
        if enabled is None:
            self._client.remove_policy(where, "deduplication")
        else:
            self._client.set_policy(where, "deduplication", enabled)

    def deduplication(self, where: str) -> bool | None:
        answer: bool | None = self._client.get_policy(where, "deduplication")
        return answer

    def set_policies(self, namespace: str, **policies: Any) -> None:
        for name, value in policies.items():
            self._client.set_policy(namespace, name, value)

    def keep_up(self) -> None:
        """In this process, every second, until `close`; a second call does nothing."""
        if self._maintenance is None:
            self._maintenance = Maintenance(self._client.node, every_s=_KEEP_UP_S)

    def set_schema_validation_enforced(self, namespace: str, *, enforced: bool) -> None:
        self._client.set_policy(namespace, "schema_validation_enforced", enforced)

    def set_is_allow_auto_update_schema(self, namespace: str, *, allowed: bool) -> None:
        self._client.set_policy(namespace, "is_allow_auto_update_schema", allowed)

    def schema(self, topic: str) -> dict[str, Any]:
        return _stored(self._client.get_schema_info_with_version(topic))

    def schemas(self, topic: str) -> list[dict[str, Any]]:
        return [_stored(found) for found in self._client.get_all_schemas(topic)]

    def upload_schema(self, topic: str, kind: str, definition: str) -> None:
        self._client.create_schema(topic, SchemaInfo(SchemaType[kind], definition.encode()))


Admin: TypeAlias = PulsarRest | LayerAdmin


def _stored(found: StoredSchema) -> dict[str, Any]:
    info = found.info
    definition = info.schema.decode("utf-8", "backslashreplace")
    return _described(found.version.number, info.type.name, definition, info.properties)


def _schemas(topic: str) -> str:
    return f"/schemas/{topic.partition('://')[2]}"


def _schema_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    return _described(answer["version"], answer["type"], answer["data"], answer["properties"])


def _described(version: int, kind: str, definition: str, properties: Mapping[str, str]) -> dict[str, Any]:
    try:
        parsed = json.loads(definition)
    except ValueError:
        parsed = definition
    return {"version": version, "type": kind, "definition": parsed, "properties": dict(properties)}


def _by_name(producers: list[tuple[str, str, dict[str, str]]]) -> list[dict[str, Any]]:
    names = ("name", "access mode", "properties")
    return [dict(zip(names, producer, strict=True)) for producer in sorted(producers, key=lambda found: found[0])]


def _path(topic: str, subscription: str | None = None) -> str:
    domain, _, rest = topic.partition("://")
    path = f"/{domain}/{rest}"
    return path if subscription is None else f"{path}/subscription/{urllib.parse.quote(subscription, safe='')}"


def _deduplication(where: str) -> str:
    return f"{_path(where)}/deduplicationEnabled" if "://" in where else f"/namespaces/{where}/deduplication"
