"""Bounds of an Avro definition: the cost that payloads may have, and the refusal of those that would cost too much.

fastavro reads one value inside the other on the C stack, believes an array that says how many items it has, and turns
the bytes of a decimal into digits in a time that grows with their square. A definition that contains itself lets some
kilobytes end the process; one with items that take no bytes (null, or a record of nulls) lets four bytes fill the
memory. Payloads of such definitions are walked through first; those of all others cannot hold more values than twenty
times their bytes.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from pulsar_on_kafka.schema.avro_walk import DECIMALS, MAX_DECIMAL_BYTES, SIZES, Limits, is_decimal, walk

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
        """Where values begin that can come often, each with the bytes that it takes beside its own."""
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
        walk(data, self._root, self._named, Limits(MAX_DEPTH, MAX_EMPTY + _EMPTY_PER_BYTE * len(data)))

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
        """Of each record, itself included: values that take no bytes, bytes at least, levels of records alone."""
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
