"""A field's default has to be a value of the field's type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from pulsar_on_kafka_schema_compat.avro.avro_parsing import brief
from pulsar_on_kafka_schema_compat.avro.avro_types import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroMap,
    AvroRecord,
    AvroType,
    Fixed,
    Union,
    described,
)

_INTEGERS: Final = {"int": 2**31, "long": 2**63}
_LAST_LATIN_1: Final = "\xff"
_ENTER: Final = object()
_LEAVE: Final = object()


class Defaults:
    """Checks defaults, each field's once.

    The default of a union is a value of its first branch. Fields that a record's default omits take their own defaults.
    Bytes are text of the characters up to U+00FF, for a fixed as many as its size. Source: Avro 1.11
    `ResolvingGrammarGenerator.encode`, which a Pulsar broker runs when it needs the default. Differs from Pulsar: it
    cuts fractions and too large integers, fills and cuts a fixed, and treats a value that is no container as an empty
    one.
    """

    def __init__(self) -> None:
        self._judged: dict[AvroField, str | None] = {}

    def misfit(self, field: AvroField) -> str | None:
        """Why the default of `field` is no value of its type; None when it is one."""
        if field not in self._judged:
            self._judged[field] = self._judge(field)
        return self._judged[field]

    def _judge(self, field: AvroField) -> str | None:
        needed: set[AvroField] = set()  # a default that is needed for itself has no end
        stack: list[tuple[Any, Any]] = [(_ENTER, field)]
        while stack:
            kind, value = stack.pop()
            if kind is _LEAVE:
                needed.discard(value)
                self._judged[value] = None
            elif kind is _ENTER:
                if value in needed:
                    return f"the default of the field {value.name} contains itself"
                if value not in self._judged:
                    needed.add(value)
                    stack += [(_LEAVE, value), (value.type, value.default)]
                elif reason := self._judged[value]:
                    return reason
            else:
                reason = _look(kind.branches[0] if isinstance(kind, Union) and kind.branches else kind, value, stack)
                if reason:
                    return reason
        return None


def _look(kind: AvroType, value: Any, stack: list[tuple[Any, Any]]) -> str | None:
    """The fault of `value` itself; its members go onto the stack."""
    if reason := _misfit_itself(kind, value):
        return reason
    match kind:
        case AvroArray():
            stack.extend((kind.items, item) for item in value)
        case AvroMap():
            stack.extend((kind.values, item) for item in value.values())
        case AvroRecord():
            for field in kind.fields.values():
                if field.name in value:
                    stack.append((field.type, value[field.name]))
                elif field.default is NO_DEFAULT:
                    return f"it lacks the field {field.name} of record {kind.name}, which has no default"
                else:
                    stack.append((_ENTER, field))
        case _:
            pass
    return None


def _misfit_itself(kind: AvroType, value: object) -> str | None:
    """The fault of `value`, without a look at its members."""
    match kind:
        case AvroArray():
            fits = isinstance(value, list)
        case AvroMap() | AvroRecord():
            fits = isinstance(value, dict)
        case Union():
            return "its type is a union without branches"
        case AvroEnum():
            fits = isinstance(value, str) and value in kind.symbols
        case Fixed():
            fits = isinstance(value, str) and len(value) == kind.size and _is_bytes(value)
        case _:
            fits = _is_primitive(kind.kind, value)
    if fits:
        return None
    return f"expected a value of {described(kind)}, got {brief(value) if value is not None else 'null'}"


def _is_primitive(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "bytes":
            return isinstance(value, str) and _is_bytes(value)
        case "int" | "long":
            limit = _INTEGERS[kind]
            return _is_number(value) and -limit <= value < limit and value == int(value)
        case _:
            return _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_bytes(value: str) -> bool:
    return not value or max(value) <= _LAST_LATIN_1
