"""Help texts, and colours in a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app


@pytest.mark.parametrize("noun", ["", "topics", "topics delete", "consume", "serve", "namespaces list"])
def test_a_flag_takes_no_value(noun: str) -> None:
    found = CliRunner().invoke(app, [*noun.split(), "--help"], env={"COLUMNS": "100"})
    assert found.exit_code == 0
    assert "--help" in found.output
    assert "bool" not in found.output.lower()


def in_terminal(*arguments: str, **environment: str) -> str:
    """What `pok` writes into a terminal."""
    ours, its = pty.openpty()
    cleared = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsar_on_kafka.cli", *arguments],
        stdin=its, stdout=its, stderr=its, env={**cleared, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(its)
    written = b""
    try:
        while True:
            written += os.read(ours, 65536)
    except OSError:  # the program has ended
        process.wait(60)
        return written.decode()
    finally:
        os.close(ours)


@pytest.mark.parametrize("arguments", [("topics", "--help"), ("topics", "lst"), ("--help",)])
def test_no_color_leaves_no_escapes(arguments: tuple[str, ...]) -> None:
    assert "\x1b[" not in in_terminal(*arguments, NO_COLOR="1")


def test_without_it_help_is_coloured() -> None:
    assert "\x1b[" in in_terminal("topics", "--help", NO_COLOR="")
