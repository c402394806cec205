"""Authorization: roles may do only what they were granted, by cached views of permissions. Source: Pulsar's
PulsarAuthorizationProvider and ServerCnx, 4.0.7.

A super user and an admin role of the tenant may do everything in a namespace. All other roles need a grant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import NamespaceRights, Operation, read_rights
from pulsar_on_kafka.gateway.login.access import GatewayAccess

MAX_AGE_S: Final = 2.0
"""A decision uses permissions that were read at most this long ago."""
_READ_INTERVAL_S: Final = 1.0
"""The permissions of namespaces in use are read at this interval. Clients lose revoked ones within 5 s: after this
interval, the reading itself and the closing of their producers and consumers."""
_READ_TIMEOUT_S: Final = 10.0


class _View(NamedTuple):
    rights: NamespaceRights
    read_s: float


class Authorization:
    """The rights of roles in the namespaces that clients have named. Thread-safe.

    Memory: the permissions of those namespaces that exist.
    """

    def __init__(
        self,
        node: Node,
        access: GatewayAccess,
        changed: Callable[[AbstractSet[str]], None],
    ) -> None:
        """`changed` gets namespaces whose rights have changed since they were last read, by any thread."""
        self._node = node
        self._access = access
        self._changed = changed
        self._views: dict[str, _View] = {}
        self._lock = threading.Lock()
        self._scheduler = Scheduler("pok-gateway-rights")
        self._scheduler.every(_READ_INTERVAL_S, self._read_all)

    def close(self) -> None:
        """Stop reading."""
        self._scheduler.close()

    def is_super_user(self, role: str) -> bool:
        return self._access.may_administer(role)

    def known(self, namespace: str) -> NamespaceRights | None:
        """The rights as they were read less than `MAX_AGE_S` ago; None if they have to be read."""
        view = self._views.get(namespace)
        if view is None or self._node.clock.monotonic() - view.read_s > MAX_AGE_S:
            return None
        return view.rights

    def latest(self, namespace: str) -> NamespaceRights:
        """The rights as they were last read; no rights in a namespace that does not exist."""
        view = self._views.get(namespace)
        return _NO_RIGHTS if view is None else view.rights

    def read(self, namespace: str, deadline: Deadline) -> NamespaceRights:
        """The rights now. May block. Raises StoreErrors."""
        return self._read([namespace], deadline)[namespace]

    def refusal(self, role: str, operation: Operation, deadline: Deadline) -> str | None:
        """The reason why a role may not do this; None if it may. May block. Raises StoreErrors."""
        if self.is_super_user(role):
            return None
        rights = self.known(operation.namespace) or self.read(operation.namespace, deadline)
        return rights.refusal(role, operation)

    def _read_all(self) -> None:
        with self._lock:
            names = list(self._views)
        if names:
            self._read(names, Deadline.after(_READ_TIMEOUT_S))

    def _read(self, namespaces: Iterable[str], deadline: Deadline) -> dict[str, NamespaceRights]:
        begun_s = self._node.clock.monotonic()
        found = read_rights(self._node, namespaces, deadline)
        changed = self._store(found, begun_s)
        if changed:
            self._changed(changed)
        return found

    def _store(self, found: dict[str, NamespaceRights], read_s: float) -> set[str]:
        """Store views unless there are newer ones. Returns the namespaces whose rights have changed."""
        changed = set()
        with self._lock:
            for name, rights in found.items():
                before = self._views.get(name)
                if before is not None and before.read_s > read_s:
                    continue
                if before is not None and before.rights != rights:
                    changed.add(name)
                if rights.auth is None:
                    self._views.pop(name, None)
                else:
                    self._views[name] = _View(rights, read_s)
        return changed


_NO_RIGHTS: Final = NamespaceRights(None, frozenset())
