"""A forked child meets no lock of a module that is held for ever, and no handle whose threads are gone."""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.base.forks import OfOneProcess, after_fork_in_child
from pulsar_on_kafka.base.reentry import Callbacks, in_callback
from pulsar_on_kafka.exceptions import AlreadyClosed

ROOT = Path(__file__).resolve().parents[3]


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("layer", "mapping", "schema_compat", "spark_connector"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_locks_of_modules_are_free_in_a_child() -> None:
    locks = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event")
    of_modules = [
        f"{path}:{statement.lineno}"
        for path, module in _modules()
        for statement in module.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Call)
        if ast.unparse(statement.value.func).removeprefix("threading.") in locks
    ]
    assert of_modules == [], "take base.forks.process_lock()"


def test_whoever_has_a_handle_is_refused_to_a_child() -> None:
    having = {
        each
        for path, module in _modules()
        for each in ast.walk(module)
        if isinstance(each, ast.ClassDef)
        and any(isinstance(call, ast.Call) and ast.unparse(call.func) == "handles.opened" for call in ast.walk(each))
    }
    assert len(having) > 5, "the classes were not found"
    unguarded = [each.name for each in having if "OfOneProcess" not in map(ast.unparse, each.bases)]
    assert unguarded == []


class Opened(OfOneProcess):
    def call(self) -> None:
        """Does nothing."""

    async def __aexit__(self, *raised: object) -> None:
        """Does nothing."""


class Resisting(Opened):
    def __init_subclass__(cls) -> None:
        raise TypeError("a program's class")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        return True


_IN_CHILD: list[str] = []
after_fork_in_child(lambda: _IN_CHILD.append("hook"))


def _is_refused(opened: Opened) -> bool:
    try:
        opened.call()
    except AlreadyClosed:
        return True
    return False


def _is_refused_leaving(opened: Opened) -> bool:
    async def leave() -> None:
        await type(opened).__aexit__(opened, None, None, None)

    try:
        asyncio.run(leave())
    except AlreadyClosed:
        return True
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_object_that_resists_keeps_no_other_from_being_refused() -> None:
    resisting, other = Resisting(), Opened()
    with Callbacks():
        child = os.fork()
        if child == 0:
            found = [_is_refused(resisting), _is_refused(other), _is_refused_leaving(other), "hook" in _IN_CHILD]
            os._exit(0 if all(found) and not in_callback() else 1)
    assert os.waitpid(child, 0)[1] == 0
