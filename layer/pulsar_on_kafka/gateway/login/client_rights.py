"""The rights of one connection's role, checked before its commands. Source: Pulsar's ServerCnx, 4.0.7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import NamespaceRights, Operation, Requirement, on_topic, read_rights
from pulsar_on_kafka.gateway.login.authorization import Authorization
from pulsar_on_kafka.gateway.login.client_login import ClientLogin
from pulsar_on_kafka.gateway.protocol.request_queue import OnError, RequestQueue, operation_deadline
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.commands import ServerError


class ClientRights:
    """For the event loop. Without an `Authorization`, and for a super user, everything is allowed."""

    def __init__(self, authorization: Authorization | None, login: ClientLogin, requests: RequestQueue) -> None:
        self._authorization = authorization
        self._login = login
        self._requests = requests

    @property
    def are_limited(self) -> bool:
        """Whether the role may do only what it was granted."""
        return self._authorization is not None and not self._authorization.is_super_user(self._login.role)

    def require(self, operation: Operation, then: Callable[[], None], refused: OnError) -> None:
        """Call `then` if the role may do this. Permissions are read from Kafka only if they are older than
        `MAX_AGE_S`."""
        authorization, role = self._authorization, self._login.role
        if authorization is None or authorization.is_super_user(role):
            then()
            return

        def decide(rights: NamespaceRights) -> None:
            reason = rights.refusal(role, operation)
            if reason is None:
                then()
            else:
                refused(ServerError.AUTHORIZATION, reason)

        known = authorization.known(operation.namespace)
        if known is not None:
            decide(known)
        else:
            read = partial(authorization.read, operation.namespace)
            self._requests.begin(lambda: read(operation_deadline()), decide, refused)

    def check_at(self, node: Node, operation: Operation, deadline: Deadline) -> None:
        """`require` by the permissions of another cluster, which are read now. May block.

        Raises:
            NotAuthorized: the role may not do this. StoreErrors.
        """
        authorization, role = self._authorization, self._login.role
        if authorization is None or authorization.is_super_user(role):
            return
        reason = read_rights(node, [operation.namespace], deadline)[operation.namespace].refusal(role, operation)
        if reason is not None:
            raise NotAuthorized(reason)

    def require_on(
        self,
        requirement: Requirement,
        topic: str,
        words: str,
        then: Callable[[], None],
        refused: OnError,
        subscription: str = "",
    ) -> None:
        """`require` for a topic. A name that is none is left to `then`."""
        try:
            name = TopicName.parse(topic)
        except MappingError:
            then()
        else:
            self.require(on_topic(requirement, name, words, subscription), then, refused)

    def require_on_each(
        self,
        requirement: Requirement,
        places: Sequence[tuple[str, str]],
        words: str,
        then: Callable[[], None],
        refused: OnError,
    ) -> None:
        """`require_on` for several topics, each with a subscription or ''."""
        if not places:
            then()
            return
        (topic, subscription), *others = places
        next_one = partial(self.require_on_each, requirement, others, words, then, refused)
        self.require_on(requirement, topic, words, next_one, refused, subscription)

    def still_allows(self, operation: Operation) -> bool:
        """Whether the role may still do this, by the permissions as they were last read."""
        authorization, role = self._authorization, self._login.role
        if authorization is None or authorization.is_super_user(role):
            return True
        return authorization.latest(operation.namespace).refusal(role, operation) is None
