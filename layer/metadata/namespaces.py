"""Tenants and namespaces. `public/default` and `pulsar/system` are there from the start, others are made."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from layer import errors
from layer.clock import Clock
from layer.deadline import Deadline
from layer.metadata.entities import Entities, EntityKeys, Versioned
from mapping.state_keys import NamespaceKey
from mapping.state_records.metadata import LifeState, NamespaceRecord, decode_namespace, encode

BUILT_IN: Final = ("public/default", "pulsar/system")
_NAME: Final = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)


NAMESPACE_KEYS: Final[EntityKeys[str]] = EntityKeys(NamespaceKey, lambda key: str(key.namespace), lambda name: (name,))


class Namespaces:
    """Thread-safe."""

    def __init__(self, entities: Entities[str], clock: Clock) -> None:
        self._entities = entities
        self._clock = clock

    def require(self, namespace: str, deadline: Deadline) -> None:
        """Raises NoSuchNamespace unless `namespace` exists."""
        if namespace in BUILT_IN:
            return
        current = self._entities.read(namespace, namespace, deadline)
        if current is None or decode_namespace(current.value).state is not LifeState.ACTIVE:
            raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")

    def create(self, namespace: str, deadline: Deadline) -> None:
        """Raises AlreadyExists, or InvalidOption for a name that is not `tenant/namespace`."""
        if _NAME.fullmatch(namespace) is None:
            raise errors.InvalidOption(f"a namespace is named tenant/namespace, got {namespace!r}")
        if namespace in BUILT_IN:
            raise errors.AlreadyExists(f"namespace {namespace} exists from the start")
        record = NamespaceRecord(namespace, LifeState.ACTIVE, created_ms=self._clock.now_ms())

        def created(current: Versioned | None) -> bytes | None:
            if current is not None and decode_namespace(current.value).state is LifeState.ACTIVE:
                raise errors.AlreadyExists(f"namespace {namespace} exists already")
            return encode(record)

        self._entities.update(namespace, namespace, created, deadline)

    def delete(self, namespace: str, deadline: Deadline) -> None:
        """Raises NoSuchNamespace. The caller makes sure that it has no topics left."""
        if namespace in BUILT_IN:
            raise errors.InvalidOption(f"namespace {namespace} cannot be deleted")

        def deleted(current: Versioned | None) -> bytes | None:
            if current is None or decode_namespace(current.value).state is not LifeState.ACTIVE:
                raise errors.NoSuchNamespace(f"namespace {namespace} does not exist")
            return encode(replace(decode_namespace(current.value), state=LifeState.DELETED))

        self._entities.update(namespace, namespace, deleted, deadline)

    def list(self, tenant: str, deadline: Deadline) -> list[str]:
        """The namespaces of a tenant, by name."""
        stored = {
            record.name
            for found in self._entities.all(deadline)
            if (record := decode_namespace(found.value)).state is LifeState.ACTIVE
        }
        return sorted(name for name in {*stored, *BUILT_IN} if name.split("/")[0] == tenant)
