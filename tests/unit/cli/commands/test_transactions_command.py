"""`pok transactions`: what is refused before a cluster is asked, and what each finding means."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.broker.transactions.buffer.verify import BufferFinding
from pulsar_on_kafka.cli.commands.transactions import MEANINGS
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.client.values.texts import duration_text, parse_duration, ranges_text


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["transactions", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.mark.parametrize("command", ["show", "abort"])
@pytest.mark.parametrize("text", ["7", "(0,x)", "(0;3)", "0,3"])
def test_what_is_no_id_of_a_transaction(command: str, text: str) -> None:
    assert "expected (most,least) or most:least" in refused(command, text)


@pytest.mark.parametrize("text", ["7", "soon", "-5s"])
def test_what_is_no_duration(text: str) -> None:
    assert "expected 500ms, 90s, 1h30m" in refused("slow", f"--time={text}")


def test_coordinators_count_from_0() -> None:
    assert "than or equal to" in refused("coordinators", "--coordinator-id", "-1")


def test_every_finding_has_a_meaning() -> None:
    assert set(MEANINGS) == set(BufferFinding)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("500ms", 500), ("90s", 90_000), ("1h30m", 5_400_000), (" 2d ", 172_800_000)]
)
def test_durations_are_read(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (999, "0s"), (90_000, "1m30s"), (3_600_000, "1h"), (90_061_000, "1d1h"), (-2_500, "-2s"),
     (3_605_000, "1h")],
)  # fmt: skip
def test_durations_are_written_in_two_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


def test_ranges_are_written_with_both_ends() -> None:
    assert ranges_text(((3, 3), (5, 9))) == "3, 5-9"
