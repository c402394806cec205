"""Moves over an Avro payload by its definition, value by value, without recursion and without keeping anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
MAX_DECIMAL_BYTES: Final = 1000
"""Of a decimal, which has 2,400 digits then: the time to read one grows with the square of its length."""
DECIMALS: Final = f"at most {MAX_DECIMAL_BYTES:,}"


@dataclass(frozen=True, slots=True)
class Limits:
    """`depth`: levels of values within each other. `empty`: values that take no bytes."""

    depth: int
    empty: int


def walk(data: bytes, definition: object, named: Mapping[str, Any], limits: Limits) -> None:
    """Goes to the end of the value. What comes behind it does not matter, as it does not to fastavro.

    Args:
        definition: as `fastavro.parse_schema` gives it; `named`: the types with names in it.
    Raises:
        ValueError: the place where the bytes are no value of the definition, or where they are more than `limits`.
    """
    payload = _Payload(data, limits.empty)
    places: list[str] = [_shown(definition)]
    stack = [_children(definition, named, payload)]
    try:
        while stack:
            child = next(stack[-1], None)
            if child is None:
                stack.pop()
                places.pop()
                continue
            place, inner = child
            places.append(place)
            if len(stack) >= limits.depth:
                raise ValueError(f"there are more than {limits.depth} levels of values")
            stack.append(_children(inner, named, payload))
    except ValueError as error:
        raise ValueError(f"an Avro payload of {len(data)} bytes, at {_joined(places)}: {error}") from None


def _children(definition: Any, named: Mapping[str, Any], payload: _Payload) -> Iterator[tuple[str, Any]]:
    """The definitions of the values inside the next one, each behind its place, while `payload` moves over it."""
    if isinstance(definition, list):
        branch = definition[payload.index(len(definition), "branch of a union")]
        yield "", branch
        return
    if isinstance(definition, str) and definition in named:
        definition = named[definition]
    kind = definition["type"] if isinstance(definition, dict) else definition
    if kind in ("record", "error"):
        payload.empty(1)
        for field in definition["fields"]:
            yield f".{field['name']}", field["type"]
    elif kind == "array":
        yield from _blocks(definition["items"], named, payload)
    elif kind == "map":
        yield from _entries(definition["values"], payload)
    else:
        _pass_leaf(definition, kind, payload)


def _pass_leaf(definition: Any, kind: str, payload: _Payload) -> None:
    """Moves `payload` over a value that holds no others."""
    if kind == "enum":
        payload.index(len(definition["symbols"]), "symbol of an enum")
    elif kind in ("int", "long"):
        payload.long(kind)
    elif kind == "string":
        payload.text()
    elif kind == "bytes":
        size = payload.long("the length of bytes")
        if size > MAX_DECIMAL_BYTES and is_decimal(definition):
            raise ValueError(f"a decimal of {size:,} bytes; expected {DECIMALS}")
        payload.skip(size, kind)
    elif (size := SIZES[kind] if kind in SIZES else definition["size"]) > 0:
        payload.skip(size, kind)
    else:
        payload.empty(1)


def _blocks(items: object, named: Mapping[str, Any], payload: _Payload) -> Iterator[tuple[str, Any]]:
    at = 0
    while (count := payload.block()) > 0:
        if _is_null(items):
            payload.empty(count)
            continue
        for index in range(at, at + count):
            yield f"[{index}]", items
        at += count


def _entries(values: object, payload: _Payload) -> Iterator[tuple[str, Any]]:
    while (count := payload.block()) > 0:
        for _ in range(count):
            payload.text()
            yield "[]", values


def is_decimal(definition: object) -> bool:
    """True for bytes or a fixed type that stand for a decimal number."""
    return isinstance(definition, dict) and definition.get("logicalType") == "decimal"


def _is_null(definition: object) -> bool:
    return definition == "null" or (isinstance(definition, dict) and definition["type"] == "null")


def _shown(definition: object) -> str:
    if isinstance(definition, dict):
        return str(definition.get("name") or definition["type"])
    return "a union" if isinstance(definition, list) else str(definition)


def _joined(places: list[str]) -> str:
    text = "".join(places)
    return text if len(text) <= 100 else f"{text[:50]} ... {text[-50:]}"


class _Payload:
    """Moves over Avro's binary form. Raises ValueError, with what was expected where it ends early."""

    def __init__(self, data: bytes, empty: int) -> None:
        self._data, self._at, self._empty, self._most = data, 0, 0, empty

    def empty(self, count: int) -> None:
        self._empty += count
        if self._empty > self._most:
            raise ValueError(f"more than {self._most:,} values would take no bytes (this one stands for {count:,})")

    def skip(self, size: int, expected: str) -> None:
        if size < 0:
            raise ValueError(f"a length below 0: {size} of {expected} before byte {self._at}")
        if self._at + size > len(self._data):
            left = len(self._data) - self._at
            raise ValueError(f"expected {expected} of {size:,} bytes at byte {self._at}, where {left:,} are left")
        self._at += size

    def text(self) -> None:
        size = self.long("the length of a text")
        start = self._at
        self.skip(size, "a text")
        try:
            self._data[start : self._at].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"a text of {size} bytes at byte {start} is no UTF-8: {error.reason}") from None

    def long(self, expected: str) -> int:
        value = shift = 0
        while True:
            start = self._at
            self.skip(1, expected)
            value |= (self._data[start] & 0x7F) << shift
            shift += 7
            if self._data[start] < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise ValueError(f"a number of more than 64 bits for {expected} before byte {self._at}")

    def index(self, choices: int, expected: str) -> int:
        found = self.long(expected)
        if not 0 <= found < choices:
            raise ValueError(f"expected a {expected} from 0 to {choices - 1} before byte {self._at}, found {found}")
        return found

    def block(self) -> int:
        """How many items come next; their size, which a negative number announces, is passed over."""
        count = self.long("a number of items")
        if count < 0:
            self.long("the size of items")
        return abs(count)
