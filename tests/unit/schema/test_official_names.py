"""Every public name of `pulsar.schema` is in `schema`, with its parameters in their order and their defaults."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pulsar.schema
import pytest

import pulsar_on_kafka.schema

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
    assert inspect.isclass(getattr(pulsar_on_kafka.schema, name))
    assert name in pulsar_on_kafka.schema.__all__


@pytest.mark.parametrize(("cls", "method"), METHODS)
def test_the_method_has_the_official_parameters(cls: str, method: str) -> None:
    ours = parameters(getattr(getattr(pulsar_on_kafka.schema, cls), method))
    assert ours == parameters(getattr(getattr(pulsar.schema, cls), method))


@pytest.mark.parametrize("module", ["definition", "schema", "schema_avro", "schema_protobuf"])
def test_the_submodule_is_here_with_its_public_classes(module: str) -> None:
    official = importlib.import_module(f"pulsar.schema.{module}")
    ours = importlib.import_module(f"pulsar_on_kafka.schema.{module}")
    wanted = {
        name
        for name, value in vars(official).items()
        if inspect.isclass(value) and value.__module__.startswith("pulsar.schema") and not name.startswith("_")
    }
    wanted |= {name for name in vars(official) if name.startswith("HAS_")}
    assert {name for name in wanted if not hasattr(ours, name)} == set()


class _Official(pulsar.schema.Record):
    items = pulsar.schema.Array(pulsar.schema.Integer())


class _Ours(pulsar_on_kafka.schema.Record):
    items = pulsar_on_kafka.schema.Array(pulsar_on_kafka.schema.Integer())


def test_a_wrong_item_is_told_in_the_official_words() -> None:
    told = []
    for record in (_Official, _Ours):
        with pytest.raises(TypeError) as refused:
            record(items=[1, "two"])
        told.append(str(refused.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("given", [{}, {"a": 1}])
def test_record_itself_is_not_made(given: dict[str, Any]) -> None:
    for record in (pulsar.schema.Record, pulsar_on_kafka.schema.Record):
        with pytest.raises(AttributeError):
            record(**given)


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.BytesSchema(),
        lambda module: module.StringSchema(),
        lambda module: module.JsonSchema(_Official if module is pulsar.schema else _Ours),
    ],
)
def test_schema_info_has_the_native_objects_methods(make: Any) -> None:
    official, ours = make(pulsar.schema).schema_info(), make(pulsar_on_kafka.schema).schema_info()
    assert ours.schema_type().value == int(official.schema_type())
    assert (ours.name(), ours.schema().replace("_Ours", "_Official")) == (official.name(), official.schema())
    assert (type(ours.name()), type(ours.schema())) == (str, str)
