"""A checker of one's own, in a program of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.broker.schema_registry.configured import CHECKERS_VARIABLE
from tests.programs import run_example
from tests.registries import install_word_lists


def test_the_example_runs(service_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_word_lists(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(CHECKERS_VARIABLE, "avro,json,protobuf,protobuf_native,word_list")
    said = run_example("schema_checker/word_lists.py", service_url, timeout_s=120)
    assert "received red" in said
    assert "WORD_UNKNOWN" in said
