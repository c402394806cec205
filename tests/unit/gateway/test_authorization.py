"""The rights of roles: a table of grants and operations, and the right that each REST route requires."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.metadata import permissions
from pulsar_on_kafka.broker.metadata.permissions import NO_PERMISSIONS
from pulsar_on_kafka.broker.node.role_rights import NamespaceRights, Operation, Requirement
from pulsar_on_kafka.gateway.rest.rights import right_of
from pulsar_on_kafka.gateway.rest.server import OF_ADMINISTRATORS, OF_CLIENTS
from pulsar_on_kafka_mapping.names.topic_name import TopicName

TOPIC = TopicName.parse("persistent://public/default/orders")
AUTH = NO_PERMISSIONS
for role, actions in (("producer", ["produce"]), ("consumer", ["consume"]), ("nothing", list[str]())):
    AUTH = permissions.granted(AUTH, role, actions)
AUTH = permissions.granted_on_topic(AUTH, TOPIC, "of topic", ["consume"])
AUTH = permissions.granted_on_subscription(AUTH, "audit", ["consumer"])
RIGHTS = NamespaceRights(AUTH, frozenset({"boss"}))

ALLOWED = {
    "producer": {Requirement.LOOKUP, Requirement.PRODUCE},
    "consumer": {Requirement.LOOKUP, Requirement.CONSUME, Requirement.GET_TOPICS},
    "of topic": {Requirement.LOOKUP, Requirement.CONSUME},
    "nothing": set[Requirement](),
    "unknown": set[Requirement](),
    "boss": set(Requirement),
}


@pytest.mark.parametrize("role", ALLOWED)
@pytest.mark.parametrize("requirement", list(Requirement))
def test_each_role_may_do_what_it_was_granted(role: str, requirement: Requirement) -> None:
    topic = TOPIC if requirement not in (Requirement.GET_TOPICS, Requirement.ADMINISTER) else None
    operation = Operation(requirement, "public/default", "not authorized", topic)
    expected = None if requirement in ALLOWED[role] else "not authorized"
    assert RIGHTS.refusal(role, operation) == expected


def test_a_restricted_subscription_is_for_its_roles_and_the_tenant_s_administrators() -> None:
    operation = Operation(Requirement.CONSUME, "public/default", "not authorized", TOPIC, "audit")
    assert RIGHTS.refusal("consumer", operation) is None
    assert RIGHTS.refusal("boss", operation) is None
    assert "subscription audit" in str(RIGHTS.refusal("of topic", operation))
    assert RIGHTS.refusal("producer", operation) == "not authorized"


def test_a_namespace_that_does_not_exist_is_for_the_tenant_s_administrators() -> None:
    missing = NamespaceRights(None, frozenset({"boss"}))
    operation = Operation(Requirement.PRODUCE, "public/none", "not authorized", TOPIC)
    assert missing.refusal("boss", operation) is None
    assert missing.refusal("producer", operation) == "not authorized"


SUPER_USER, ANY = "super user", "any"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/admin/v2/clusters", ANY),
        ("GET", "/admin/v2/tenants", SUPER_USER),
        ("GET", "/admin/v2/tenants/{tenant}", Requirement.ADMINISTER),
        ("PUT", "/admin/v2/tenants/{tenant}", SUPER_USER),
        ("GET", "/admin/v2/namespaces/{tenant}", Requirement.ADMINISTER),
        ("PUT", "/admin/v2/namespaces/{tenant}/{namespace}", Requirement.ADMINISTER),
        ("GET", "/admin/v2/namespaces/{tenant}/{namespace}/topics", Requirement.GET_TOPICS),
        ("GET", "/admin/v2/namespaces/{tenant}/{namespace}/permissions", Requirement.ADMINISTER),
        ("POST", "/admin/v2/namespaces/{tenant}/{namespace}/permissions/{role}", Requirement.ADMINISTER),
        ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", Requirement.LOOKUP),
        ("GET", "/admin/v2/{domain}/{tenant}/{namespace}", Requirement.GET_TOPICS),
        ("GET", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions", Requirement.LOOKUP),
        ("PUT", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions", Requirement.ADMINISTER),
        ("DELETE", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}", Requirement.ADMINISTER),
        ("PUT", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/unload", Requirement.ADMINISTER),
        ("GET", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/permissions", Requirement.ADMINISTER),
        ("GET", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/stats", Requirement.LOOKUP),
        ("GET", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscriptions", Requirement.CONSUME),
        ("PUT", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}", Requirement.CONSUME),
        ("GET", "/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema", Requirement.LOOKUP),
    ],
)  # fmt: skip
def test_a_route_requires_the_right_of_pulsar(method: str, path: str, expected: object) -> None:
    (administers,) = (
        of is OF_ADMINISTRATORS for of in (OF_CLIENTS, OF_ADMINISTRATORS) if (method, path) in {each[:2] for each in of}
    )
    found = right_of(method, path, administers=administers)
    shown = found.requirement or (SUPER_USER if found.administers else ANY)
    assert shown == expected
