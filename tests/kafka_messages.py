"""Kafka's own descriptions of its messages, from the jar of its clients: they write and read any message of any
version, generically. Tests of the wire client compare with them."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

_NUMBERS: Final = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "bool": ">?"}
_SIZES: Final = {"string": ">h", "bytes": ">i", "records": ">i"}


class KafkaMessages:
    """The descriptions in `jar`, Kafka's kafka-clients. A message is a dict by Kafka's names of its fields."""

    def __init__(self, jar: Path) -> None:
        self._jar = jar
        self.of = cache(self._description)

    def _description(self, name: str) -> Mapping[str, Any]:
        with zipfile.ZipFile(self._jar) as jar:
            text = jar.read(f"common/message/{name}.json").decode()
        described: Mapping[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        return described

    def is_flexible(self, name: str, version: int) -> bool:
        return _holds(self.of(name)["flexibleVersions"], version)

    def write(self, name: str, version: int, message: Mapping[str, Any]) -> bytes:
        layout = _Layout(version, self.is_flexible(name, version))
        return layout.write_fields(self.of(name)["fields"], message)

    def read(self, name: str, version: int, data: bytes) -> dict[str, Any]:
        stream, layout = BytesIO(data), _Layout(version, self.is_flexible(name, version))
        message = layout.read_fields(self.of(name)["fields"], stream)
        assert not stream.read(), f"{name} {version} has bytes behind its fields"
        return message

    def strategy(self, name: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
        """Any message of this kind."""
        return _Layout(version, True).any_fields(self.of(name)["fields"])


def leaves(value: object) -> list[object]:
    """The values of a message in their order, without its structure."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in leaves(each)]
    return [bytes(value)] if isinstance(value, memoryview) else [value]


def _holds(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    first, _, last = versions.partition("-")
    return int(first.rstrip("+")) <= version and (first.endswith("+") or version <= int(last or first))


class _Layout:
    def __init__(self, version: int, is_flexible: bool) -> None:
        self._version = version
        self._is_flexible = is_flexible

    def _fields(self, fields: list[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], dict[int, Mapping[str, Any]]]:
        """Those of this version: in a row, and by tag."""
        there = [each for each in fields if _holds(each["versions"], self._version)]
        tagged = {each["tag"]: each for each in there if _holds(each.get("taggedVersions", "none"), self._version)}
        return [each for each in there if each not in tagged.values()], tagged

    def _is_nullable(self, field: Mapping[str, Any]) -> bool:
        return _holds(field.get("nullableVersions", "none"), self._version)

    # Write ------------------------------------------------------------------------------------------------------------

    def write_fields(self, fields: list[Mapping[str, Any]], message: Mapping[str, Any]) -> bytes:
        plain, tagged = self._fields(fields)
        data = b"".join(self._write(field, field["type"], message[field["name"]]) for field in plain)
        if not self._is_flexible:
            return data
        given = {tag: field for tag, field in sorted(tagged.items()) if message.get(field["name"]) is not None}
        data += _varint(len(given))
        for tag, field in given.items():
            value = self._write(field, field["type"], message[field["name"]])
            data += _varint(tag) + _varint(len(value)) + value
        return data

    def _write(self, field: Mapping[str, Any], kind: str, value: Any) -> bytes:
        if kind in _NUMBERS:
            return struct.pack(_NUMBERS[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind.startswith("[]"):
            return self._size(">i", None if value is None else len(value)) + b"".join(
                self._write(field, kind[2:], each) for each in value or ()
            )
        if kind in _SIZES:
            data = value.encode() if isinstance(value, str) else value
            return self._size(_SIZES[kind], None if data is None else len(data)) + (data or b"")
        return self.write_fields(field["fields"], value)

    def _size(self, layout: str, size: int | None) -> bytes:
        if self._is_flexible:
            return _varint(0 if size is None else size + 1)
        return struct.pack(layout, -1 if size is None else size)

    # Read -------------------------------------------------------------------------------------------------------------

    def read_fields(self, fields: list[Mapping[str, Any]], stream: BytesIO) -> dict[str, Any]:
        plain, tagged = self._fields(fields)
        message = {field["name"]: self._read(field, field["type"], stream) for field in plain}
        for _ in range(_read_varint(stream) if self._is_flexible else 0):
            field, value = tagged[_read_varint(stream)], BytesIO(stream.read(_read_varint(stream)))
            message[field["name"]] = self._read(field, field["type"], value)
        return message

    def _read(self, field: Mapping[str, Any], kind: str, stream: BytesIO) -> Any:
        if kind in _NUMBERS:
            return struct.unpack(_NUMBERS[kind], stream.read(struct.calcsize(_NUMBERS[kind])))[0]
        if kind == "uuid":
            return stream.read(16)
        if kind.startswith("[]"):
            count = self._read_size(">i", stream)
            return None if count < 0 else [self._read(field, kind[2:], stream) for _ in range(count)]
        if kind in _SIZES:
            size = self._read_size(_SIZES[kind], stream)
            data = None if size < 0 else stream.read(size)
            return data.decode() if data is not None and kind == "string" else data
        return self.read_fields(field["fields"], stream)

    def _read_size(self, layout: str, stream: BytesIO) -> int:
        if self._is_flexible:
            return _read_varint(stream) - 1
        size: int = struct.unpack(layout, stream.read(struct.calcsize(layout)))[0]
        return size

    # Draw -------------------------------------------------------------------------------------------------------------

    def any_fields(self, fields: list[Mapping[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        plain, tagged = self._fields(fields)
        drawn = {field["name"]: self._any(field, field["type"]) for field in plain}
        drawn |= {field["name"]: st.none() | self._any(field, field["type"]) for field in tagged.values()}
        return st.tuples(*drawn.values()).map(lambda values: dict(zip(drawn, values, strict=True)))

    def _any(self, field: Mapping[str, Any], kind: str) -> st.SearchStrategy[Any]:
        if kind == "bool":
            return st.booleans()
        if kind in _NUMBERS:
            most = 256 ** struct.calcsize(_NUMBERS[kind]) // 2
            return st.integers(-most, most - 1)
        if kind == "uuid":
            return st.binary(min_size=16, max_size=16)
        if kind.startswith("[]"):
            found: st.SearchStrategy[Any] = st.lists(self._any(field, kind[2:]), max_size=3)
        elif kind == "string":
            found = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
        elif kind in _SIZES:
            found = st.binary(max_size=200)
        else:
            return self.any_fields(field["fields"])
        return st.none() | found if self._is_nullable(field) else found


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _read_varint(stream: BytesIO) -> int:
    number = shift = 0
    while True:
        byte = stream.read(1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7
