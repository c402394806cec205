"""Storages and checkers that are chosen by configuration, from a distribution that is installed beside this one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.broker.schema_registry.configured import (
    CHECKERS_VARIABLE,
    STORAGE_VARIABLE,
    configured_checkers,
    configured_storage,
)
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.broker.schema_registry.storage import StateLogSchemaStorage
from pulsar_on_kafka.schema_compat import BUILT_IN, CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility
from tests.memory_log import MemoryStateLog
from tests.registries import TOPIC, avro, install_word_lists, life_of, soon


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, as an installer leaves it; its module."""
    install_word_lists(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = ("word_lists", "kept_apart")
    for name in names:
        sys.modules.pop(name, None)
    yield import_module("word_lists")
    for name in names:
        sys.modules.pop(name, None)


def registry(log: MemoryStateLog) -> SchemaRegistry:
    clock = SystemClock()
    return SchemaRegistry(
        configured_storage(log, clock), lambda *_: SchemaPolicies(), life_of, clock, checkers=configured_checkers()
    )


def test_a_checker_of_ones_own_judges_a_kind_of_ones_own(
    installed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKERS_VARIABLE, "avro, word_list")
    log = MemoryStateLog()
    ours = registry(log)

    def words(*them: str) -> SchemaInfo:
        info: SchemaInfo = installed.WordListSchema(*them).schema_info()
        return info

    assert ours.for_producer(TOPIC, words("red"), soon()) is not None
    with pytest.raises(errors.IncompatibleSchema, match="WORD_UNKNOWN at /green"):
        ours.for_producer(TOPIC, words("red", "green"), soon())
    with pytest.raises(errors.IncompatibleSchema, match="one word"):
        registry(MemoryStateLog()).for_producer(TOPIC, SchemaInfo(installed.WORD_LIST, b"two words", "words"), soon())
    found = registry(log).for_producer(TOPIC, words("red"), soon())
    assert found is not None
    assert found.number == 0, "it is read back by its name"


def test_checkers_that_are_not_listed_judge_nothing(installed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = avro("a", defaults=False), avro("b", defaults=False)
    strategy = CompatibilityStrategy.FULL
    assert not check_compatibility(new, [old], strategy, checkers=configured_checkers()).is_compatible
    monkeypatch.setenv(CHECKERS_VARIABLE, "word_list")
    assert check_compatibility(new, [old], strategy, checkers=configured_checkers()).is_compatible
    monkeypatch.setenv(CHECKERS_VARIABLE, "avro,json,protobuf,protobuf_native")
    assert configured_checkers() == BUILT_IN


def test_a_storage_of_ones_own(installed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(configured_storage(MemoryStateLog(), SystemClock())) is StateLogSchemaStorage
    monkeypatch.setenv(STORAGE_VARIABLE, "kept_apart")
    assert type(configured_storage(MemoryStateLog(), SystemClock())).__name__ == "KeptApart"


@pytest.mark.parametrize(
    ("checkers", "why"),
    [
        ("avro,nobody", "known are avro, broken, json, no_type"),
        ("broken", "NOWHERE"),
        ("no_type", "must have a schema_type"),
    ],
)
def test_what_is_not_there_is_said(
    installed: ModuleType, monkeypatch: pytest.MonkeyPatch, checkers: str, why: str
) -> None:
    monkeypatch.setenv(CHECKERS_VARIABLE, checkers)
    with pytest.raises(errors.InvalidOption, match=why):
        configured_checkers()
    monkeypatch.setenv(STORAGE_VARIABLE, "nobody")
    with pytest.raises(errors.InvalidOption, match="known are kafka, kept_apart"):
        configured_storage(MemoryStateLog(), SystemClock())


@pytest.mark.parametrize(
    ("name", "number"), [("small", 1005), ("TWO WORDS", 1005), ("LOW", 20), ("AVRO", 1006), ("OTHER", 1001)]
)
def test_an_added_kind_is_none_of_the_others(installed: ModuleType, name: str, number: int) -> None:
    with pytest.raises(ValueError, match=name):
        SchemaType.added(name, number)
    assert SchemaType.added("WORD_LIST", 1001) is SchemaType["WORD_LIST"] is SchemaType(1001) is installed.WORD_LIST
