"""A tenant's ACLs, and their names on the cluster that it moves to."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation

from pulsar_on_kafka.clusters.migration.acls import of_tenant
from pulsar_on_kafka.kafka.acls import Acl, binding, read

RENAMED = {"acme.shop.orders": "acme.shop.orders", "bound": "acme.shop.bound"}


def _acl(kind: str, name: str, *, prefixed: bool = False) -> Acl:
    return Acl(kind, name, prefixed, "User:bob", "*", "Read", allows=True)


@pytest.mark.parametrize(
    ("acl", "expected"),
    [
        (_acl("topic", "acme.shop.orders"), "acme.shop.orders"),
        (_acl("topic", "acme.shop.not-there-yet"), "acme.shop.not-there-yet"),
        (_acl("topic", "acme.", prefixed=True), "acme."),
        (_acl("topic", "bound"), "acme.shop.bound"),
        (_acl("group", "acme.shop.orders/billing"), "acme.shop.orders/billing"),
        (_acl("group", "bound/billing"), "acme.shop.bound/billing"),
        (_acl("group", "bound/", prefixed=True), "acme.shop.bound/"),
        (_acl("transactional-id", "acme.shop.orders/billing"), "acme.shop.orders/billing"),
        (_acl("transactional-id", "bound/billing"), "acme.shop.bound/billing"),
        (_acl("transactional-id", "acme.", prefixed=True), "acme."),
        (_acl("transactional-id", "bound"), None),  # of a program with transactions of Kafka
        (_acl("group", "bound"), None),  # a group of somebody who reads the Kafka topic
        (_acl("topic", "acme2.shop.orders"), None),
        (_acl("topic", "pulsar.system.topics"), None),
    ],
)
def test_what_is_about_the_tenant_is_its_own(acl: Acl, expected: str | None) -> None:
    own, wider = of_tenant([acl], "acme", RENAMED)
    assert own == (frozenset() if expected is None else {acl._replace(name=expected)})
    assert not wider


@pytest.mark.parametrize("acl", [_acl("topic", "*"), _acl("topic", "ac", prefixed=True), _acl("group", "*")])
def test_what_is_about_others_too_is_told_apart(acl: Acl) -> None:
    assert of_tenant([acl], "acme", RENAMED) == (frozenset(), {acl})


@pytest.mark.parametrize("kind", ["topic", "group", "transactional-id"])
@pytest.mark.parametrize("operation", [one for one in AclOperation if one.name not in ("UNKNOWN", "ANY")])
def test_an_acl_is_what_it_was(operation: AclOperation, kind: str) -> None:
    acl = _acl(kind, "t", prefixed=True)._replace(
        operation="".join(word.capitalize() for word in operation.name.split("_")), allows=False
    )
    assert read(binding(acl)) == acl


def test_the_command_says_all_of_it() -> None:
    assert _acl("group", "acme.", prefixed=True).command() == (
        "kafka-acls --add --allow-principal 'User:bob' --allow-host '*' --operation Read --group 'acme.' "
        "--resource-pattern-type prefixed"
    )
