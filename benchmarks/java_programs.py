"""The programs in Java that stand beside this module, run from their sources on Pulsar's own client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from benchmarks.worker import RESULT
from pulsar_on_kafka.embedded.java import find_java
from tests.compat.pulsar_standalone.jars import pulsar_jars

_TIMEOUT_S: Final = 800.0


def by_java(name: str, url: str, topic: str, *arguments: int | str) -> dict[str, Any]:
    """The figures of one run."""
    source = Path(__file__).with_name(f"{name}.java")
    told = [str(source), url, topic, *map(str, arguments)]
    command = [find_java().executable, "-Xmx1g", "-cp", f"{pulsar_jars()}/*", *told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    for line in done.stdout.splitlines():
        if done.returncode == 0 and line.startswith(RESULT):
            return dict(json.loads(line[len(RESULT) :]))
    raise RuntimeError(f"{source.name} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
