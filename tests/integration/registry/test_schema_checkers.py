"""A checker of one's own, in a program of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_on_kafka.registry.configured import CHECKERS_VARIABLE
from tests.registries import WORD_LISTS, install_word_lists


def test_the_example_runs(service_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_word_lists(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(CHECKERS_VARIABLE, "avro,json,protobuf,protobuf_native,word_list")
    done = subprocess.run(
        [sys.executable, str(WORD_LISTS), service_url], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "received red" in done.stdout
    assert "WORD_UNKNOWN" in done.stdout
