"""Permissions: how grants change, and what they allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata import permissions
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.namespaces import NAMESPACE_KEYS, Namespaces
from pulsar_on_kafka.broker.metadata.permissions import NO_PERMISSIONS, AuthAction
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import AuthPolicies
from pulsar_on_kafka_mapping.state.state_topics import NAMESPACES
from tests.memory_log import MemoryStateLog

ORDERS = TopicName.parse("persistent://public/default/orders")
BILLS = TopicName.parse("persistent://public/default/bills")


def test_a_grant_on_a_namespace_counts_for_all_its_topics_and_is_replaced() -> None:
    auth = permissions.granted(NO_PERMISSIONS, "app", ["consume", "produce", "consume"])
    assert auth.namespace == {"app": ("produce", "consume")}
    assert permissions.may(auth, "app", AuthAction.PRODUCE, ORDERS)
    assert permissions.may(auth, "app", AuthAction.PRODUCE)
    assert not permissions.may(auth, "other", AuthAction.PRODUCE, ORDERS)
    auth = permissions.granted(auth, "app", ["consume"])
    assert not permissions.may(auth, "app", AuthAction.PRODUCE, ORDERS)
    assert permissions.revoked(auth, "app") == NO_PERMISSIONS
    assert permissions.revoked(auth, "other") is auth


def test_a_grant_on_a_topic_counts_for_its_partitions_and_no_other_topic() -> None:
    auth = permissions.granted_on_topic(NO_PERMISSIONS, ORDERS.with_partition(1), "app", ["produce"])
    assert permissions.may(auth, "app", AuthAction.PRODUCE, ORDERS.with_partition(7))
    assert not permissions.may(auth, "app", AuthAction.CONSUME, ORDERS)
    assert not permissions.may(auth, "app", AuthAction.PRODUCE, BILLS)
    assert not permissions.may(auth, "app", AuthAction.PRODUCE)
    both = permissions.granted(auth, "app", ["consume"])
    assert permissions.topic_permissions(both, ORDERS) == {"app": ("produce", "consume")}
    assert permissions.topic_permissions(both, BILLS) == {"app": ("consume",)}
    assert permissions.revoked_on_topic(auth, ORDERS, "app") == NO_PERMISSIONS
    assert permissions.without_topic(both, ORDERS).topics == {}
    with pytest.raises(errors.Refused, match="Permissions are not set at the topic level"):
        permissions.revoked_on_topic(both, BILLS, "app")


def test_a_subscription_is_open_until_roles_are_named() -> None:
    def refused(auth: AuthPolicies, role: str) -> str | None:
        return permissions.refusal_of_subscription(auth, role, ORDERS, "audit")

    assert refused(NO_PERMISSIONS, "app") is None
    auth = permissions.granted_on_subscription(NO_PERMISSIONS, "audit", ["auditor", "boss"])
    assert refused(auth, "auditor") is None
    assert refused(auth, "app") == f"app is not authorized to access subscription audit on topic {ORDERS}"
    auth = permissions.revoked_on_subscription(auth, "audit", "boss")
    assert auth.subscriptions == {"audit": ("auditor",)}
    auth = permissions.revoked_on_subscription(auth, "audit", "auditor")
    assert auth == NO_PERMISSIONS
    with pytest.raises(errors.NoSuchSubscription, match="audit"):
        permissions.revoked_on_subscription(auth, "audit", "auditor")


def test_a_prefix_mode_requires_names_of_the_role() -> None:
    auth = permissions.with_mode(NO_PERMISSIONS, permissions.subscription_auth_mode("prefix"))
    assert permissions.refusal_of_subscription(auth, "app", ORDERS, "app-1") is None
    assert "prefixed by the authentication role, like app-xxxx" in str(
        permissions.refusal_of_subscription(auth, "app", ORDERS, "other")
    )
    with pytest.raises(errors.InvalidOption, match="None or Prefix, got 'Suffix'"):
        permissions.subscription_auth_mode("Suffix")


@pytest.mark.parametrize(
    ("change", "refused", "words"),
    [
        (lambda: permissions.actions_named(["functions"]), errors.NotSupportedYet, "functions worker"),
        (lambda: permissions.actions_named(["packages", "produce"]), errors.NotSupportedYet, "package management"),
        (lambda: permissions.actions_named(["sell"]), errors.InvalidOption, "produce, consume, got 'sell'"),
        (lambda: permissions.granted(NO_PERMISSIONS, " ", ["produce"]), errors.InvalidOption, "Role should not be"),
        (
            lambda: permissions.granted_on_subscription(NO_PERMISSIONS, "", ["a"]),
            errors.InvalidOption,
            "Subscription should not be",
        ),
    ],
)
def test_bad_values_are_named(change: Callable[[], object], refused: type[Exception], words: str) -> None:
    with pytest.raises(refused, match=words):
        change()


def test_namespaces_keep_permissions_until_they_are_deleted() -> None:
    clock, deadline = SystemClock(), Deadline.after(10)
    namespaces = Namespaces(Entities(MemoryStateLog(), NAMESPACES, NAMESPACE_KEYS, clock), clock)

    def grant(auth: AuthPolicies) -> AuthPolicies:
        return permissions.granted_on_topic(permissions.granted(auth, "app", ["produce"]), ORDERS, "app", ["consume"])

    with pytest.raises(errors.NoSuchNamespace):
        namespaces.change_permissions("acme/eu", grant, deadline)
    namespaces.create("acme/eu", deadline)
    for name in ("acme/eu", "public/default"):  # with a record, and without one
        assert namespaces.permissions(name, deadline) == NO_PERMISSIONS
        namespaces.change_permissions(name, lambda auth: permissions.revoked(auth, "app"), deadline)
        namespaces.change_permissions(name, grant, deadline)
        assert namespaces.permissions(name, deadline) == grant(NO_PERMISSIONS)
    namespaces.change_policies("acme/eu", lambda now: {**now, "deduplication": True}, deadline)
    assert namespaces.permissions("acme/eu", deadline) == grant(NO_PERMISSIONS)
    namespaces.forget_topic(ORDERS, deadline)
    assert namespaces.permissions("public/default", deadline).topics == {}
    namespaces.delete("acme/eu", deadline)
    assert namespaces.permissions_of(["acme/eu", "acme/us"], deadline) == {"acme/eu": None, "acme/us": None}
    namespaces.create("acme/eu", deadline)
    assert namespaces.permissions("acme/eu", deadline) == NO_PERMISSIONS
