"""Every public name of the official client is here, with its parameters in their order and with their defaults."""

from __future__ import annotations

import enum
import inspect
import types
from importlib import metadata
from typing import Any

import pulsar
import pytest

import pulsar_on_kafka

NOT_YET: set[str] = set()
"""Names that are still missing."""

NOT_MADE_BY_APPLICATIONS = {"EncryptionContext.__init__"}
"""Officially around a native object."""


def is_api(value: object) -> bool:
    """Not what the official module merely imported for itself."""
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith("pulsar")
    return str(getattr(value, "__module__", "")).startswith(("pulsar", "_pulsar"))


PUBLIC = sorted(name for name, value in vars(pulsar).items() if not name.startswith("_") and is_api(value))
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(pulsar, name)) and name not in NOT_YET]
METHODS = [
    (name, member)
    for name in CLASSES
    if not issubclass(getattr(pulsar, name), enum.Enum | Exception)
    for member, value in vars(getattr(pulsar, name)).items()
    if (not member.startswith("_") or member == "__init__") and (callable(value) or isinstance(value, staticmethod))
]


def parameters(function: Any) -> list[tuple[str, Any]] | None:
    """Name and default of each; None for a native function, which does not tell its own."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return None
    found = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if any(p.name.startswith("arg") for p in found):
        return None
    return [(p.name, p.default) for p in found]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_name_is_here(name: str) -> None:
    assert hasattr(pulsar_on_kafka, name) is (name not in NOT_YET), f"NOT_YET is out of date for {name}"


@pytest.mark.parametrize(("cls", "method"), METHODS)
def test_the_method_has_the_official_parameters(cls: str, method: str) -> None:
    official = parameters(getattr(getattr(pulsar, cls), method))
    if f"{cls}.{method}" in NOT_MADE_BY_APPLICATIONS:
        return
    ours = parameters(getattr(getattr(pulsar_on_kafka, cls), method))
    if official is None or ours is None:
        assert callable(getattr(getattr(pulsar_on_kafka, cls), method))
        return
    assert [name for name, _ in ours[: len(official)]] == [name for name, _ in official]
    for (name, default), (_, theirs) in zip(ours, official, strict=False):
        if isinstance(theirs, bool | int | str | type(None)):
            assert default == theirs or default is None, name
    signature = inspect.signature(getattr(getattr(pulsar_on_kafka, cls), method))
    for name, _ in ours[len(official) :]:
        assert signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY, f"{name} is ours, so by keyword only"


def test_the_version_is_the_distributions() -> None:
    assert pulsar_on_kafka.__version__ == metadata.version("pulsar-on-kafka")


def test_what_stands_for_the_native_classes_is_under_their_module() -> None:
    assert isinstance(pulsar_on_kafka.MessageId.earliest, pulsar_on_kafka._pulsar.MessageId)
    assert not isinstance(pulsar_on_kafka.MessageId(), pulsar_on_kafka._pulsar.MessageId)
    for name in pulsar_on_kafka._pulsar.__all__:
        assert hasattr(pulsar._pulsar, name), f"{name} is not one of the official extension's"


def test_a_star_gives_what_the_official_client_s_gives() -> None:
    """But for modules and types of Python's that the official module imports, and does not mean to give."""
    theirs, ours = dict[str, object](), dict[str, object]()
    exec("from pulsar import *", theirs)  # noqa: S102
    exec("from pulsar_on_kafka import *", ours)  # noqa: S102
    meant = {name for name, found in theirs.items() if "pulsar" in str(getattr(found, "__module__", found))}
    assert meant - ours.keys() == set()
    assert issubclass(ours["Timeout"], Exception)  # type: ignore[arg-type]
