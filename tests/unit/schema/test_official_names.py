"""Every public name of `pulsar.schema` is in `layer.schema`, with its parameters in their order and their defaults."""

from __future__ import annotations

import inspect
from typing import Any

import pulsar.schema
import pytest

import layer.schema

CLASSES = sorted(
    name for name, value in vars(pulsar.schema).items() if inspect.isclass(value) and not name.startswith("_")
)
NOT_CALLED_BY_APPLICATIONS = {"attach_client"}
"""Officially between the client and its schemas."""
METHODS = [
    (name, member)
    for name in CLASSES
    for member, value in inspect.getmembers(getattr(pulsar.schema, name), inspect.isroutine)
    if (not member.startswith("_") or member == "__init__") and member not in NOT_CALLED_BY_APPLICATIONS
]


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", CLASSES)
def test_the_name_is_here(name: str) -> None:
    assert inspect.isclass(getattr(layer.schema, name))
    assert name in layer.schema.__all__


@pytest.mark.parametrize(("cls", "method"), METHODS)
def test_the_method_has_the_official_parameters(cls: str, method: str) -> None:
    ours = parameters(getattr(getattr(layer.schema, cls), method))
    assert ours == parameters(getattr(getattr(pulsar.schema, cls), method))
