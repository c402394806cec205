"""Tenants and namespaces, and the policies of the cluster.

`public/default` and `pulsar/system` are there from the start, others are made.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned, readable
from pulsar_on_kafka.broker.metadata.permissions import NO_PERMISSIONS, without_topic
from pulsar_on_kafka.broker.metadata.policies import (
    CLUSTER,
    TRANSACTION_COORDINATOR_ENABLED,
    Policy,
    applied,
    inherited,
    is_tenant_level,
    tenant_level,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    AuthPolicies,
    LifeState,
    NamespaceRecord,
    decode_namespace,
    encode_namespace,
)
from pulsar_on_kafka_mapping.state.state_keys import NamespaceKey
from pulsar_on_kafka_mapping.state.state_topics import SYSTEM_NAMESPACE

_log: Final = logging.getLogger(__name__)

BUILT_IN: Final = ("public/default", "pulsar/system")
CLUSTER_POLICIES_S: Final = 1.0
"""The largest age of the cluster's policies when a topic is opened; open topics check them once a second, too."""
_ALWAYS: Final = (*BUILT_IN, CLUSTER)
_MAX_TENANTS: Final = 1_000
"""Tenants whose policies are cached."""
_NAME: Final = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)


NAMESPACE_KEYS: Final[EntityKeys[str]] = EntityKeys(NamespaceKey)


class Namespaces:
    """Thread-safe."""

    def __init__(self, entities: Entities[str], clock: Clock) -> None:
        self._entities = entities
        self._clock = clock
        self._warned = False
        self._cluster: Mapping[str, Any] = {}
        self._cluster_until_s = -inf
        self._with_transactions: dict[str, tuple[float, bool]] = {}
        """A time and a truth value for each tenant: until when it is known, and whether the tenant has transactions."""

    def require(self, namespace: str, deadline: Deadline) -> None:
        """Raises NoSuchNamespace unless `namespace` exists."""
        if namespace not in BUILT_IN:
            self.policies(namespace, deadline)

    def create(
        self,
        namespace: str,
        deadline: Deadline,
        policies: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        auth: AuthPolicies = NO_PERMISSIONS,
    ) -> None:
        """Raises AlreadyExists, or InvalidOption for a name that is not `tenant/namespace`."""
        if _NAME.fullmatch(namespace) is None:
            raise errors.InvalidOption(f"a namespace is named tenant/namespace, got {namespace!r}")
        if namespace in BUILT_IN:
            raise errors.AlreadyExists(f"namespace {namespace} exists from the start")
        record = NamespaceRecord(
            namespace, LifeState.ACTIVE, policies or {}, self._clock.now_ms(), properties or {}, auth
        )

        def created(current: Versioned | None) -> bytes | None:
            if _is_active(current):
                raise errors.AlreadyExists(f"namespace {namespace} exists already")
            return encode_namespace(record)

        self._entities.update(namespace, created, deadline)

    def find_or_create(self, namespace: str, deadline: Deadline) -> None:
        """`create` unless it is there: several may do so at once. Raises InvalidOption."""
        try:
            self.create(namespace, deadline)
        except errors.AlreadyExists:
            _log.debug("namespace=%s is there", namespace)

    def policies(self, namespace: str, deadline: Deadline) -> Mapping[str, Any]:
        """Policies that are set for the namespace itself (or `CLUSTER`, or a `tenant_level`), in one reading. Raises
        NoSuchNamespace."""
        current = self._entities.read(namespace, deadline)
        if not _is_always_there(namespace) and not _is_active(current):
            raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")
        return _policies(current)

    def policies_for_topics(self, namespace: str, deadline: Deadline) -> Mapping[str, Any]:
        """Policies that count for the topics of a namespace that have none of their own: its own and the cluster's.

        Without the right to read them there are none, with one warning: the namespaces that are there from the start
        can be used all the same. This project's own state has none. Raises NoSuchNamespace.
        """
        if namespace == SYSTEM_NAMESPACE:
            return {}
        try:
            own = self.policies(namespace, deadline)
            return inherited(own, self._of_cluster(deadline))
        except errors.NotAuthorized as refused:
            if namespace not in BUILT_IN:
                raise
            self._warn_of(refused)
            return {}

    def _of_cluster(self, deadline: Deadline) -> Mapping[str, Any]:
        """The cluster's policies, cached for `CLUSTER_POLICIES_S`, so that not every opened topic costs a reading."""
        now_s = self._clock.monotonic()
        if now_s >= self._cluster_until_s:
            self._cluster = _policies(self._entities.read(CLUSTER, deadline))
            self._cluster_until_s = now_s + CLUSTER_POLICIES_S
        return self._cluster

    def of_cluster(self, policy: Policy, deadline: Deadline) -> Any:
        """The cluster's value of a policy, at most `CLUSTER_POLICIES_S` old; the default without the right to read
        it."""
        try:
            return applied(policy, self._of_cluster(deadline))
        except errors.NotAuthorized as refused:
            self._warn_of(refused)
            return policy.default

    def policies_of(
        self, namespaces: Iterable[str], deadline: Deadline, *, required: bool = False
    ) -> dict[str, Mapping[str, Any]]:
        """The policies of several namespaces at once; only the cluster's for one that does not exist, empty without the
        right.

        Raises NotAuthorized instead when they are `required`: data that they retain must not be deleted.
        """
        names = list(namespaces)
        try:
            found = self._entities.read_together((*names, CLUSTER), deadline)
        except errors.NotAuthorized as refused:
            if required:
                raise
            self._warn_of(refused)
            return {name: {} for name in names}
        cluster = _policies(found[CLUSTER])
        return {name: {} if name == SYSTEM_NAMESPACE else inherited(_policies(found[name]), cluster) for name in names}

    def has_transactions(self, tenant: str, deadline: Deadline) -> bool:
        """Whether the cluster (with '') or a tenant has transactions, at most `CLUSTER_POLICIES_S` old. True without
        the right to read the policies."""
        now_s = self._clock.monotonic()
        until_s, found = self._with_transactions.get(tenant, (-inf, True))
        if now_s < until_s:
            return found
        try:
            places = (CLUSTER, tenant_level(tenant)) if tenant else (CLUSTER,)
            levels = self._entities.read_together(places, deadline)
            found = all(applied(TRANSACTION_COORDINATOR_ENABLED, _policies(levels[place])) for place in places)
        except errors.NotAuthorized as refused:
            self._warn_of(refused)
            found = True
        if len(self._with_transactions) >= _MAX_TENANTS:
            self._with_transactions.clear()
        self._with_transactions[tenant] = now_s + CLUSTER_POLICIES_S, found
        return found

    def _warn_of(self, refused: errors.NotAuthorized) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("policies of namespaces are not known, only those of topics count: %s", refused)

    def change_policies(
        self, namespace: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]], deadline: Deadline
    ) -> None:
        """Set the policies of a namespace, of `CLUSTER` or a `tenant_level` to what `change` makes of them; the same
        object for no change.

        Raises:
            NoSuchNamespace: it does not exist.
            InvalidOption: it holds this project's own state.
        """
        if namespace == SYSTEM_NAMESPACE:
            raise errors.InvalidOption(f"namespace {namespace} holds this project's own state and has no policies")

        def changed(record: NamespaceRecord) -> NamespaceRecord:
            policies = change(record.policies)
            return record if policies is record.policies else replace(record, policies=policies)

        self._change(namespace, changed, deadline)
        self._cluster_until_s = -inf
        self._with_transactions.clear()

    def properties(self, namespace: str, deadline: Deadline) -> Mapping[str, str]:
        """Raises NoSuchNamespace."""
        current = self._entities.read(namespace, deadline)
        if namespace not in BUILT_IN and not _is_active(current):
            raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")
        return {} if current is None else decode_namespace(current.value).properties

    def change_properties(
        self, namespace: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], deadline: Deadline
    ) -> None:
        """Set the properties of a namespace to what `change` makes of them. Raises NoSuchNamespace."""

        def changed(record: NamespaceRecord) -> NamespaceRecord:
            properties = change(record.properties)
            return record if properties == record.properties else replace(record, properties=properties)

        self._change(namespace, changed, deadline)

    def _change(self, namespace: str, change: Callable[[NamespaceRecord], NamespaceRecord], deadline: Deadline) -> None:
        """Write what `change` makes of a record; the same object for no change. Raises NoSuchNamespace."""

        def changed(current: Versioned | None) -> bytes | None:
            record = decode_namespace(current.value) if current is not None else None
            if record is None or record.state is not LifeState.ACTIVE:
                if not _is_always_there(namespace):
                    raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")
                record = NamespaceRecord(namespace, LifeState.ACTIVE, created_ms=self._clock.now_ms())
            found = change(record)
            return None if found is record and current is not None else encode_namespace(found)

        self._entities.update(namespace, changed, deadline)

    def permissions(self, namespace: str, deadline: Deadline) -> AuthPolicies:
        """Raises NoSuchNamespace."""
        found = self.permissions_of([namespace], deadline)[namespace]
        if found is None:
            raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")
        return found

    def permissions_of(self, namespaces: Iterable[str], deadline: Deadline) -> dict[str, AuthPolicies | None]:
        """Permissions in several namespaces, in one reading; None in one that does not exist."""
        found = self._entities.read_together(namespaces, deadline)
        return {name: _permissions(name, state) for name, state in found.items()}

    def change_permissions(
        self, namespace: str, change: Callable[[AuthPolicies], AuthPolicies], deadline: Deadline
    ) -> None:
        """Set the permissions in a namespace to what `change` makes of them; an equal value for no change. Raises
        NoSuchNamespace, and the errors of `change`."""

        def changed(record: NamespaceRecord) -> NamespaceRecord:
            auth = change(record.auth)
            return record if auth == record.auth else replace(record, auth=auth)

        self._change(namespace, changed, deadline)

    def forget_topic(self, topic: TopicName, deadline: Deadline) -> None:
        """Remove the permissions on a topic that was deleted. Does nothing without any."""
        name = topic.namespace_name
        found = self.permissions_of([name], deadline)[name]
        if found is not None and str(topic.base) in found.topics:
            self.change_permissions(name, lambda auth: without_topic(auth, topic), deadline)

    def delete(self, namespace: str, deadline: Deadline) -> None:
        """Raises NoSuchNamespace. The caller makes sure that it has no topics left."""
        if namespace in BUILT_IN:
            raise errors.InvalidOption(f"namespace {namespace} cannot be deleted")

        def deleted(current: Versioned | None) -> bytes | None:
            if current is None or decode_namespace(current.value).state is not LifeState.ACTIVE:
                raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")
            created_ms = decode_namespace(current.value).created_ms
            return encode_namespace(NamespaceRecord(namespace, LifeState.DELETED, created_ms=created_ms))

        self._entities.update(namespace, deleted, deadline)

    def list(self, tenant: str, deadline: Deadline) -> list[str]:
        """The namespaces of a tenant, by name."""
        return [name for name in self.all(deadline) if name.split("/")[0] == tenant]

    def all(self, deadline: Deadline) -> Sequence[str]:
        """The namespaces of all tenants, by name."""
        return sorted(self._names(deadline))

    def tenants(self, deadline: Deadline) -> Sequence[str]:
        """Tenants with namespaces, by name."""
        return sorted({name.split("/")[0] for name in self._names(deadline)})

    def _names(self, deadline: Deadline) -> set[str]:
        records = readable(self._entities.all(deadline), decode_namespace)
        stored = {record.name for record in records if record.state is LifeState.ACTIVE}
        return {name for name in (*stored, *BUILT_IN) if name != CLUSTER and not is_tenant_level(name)}


def _is_always_there(place: str) -> bool:
    return place in _ALWAYS or is_tenant_level(place)


def _is_active(current: Versioned | None) -> bool:
    return current is not None and decode_namespace(current.value).state is LifeState.ACTIVE


def _permissions(namespace: str, current: Versioned | None) -> AuthPolicies | None:
    """None: the namespace does not exist."""
    record = None if current is None else decode_namespace(current.value)
    if record is not None and record.state is LifeState.ACTIVE:
        return record.auth
    return NO_PERMISSIONS if namespace in BUILT_IN else None


def _policies(current: Versioned | None) -> Mapping[str, Any]:
    return {} if current is None else decode_namespace(current.value).policies
