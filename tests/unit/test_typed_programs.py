"""Ordinary programs have no error for users' type checkers. mypy looks at them in `make check`, pyright here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAMS = Path(__file__).parent.parent
_WRONG = """\
import pulsar_on_kafka as pulsar
from pulsar_on_kafka.schema import Integer, JsonSchema, Record

class Order(Record):
    id = Integer()

Order().id.upper()
consumer = pulsar.Client("kafka://localhost:9092").subscribe("orders", "billing")
number: int = consumer.receive().message_id()
consumer.acknowlege(consumer.receive())
orders = pulsar.Client("kafka://localhost:9092").subscribe("orders", "billing", schema=JsonSchema(Order))
orders.receive().value().nothing
"""


def _pyright(*programs: Path) -> str:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *map(str, programs)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout


def test_pyright_finds_no_error_in_an_ordinary_program() -> None:
    told = _pyright(_PROGRAMS / "typed_user_program.py", _PROGRAMS / "typed_star_program.py")
    assert "0 errors, 0 warnings" in told, told


@pytest.mark.parametrize("wrong", ['"int"', '"acknowlege"', '"upper"', '"nothing"'])
def test_pyright_finds_what_is_wrong(tmp_path: Path, wrong: str) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(_WRONG)
    assert wrong in _pyright(program)
