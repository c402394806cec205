"""Bounds of an Avro definition: the cost that payloads may have, and the refusal of too costly ones.

fastavro reads one value inside the other on the C stack, trusts the item count of an array, and turns the bytes of a
decimal into digits in a time that grows with their square. A definition that contains itself lets some kilobytes end
the process; one with items that take no bytes (null, or a record of nulls) lets four bytes fill the memory. Payloads of
such definitions are walked through first, value by value, without recursion and without keeping anything; those of all
others cannot hold more values than twenty times their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
MAX_DECIMAL_BYTES: Final = 1000
"""The limit of a decimal's bytes, 2,400 digits: the time to read one grows with the square of its length."""
DECIMALS: Final = f"at most {MAX_DECIMAL_BYTES:,}"


def walk(data: bytes, definition: object, named: Mapping[str, Any], depth: int, empty: int) -> None:
    """Goes to the end of the value. What comes behind it does not matter, as it does not to fastavro.

    Args:
        definition: as `fastavro.parse_schema` gives it; `named`: the types with names in it.
        depth: levels of values within each other. empty: values that take no bytes.
    Raises:
        ValueError: the place where the bytes are no value of the definition, or where they are more than these.
    """
    payload = _Payload(data, empty)
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
            if len(stack) >= depth:
                raise ValueError(f"there are more than {depth} levels of values")
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
        """The number of items that follow; their size, which a negative number announces, is skipped."""
        count = self.long("a number of items")
        if count < 0:
            self.long("the size of items")
        return abs(count)


MAX_DEPTH: Final = 1000
"""Levels of records, unions, arrays and maps; fastavro's stack has room for several times as many."""
MAX_EMPTY: Final = 100_000
"""Values of one payload that take no bytes, beside 16 for each byte of it."""
MAX_JSON_DEPTH: Final = 500
"""Arrays and objects of a definition within each other."""

_EMPTY_PER_BYTE: Final = 16


class PayloadBounds:
    """Checks payloads of one definition, as `fastavro.parse_schema` gives it.

    Raises:
        ValueError: a record contains itself outright, so that it has no values; or its decimals are too large.
    """

    def __init__(self, definition: Any) -> None:
        self._root = definition
        self._named: dict[str, Any] = {}
        self._pieces: list[tuple[Any, int]] = [(definition, 1)]
        """Repeatable values, each with the bytes that it takes beside its own."""
        self._uses: dict[str, dict[str, int]] = {"": {}}
        """The types with names that each one's definition holds, and how many levels below it."""
        self._levels: dict[str, int] = {"": 0}
        self._has_decimals = False
        self._collect(definition)
        self._sizes = self._record_sizes()
        self._may_be_deep = self._deepest() > MAX_DEPTH
        self._levels_per_byte = 1 + max((levels for _, _, levels in self._sizes.values()), default=0)
        self._may_be_empty = any(map(self._is_airy, self._pieces))

    def check(self, data: bytes) -> None:
        """Raises ValueError for a payload deeper than `MAX_DEPTH`, with more than `MAX_EMPTY` or a long decimal."""
        if (
            self._may_be_empty
            or (self._may_be_deep and len(data) * self._levels_per_byte > MAX_DEPTH)
            or (self._has_decimals and len(data) > MAX_DECIMAL_BYTES)
        ):
            self.walk(data)

    def walk(self, data: bytes) -> None:
        """Moves over the whole payload. Raises ValueError: the place where it is no value of the definition."""
        walk(data, self._root, self._named, MAX_DEPTH, MAX_EMPTY + _EMPTY_PER_BYTE * len(data))

    def check_value(self, value: object) -> None:
        """Raises ValueError for dicts and lists that are deeper than `MAX_DEPTH`, or contain themselves."""
        if self._may_be_deep and _is_deeper(value, MAX_DEPTH):
            raise ValueError(f"a value for an Avro definition has more than {MAX_DEPTH} levels, or contains itself")

    def _collect(self, root: object) -> None:
        left: list[tuple[Any, str, int]] = [(root, "", 1)]
        while left:
            definition, owner, level = left.pop()
            self._note_decimal(definition)
            self._levels[owner] = max(self._levels[owner], level)
            if isinstance(definition, str) or "name" in definition:
                name = definition if isinstance(definition, str) else definition["name"]
                self._uses[owner][name] = max(level, self._uses[owner].get(name, 0))
                if isinstance(definition, dict):
                    self._named[name], self._uses[name], self._levels[name] = definition, {}, 0
                    left.extend((field["type"], name, 1) for field in definition.get("fields", ()))
                continue
            pieces = _pieces(definition)
            self._pieces += pieces
            left.extend((part, owner, level + 1) for part, _ in pieces)

    def _note_decimal(self, definition: object) -> None:
        if isinstance(definition, dict) and is_decimal(definition):
            self._has_decimals = True
            size = definition.get("size", 0)
            if isinstance(size, int) and size > MAX_DECIMAL_BYTES:
                raise ValueError(f"the Avro type {definition['name']}, a decimal, has {size} bytes of {DECIMALS}")

    def _deepest(self) -> float:
        """Levels of the deepest value, without end for a definition that contains itself."""
        try:
            order = list(TopologicalSorter(self._uses).static_order())
        except CycleError:
            return float("inf")
        levels: dict[str, int] = {}
        for name in order:
            below = (level + levels[used] for used, level in self._uses.get(name, {}).items())
            levels[name] = max(self._levels.get(name, 0), *below, 0)
        return levels[""]

    def _record_sizes(self) -> dict[str, tuple[int, int, int]]:
        """Sizes of each record, itself included: values without bytes, minimal bytes, levels of records alone."""
        kinds = {
            name: [field["type"] for field in definition["fields"]]
            for name, definition in self._named.items()
            if "fields" in definition
        }
        inside = {name: [_name(kind) for kind in fields if _name(kind) in kinds] for name, fields in kinds.items()}
        sizes: dict[str, tuple[int, int, int]] = {}
        try:
            for name in TopologicalSorter(inside).static_order():
                parts = [self._size(kind, sizes) for kind in kinds[name]]
                empty, least, levels = zip(*parts, strict=True) if parts else ((), (), ())
                sizes[name] = (1 + sum(empty), sum(least), 1 + max(levels, default=0))
        except CycleError as cycle:
            raise ValueError(f"the Avro record {cycle.args[1][0]} contains itself, so it has no values") from None
        return sizes

    def _size(self, definition: Any, sizes: dict[str, tuple[int, int, int]]) -> tuple[int, int, int]:
        name = _name(definition)
        if name in sizes:
            return sizes[name]
        if name in self._named:
            definition = self._named[name]
        kind = definition["type"] if isinstance(definition, dict) else definition
        if kind != "fixed":
            least = 1 if isinstance(kind, list) else SIZES.get(kind, 1)
        elif not isinstance(least := definition["size"], int) or least < 0:
            raise ValueError(f"the Avro type {name} needs a size from 0 on, got {least!r:.60}")
        return (0 if least else 1), least, 0

    def _is_airy(self, piece: tuple[Any, int]) -> bool:
        empty, least, _ = self._size(piece[0], self._sizes)
        least += piece[1]
        return not least or empty > 16 + 4 * least


def check_definition(definition: object) -> None:
    """Raises ValueError for one that has more than `MAX_JSON_DEPTH` levels: fastavro reads it on the C stack, too."""
    if _is_deeper(definition, MAX_JSON_DEPTH):
        raise ValueError(f"an Avro definition has more than {MAX_JSON_DEPTH} levels of JSON")


def _is_deeper(value: Any, levels: int) -> bool:
    """True also for a value that contains itself."""
    level = [value]
    for _ in range(levels):
        items = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        inside = {id(item): item for item in items if isinstance(item, dict | list | tuple)}
        if not inside:
            return False
        level = list(inside.values())
    return True


def _pieces(definition: Any) -> list[tuple[Any, int]]:
    """A branch has its number, a map's value its key; an array's item has nothing beside it."""
    if isinstance(definition, list):
        return [(branch, 1) for branch in definition]
    return [(definition[part], beside) for part, beside in (("items", 0), ("values", 1)) if part in definition]


def _name(definition: object) -> Any:
    """The name of a named type or of a primitive; None for a union, array or map."""
    if isinstance(definition, dict):
        return definition.get("name")
    return definition if isinstance(definition, str) else None
