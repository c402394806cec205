"""A tagged record is a JSON object in which one member, the tag, says of which kind it is: a frozen dataclass each.

{"v":1,"op":"NEW","start_ms":1700000000000, ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.ids.txn_id import TxnId

_LONG_MAX: Final = 2**63 - 1
_BRIEF: Final = 200

T = TypeVar("T")
Reader = Callable[[object, str], Any]
"""(what was found, its name for an error) to a field's value. Raises CorruptRecord, naming what was expected."""


class TaggedRecords(Generic[T]):
    """The codec knows `kinds` by the words of the tag, and `readers` by the names of all their fields."""

    def __init__(
        self,
        what: str,
        tag: str,
        kinds: Mapping[str, type[T]],
        readers: Mapping[str, Reader],
        *,
        version: int,
        limit_bytes: int,
    ) -> None:
        self._what = what
        self._tag = tag
        self._kinds = kinds
        self._words = {kind: word for word, kind in kinds.items()}
        self._fields: dict[type[T], tuple[str, ...]] = {
            kind: tuple(kind.__dataclass_fields__)  # type: ignore[attr-defined]
            for kind in self._words
        }
        self._readers = readers
        self._version = version
        self._limit_bytes = limit_bytes

    def encode(self, value: T, **more: object) -> bytes:
        """With `more` members before its fields.

        Raises:
            MappingError: above the limit, or text that is no Unicode.
        """
        kind = type(value)
        fields = {name: getattr(value, name) for name in self._fields[kind]}
        head = {"v": self._version, **more, self._tag: self._words[kind]}
        try:
            data = orjson.dumps({**head, **fields}, default=_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS)
        except TypeError as error:
            raise MappingError(f"{self._what} {value!r:.200} cannot be written: {error}") from error
        if len(data) > self._limit_bytes:
            raise MappingError(
                f"{self._what} {self._words[kind]} takes {len(data)} bytes, at most {self._limit_bytes} can be kept"
            )
        return data

    def decode(self, data: bytes) -> tuple[T, Mapping[str, Any]]:
        """The value, and all members. Raises CorruptRecord, naming what was expected; unknown members are ignored."""
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise CorruptRecord(f"{self._what} {data[:_BRIEF]!r} is no JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise CorruptRecord(f"{self._what} {data[:_BRIEF]!r} is no JSON object")
        word = parsed.get(self._tag)
        kind = self._kinds.get(word) if isinstance(word, str) else None
        if parsed.get("v") != self._version or kind is None:
            raise CorruptRecord(
                f"{self._what} {data[:_BRIEF]!r} has v={parsed.get('v')!r:.20} and {self._tag}={word!r:.40}, "
                f"expected v={self._version} and one of {', '.join(self._kinds)}"
            )
        return kind(*(self._readers[name](parsed.get(name), f"{word}'s {name}") for name in self._fields[kind])), parsed


def _plain(value: object) -> object:
    if isinstance(value, TxnId):
        return value.to_bytes().decode()
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} {value!r:.60}")


# Readers --------------------------------------------------------------------------------------------------------------


def read_number(found: object, what: str) -> int:
    if type(found) is not int or not 0 <= found <= _LONG_MAX:
        raise CorruptRecord(f"{what} is {found!r:.60}, expected a whole number of 0 to 2^63 - 1")
    return found


def read_text(found: object, what: str) -> str:
    if not isinstance(found, str):
        raise CorruptRecord(f"{what} is {found!r:.60}, expected text")
    return found


def read_bool(found: object, what: str) -> bool:
    if not isinstance(found, bool):
        raise CorruptRecord(f"{what} is {found!r:.60}, expected true or false")
    return found


def read_txn(found: object, what: str) -> TxnId:
    try:
        return TxnId.from_bytes(found.encode() if isinstance(found, str) else b"")
    except (MappingError, UnicodeEncodeError) as error:
        raise CorruptRecord(f"{what} is {found!r:.60}, expected a transaction id in text") from error


def read_list(found: object, what: str, shape: str, length: int) -> list[list[object]]:
    """Of lists of that length; `shape` says what they hold."""
    if not isinstance(found, list) or not all(isinstance(item, list) and len(item) == length for item in found):
        raise CorruptRecord(f"{what} is {found!r:.60}, expected a list of {shape}")
    return found
