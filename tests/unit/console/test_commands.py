"""The commands that pages show: `pok` has them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pulsar_on_kafka import console
from pulsar_on_kafka.console.commands import ConsoleCommands
from tests.command_lines import unknown

_TEMPLATES = sorted((Path(console.__file__).parent / "templates").glob("*.html"))
_CALL = re.compile(r"\bpok\(([^()]*)\)")


def lines(template: Path) -> list[str]:
    """What stands for a value in them is X."""
    return [
        shlex.join(["pok", *(word.strip("\"'") if word[0] in "\"'" else "X" for word in re.split(r",\s*", call))])
        for call in _CALL.findall(template.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("template", _TEMPLATES, ids=lambda template: str(template.stem))
def test_pok_has_what_pages_show(template: Path) -> None:
    assert {line: unknown(line) for line in lines(template) if unknown(line)} == {}


def test_the_templates_were_found() -> None:
    assert sum(len(lines(template)) for template in _TEMPLATES) >= 10


def test_a_line_leads_to_this_cluster_whatever_the_names_are() -> None:
    commands = ConsoleCommands(("--url", "kafka://kafka:9092"))
    line = commands.line("subscriptions", "show", "a topic", "-s", "$(reboot)")
    assert line == "pok subscriptions show 'a topic' -s '$(reboot)' --url kafka://kafka:9092"
