"""The check decides whether a schema may follow others. Source: Pulsar's SchemaRegistryServiceImpl and its checkers;
`tests/unit/schema_compat` cover the deciding rules one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka_schema_compat.avro.avro_checker import AVRO_CHECKER
from pulsar_on_kafka_schema_compat.base.schema_model import (
    SCHEMA_TYPE_CHANGED,
    SCHEMA_TYPE_NOT_STORABLE,
    STRATEGY_UNDEFINED,
    CompatibilityResult,
    CompatibilityStrategy,
    Incompatibility,
    PairChecker,
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
)
from pulsar_on_kafka_schema_compat.json_forms import check_json, check_readable_json
from pulsar_on_kafka_schema_compat.key_value import check_key_value, same_parts, split
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import protobuf_native_checker
from pulsar_on_kafka_schema_compat.strategies import (
    Version,
    changes_forbidden,
    compare_versions,
    in_order,
    versions_to_compare,
)

Pick = Callable[[SchemaInfo], PairChecker[Any]]
"""The checker for a new schema: its properties can choose among several."""


@dataclass(frozen=True, slots=True)
class Checkers:
    """Checkers check the kinds of schema that they support. A kind without a checker may change in every way, except
    under ALWAYS_INCOMPATIBLE; KEY_VALUE schemas are checked by their parts. Source: Pulsar's
    `schemaRegistryCompatibilityCheckers`."""

    pairs: Mapping[SchemaType, Pick]
    json: bool = True
    """JSON schemas, of which there are several forms, are judged as Pulsar does, unless `pairs` has one for them."""

    def check_same_type(
        self, new: SchemaInfo, versions: Sequence[Version], strategy: CompatibilityStrategy
    ) -> list[Incompatibility]:
        """The incompatibilities of `new` with `versions` (newest first, of its type); never called with
        ALWAYS_COMPATIBLE."""
        if not strategy.is_transitive:
            versions = [version for version in versions if not _is_same(new, version.schema)]
        if not versions:
            return []
        if new.type is SchemaType.KEY_VALUE:
            return check_key_value(new, versions, strategy, self.check_same_type)
        found: list[Incompatibility] = []
        if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE:
            found += [changes_forbidden(version) for version in versions]
        if new.type in self.pairs:
            found += compare_versions(self.pairs[new.type](new), new, versions, strategy)
        elif new.type is SchemaType.JSON and self.json:
            found += check_json(new, versions, strategy)
        return found

    def check_readable(self, schema: SchemaInfo) -> None:
        """Checks the definition of a kind with a checker.

        Raises:
            UnreadableSchema: the definition is none of its type; the message names the expectation.
        """
        if schema.type in (SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH):
            raise UnreadableSchema(f"{schema.type.name} is a mode of clients; only schemas of other types are stored")
        if schema.type is SchemaType.KEY_VALUE:
            for part, its_schema in split(schema).items():
                try:
                    self.check_readable(its_schema)
                except UnreadableSchema as error:
                    raise UnreadableSchema(f"its {part}: {error}") from None
        elif schema.type in self.pairs:
            self.pairs[schema.type](schema).parse(schema)
        elif schema.type is SchemaType.JSON and self.json:
            check_readable_json(schema)


BUILT_IN: Final = Checkers(
    {
        SchemaType.AVRO: lambda new: AVRO_CHECKER,
        SchemaType.PROTOBUF: lambda new: AVRO_CHECKER,
        SchemaType.PROTOBUF_NATIVE: protobuf_native_checker,
    }
)


def _is_same(new: SchemaInfo, old: SchemaInfo) -> bool:
    return same_parts(new, old) if new.type is SchemaType.KEY_VALUE else new.schema == old.schema


_CLIENT_MODES = frozenset({SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH})


def check_compatibility(
    new: SchemaInfo,
    existing: Sequence[SchemaInfo],
    strategy: CompatibilityStrategy,
    *,
    first_version: int = 0,
    checkers: Checkers = BUILT_IN,
) -> CompatibilityResult:
    """Checks whether `new` may follow `existing` (oldest first, without deleted versions), and returns every reason why
    not.

    A schema that cannot be read is an incompatibility, not an error. The first schema is always compatible, except for
    the types that are modes of clients and never stored.

    Args:
        first_version: the number of `existing[0]`, where versions before it were deleted; reasons name versions.
        checkers: the checkers of the kinds of schema.

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
    versions = versions_to_compare(existing, strategy, first_version)
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
    """Checks the first schema of a topic, which follows none, with the built-in checkers. Raises UnreadableSchema, see
    `Checkers.check_readable`."""
    BUILT_IN.check_readable(schema)
