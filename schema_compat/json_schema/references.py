"""A `$ref` leads to a schema of the same document, by identifier, anchor or JSON pointer."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote, urljoin

from pulsar_on_kafka.schema_compat.base.json_text import shown
from pulsar_on_kafka.schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka.schema_compat.json_schema.dialect import Dialect

_NO_SCHEMAS_WITHIN: Final = frozenset({"enum", "const", "default", "examples"})


class References:
    """The references know the identifiers of a document and what they name."""

    def __init__(self, document: object, dialect: Dialect) -> None:
        self._dialect = dialect
        self._resources: dict[str, Any] = {"": document}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[str, int] = {}
        self._bases: dict[int, str] = {}
        pending: list[tuple[Any, str]] = [(document, "")]
        while pending:
            current, base = pending.pop()
            if isinstance(current, dict):
                base = self._enter(current, base)
                self._bases[id(current)] = base
                pending += [(member, base) for name, member in current.items() if name not in _NO_SCHEMAS_WITHIN]
            elif isinstance(current, list):
                pending += [(member, base) for member in current]

    def _enter(self, schema: dict[str, Any], base: str) -> str:
        """Note the names of `schema`; the base for what is within it."""
        name = schema.get(self._dialect.id_keyword)
        if isinstance(name, str) and ("$ref" not in schema or self._dialect.draft > 7 or self._dialect.draft == 3):
            address, _, fragment = _join(base, name).partition("#")
            if fragment and self._dialect.draft <= 7:
                self._anchors[address, fragment] = schema
            if address != base:
                self._resources.setdefault(address, schema)
                base = address
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._anchors[base, anchor] = schema
                if keyword == "$dynamicAnchor":
                    self._dynamic[anchor] = self._dynamic.get(anchor, 0) + 1
        if schema.get("$recursiveAnchor") is True:
            self._dynamic["#"] = self._dynamic.get("#", 0) + 1
        return base

    def target(self, schema: dict[str, Any], keyword: str, pointer: str) -> Any:
        """What the reference in `schema` under `keyword` leads to: an object, a boolean or what is no schema.

        Raises:
            UnreadableSchema: nothing in this document; or it depends on the way by which the schema was entered.
        """
        reference = schema[keyword]
        if not isinstance(reference, str):
            raise UnreadableSchema(f"{pointer}/{keyword} must be a string, got {shown(reference)}")
        address, _, fragment = _join(self._bases[id(schema)], reference).partition("#")
        dynamic = {"$dynamicRef": fragment, "$recursiveRef": "#"}.get(keyword)
        if dynamic is not None and self._dynamic.get(dynamic, 0) > 1:
            raise UnreadableSchema(
                f"{pointer}/{keyword} {reference!r:.60} has several targets, by the way to it, which is not compared"
            )
        if address in self._resources:
            found = self._within(self._resources[address], address, unquote(fragment))
            if found is not _NOTHING:
                return found
        raise UnreadableSchema(f"{pointer}/{keyword} leads to {reference!r:.200}, which the document does not contain")

    def _within(self, resource: object, address: str, fragment: str) -> Any:
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            return self._anchors.get((address, fragment), _NOTHING)
        for step in fragment[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(resource, dict) and name in resource:
                resource = resource[name]
            elif isinstance(resource, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(resource):
                resource = resource[int(name[:9])]
            else:
                return _NOTHING
        return resource


_NOTHING: Final = object()


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference
