"""Which checker judges a schema, by its type and, where they change the rules, the new schema's properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schema_compat.avro import AVRO_CHECKER
from schema_compat.json_forms import check_json
from schema_compat.key_value import check_key_value, same_parts
from schema_compat.model import CompatibilityStrategy, Incompatibility, PairChecker, SchemaInfo, SchemaType
from schema_compat.protobuf.checker import protobuf_native_checker
from schema_compat.strategies import Version, changes_forbidden, compare_versions

# A function of the new schema, so that its properties can choose among checkers.
PAIR_CHECKERS: Final[Mapping[SchemaType, Callable[[SchemaInfo], PairChecker[Any]]]] = {
    SchemaType.AVRO: lambda new: AVRO_CHECKER,
    SchemaType.PROTOBUF: lambda new: AVRO_CHECKER,
    SchemaType.PROTOBUF_NATIVE: protobuf_native_checker,
}


def check_same_type(
    new: SchemaInfo, versions: Sequence[Version], strategy: CompatibilityStrategy
) -> list[Incompatibility]:
    """What speaks against `new` beside `versions` (newest first, of its type); ALWAYS_COMPATIBLE does not come here."""
    if not strategy.is_transitive:
        versions = [version for version in versions if not _is_same(new, version.schema)]
    if not versions:
        return []
    if new.type is SchemaType.KEY_VALUE:
        return check_key_value(new, versions, strategy, check_same_type)
    found: list[Incompatibility] = []
    if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE:
        found += [changes_forbidden(version) for version in versions]
    if new.type is SchemaType.JSON:
        found += check_json(new, versions, strategy)
    elif new.type in PAIR_CHECKERS:
        found += compare_versions(PAIR_CHECKERS[new.type](new), new, versions, strategy)
    return found


def _is_same(new: SchemaInfo, old: SchemaInfo) -> bool:
    return same_parts(new, old) if new.type is SchemaType.KEY_VALUE else new.schema == old.schema
