"""The right that each REST route requires of a role, if the gateway has authorization.

Source: `validateTopicOperation` and its like in Pulsar's PulsarWebResource, and PulsarAuthorizationProvider, 4.0.7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.broker.node.role_rights import Operation, Requirement
from pulsar_on_kafka.gateway.login.authorization import Authorization
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_OF_SUBSCRIPTIONS: Final = re.compile(
    r"/(subscriptions?|all_subscription|messageid|ledger)(/|$)|/(lastMessageId|examinemessage|backlogSize)$"
)
"""Routes that a role may use that consumes the topic: cursors, and messages."""
_OF_STATISTICS: Final = re.compile(r"/(stats|partitioned-stats|internalStats|partitioned-internalStats|properties)$")
"""Routes that a role may read that may look the topic up."""
_SCHEMAS: Final = "/admin/v2/schemas/"


@dataclass(frozen=True, slots=True)
class RouteRight:
    """The requirement of one route. None: each role that logs in has it, or a super user if it `administers`."""

    requirement: Requirement | None
    administers: bool

    def check(self, authorization: Authorization, role: str, request: RestRequest) -> None:
        """May block. Raises RestError: the role has no such right. NoSuchTenant."""
        if authorization.is_super_user(role):
            return
        if self.requirement is None:
            if self.administers:
                raise RestError(403, "This operation requires super-user access")
            return
        reason = authorization.refusal(role, self._operation(self.requirement, request), request.deadline())
        if reason is not None:
            if self.requirement is Requirement.ADMINISTER:
                request.admin.get_tenant_info(request.names["tenant"])  # as in Pulsar, 404 comes before 403
            raise RestError(403, reason)

    @staticmethod
    def _operation(requirement: Requirement, request: RestRequest) -> Operation:
        names = request.names
        if requirement is Requirement.ADMINISTER:
            words = "Don't have permission to administrate resources on this tenant"
            return Operation(requirement, f"{names['tenant']}/{names.get('namespace', '')}", words)
        name = requirement.value
        if requirement is Requirement.GET_TOPICS:
            words = f"Unauthorized to validateNamespaceOperation for operation [{name}] on namespace"
            return Operation(requirement, request.namespace, f"{words} [{request.namespace}]")
        topic = TopicName.parse(request.topic)
        words = f"Unauthorized to validateTopicOperation for operation [{name}] on topic [{topic}]"
        return Operation(requirement, topic.namespace_name, words, topic, names.get("subscription", ""))


LOGGED_IN: Final = RouteRight(None, administers=False)
"""Each role that logs in may use the route."""


def right_of(method: str, path: str, *, administers: bool) -> RouteRight:
    """The right that a route requires. `path` has the names of its parameters in braces. A route that no rule knows is
    for admin roles of the tenant, and for super users if its path has no tenant."""
    return RouteRight(_requirement(method, path, administers=administers), administers)


def _requirement(method: str, path: str, *, administers: bool) -> Requirement | None:
    if path.startswith(_SCHEMAS) and "{topic}" in path:
        changes = method == "DELETE" or (method == "POST" and path.endswith("/schema"))
        return Requirement.PRODUCE if changes else Requirement.LOOKUP
    if "{topic}" in path:
        if not administers:
            return Requirement.LOOKUP
        return _requirement_on_topic(method, path.partition("{topic}")[2])
    if "{namespace}" in path:
        lists_topics = not administers or (method == "GET" and "/namespaces/" not in path)
        return Requirement.GET_TOPICS if lists_topics else Requirement.ADMINISTER
    if "{tenant}" in path and (method == "GET" or "/tenants/" not in path):
        return Requirement.ADMINISTER
    return None


def _requirement_on_topic(method: str, rest: str) -> Requirement:
    """`rest`: the path after the topic."""
    if _OF_SUBSCRIPTIONS.search(rest):
        return Requirement.CONSUME
    if method == "GET" and _OF_STATISTICS.search(rest):
        return Requirement.LOOKUP
    return Requirement.ADMINISTER
