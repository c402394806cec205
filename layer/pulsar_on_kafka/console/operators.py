"""Operators of the console: their names and tokens, and what the permissions of their roles refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import read_tokens
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import NamespaceRights, Operation, read_rights
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.exceptions import AuthorizationError

Check = Callable[[Operation], None]
"""Raises AuthorizationError, with the reason: the operator's role may not do this. StoreErrors."""


def read_operators(path: str) -> dict[str, str]:
    """The tokens of operators by name. Raises InvalidOption: see `read_tokens`."""
    return read_tokens(path, "operator")


class OperatorRights:
    """The rights of operators. Permissions are read for each action."""

    def __init__(self, *, authorization: bool = False, super_users: frozenset[str] = frozenset()) -> None:
        """Without `authorization` each operator may do everything that the login of this process may. With it an
        operator acts as the role of the same name; a super user may do everything."""
        self._authorization = authorization
        self._super_users = super_users

    def check_of(self, operator: str, node: Node, timeout_s: float) -> Check:
        """The check of one action. It reads the permissions of each namespace once."""
        if not self._authorization or operator in self._super_users:
            return lambda operation: None
        known: dict[str, NamespaceRights] = {}

        def check(operation: Operation) -> None:
            namespace = operation.namespace
            if namespace not in known:
                with pulsar_errors():
                    known.update(read_rights(node, [namespace], Deadline.after(timeout_s)))
            refuse(operator, operation, known)

        return check


def refuse(operator: str, operation: Operation, rights: Mapping[str, NamespaceRights]) -> None:
    """Raises AuthorizationError: the role may not do this. Pure."""
    reason = rights[operation.namespace].refusal(operator, operation)
    if reason is not None:
        raise AuthorizationError(f"operator {operator}: {reason}")
