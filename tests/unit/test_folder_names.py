"""The folders' names stand for the package in a checkout: one module, whichever name asks for it first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
NAMES: Final = (
    ("layer", "pulsar_on_kafka"),
    ("layer.admin", "pulsar_on_kafka.admin"),
    ("mapping.names.topic_name", "pulsar_on_kafka_mapping.names.topic_name"),
    ("schema_compat.base.schema_model", "pulsar_on_kafka_schema_compat.base.schema_model"),
    ("spark_connector.reading.reader", "pulsar_on_kafka_spark.reading.reader"),
)
SCRIPT: Final = """
import importlib, sys
for pair in sys.argv[1:]:
    first, second = pair.split("=")
    one, other = importlib.import_module(first), importlib.import_module(second)
    assert one is other, (first, second, one, other)
    assert (one.__name__, one.__spec__.name) == (NAME, NAME), (pair, one.__name__, one.__spec__)
""".replace("NAME", 'max(first, second, key=lambda name: name.startswith("pulsar_on_kafka"))')


@pytest.mark.parametrize("by_folder_first", [True, False])
def test_a_module_is_loaded_once_whatever_name_it_is_asked_for_by(by_folder_first: bool) -> None:
    pairs = ["=".join(names if by_folder_first else reversed(names)) for names in NAMES]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *pairs], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
