"""A JSON record is one object with a format number `v`, whose members are the fields of a flat dataclass.

    {"v":1,"tenant":"acme","cluster":"west","state":"ACTIVE","epoch":3,"target":""}

People read them with Kafka's own tools, hence JSON. An unknown field is ignored, a missing or mistyped one is corrupt.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any, Final, TypeVar, get_type_hints

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord

_BRIEF: Final = 60
_MORE: Final = 200

T = TypeVar("T")


def encode_record(record: Any, version: int) -> bytes:
    """`record` is a dataclass."""
    return orjson.dumps({"v": version, **asdict(record)}, option=orjson.OPT_SORT_KEYS)


def decode_record(value: bytes, kind: type[T], what: str, version: int) -> T:
    """`kind`'s fields are texts, whole numbers and enumerations of texts; `what` it is called in errors.

    Raises:
        CorruptRecord: no JSON, no object, another format number, or a field that is missing or of another type.
    """
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"{what} is no JSON: {value[:_BRIEF]!r} ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("v") != version:
        raise CorruptRecord(f"{what} is no object with v={version}: {value[:_BRIEF]!r}")
    types: dict[str, type[Any]] = get_type_hints(kind)
    fields: dict[str, Any] = {name: parsed[name] for name in types if name in parsed}
    try:
        for name in fields.keys() & {name for name, wanted in types.items() if issubclass(wanted, Enum)}:
            fields[name] = types[name](fields[name])
        record = kind(**fields)
    except (TypeError, ValueError) as error:
        raise CorruptRecord(f"{what} {value[:_MORE]!r} lacks or mistypes a field: {error}") from error
    for name, wanted in types.items():
        if type(getattr(record, name)) is not wanted:
            raise CorruptRecord(f"{what}'s {name} is {getattr(record, name)!r}, expected {wanted.__name__}")
    return record
