"""Every command line in the documentation is one that its program understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_lines import unknown
from tests.documents import COMMANDS, ROOT, blocks, commands, folders, pages, spans

_DOCSTRING_SPAN = re.compile(r"`(pok [^`\n]+)`|^    (pok [a-z].*)$", re.MULTILINE)


def _lines(page: Path) -> Iterator[tuple[int, str]]:
    yield from spans(page)
    for block in blocks(page):
        if block.language in COMMANDS:
            yield from ((block.line, command.line) for command in commands(block))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_options_and_targets_are_there(page: Path) -> None:
    found = [(number, line, unknown(line)) for number, line in _lines(page)]
    assert [each for each in found if each[2]] == []


def test_those_that_the_code_speaks_of_are_there_too() -> None:
    found = []
    for top in ("layer", "mapping", "schema_compat", "spark_connector", "examples"):
        for folder, files in folders(ROOT / top):
            for path in (folder / name for name in files if name.endswith(".py")):
                for span, line in _DOCSTRING_SPAN.findall(path.read_text(encoding="utf-8")):
                    if lacks := unknown(span or line):
                        found.append((str(path.relative_to(ROOT)), span or line, lacks))
    assert found == []


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("pok topic stats orders", "topic"),
        ("pok topics staats orders", "staats"),
        ("pok topics stats orders --gently", "--gently"),
        ("pok topics policy set|gett|remove TOPIC", "gett"),
        ("pok serve --port 1 --stop 3", "--stop"),
        ("make tests", "tests"),
        ("python3 -m venv try && pip install '.[embeded]'", "embeded"),
        ("pip install 'pulsar-on-kafka[sparks]'", "sparks"),
        ("docker compose -f docker/compose.yml up", "docker/compose.yml"),
        ("docker compose -f docker/compose.yaml up kafak", "kafak"),
        ("docker compose -f docker/compose.yaml exec spark pok sparc read orders", "sparc"),
    ],
)
def test_what_is_not_there_is_named(line: str, lacks: str) -> None:
    assert lacks in unknown(line)


@pytest.mark.parametrize(
    "line",
    [
        "pok topics stats",
        "pok --url kafka://a:9092 clusters create us --service-url kafka://us:9092",
        "pok acls print --role producer|consumer --principal P [--also schemas ...]",
        "pok serve --cluster-config us:/etc/us.properties",
        "pok ... policy",
    ],
)
def test_what_is_there_is_nothing_to_speak_of(line: str) -> None:
    assert unknown(line) == ""
