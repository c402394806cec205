"""The registry's questions to `schema_compat`, its refusals, and the policies that count for a topic. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.policies import (
    CONFLUENT_SCHEMA_IDS,
    IS_ALLOW_AUTO_UPDATE_SCHEMA,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    applied,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.schema_registry.model import SchemaEntry, SchemaHistory, SchemaPolicies, StoredSchema
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.state.metadata.schema_records import check_definition_size
from pulsar_on_kafka_schema_compat import (
    SAME_AFTER_PARSING,
    Checkers,
    CompatibilityResult,
    CompatibilityStrategy,
    Incompatibility,
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
    check_compatibility,
    same_schema,
)
from pulsar_on_kafka_schema_compat.base.schema_model import STRATEGY_FORBIDS_CHANGE


def policies_when_opened(topic: Topic) -> SchemaPolicies | None:
    """The policies that counted when the topic was opened, at no further cost; None when its namespace was not read
    then.

    Raises: as `schema_policies`.
    """
    return None if topic.namespace_policies is None else schema_policies(topic.policies, topic.namespace_policies)


def schema_policies(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster_default: CompatibilityStrategy = CompatibilityStrategy.UNDEFINED,
) -> SchemaPolicies:
    """The effective policies of a topic with these in a namespace with those.

    Args:
        cluster_default: counts where neither names a strategy; UNDEFINED for Pulsar's own default, FULL.
    Raises:
        Corrupt: the record has an unknown strategy.
    """
    defaults = {SCHEMA_COMPATIBILITY_STRATEGY.name: cluster_default.name}
    own = SCHEMA_COMPATIBILITY_STRATEGY.undefined
    stated = namespace if namespace.get(SCHEMA_COMPATIBILITY_STRATEGY.name, own) != own else defaults
    name = applied(SCHEMA_COMPATIBILITY_STRATEGY, topic, stated)
    if name not in CompatibilityStrategy.__members__:
        raise errors.Corrupt(f"{SCHEMA_COMPATIBILITY_STRATEGY.name} is {name!r:.60}, which is no strategy")
    return SchemaPolicies(
        strategy=CompatibilityStrategy[name],
        validation_enforced=applied(SCHEMA_VALIDATION_ENFORCED, topic, namespace) is True,
        auto_update=applied(IS_ALLOW_AUTO_UPDATE_SCHEMA, topic, namespace) is not False,
        confluent_ids=applied(CONFLUENT_SCHEMA_IDS, topic, namespace) is True,
    )


Load = Callable[[Sequence[SchemaEntry]], Iterator[StoredSchema]]
"""Gives these versions with their definitions, one by one: they need not all be in memory."""

_REASON_CHARS: Final = 1000
_READERS_OF_THE_LATEST: Final = frozenset(
    {
        CompatibilityStrategy.BACKWARD,
        CompatibilityStrategy.FORWARD,
        CompatibilityStrategy.FORWARD_TRANSITIVE,
        CompatibilityStrategy.FULL,
    }
)


def version_of(info: SchemaInfo, history: SchemaHistory, load: Load) -> SchemaVersion | None:
    """The live version of the same schema: by its bytes first, then by its meaning; the newest of several.

    The index's hashes select the candidates; the bytes themselves are compared. Differs from Pulsar: a KEY_VALUE schema
    with its keys elsewhere is another one, since the version alone shows where a message's key is.
    """
    sha256 = hashlib.sha256(info.schema).hexdigest()
    of_its_type = [entry for entry in reversed(history.live) if entry.type_name == info.type.name]
    for stored in load([entry for entry in of_its_type if entry.sha256 == sha256]):
        same_bytes = info.schema == stored.info.schema and same_schema(info, stored.info)
        if same_bytes and _keys_at(info) == _keys_at(stored.info):
            return stored.version
    if info.type in SAME_AFTER_PARSING:
        for stored in load(of_its_type):
            if same_schema(info, stored.info):
                return stored.version
    return None


def _keys_at(info: SchemaInfo) -> str | None:
    return info.properties.get("kv.encoding.type", "INLINE") if info.type is SchemaType.KEY_VALUE else None


def check_size(topic: str, info: SchemaInfo) -> None:
    """Checks the size before parsing. Raises InvalidOption for a definition that cannot be stored."""
    try:
        check_definition_size(info.type.name, info.name, info.schema)
    except MappingError as error:
        raise errors.InvalidOption(f"topic {topic}: {error}") from error


def check_readable_or_refuse(topic: str, info: SchemaInfo, checkers: Checkers) -> None:
    """Raises IncompatibleSchema for what is no schema of its type: it could not be judged beside the next one."""
    try:
        checkers.check_readable(info)
    except UnreadableSchema as error:
        raise refused(topic, info, [str(error)]) from error


def refuse_unless_compatible(
    topic: str,
    info: SchemaInfo,
    history: SchemaHistory,
    load: Load,
    strategy: CompatibilityStrategy,
    checkers: Checkers,
    *,
    of_reader: bool = False,
) -> None:
    """Raises IncompatibleSchema with every reason; `of_reader`: the schema is a consumer's."""
    result = compatibility(info, history, load, strategy, checkers, of_reader=of_reader)
    if not result.is_compatible:
        raise refused(topic, info, [str(one) for one in result.incompatibilities], strategy)


def compatibility(
    info: SchemaInfo,
    history: SchemaHistory,
    load: Load,
    strategy: CompatibilityStrategy,
    checkers: Checkers,
    *,
    of_reader: bool = False,
) -> CompatibilityResult:
    """The result of `check_compatibility` beside the live versions that count, which are looked at one by one, newest
    first. ALWAYS_INCOMPATIBLE refuses every schema of a reader, the same one too. Source: SchemaRegistryServiceImpl's
    checkConsumerCompatibility and NeverSchemaValidator; seen on Pulsar 4.0.7 and 5.0.1."""
    if of_reader and strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE:
        return CompatibilityResult(tuple(_reader_forbidden(entry.version) for entry in history.live[:-2:-1]))
    requested: tuple[SchemaEntry, ...] = ()
    if strategy is not CompatibilityStrategy.ALWAYS_COMPATIBLE:
        requested = history.live[::-1] if strategy.is_transitive else history.live[-1:]
    if not requested:
        return check_compatibility(info, [], strategy, checkers=checkers)
    found: list[Incompatibility] = []
    for stored in load(requested):
        one = check_compatibility(info, [stored.info], strategy, first_version=stored.version.number, checkers=checkers)
        found += one.incompatibilities
    return CompatibilityResult(tuple(found))


def _reader_forbidden(version: SchemaVersion) -> Incompatibility:
    reason = f"version {version.number}: ALWAYS_INCOMPATIBLE forbids consumers with a schema"
    return Incompatibility("", STRATEGY_FORBIDS_CHANGE, reason, version.number)


def strategy_for_readers(strategy: CompatibilityStrategy) -> CompatibilityStrategy:
    """The strategy that judges a consumer's schema: under most strategies, whether it can read the latest one."""
    return CompatibilityStrategy.BACKWARD if strategy in _READERS_OF_THE_LATEST else strategy


def refused(
    topic: str, info: SchemaInfo, reasons: Sequence[str], strategy: CompatibilityStrategy | None = None
) -> errors.IncompatibleSchema:
    under = f" under {strategy.name}" if strategy else ""
    what = f"schema {info.name!r:.100} of type {info.type.name} is refused on topic {topic}{under}"
    return errors.IncompatibleSchema(what, tuple(map(_brief, reasons)))


def _brief(reason: str) -> str:
    """The reason without its middle, if it is long: the path to a place 10,000 levels down is."""
    if len(reason) <= _REASON_CHARS:
        return reason
    half = _REASON_CHARS // 2
    return f"{reason[:half]} ... {reason[-half:]}"
