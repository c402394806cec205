"""`pok gateway` as a process beside the measured programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
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
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                status = process.wait(_STOP_S)
                errors.seek(0)
                reason = (errors.read().splitlines() or [""])[-1]
                raise WorkerFailed(f"pok gateway ended with {status} before it served: {reason}")
            yield Serving(json.loads(said)["url"], process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
