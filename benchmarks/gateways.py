"""`pok gateway` as a process beside the measured programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.worker import WorkerFailed

_STOP_S = 30.0


class Serving(NamedTuple):
    url: str
    """For official clients."""
    pid: int


@contextmanager
def gateway_to(kafka: str) -> Iterator[Serving]:
    """A gateway to the cluster of this service URL, until the block ends."""
    pok = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", kafka, "--output", "json"]
    command = [*pok, "gateway", "--port", "0", "--http-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise WorkerFailed(f"pok gateway ended with {process.wait(_STOP_S)} before it served")
            yield Serving(json.loads(said)["url"], process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
