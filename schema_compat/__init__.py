"""A schema check says whether a schema may follow others: Pulsar's compatibility strategies over Avro, JSON, Protobuf
and key/value schemas.

Pure: it reads no files, opens no connections and needs nothing else of this project.

    old = SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "Order", "fields": []}')
    new = SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}')
    result = check_compatibility(new, [old], CompatibilityStrategy.BACKWARD)
    result.is_compatible                    # False
    result.incompatibilities[0].rule        # READER_FIELD_MISSING_DEFAULT_VALUE
    result.incompatibilities[0].path        # /fields/0
"""

if __name__ == "schema_compat":
    from pulsar_on_kafka.base.folder_names import redirect

    redirect(__name__)

from pulsar_on_kafka.schema_compat.base.schema_model import (
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
from pulsar_on_kafka.schema_compat.compatibility import BUILT_IN, Checkers, check_compatibility, check_readable
from pulsar_on_kafka.schema_compat.identity import SAME_AFTER_PARSING, same_schema

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
