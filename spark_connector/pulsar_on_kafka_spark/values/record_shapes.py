"""Shapes of Avro and JSON definitions that have no columns in Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PARTS = ("items", "values")


def check_not_recursive(definition: Any) -> None:
    """Raises ValueError where a record contains itself: Spark has no recursive types."""
    for path, _, within in _records(definition, "", "", {}):
        if within is not None:
            name, outer = within
            raise ValueError(
                f"field {path} is of the record {name}, which is {outer or 'the value itself'}: Spark has no type for "
                "records that contain themselves"
            )


def check_names_differ(definition: Any) -> None:
    """Raises ValueError where names of a record's fields differ in upper and lower case alone, which are one column to
    Spark unless `spark.sql.caseSensitive` is true."""
    for path, record, _ in _records(definition, "", "", {}):
        seen: dict[str, str] = {}
        for field in () if record is None else record["fields"]:
            name = str(field["name"])
            other = seen.setdefault(name.lower(), name)
            if other != name:
                where = f"of field {path}" if path else "of the value"
                raise ValueError(
                    f"the fields {other} and {name} {where} differ in case alone: set spark.sql.caseSensitive to true"
                )


def _records(
    definition: Any, path: str, namespace: str, open_records: Mapping[str, str]
) -> Iterator[tuple[str, Any, tuple[str, str] | None]]:
    """The path and definition of each record; of a reference to a record that contains it, the name and path of that
    record instead of the definition."""
    if isinstance(definition, str):
        name = _full_name(definition, namespace)
        if name in open_records:
            yield path, None, (definition, open_records[name])
    elif isinstance(definition, list):
        for branch in definition:
            yield from _records(branch, path, namespace, open_records)
    elif isinstance(definition, dict) and definition.get("type") == "record":
        name = _full_name(str(definition.get("name")), str(definition.get("namespace") or namespace))
        yield path, definition, None
        for field in definition["fields"]:
            inner = f"{path}.{field['name']}" if path else str(field["name"])
            yield from _records(field["type"], inner, name.rpartition(".")[0], {**open_records, name: path})
    elif isinstance(definition, dict):
        for part in _PARTS:
            yield from _records(definition.get(part), path, namespace, open_records)
        if isinstance(definition.get("type"), dict | list):
            yield from _records(definition["type"], path, namespace, open_records)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
