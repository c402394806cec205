"""Mutants change one thing of what a module does, and nothing of what it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.mutation.__main__ import environment_of
from tests.mutation.mutants import mutants

MODULE = '''
"""A module with 1 < 2 in its docstring."""

LIMIT = 5


def room(used: int, most: int = 3) -> int:
    """Give 0 < room."""
    _log.info("used=%d", used + 1)
    if used < most and not closed(used):
        self.ü = used
        return most - used
    return 0
'''


def test_each_mutant_changes_one_thing() -> None:
    changes = {(each.was, each.becomes) for each in mutants(MODULE)}
    assert changes == {
        ("used < most", "used <= most"),
        ("used < most and (not closed(used))", "used < most or not closed(used)"),
        ("not closed(used)", "closed(used)"),
        ("self.ü = used", "pass"),
        ("most - used", "most + used"),
        ("0", "1"),
    }


def test_each_mutant_is_a_module_that_differs() -> None:
    for each in mutants(MODULE):
        assert ast.dump(ast.parse(each.source)) != ast.dump(ast.parse(MODULE))
        assert len(each.source.splitlines()) == len(MODULE.splitlines())


def test_the_tests_import_the_clone_s_modules(tmp_path: Path) -> None:
    module = tmp_path / "mapping" / "pulsar_on_kafka_mapping" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("print('a mutant')")
    command = [sys.executable, "-c", "import pulsar_on_kafka_mapping"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment_of(tmp_path), check=True, capture_output=True, text=True
    )
    assert done.stdout == "a mutant\n"
