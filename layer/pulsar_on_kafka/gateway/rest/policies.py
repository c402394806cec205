"""Policies of namespaces and topics over REST.

Two tables have every policy of Pulsar: `KEPT` those that are stored and applied here, `NOT_KEPT` the others with the
reason. Source: `Namespaces` and `PersistentTopics` of Pulsar's broker 4.0.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_on_kafka.admin.permissions import shown_permissions
from pulsar_on_kafka.base.errors import InvalidOption, NoSuchNamespace
from pulsar_on_kafka.broker.metadata import policy_json
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS
from pulsar_on_kafka.broker.metadata.policy_json import (
    BACKLOG_QUOTAS,
    FIELDS,
    REPLICATION,
    PolicyField,
    rates_by_cluster,
    with_rates_of,
)
from pulsar_on_kafka.exceptions import InvalidConfiguration, TopicNotFound
from pulsar_on_kafka.gateway.rest.permissions import AUTH_FIELDS
from pulsar_on_kafka.gateway.rest.request import (
    INTEGER,
    RestError,
    RestRequest,
    Text,
    differs_from_default,
    unserved,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName

BUNDLES: Final[Mapping[str, Any]] = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
"""Namespaces are not divided: each is one bundle."""
WHOLE: Final = "_".join(BUNDLES["boundaries"])
"""The name of that bundle."""
_QUOTA_TYPE: Final = "backlogQuotaType"
_LIMITS: Final[Mapping[str, str]] = {"limitSize": "destination_storage", "limitTime": "message_age"}
_NO_QUOTA: Final[Mapping[str, int]] = {"limit": -1, "limitSize": -1, "limitTime": -1}


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy of Pulsar: the last steps of its routes, and the verbs that set it."""

    of_namespaces: str
    """Empty where namespaces have no such policy in Pulsar."""
    of_topics: str
    """Empty where topics have no such policy in Pulsar."""
    namespaces_verb: str = field(default="POST", kw_only=True)
    topics_verb: str = field(default="POST", kw_only=True)

    def step(self, *, of_topic: bool) -> str:
        return self.of_topics if of_topic else self.of_namespaces

    def verb(self, *, of_topic: bool) -> str:
        return self.topics_verb if of_topic else self.namespaces_verb

    def get(self, request: RestRequest, where: str) -> Any:
        """The value that is set here, or with `applied` the effective one; None without one."""
        raise NotImplementedError

    def set(self, request: RestRequest, where: str, value: Any) -> None:
        raise NotImplementedError

    def remove(self, request: RestRequest, where: str) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Kept(PolicyRow):
    """A policy that is kept."""

    field: PolicyField
    reason: str = ""
    """Pulsar's reason for a number below 0."""
    always_applied: bool = False
    """Whether a namespace without the policy reports the effective value."""

    def get(self, request: RestRequest, where: str) -> Any:
        applied = request.flag("applied") or (self.always_applied and not request.of_topic)
        return self.field.write(_policies(request, where, applied=applied))

    def set(self, request: RestRequest, where: str, value: Any) -> None:
        _set(request, where, _read(self.field, value, self.reason))

    def remove(self, request: RestRequest, where: str) -> None:
        request.admin.remove_policy(where, *self.field.names)


class _Strategy(Kept):
    """The strategy of schemas: a topic without one has none, a namespace has UNDEFINED."""

    def get(self, request: RestRequest, where: str) -> Any:
        found = super().get(request, where)
        return None if request.of_topic and found in self.field.unset else found


class _Replication(Kept):
    """The clusters of a namespace or a topic."""

    def get(self, request: RestRequest, where: str) -> Any:
        found = super().get(request, where)
        return found if request.of_topic and not request.flag("applied") else _replicated_to(request, found)

    def set(self, request: RestRequest, where: str, value: Any) -> None:
        if not request.names_in("replication clusters", value):
            raise RestError(412, "ClusterIds should not be null or empty")
        if value == [request.cluster.name] and request.admin.local_cluster() is None:
            self.remove(request, where)  # a cluster without a name has no others to copy to
        else:
            super().set(request, where, value)


class _Quotas(Kept):
    """The backlog quotas: all of them are read, and the one of the type that the request names is set or removed."""

    def get(self, request: RestRequest, where: str) -> Any:
        return _quotas(_policies(request, where, applied=request.flag("applied")))

    def set(self, request: RestRequest, where: str, value: Any) -> None:
        kind = _quota_type(request)
        _set(request, where, _read(BACKLOG_QUOTAS[kind], _quota_of(kind, value)))

    def remove(self, request: RestRequest, where: str) -> None:
        request.admin.remove_policy(where, *BACKLOG_QUOTAS[_quota_type(request)].names)


_QUOTA: Final = BACKLOG_QUOTAS["destination_storage"]
KEPT: Final = (
    Kept("retention", "retention", policy_json.RETENTION),
    Kept("messageTTL", "messageTTL", policy_json.MESSAGE_TTL, "Invalid value for message TTL"),
    _Quotas("backlogQuotaMap", "backlogQuotaMap", _QUOTA),
    _Quotas("backlogQuota", "backlogQuota", _QUOTA),
    Kept("deduplication", "deduplicationEnabled", policy_json.DEDUPLICATION),
    Kept(
        "compactionThreshold",
        "compactionThreshold",
        policy_json.COMPACTION_THRESHOLD,
        "compactionThreshold must be 0 or more",
        namespaces_verb="PUT",
    ),
    Kept("inactiveTopicPolicies", "inactiveTopicPolicies", policy_json.INACTIVE_TOPICS),
    Kept(
        "subscriptionExpirationTime",
        "",
        policy_json.SUBSCRIPTION_EXPIRATION,
        "Invalid value for subscription expiration time",
    ),
    Kept("isAllowAutoUpdateSchema", "", policy_json.AUTO_UPDATE_SCHEMA, always_applied=True),
    Kept("schemaValidationEnforced", "schemaValidationEnforced", policy_json.SCHEMA_VALIDATION),
    _Strategy(
        "schemaCompatibilityStrategy",
        "schemaCompatibilityStrategy",
        policy_json.SCHEMA_STRATEGY,
        namespaces_verb="PUT",
        topics_verb="PUT",
    ),
    _Replication("replication", "replication", REPLICATION),
    *(
        Kept(name, name, place)
        for name, place in (
            ("publishRate", policy_json.PUBLISH_RATE),
            ("dispatchRate", policy_json.DISPATCH_RATE),
            ("subscriptionDispatchRate", policy_json.SUBSCRIPTION_DISPATCH_RATE),
            ("replicatorDispatchRate", policy_json.REPLICATOR_DISPATCH_RATE),
        )
    ),
    Kept("orderedRedelivery", "orderedRedelivery", policy_json.ORDERED_REDELIVERY),
    Kept("autoTopicCreation", "", policy_json.AUTO_TOPICS),
    Kept("autoSubscriptionCreation", "autoSubscriptionCreation", policy_json.AUTO_SUBSCRIPTIONS),
    *(
        Kept(of_namespaces, of_topics, place, f"{of_namespaces} must be 0 or more")
        for of_namespaces, of_topics, place in (
            ("maxProducersPerTopic", "maxProducers", policy_json.MAX_PRODUCERS),
            ("maxConsumersPerTopic", "maxConsumers", policy_json.MAX_CONSUMERS),
            (
                "maxConsumersPerSubscription",
                "maxConsumersPerSubscription",
                policy_json.MAX_CONSUMERS_PER_SUBSCRIPTION,
            ),
            ("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", policy_json.MAX_SUBSCRIPTIONS),
            (
                "maxUnackedMessagesPerConsumer",
                "maxUnackedMessagesOnConsumer",
                policy_json.MAX_UNACKED_ON_CONSUMER,
            ),
            (
                "maxUnackedMessagesPerSubscription",
                "maxUnackedMessagesOnSubscription",
                policy_json.MAX_UNACKED_ON_SUBSCRIPTION,
            ),
            ("maxTopicsPerNamespace", "", policy_json.MAX_TOPICS),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class NotKept(PolicyRow):
    """A policy that is not kept: it is unset everywhere, and setting it is refused with the reason."""

    why: str
    unset: object = None
    """The value of a namespace that has none."""

    def get(self, request: RestRequest, where: str) -> Any:
        request.admin.policies(where)  # raises TopicNotFound
        return None if request.of_topic else self.unset

    def set(self, request: RestRequest, where: str, value: Any) -> None:
        request.admin.policies(where)
        if value is None or differs_from_default(value):
            raise RestError(501, f"{request.names['policy']} is not kept by this gateway: {self.why}")

    def remove(self, request: RestRequest, where: str) -> None:
        request.admin.policies(where)


_TIERED: Final = "Kafka has tiered storage of its own, set by topic"
_BOOKIES: Final = "there are no bookies; Kafka replicates"
_FILTERS: Final = "it has no entry filters"
NOT_KEPT: Final = (
    NotKept("subscribeRate", "subscribeRate", "it does not limit how often consumers subscribe"),
    NotKept("persistence", "persistence", _BOOKIES),
    NotKept("", "maxMessageSize", "max.message.bytes of the Kafka topic limits messages"),
    NotKept("offloadPolicies", "offloadPolicies", _TIERED),
    NotKept("offloadThreshold", "", _TIERED, -1, namespaces_verb="PUT"),
    NotKept("offloadThresholdInSeconds", "", _TIERED, -1, namespaces_verb="PUT"),
    NotKept("offloadDeletionLagMs", "", _TIERED, namespaces_verb="PUT"),
    NotKept("delayedDelivery", "delayedDelivery", "delayed delivery is always active and precise"),
    NotKept("deduplicationSnapshotInterval", "deduplicationSnapshotInterval", "snapshots have a fixed interval"),
    NotKept("encryptionRequired", "", "it accepts unencrypted messages", unset=False),
    NotKept("subscriptionTypesEnabled", "subscriptionTypesEnabled", "all types are enabled", unset=[]),
    NotKept("entryFilters", "entryFilters", _FILTERS),
    NotKept(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistent",
        "acknowledgements are never lost for their number",
        unset=False,
    ),
    NotKept("resourcegroup", "", "there are no resource groups"),
    NotKept("antiAffinity", "", "namespaces have no broker of their own"),
    NotKept("allowedClusters", "", "any registered cluster may be in replication", unset=[]),
    NotKept("", "shadowTopics", "it has no shadow topics", topics_verb="PUT"),
)

_ROWS: Final[Mapping[bool, Mapping[str, PolicyRow]]] = {
    of_topic: {row.step(of_topic=of_topic): row for row in (*KEPT, *NOT_KEPT) if row.step(of_topic=of_topic)}
    for of_topic in (False, True)
}


def _row(request: RestRequest) -> PolicyRow:
    row = _ROWS[request.of_topic].get(request.names["policy"])
    return row if row is not None else unserved(request)


def _where(request: RestRequest) -> str:
    """The namespace or the topic. Raises RestError: it is a partition."""
    if not request.of_topic:
        return request.namespace
    if TopicName.parse(request.topic).partition >= 0:
        raise RestError(412, "Not allowed to set/get topic policy for a partition")
    return request.topic


def get(request: RestRequest) -> Any:
    """A policy. One that is not set has no content, as in Pulsar, unless the tables say otherwise."""
    row, where = _row(request), _where(request)
    with _of_tenant(request):
        if request.flag("isGlobal"):  # a policy of all clusters: there is none
            request.admin.policies(where)
            return None
        return row.get(request, where)


def set_policy(request: RestRequest) -> None:
    row, where = _row(request), _where(request)
    verb = row.verb(of_topic=request.of_topic)
    if not request.names["line"].startswith(verb):
        raise RestError(405, f"{request.names['policy']} is set by {verb}")
    if request.flag("isGlobal"):
        raise RestError(501, "policies of all clusters (isGlobal) are not kept by this gateway (docs/gateway.md)")
    with _of_tenant(request):
        row.set(request, where, _value(request))


def remove(request: RestRequest) -> None:
    row, where = _row(request), _where(request)
    with _of_tenant(request):
        if request.flag("isGlobal"):
            request.admin.policies(where)
        else:
            row.remove(request, where)


@contextmanager
def _of_tenant(request: RestRequest) -> Iterator[None]:
    """Raises NoSuchTenant where even the tenant of a missing namespace is missing, as Pulsar reports."""
    try:
        yield
    except TopicNotFound as none:
        if isinstance(none.__cause__, NoSuchNamespace):
            request.admin.get_tenant_info(request.names["tenant"])
        raise


def remove_all(request: RestRequest) -> None:
    """Remove all policies of a topic."""
    where = _where(request)
    request.admin.remove_policy(where, *request.admin.policies(where))


def _value(request: RestRequest) -> Any:
    """The body; a topic's `messageTTL` is a parameter. Raises RestError: it is no JSON, or no number."""
    given = request.query.get(request.names["policy"])
    if given is None:
        return _without_quotes(request.json())
    if not INTEGER.fullmatch(given):
        raise RestError(400, f"{request.names['policy']} is {given!r:.60}, expected a number")
    return int(given)


def _without_quotes(value: Any) -> Any:
    """Numbers and truth values that are written as texts, as Pulsar's Jackson reads them in an object."""
    if isinstance(value, Mapping):
        return {name: _without_quotes(each) for name, each in value.items()}
    if isinstance(value, str):
        return int(value) if INTEGER.fullmatch(value) else {"true": True, "false": False}.get(value, value)
    return value


def _read(place: PolicyField, value: Any, reason: str = "") -> dict[str, Any]:
    """The policies in Pulsar's JSON. Raises RestError: 412 where a value is out of range, 400 where it is none."""
    if value is None:
        raise RestError(400, f"{place.path[-1]} has no value")
    try:
        return place.read(value)
    except InvalidOption as wrong:
        number = isinstance(value, int) and not isinstance(value, bool)
        if number and value < 0 and reason:
            raise RestError(412, reason) from wrong
        out_of_range = number or (isinstance(value, Mapping) and len(place.parts) > 1)
        raise RestError(412 if out_of_range else 400, str(wrong)) from wrong


def _set(request: RestRequest, where: str, values: Mapping[str, Any]) -> None:
    try:
        request.admin.set_policies(where, values)
    except InvalidConfiguration as wrong:
        raise RestError(412, str(wrong)) from wrong


def _quota_type(request: RestRequest) -> str:
    kind = request.query.get(_QUOTA_TYPE, "destination_storage")
    if kind not in BACKLOG_QUOTAS:
        raise RestError(400, f"{_QUOTA_TYPE} is {kind!r:.60}, expected one of {', '.join(BACKLOG_QUOTAS)}")
    return kind


def _quota_of(kind: str, value: Any) -> Any:
    """A backlog quota as it is stored: any number below 0 is no limit, and `limit` is the former name of `limitSize`.

    Raises RestError: it has the limit of the other type, which this one does not apply.
    """
    if not isinstance(value, Mapping):
        return value
    given = {**value, "limitSize": value.get("limitSize", value.get("limit", -1))}
    for limit, of_kind in _LIMITS.items():
        number = given.get(limit)
        if isinstance(number, int) and not isinstance(number, bool):
            if number < 0:
                given[limit] = -1
            elif number and kind != of_kind:
                raise RestError(412, f"{limit} is {number}, but counts only in a quota of {_QUOTA_TYPE} {of_kind}")
    return given


def _quotas(own: Mapping[str, Any]) -> dict[str, Any]:
    """The backlog quotas that are set in these policies, by type."""
    found = {}
    for kind, place in BACKLOG_QUOTAS.items():
        quota = place.write(own)
        if quota is not None:
            found[kind] = {**_NO_QUOTA, "limit": quota.get("limitSize", -1), **quota}
    return found


def _replicated_to(request: RestRequest, clusters: Any) -> list[str]:
    """The replication clusters of a namespace, as Pulsar lists them: this one alone without the policy."""
    return list(clusters or [request.cluster.name])


def _policies(request: RestRequest, where: str, *, applied: bool) -> Mapping[str, Any]:
    return request.admin.applied_policies(where) if applied else request.admin.policies(where)


_UNSET: Final[Mapping[str, Any]] = {
    "allowed_clusters": [],
    "clusterDispatchRate": {},
    "clusterSubscribeRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "subscription_types_enabled": [],
    "migrated": False,
}
"""Fields of Pulsar's `Policies` for what is not kept. Others are absent, as Pulsar's null is."""


def of_namespace(request: RestRequest) -> dict[str, Any]:
    """All policies that are set for a namespace, as Pulsar's `Policies`."""
    with _of_tenant(request):
        own, permissions = request.admin.policies(request.namespace), request.admin.permissions(request.namespace)
    found: dict[str, Any] = {
        **_UNSET,
        "bundles": BUNDLES,
        "properties": request.admin.namespace_properties(request.namespace),
        "backlog_quota_map": _quotas(own),
        "auth_policies": shown_permissions(permissions),
        "subscription_auth_mode": permissions.subscription_auth_mode,
        "replication_clusters": _replicated_to(request, own.get(REPLICATION_CLUSTERS.name)),
    }
    for place in FIELDS:
        value = place.write(own)
        if len(place.path) == 1 and value is not None:
            found[place.path[0]] = value
    return {**found, **rates_by_cluster(request.cluster.name, own)}


def of_new_namespace(request: RestRequest, body: Mapping[str, Any]) -> dict[str, Any]:
    """The policies in the body of a new namespace, by name. Raises RestError: a value is wrong, or not kept."""
    kept = {"bundles", "properties", *AUTH_FIELDS, *(place.path[0] for place in (*FIELDS, REPLICATION))}
    for name, value in body.items():
        if name not in kept and value != _FULL.get(name):
            request.nothing_in(f"{name} of a new namespace", value)
    found: dict[str, Any] = {}
    quota_map = body.get("backlog_quota_map") or {}
    if not isinstance(quota_map, Mapping) or not quota_map.keys() <= BACKLOG_QUOTAS.keys():
        raise RestError(400, f"backlog_quota_map takes {', '.join(BACKLOG_QUOTAS)}, got {quota_map!r:.120}")
    body = with_rates_of(request.cluster.name, body)
    named = {**body, "backlog_quota_map": {kind: _quota_of(kind, value) for kind, value in quota_map.items()}}
    for place in FIELDS:
        value = place.in_policies(named)
        if value is not None:
            found |= _read(place, value)
    others = request.names_in("replication_clusters", body.get("replication_clusters")) - {request.cluster.name}
    if others:
        found |= REPLICATION.read(body["replication_clusters"])
    return found


_FULL: Final[Mapping[str, str]] = {"schema_auto_update_compatibility_strategy": "Full"}
"""Defaults of former policies."""


def bundle_of_topic(request: RestRequest) -> Text:
    """The range of the topic's bundle, which is that of all topics. Raises NoSuchNamespace."""
    request.admin.node.namespaces.require(request.namespace, request.deadline())
    return Text(WHOLE)


def bundles(request: RestRequest) -> Mapping[str, Any]:
    request.admin.policies(request.namespace)
    return BUNDLES
