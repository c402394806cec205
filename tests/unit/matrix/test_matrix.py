"""What `make matrix` is asked for, and what it says of what it cannot run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests import matrix


@pytest.mark.parametrize(("told", "meant"), [("3.9", "3.9.2"), ("3.7.2", "3.7.2"), ("4.1.2", "4.1.2")])
def test_a_short_version_of_kafka_means_that_of_the_matrix(told: str, meant: str) -> None:
    assert matrix._kafka(told) == meant


@pytest.mark.parametrize("told", ["3", "3.8", "4.x.1", ""])
def test_other_versions_are_told_in_full(told: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"one of 3\.7\.2, 3\.9\.2"):
        matrix._kafka(told)


@pytest.mark.parametrize(("argument", "state", "code"), [("--python=3.12", "failed", 1), ("", "skipped", 0)])
def test_a_python_that_is_not_there_is_skipped_unless_it_was_asked_for(
    argument: str,
    state: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", "/nowhere")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setattr(matrix, "_FILES", tmp_path)
    monkeypatch.setattr(matrix, "KAFKAS", ())
    monkeypatch.setattr(matrix, "SPARKS", ())
    assert matrix.main([argument] if argument else []) == code
    reason = "not on this machine (PATH, pyenv); uv cannot bring it: "
    assert f"Python 3.12                 {state:<8} {reason}" in capsys.readouterr().out


def test_a_python_of_pyenv_that_its_commands_do_not_run_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands on the path run only the versions that are switched on."""
    shim = tmp_path / "shims" / "python3.12"
    python = tmp_path / "versions" / "3.12.1" / "bin" / "python"
    for file, does in ((shim, "exit 127"), (python, f"echo 3.12 {python}")):
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert matrix._interpreter("3.12") == python


@pytest.mark.parametrize(
    "line", ["487 passed in 726.83s (0:12:06)", "==== 1 failed, 78 passed in 1187.23s (0:19:47) ===="]
)
def test_pytest_s_last_line_is_found(line: str) -> None:
    assert matrix._END.findall(f"....\n{line}\n") == [line.strip("= ")]
