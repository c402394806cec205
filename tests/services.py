"""`pok serve` and other services in processes of their own, as people start them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulsar_on_kafka.base.role_state import RoleName
from tests.waiting import until

NO_ROLE = [word for role in RoleName for word in ("--without", role.value)]


@contextmanager
def a_service(log: Path, url: str, reported: str, *arguments: str) -> Iterator[str]:
    """Runs `pok ARGUMENTS`, which logs into that file and has to end well. Gives the group of `reported`, an expression
    that its log matches."""
    command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, *arguments]
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        yield until(lambda: re.search(reported, log.read_text()), log.read_text)[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(60)
