"""Issue D, "Bad input": whatever it is given, the registry says clearly what is wrong, soon, and registers nothing.

All of it happens in a process of its own whose memory and processor time the kernel limits.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.state.metadata.schema_records import MAX_DEFINITION_BYTES
from tests.memory_log import MemoryStateLog
from tests.registries import TOPIC, avro, process, soon

AVRO, JSON, NATIVE = SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE
MEMORY_BYTES = 1536 * 1024 * 1024
SECONDS_EACH = 60
"""Of processor time; an operation's own limit is 30 s."""


def native(descriptors: bytes, root: str = "M") -> SchemaInfo:
    definition = {
        "fileDescriptorSet": base64.b64encode(descriptors).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": "m.proto",
    }
    return SchemaInfo(NATIVE, json.dumps(definition).encode())


def descriptors() -> bytes:
    """`message M { int64 id = 1; }` in m.proto, as protoc would write it."""
    field = b"\x0a\x02id\x18\x01\x20\x01\x28\x03"
    message = b"\x0a\x01M\x12" + bytes([len(field)]) + field
    file = b"\x0a\x07m.proto\x22" + bytes([len(message)]) + message
    return b"\x0a" + bytes([len(file)]) + file


def nested(kind: SchemaType, opening: bytes, inner: bytes, closing: bytes, levels: int) -> SchemaInfo:
    return SchemaInfo(kind, opening * levels + inner + closing * levels)


def json_schema(text: str) -> SchemaInfo:
    return SchemaInfo(JSON, text.encode())


def of_the_largest_size(text: bytes, end: bytes = b"") -> bytes:
    return text * ((MAX_DEFINITION_BYTES - len(end)) // len(text)) + end


BAD: Mapping[str, Callable[[], SchemaInfo]] = {
    "not JSON": lambda: SchemaInfo(AVRO, b"record Order { }"),
    "JSON that ends too early": lambda: SchemaInfo(AVRO, avro("a").schema[:-2]),
    "no UTF-8": lambda: SchemaInfo(AVRO, b'"\xff\xfe"'),
    "nothing": lambda: SchemaInfo(AVRO, b""),
    "a number of many digits": lambda: SchemaInfo(AVRO, b"9" * 1_000_000),
    "not Avro": lambda: SchemaInfo(AVRO, b'{"type": "recrod", "name": "R", "fields": []}'),
    "a record without fields": lambda: SchemaInfo(AVRO, b'{"type": "record", "name": "R"}'),
    "a name that is not defined": lambda: SchemaInfo(AVRO, b'{"type": "array", "items": "Nobody"}'),
    "one name twice": lambda: SchemaInfo(AVRO, b"[" + b",".join([b'{"type":"fixed","name":"F","size":1}'] * 2) + b"]"),
    "JSON, but neither form": lambda: SchemaInfo(JSON, b"17"),
    "descriptors that are cut short": lambda: native(descriptors()[:-3]),
    "descriptors of nothing": lambda: native(b""),
    "descriptors that are no base64": lambda: SchemaInfo(
        NATIVE, b'{"fileDescriptorSet": "?", "rootMessageTypeName": "M", "rootFileDescriptorName": "m.proto"}'
    ),
    "a root that is not there": lambda: native(descriptors(), "N"),
    "random bytes for descriptors": lambda: native(bytes(range(256)) * 100),
    "10,000 levels of Avro without an end": lambda: nested(AVRO, b'{"type":"array","items":', b'"int', b"}", 10_000),
    "10,000 levels of something else": lambda: nested(AVRO, b'{"x":', b"1", b"}", 10_000),
    "10,000 levels of brackets": lambda: nested(JSON, b"[", b"", b"]", 10_000),
    "10,000 levels that end in no type": lambda: nested(AVRO, b'{"type":"array","items":', b'"it"', b"}", 10_000),
    "brackets of the largest size": lambda: SchemaInfo(AVRO, of_the_largest_size(b"[")),
    "braces of the largest size": lambda: SchemaInfo(JSON, of_the_largest_size(b'{"a":')),
    "a text of the largest size": lambda: SchemaInfo(AVRO, b'"' + of_the_largest_size(b"x", b'""')[:-1]),
    "bytes of the largest size": lambda: SchemaInfo(NATIVE, of_the_largest_size(b"\xff")),
    "above the largest size": lambda: SchemaInfo(AVRO, avro("a").schema + b" " * MAX_DEFINITION_BYTES),
    "a $ref to itself": lambda: json_schema('{"$ref": "#"}'),
    "a circle of $ref": lambda: json_schema('{"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}'),
    "a $ref to nowhere": lambda: json_schema('{"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}'),
    "key and value that end too early": lambda: SchemaInfo(SchemaType.KEY_VALUE, b"\0\0\0\x09abc"),
    "a key of a type that there is not": lambda: SchemaInfo(
        SchemaType.KEY_VALUE, b"\0\0\0\0\0\0\0\0", properties={"key.schema.type": "HOLOGRAM"}
    ),
    "a mode of clients": lambda: SchemaInfo(SchemaType.AUTO_CONSUME, b""),
    "properties beyond the record": lambda: SchemaInfo(AVRO, avro("b").schema, properties={"p": "x" * 6_000_000}),
}
GOOD: Mapping[SchemaType, SchemaInfo] = {
    AVRO: avro("a"),
    JSON: avro("a", kind=JSON),
    NATIVE: native(descriptors()),
    SchemaType.KEY_VALUE: SchemaInfo(SchemaType.KEY_VALUE, b"\0\0\0\0\0\0\0\0"),
}


def refusal(call: Callable[[], object]) -> str:
    """What is said, which is one clear error of the two that there are."""
    begun_s = time.process_time()
    try:
        given = call()
    except (errors.IncompatibleSchema, errors.InvalidOption) as refused:
        took_s = time.process_time() - begun_s
        assert took_s < SECONDS_EACH, f"refused after {took_s:.1f} s of processor time"
        return str(refused)
    raise AssertionError(f"taken: {given}")


def check(what: str, strategies: Sequence[str]) -> str:
    """The refusal of a bad schema: as the first one of a topic, as the next one under each of the strategies, and from
    an administrator."""
    bad = BAD[what]()
    said = refusal(lambda: process(MemoryStateLog()).for_producer(TOPIC, bad, soon()))
    existing = GOOD.get(bad.type, avro("a"))
    for strategy in strategies:
        log = MemoryStateLog()
        registry = process(log, SchemaPolicies(strategy=CompatibilityStrategy[strategy]))
        assert registry.for_producer(TOPIC, existing, soon()) == SchemaVersion(0)
        refusal(lambda: registry.for_producer(TOPIC, bad, soon()))  # noqa: B023
        refusal(lambda: registry.upload(TOPIC, bad, soon()))  # noqa: B023
        assert [entry.version.number for entry in registry.index(TOPIC, soon())] == [0]
        assert log.end_offset(*_place(), soon()) == 1, "something was written"
    assert len(said) < 2000, f"an error of {len(said)} characters"
    assert "orders" in said
    return said


def _place() -> tuple[Any, int]:
    from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS

    return SCHEMAS, SCHEMAS.partition_for(str(TOPIC))


def main() -> None:
    for what in BAD:
        print(json.dumps([what, check(what, sys.argv[1:])]), flush=True)


def limited() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _answers(strategies: Sequence[str]) -> Iterator[tuple[str, str]]:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.broker.schema_registry.test_bad_schemas", *strategies],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line in done.stdout.splitlines():
        what, said = json.loads(line)
        yield what, said


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of processes")
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategies", [["FULL"], ["FULL_TRANSITIVE", "ALWAYS_COMPATIBLE"]], ids=str)
def test_bad_schemas_are_refused_in_bounded_time_and_memory(strategies: list[str]) -> None:
    assert list(dict(_answers(strategies))) == list(BAD)


# What the type of the topic forbids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JSON, NATIVE, SchemaType.KEY_VALUE, SchemaType.STRING, SchemaType.INT64])
def test_a_schema_of_another_type_than_the_topics(kind: SchemaType) -> None:
    registry = process(MemoryStateLog())
    registry.for_producer(TOPIC, avro("a"), soon())
    other = GOOD.get(kind, SchemaInfo(kind, b""))
    for call in (
        lambda: registry.for_producer(TOPIC, other, soon()),
        lambda: registry.upload(TOPIC, other, soon()),
        lambda: registry.for_consumer(TOPIC, other, soon(), in_use=lambda: True),
    ):
        assert f"it has type AVRO, the new schema {kind.name}" in refusal(call)
    assert len(registry.index(TOPIC, soon())) == 1


def test_an_error_of_many_reasons_stays_readable() -> None:
    registry = process(MemoryStateLog())
    registry.for_producer(TOPIC, avro("a"), soon())
    many = avro(*(f"field_{number}" for number in range(5000)), defaults=False)
    with pytest.raises(errors.IncompatibleSchema) as refused:
        registry.for_producer(TOPIC, many, soon())
    assert len(refused.value.reasons) == 5000
    assert "; and 4,900 more" in str(refused.value)
    assert len(str(refused.value)) < 50_000


def test_10_000_levels_are_a_schema_like_any_other() -> None:
    deep = nested(AVRO, b'{"type":"array","items":', b'"int"', b"}", 10_000)
    other = nested(AVRO, b'{"type":"array","items":', b'"string"', b"}", 10_000)
    registry = process(MemoryStateLog())
    assert registry.for_producer(TOPIC, deep, soon()) == SchemaVersion(0)
    assert registry.for_producer(TOPIC, deep, soon()) == SchemaVersion(0)
    assert "version 0" in refusal(lambda: registry.for_producer(TOPIC, other, soon()))


if __name__ == "__main__":
    main()
