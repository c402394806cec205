"""The interfaces that a Pulsar Function is written against. Source: `pulsar.functions`.

What runs functions (Pulsar's function workers) is no part of a client, there or here.
"""

from __future__ import annotations

from pulsar_on_kafka.functions.context import Context
from pulsar_on_kafka.functions.function import Function
from pulsar_on_kafka.functions.serde import IdentitySerDe, PickleSerDe, SerDe

__all__ = ["Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"]
