"""Entry points named in the environment store schemas and check them, in the place of the built-in ones.

    POK_SCHEMA_STORAGE=kafka                                    one name; `kafka`: the state topic `schemas`
    POK_SCHEMA_CHECKERS=avro,json,protobuf,protobuf_native      every checker that is used

A distribution offers more of them by entry points of the groups below. Every process that opens producers or consumers
of a topic, or registers its schemas, needs the same setting: each process checks for itself. Source: Pulsar's
`schemaRegistryStorageClassName` and `schemaRegistryCompatibilityCheckers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.schema_registry.storage import SchemaStorage, StateLogSchemaStorage
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka_schema_compat import BUILT_IN, Checkers, PairChecker, SchemaType

STORAGE_VARIABLE: Final = "POK_SCHEMA_STORAGE"
CHECKERS_VARIABLE: Final = "POK_SCHEMA_CHECKERS"
STORAGES: Final = "pulsar_on_kafka.schema_storage"
"""The group of what makes a `SchemaStorage` of a `StateLog` and a `Clock`, as `StateLogSchemaStorage` does."""
CHECKERS: Final = "pulsar_on_kafka.schema_checker"
"""The group of `SchemaChecker`s."""

_KAFKA: Final = "kafka"
_JSON: Final = "json"
_BUILT_IN: Final[Mapping[str, SchemaType]] = {
    "avro": SchemaType.AVRO,
    "protobuf": SchemaType.PROTOBUF,
    "protobuf_native": SchemaType.PROTOBUF_NATIVE,
}


class SchemaChecker(PairChecker[Any], Protocol):
    """A checker of one kind of schema, Pulsar's or its own (`SchemaType.added`), in the place of the built-in one, if
    that kind has one. An entry point of `CHECKERS` names it."""

    schema_type: SchemaType


def configured_storage(log: StateLog, clock: Clock) -> SchemaStorage:
    """Raises InvalidOption: there is no storage of the name that is set, or it cannot be loaded."""
    name = os.environ.get(STORAGE_VARIABLE, "").strip() or _KAFKA
    if name == _KAFKA:
        return StateLogSchemaStorage(log, clock)
    make: Callable[[StateLog, Clock], SchemaStorage] = _loaded(STORAGES, STORAGE_VARIABLE, name, (_KAFKA,))
    return make(log, clock)


def configured_checkers() -> Checkers:
    """Raises InvalidOption: there is no checker of a name that is set, it cannot be loaded, or it is none."""
    listed = [name.strip() for name in os.environ.get(CHECKERS_VARIABLE, "").split(",") if name.strip()]
    if not listed:
        return BUILT_IN
    pairs = {kind: BUILT_IN.pairs[kind] for name, kind in _BUILT_IN.items() if name in listed}
    for name in listed:
        if name in _BUILT_IN or name == _JSON:
            continue
        checker: SchemaChecker = _loaded(CHECKERS, CHECKERS_VARIABLE, name, (*_BUILT_IN, _JSON))
        kind = getattr(checker, "schema_type", None)
        if not isinstance(kind, SchemaType):
            raise errors.InvalidOption(f"schema checker {name} must have a schema_type, a SchemaType, got {kind!r:.60}")
        pairs[kind] = _always(checker)
    return Checkers(pairs, json=_JSON in listed)


def _always(checker: SchemaChecker) -> Callable[[object], SchemaChecker]:
    return lambda new: checker


def _loaded(group: str, variable: str, name: str, built_in: tuple[str, ...]) -> Any:
    found = {each.name: each for each in entry_points(group=group)}
    if name not in found:
        known = ", ".join(sorted({*found, *built_in}))
        raise errors.InvalidOption(f"the environment's {variable} names {name!r:.100}, known are {known}")
    try:
        return found[name].load()
    except (ImportError, AttributeError) as error:
        raise errors.InvalidOption(f"{name} ({found[name].value}) of {variable} cannot be loaded: {error}") from error
