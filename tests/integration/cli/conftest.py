"""`pok` on the shared broker, in this process and in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Pok = Callable[..., Outcome]


@pytest.fixture
def pok(service_url: str) -> Pok:
    """`pok("topics", "list")` in this process, on the shared broker."""

    def run(*arguments: str, stdin: bytes | None = None) -> Outcome:
        found = CliRunner().invoke(app, ["--url", service_url, *arguments], input=stdin)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Outcome(found.exit_code, found.stdout, found.stderr)

    return run


@pytest.fixture
def done(pok: Pok) -> Pok:
    """The same, where anything but exit code 0 is a failure of the test."""

    def run(*arguments: str, stdin: bytes | None = None) -> Outcome:
        outcome = pok(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome
        return outcome

    return run


@pytest.fixture
def refused(pok: Pok) -> Pok:
    """The same, for what must end with 1 and a last line that says why. `plan` lines may stand before."""

    def run(*arguments: str, stdin: bytes | None = None) -> Outcome:
        outcome = pok(*arguments, stdin=stdin)
        assert outcome.code == 1, outcome
        assert outcome.err.splitlines()[-1].startswith("pok: "), outcome
        assert "Traceback" not in outcome.err
        assert len([line for line in outcome.err.splitlines() if not line.startswith("pok will ")]) == 1, outcome
        return outcome

    return run


@contextmanager
def running(service_url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`pok` as a process of its own; killed if it is still there at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
