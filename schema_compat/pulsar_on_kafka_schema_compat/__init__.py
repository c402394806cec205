"""The schema check decides whether a schema may follow others: Pulsar's compatibility strategies over Avro, JSON,
Protobuf and key/value schemas.

Pure: it reads no files, opens no connections and needs nothing else of this project.

    old = SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "Order", "fields": []}')
    new = SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}')
    result = check_compatibility(new, [old], CompatibilityStrategy.BACKWARD)
    result.is_compatible                    # False
    result.incompatibilities[0].rule        # READER_FIELD_MISSING_DEFAULT_VALUE
    result.incompatibilities[0].path        # /fields/0

The checkers are loaded at their first use: policies need only the names of types and strategies.
"""

from typing import TYPE_CHECKING

from pulsar_on_kafka_schema_compat.base.schema_model import (
    CompatibilityResult,
    CompatibilityStrategy,
    Difference,
    Direction,
    Incompatibility,
    PairChecker,
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
)

if TYPE_CHECKING:
    from pulsar_on_kafka_schema_compat.compatibility import BUILT_IN, Checkers, check_compatibility, check_readable
    from pulsar_on_kafka_schema_compat.identity import SAME_AFTER_PARSING, same_schema
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from pulsar_on_kafka_schema_compat import compatibility, identity

        home = identity if name in ("SAME_AFTER_PARSING", "same_schema") else compatibility
        return globals().setdefault(name, getattr(home, name))


__all__ = [
    "BUILT_IN",
    "SAME_AFTER_PARSING",
    "Checkers",
    "CompatibilityResult",
    "CompatibilityStrategy",
    "Difference",
    "Direction",
    "Incompatibility",
    "PairChecker",
    "SchemaInfo",
    "SchemaType",
    "UnreadableSchema",
    "check_compatibility",
    "check_readable",
    "same_schema",
]
