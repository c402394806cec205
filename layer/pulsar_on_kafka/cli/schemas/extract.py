"""`pok schemas extract`: the definition that a client would register for a Python class. Needs no cluster."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsar_on_kafka.cli.schemas.offline import schema_type
from pulsar_on_kafka.cli.shared.output import CommandFailed, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType

if TYPE_CHECKING:
    from pulsar_on_kafka.schema import Schema


def extract(
    settings: Settings,
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:CLASS",
            help="A Record class, a class that protoc generated, or a schema object; modules of this directory, too.",
        ),
    ],
    kind: Annotated[
        SchemaType | None,
        typer.Option(
            "--type",
            parser=schema_type,
            metavar="TYPE",
            help="avro (default) or json for records; protobuf_native (default) or protobuf for messages.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With type, name and properties, as `pok schemas upload` takes it.")
    ] = False,
) -> None:
    """Print the definition of a Python class, to the byte what the client sends. The module is imported, so it runs."""
    info = _schema_of(what, kind)
    try:
        text = info.schema.decode()
    except UnicodeDecodeError:
        raise CommandFailed(f"{what}: the definition of a {info.type.name} schema is no text") from None
    if settings.json or as_json:
        properties = dict(info.properties)
        write_json({"type": info.type.name, "schema": text, "properties": properties, "name": info.name})
    else:
        write_line(text)


def _schema_of(what: str, kind: SchemaType | None) -> SchemaInfo:
    from pulsar_on_kafka.schema import Schema

    found = _found(what)
    if isinstance(found, Schema):
        return _own_info(what, found, kind)
    makers = _makers(found)
    if makers is None:
        raise CommandFailed(
            f"{what} is {_described(found)}; expected a Record class, a class that protoc generated, or a schema object"
        )
    wanted = kind or next(iter(makers))
    if wanted not in makers:
        raise CommandFailed(f"{what} can be of type {' or '.join(one.name for one in makers)}, not {wanted.name}")
    try:
        return makers[wanted](found).schema_info()
    except Exception as error:  # each codec has its own
        raise CommandFailed(f"{what} has no {wanted.name} definition: {type(error).__name__}: {error}") from error


def _own_info(what: str, schema: Schema, kind: SchemaType | None) -> SchemaInfo:
    from pulsar_on_kafka.schema import KeyValueSchema

    info = schema.schema_info()
    if kind is not None and kind is not info.type:
        raise CommandFailed(f"{what} is a schema of type {info.type.name}, not {kind.name}")
    if isinstance(schema, KeyValueSchema):
        raise CommandFailed(f"{what} is a KeyValueSchema: extract its key's and its value's classes each")
    return info


def _makers(found: object) -> Mapping[SchemaType, Callable[[Any], Schema]] | None:
    """Classes of the official client's Record are as good as ours; a message class is known by its descriptor."""
    from pulsar_on_kafka.schema import AvroSchema, JsonSchema, ProtobufNativeSchema, ProtobufSchema

    if not isinstance(found, type):
        return None
    if hasattr(found, "_fields") and callable(getattr(found, "schema", None)):
        return {SchemaType.AVRO: AvroSchema, SchemaType.JSON: JsonSchema}
    if hasattr(found, "DESCRIPTOR") and hasattr(found, "SerializeToString"):
        return {SchemaType.PROTOBUF_NATIVE: ProtobufNativeSchema, SchemaType.PROTOBUF: ProtobufSchema}
    return None


def _found(what: str) -> object:
    module_name, _, path = what.partition(":")
    if not module_name or not path:
        raise CommandFailed(f"{what!r:.100} is not of the form MODULE:CLASS, as orders.model:Order")
    found: object = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise CommandFailed(f"{what}: {_described(found)} has no attribute {name!r:.60}")
        found = getattr(found, name)
    return found


def _module(name: str) -> object:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:  # the module runs, so anything can come of it
        raise CommandFailed(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _described(found: object) -> str:
    kind = "class" if isinstance(found, type) else type(found).__name__
    return f"the {kind} {getattr(found, '__name__', repr(found)):.60}"
