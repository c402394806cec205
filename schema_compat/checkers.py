"""A schema's type chooses its checker, and so do the new schema's properties where they change the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.schema_compat.avro.avro_checker import AVRO_CHECKER
from pulsar_on_kafka.schema_compat.base.schema_model import (
    CompatibilityStrategy,
    Incompatibility,
    PairChecker,
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
)
from pulsar_on_kafka.schema_compat.json_forms import check_json, check_readable_json
from pulsar_on_kafka.schema_compat.key_value import check_key_value, same_parts, split
from pulsar_on_kafka.schema_compat.protobuf.protobuf_checker import protobuf_native_checker
from pulsar_on_kafka.schema_compat.strategies import Version, changes_forbidden, compare_versions

Pick = Callable[[SchemaInfo], PairChecker[Any]]
"""The checker for a new schema: its properties can choose among several."""


@dataclass(frozen=True, slots=True)
class Checkers:
    """Checkers judge the kinds of schema that they are there for. A kind that nobody judges may change in every way,
    but under ALWAYS_INCOMPATIBLE; KEY_VALUE schemas are judged by their parts. Source: Pulsar's
    `schemaRegistryCompatibilityCheckers`."""

    pairs: Mapping[SchemaType, Pick]
    json: bool = True
    """JSON schemas, of which there are several forms, are judged as Pulsar does, unless `pairs` has one for them."""

    def check_same_type(
        self, new: SchemaInfo, versions: Sequence[Version], strategy: CompatibilityStrategy
    ) -> list[Incompatibility]:
        """What speaks against `new` beside `versions` (newest first, of its type); ALWAYS_COMPATIBLE does not come
        here."""
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
        """Kinds that nobody judges are never looked into.

        Raises:
            UnreadableSchema: the definition is none of its type; the message says what was expected.
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
