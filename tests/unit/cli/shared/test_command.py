"""Registration of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.settings import Given, Settings


@dataclass(frozen=True)
class Place:
    host: Annotated[str, typer.Option("--host")] = "here"
    port: Annotated[int, typer.Option("--port", min=1)] = 80


def test_a_dataclass_stands_for_its_fields() -> None:
    app, seen = typer.Typer(), []

    @command(app, "ask")
    def ask(settings: Settings, what: str, place: Place, again: bool = False) -> None:
        seen.append((what, place, again))

    @command(app, "look")
    def look(settings: Settings, place: Place) -> None:
        seen.append(("look", place, False))

    run, settings = CliRunner(), Given()
    for words in (["ask", "a", "--port", "7", "--again"], ["look", "--host", "there"], ["ask", "b"]):
        found = run.invoke(app, words, obj=settings)
        assert found.exit_code == 0, found.output
    assert seen == [("a", Place("here", 7), True), ("look", Place("there", 80), False), ("b", Place(), False)]
    assert run.invoke(app, ["look", "--port", "0"], obj=settings).exit_code == 2
