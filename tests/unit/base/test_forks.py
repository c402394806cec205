"""A forked child meets no lock of a module that is held for ever, and no handle whose threads are gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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
        if isinstance(each, ast.ClassDef) and "handles.opened(" in ast.unparse(each)
    }
    assert len(having) > 5, "the classes were not found"
    unguarded = [each.name for each in having if "OfOneProcess" not in map(ast.unparse, each.bases)]
    assert unguarded == []
