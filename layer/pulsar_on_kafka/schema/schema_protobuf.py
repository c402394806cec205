"""The official module `pulsar.schema.schema_protobuf` by its name."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.protobuf import ProtobufNativeSchema

HAS_PROTOBUF: Final = find_spec("google") is not None and find_spec("google.protobuf") is not None
"""False where the package is not installed: then no schema can be made."""

__all__ = ["HAS_PROTOBUF", "ProtobufNativeSchema", "Schema"]
