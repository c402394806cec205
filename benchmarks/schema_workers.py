"""The measured programs of schemas: no server, the same classes and values made with each package."""

from __future__ import annotations

import importlib
import itertools
import json
import time
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility


class Carrier(Enum):
    UA = 1
    AA = 2


VALUES: Final = {
    "flight": 1545, "distance": 1_400_000, "departure_delay": 2.5, "air_time": 227.25, "cancelled": False,
    "tail_number": "N14228", "origin": "EWR", "destination": "IAH", "sealed": b"\x01\x02abcdef", "carrier": Carrier.UA,
}  # fmt: skip
_PROTOBUF: Final = {
    "flight": "INT32", "distance": "INT64", "departure_delay": "FLOAT", "air_time": "DOUBLE", "cancelled": "BOOL",
    "tail_number": "STRING", "origin": "STRING", "destination": "STRING", "sealed": "BYTES", "carrier": "ENUM",
}  # fmt: skip
_TEN: Final = 10


def codec(messages: int, package: str, kind: str) -> dict[str, Any]:
    """Encode and decode one record of ten fields again and again.

    `package`: `schema`, `pulsar.schema`, or `protobuf` for that package's own two calls. `kind`: Avro, Json or
    ProtobufNative.
    """
    encode, decode, value = _codec(package, kind)
    data = encode(value)
    if encode(decode(data)) != data:
        raise RuntimeError(f"{package} reads {data!r:.60} as another {kind} record")
    start_s = time.perf_counter()
    for _ in range(messages):
        decode(encode(value))
    both_s = time.perf_counter()
    for _ in range(messages):
        encode(value)
    encoded_s = time.perf_counter()
    for _ in range(messages):
        decode(data)
    decoded_s = time.perf_counter()
    return {
        "per_s": round(messages / (both_s - start_s)),
        "encode_us": round((encoded_s - both_s) / messages * 1e6, 2),
        "decode_us": round((decoded_s - encoded_s) / messages * 1e6, 2),
        "payload_bytes": len(data),
    }


def checks(messages: int, fields: int) -> dict[str, Any]:
    """FULL of an Avro record with one field more than the version before it, all fields but the first may be null.

    `per_s`: both definitions were seen before, as in a registry; `unseen_per_s`: the new one never was.
    """
    old, new = _definition(fields, 0), _definition(fields + 1, 0)
    _check(new, old)
    start_s = time.perf_counter()
    for _ in range(messages):
        _check(new, old)
    seen_s = time.perf_counter() - start_s
    unseen = [_definition(fields + 1, number) for number in range(1, max(2, messages // _TEN))]
    start_s = time.perf_counter()
    for each in unseen:
        _check(each, old)
    unseen_s = time.perf_counter() - start_s
    return {"per_s": round(messages / seen_s), "unseen_per_s": round(len(unseen) / unseen_s)}


def _check(new: SchemaInfo, old: SchemaInfo) -> None:
    result = check_compatibility(new, [old], CompatibilityStrategy.FULL)
    if not result.is_compatible:
        raise RuntimeError(str(result.incompatibilities[0]))


def _definition(fields: int, number: int) -> SchemaInfo:
    """A definition with that many fields; `number` makes it another text of the same schema."""
    kinds = itertools.cycle(("int", "long", "string", "double", "boolean"))
    declared = [{"name": "first", "type": "long"}] + [
        {"name": f"field{index}", "type": ["null", kind], "default": None}
        for index, kind in zip(range(1, fields), kinds, strict=False)
    ]
    record = {"type": "record", "name": "Wide", "doc": f"text {number}", "fields": declared}
    return SchemaInfo(SchemaType.AVRO, json.dumps(record).encode())


def _codec(package: str, kind: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any], Any]:
    if kind == "ProtobufNative":
        message_class = _message_class()
        value = message_class(**{**VALUES, "carrier": Carrier.UA.value})
        if package == "protobuf":
            return message_class.SerializeToString, message_class.FromString, value
        schema = importlib.import_module(package).ProtobufNativeSchema(message_class)
    else:
        module = importlib.import_module(package)
        record_class = _record_class(module)
        value = record_class(**VALUES)
        schema = getattr(module, f"{kind}Schema")(record_class)
    return schema.encode, schema.decode, value


def _record_class(module: ModuleType) -> Any:
    """Two of the fields are required; the rest are unions with null, as the official client has them."""

    class Flight(module.Record):  # type: ignore[name-defined]
        flight = module.Integer(required=True)
        distance = module.Long(required=True)
        departure_delay = module.Float()
        air_time = module.Double()
        cancelled = module.Boolean()
        tail_number = module.String()
        origin = module.String()
        destination = module.String()
        sealed = module.Bytes()
        carrier = module.CustomEnum(Carrier)

    return Flight


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", package="benchmarks", syntax="proto3")
    enum = file.enum_type.add(name="Carrier")
    for name, number in (("NONE", 0), *((member.name, member.value) for member in Carrier)):
        enum.value.add(name=name, number=number)
    message = file.message_type.add(name="Flight")
    for number, (name, kind) in enumerate(_PROTOBUF.items(), start=1):
        field = message.field.add(name=name, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        if kind == "ENUM":
            field.type_name = ".benchmarks.Carrier"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("benchmarks.Flight"))
