"""The option `tracing` of a client. What its spans are: tests/integration/client/test_tracing.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar

ROOT = Path(__file__).resolve().parents[3]


def _run(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_nothing_of_opentelemetry_is_imported_without_the_option() -> None:
    program = """
import sys, pulsar_on_kafka
pulsar_on_kafka.Client("kafka://localhost:1").close()
print([name for name in sys.modules if name.startswith("opentelemetry") or name.endswith("client.tracing")])
"""
    assert _run(program) == "[]"


def test_tracing_without_opentelemetry_names_the_extra() -> None:
    program = """
import sys, pulsar_on_kafka
sys.modules["opentelemetry"] = None
try:
    pulsar_on_kafka.Client("kafka://localhost:1", tracing=True)
except pulsar_on_kafka.exceptions.InvalidConfiguration as refused:
    print(refused)
"""
    assert "pip install 'pulsar-on-kafka[otel]'" in _run(program)


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_tracing_is_a_bool_or_a_provider(wrong: object) -> None:
    with pytest.raises(ValueError, match="tracing is expected to be a bool or a TracerProvider"):
        pulsar.Client("kafka://localhost:1", tracing=wrong)
