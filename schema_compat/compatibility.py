"""The check says whether a schema may follow others. Source: Pulsar's SchemaRegistryServiceImpl and its checkers; every
case is decided by rules that `tests/unit/schema_compat` go through one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_on_kafka.schema_compat.base.rule_names import (
    SCHEMA_TYPE_CHANGED,
    SCHEMA_TYPE_NOT_STORABLE,
    STRATEGY_UNDEFINED,
)
from pulsar_on_kafka.schema_compat.base.schema_model import (
    CompatibilityResult,
    CompatibilityStrategy,
    Incompatibility,
    SchemaInfo,
    SchemaType,
)
from pulsar_on_kafka.schema_compat.checkers import BUILT_IN, Checkers
from pulsar_on_kafka.schema_compat.strategies import in_order, versions_asked

_CLIENT_MODES = frozenset({SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH})


def check_compatibility(
    new: SchemaInfo,
    existing: Sequence[SchemaInfo],
    strategy: CompatibilityStrategy,
    *,
    first_version: int = 0,
    checkers: Checkers = BUILT_IN,
) -> CompatibilityResult:
    """Whether `new` may follow `existing` (oldest first, deleted versions left out), and every reason why not.

    A schema that cannot be read is an incompatibility, not an error. The first schema is always compatible, save
    for the types that are modes of clients and never stored.

    Args:
        first_version: the number of `existing[0]`, where versions before it were deleted; reasons name versions.
        checkers: who judges which kinds of schema.

    Raises:
        TypeError: an argument is not of its type.
    """
    _check_arguments(new, existing, strategy)
    if new.type in _CLIENT_MODES:
        reason = f"{new.type.name} is a mode of clients; only schemas of the other types are stored"
        return _refused(SCHEMA_TYPE_NOT_STORABLE, reason, existing, first_version)
    if not existing or strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE:
        return CompatibilityResult(())
    if strategy is CompatibilityStrategy.UNDEFINED:
        reason = "the strategy is UNDEFINED; expected the one that holds for the topic, its namespace or the cluster"
        return _refused(STRATEGY_UNDEFINED, reason, existing, first_version)
    versions = versions_asked(existing, strategy, first_version)
    found = [
        Incompatibility(
            "",
            SCHEMA_TYPE_CHANGED,
            f"version {version.index}: it has type {version.schema.type.name}, the new schema {new.type.name}",
            version.index,
        )
        for version in versions
        if version.schema.type is not new.type
    ]
    of_its_type = [version for version in versions if version.schema.type is new.type]
    found += checkers.check_same_type(new, of_its_type, strategy)
    return CompatibilityResult(in_order(found))


def _refused(rule: str, reason: str, existing: Sequence[SchemaInfo], first_version: int) -> CompatibilityResult:
    newest = first_version + len(existing) - 1 if existing else None
    return CompatibilityResult((Incompatibility("", rule, reason, newest),))


def _check_arguments(new: object, existing: object, strategy: object) -> None:
    if not isinstance(new, SchemaInfo):
        raise TypeError(f"new must be a SchemaInfo, got {type(new).__name__}: {new!r:.60}")
    if not isinstance(existing, Sequence) or not all(isinstance(one, SchemaInfo) for one in existing):
        raise TypeError(f"existing must be a sequence of SchemaInfo, got {type(existing).__name__}: {existing!r:.60}")
    if not isinstance(strategy, CompatibilityStrategy):
        raise TypeError(f"strategy must be a CompatibilityStrategy, got {type(strategy).__name__}: {strategy!r:.60}")


def check_readable(schema: SchemaInfo) -> None:
    """Ask the built-in checkers about the first schema of a topic, which follows nothing. Raises UnreadableSchema, as
    `Checkers.check_readable`."""
    BUILT_IN.check_readable(schema)
