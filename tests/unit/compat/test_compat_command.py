"""`pok compat` without a cluster: what it lists and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app

RUN = ["compat", "run", "--kafka", "kafka://127.0.0.1:1"]


def test_the_scenarios_are_listed() -> None:
    done = CliRunner().invoke(app, ["--output", "json", "compat", "list", "--scenario", "seek.*"])
    assert done.exit_code == 0
    names = [found["name"] for found in json.loads(done.stdout)]
    assert "seek.to_latest" in names
    assert all(name.startswith("seek.") for name in names)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([*RUN, "--pulsar", "pulsar://p:6650"], 1, "no broker answers"),
        (["compat", "run"], 2, "--pulsar"),
        (["compat", "list", "--scenario", "no-such-thing"], 1, "no scenario matches"),
        (["compat", "list", "--scenarios", "/no/such/folder"], 1, "is not a folder"),
    ],
)
def test_what_is_refused(arguments: list[str], status: int, words: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == status
    assert words in done.stderr


def test_two_folders_may_hold_files_of_one_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(
            f"from tests.compat.harness import scenario\n\n"
            f"@scenario(area='folders_{name}', title='x')\ndef works(run):\n    pass\n",
            encoding="utf-8",
        )
    folders = [part for name in ("one", "two") for part in ("--scenarios", str(tmp_path / name))]
    done = CliRunner().invoke(app, ["--output", "json", "compat", "list", "--scenario", "folders_*", *folders])
    assert [found["name"] for found in json.loads(done.stdout)] == ["folders_one.works", "folders_two.works"]
