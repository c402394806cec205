"""Avro's rules say what may be a name, and which full name is meant."""

from __future__ import annotations

from pulsar_on_kafka.schema_compat.base.json_text import shown
from pulsar_on_kafka.schema_compat.base.schema_model import UnreadableSchema


def full_name(name: str, namespace: str) -> str:
    """The full name that `name` means inside `namespace` ("": none); a name with dots has its own namespace.

    Raises:
        UnreadableSchema: the last part is no name.
    """
    own, dot, simple = name.rpartition(".")
    check_name(simple)
    space = own if dot else namespace
    return f"{space}.{simple}" if space else simple


def namespace_of(name: str) -> str:
    """The namespace of a full name."""
    return name.rpartition(".")[0]


def check_name(name: object) -> str:
    """`name` if it may name a field, a symbol or, without its namespace, a type.

    Letters of any script, digits, `_`, and `$`, which Java's inner classes have; no digit in front. Namespaces are not
    looked at. Source: Avro 1.11 `Schema.validateName`, and `COMPATIBLE_NAME_VALIDATOR` of later brokers for the `$`.

    Raises:
        UnreadableSchema: it may not.
    """
    if not isinstance(name, str) or not name:
        raise UnreadableSchema(f"expected a name, got {shown(name, 40)}")
    if name.isascii() and name.isidentifier():
        return name
    if not (name[0].isalpha() or name[0] in "_$") or not all(
        letter.isalpha() or letter.isdecimal() or letter in "_$" for letter in name
    ):
        raise UnreadableSchema(f"{name!r:.60} is no name: expected letters, digits, _ and $, and no digit in front")
    return name
