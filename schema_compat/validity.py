"""Can a schema be read at all? The first schema of a topic follows nothing, and must be one nevertheless."""

from __future__ import annotations

from schema_compat.avro import AVRO_CHECKER
from schema_compat.json_forms import check_readable_json
from schema_compat.key_value import split
from schema_compat.model import SchemaInfo, SchemaType, UnreadableSchema
from schema_compat.protobuf.checker import protobuf_native_checker


def check_readable(schema: SchemaInfo) -> None:
    """Types without a structure are never looked into.

    Raises:
        UnreadableSchema: the definition is none of its type; the message says what was expected.
    """
    match schema.type:
        case SchemaType.AVRO | SchemaType.PROTOBUF:
            AVRO_CHECKER.parse(schema)
        case SchemaType.JSON:
            check_readable_json(schema)
        case SchemaType.PROTOBUF_NATIVE:
            protobuf_native_checker(schema).parse(schema)
        case SchemaType.KEY_VALUE:
            for part, its_schema in split(schema).items():
                try:
                    check_readable(its_schema)
                except UnreadableSchema as error:
                    raise UnreadableSchema(f"its {part}: {error}") from None
        case SchemaType.AUTO_CONSUME | SchemaType.AUTO_PUBLISH:
            raise UnreadableSchema(f"{schema.type.name} is a mode of clients; only schemas of other types are stored")
        case _:
            return
