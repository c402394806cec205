"""Operators of the console: their names and tokens, and what the permissions of their roles refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import NamespaceRights, Operation, read_rights
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.exceptions import AuthorizationError

Check = Callable[[Operation], None]
"""Raises AuthorizationError, with the reason: the operator's role may not do this. StoreErrors."""


def read_operators(path: str) -> dict[str, str]:
    """The tokens of operators by name, from a file with a line `NAME TOKEN` for each. Empty lines, and lines that begin
    with #, are skipped.

    Raises InvalidOption: the file cannot be read, has no operator, or a line is of another form or repeats a name or a
    token.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise InvalidOption(f"the file of operators {path} cannot be read: {failure}") from failure
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidOption(f"line {number} of the file of operators {path} has {len(words)} words: NAME TOKEN")
        name, token = words
        if name in found:
            raise InvalidOption(f"line {number} of the file of operators {path} names {name} again")
        if token in found.values():
            raise InvalidOption(f"line {number} of the file of operators {path} has the token of another operator")
        found[name] = token
    if not found:
        raise InvalidOption(f"the file of operators {path} has no line NAME TOKEN")
    return found


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
