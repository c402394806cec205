"""What users see of the package in an editor or in a Python shell."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import Enum

import pytest

import pulsar_on_kafka
from pulsar_on_kafka.admin import AdminClient

_MODULES = ("pulsar_on_kafka", *(f"pulsar_on_kafka.{name}" for name in ("asyncio", "functions", "schema")))


def _public_classes() -> Iterator[type]:
    yield AdminClient
    for name in _MODULES:
        module = importlib.import_module(name)
        for each in (getattr(module, public) for public in module.__all__):
            if inspect.isclass(each) and each.__module__.startswith("pulsar_on_kafka"):
                yield each


def _without_docstring(cls: type) -> Iterator[str]:
    if not cls.__doc__:
        yield cls.__qualname__
    if issubclass(cls, Enum):
        return
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        is_method = callable(found) or isinstance(found, property | staticmethod | classmethod)
        if not name.startswith("_") and is_method and not inspect.getdoc(getattr(cls, name)):
            yield f"{cls.__qualname__}.{name}"


@pytest.mark.parametrize("cls", dict.fromkeys(_public_classes()), ids=lambda cls: cls.__qualname__)
def test_each_public_method_and_property_has_a_docstring(cls: type) -> None:
    assert [*_without_docstring(cls)] == []


def test_dir_has_the_public_names_alone() -> None:
    shown = {name for name in dir(pulsar_on_kafka) if not name.startswith("__")}
    modules = shown - set(pulsar_on_kafka.__all__)
    assert shown >= set(pulsar_on_kafka.__all__)
    assert modules >= {"admin", "asyncio", "schema_compat", "testing"}
    assert not modules & {"base", "broker", "client", "kafka", "statelog", "annotations", "TYPE_CHECKING"}
