"""The interfaces that a Pulsar Function is written against. Source: `pulsar.functions`.

What runs functions (Pulsar's function workers) is no part of a client, there or here.
"""

from __future__ import annotations

from layer.functions.context import Context
from layer.functions.function import Function
from layer.functions.serde import IdentitySerDe, PickleSerDe, SerDe

__all__ = ["Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"]
