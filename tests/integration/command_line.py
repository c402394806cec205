"""The command `pok` in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app


class CommandLine:
    """`pok --url URL NOUN ...`."""

    def __init__(self, url: str, noun: str) -> None:
        self._url = url
        self._noun = noun

    def __call__(self, *arguments: str, exits: int = 0) -> Any:
        found = CliRunner().invoke(app, ["--url", self._url, self._noun, *arguments])
        assert found.exit_code == exits, (found.stdout, found.stderr, found.exception)
        return found

    def json(self, *arguments: str, exits: int = 0) -> Any:
        return json.loads(self(*arguments, "--output", "json", exits=exits).stdout)

    def refused(self, *arguments: str) -> str:
        """The one line that says why; what is planned may stand before it."""
        *plan, line = self(*arguments, exits=1).stderr.splitlines()
        assert all(one.startswith("pok will ") for one in plan)
        assert line.startswith("pok: ")
        return str(line)
