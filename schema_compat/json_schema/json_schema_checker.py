"""The checker of JSON Schema documents reads two and compares them."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_on_kafka.schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka.schema_compat.base.schema_model import Difference, SchemaInfo, UnreadableSchema
from pulsar_on_kafka.schema_compat.json_schema.document_model import Document
from pulsar_on_kafka.schema_compat.json_schema.document_reading import read_document
from pulsar_on_kafka.schema_compat.json_schema.evaluation import compare_same
from pulsar_on_kafka.schema_compat.json_schema.fixed_point import Pairs
from pulsar_on_kafka.schema_compat.json_schema.schema_pairs import compare_schemas


class JsonSchemaChecker:
    """The checker judges documents of any dialect, also against one another; `legacy`: definitions that Jackson
    made."""

    def __init__(self, *, legacy: bool = False) -> None:
        self._legacy = legacy

    def parse(self, schema: SchemaInfo) -> Document:
        try:
            return read_document(parse_json(schema.schema), legacy=self._legacy)
        except NotJson as error:
            raise UnreadableSchema(f"no JSON: {error}") from None

    def differences(self, reader: Document, writer: Document) -> Iterator[Difference]:
        return document_differences(reader, writer)


def document_differences(reader: Document, writer: Document) -> Iterator[Difference]:
    """Every reason why `reader` does not allow all that `writer` allows; paths are JSON pointers, `#` the root.

    Raises:
        UnreadableSchema: the two are too large to be compared.
    """
    if reader.digest == writer.digest:
        return iter(())
    return Pairs(compare_schemas, compare_same).differences(writer.root.schema, reader.root.schema)
