"""The log of a service and what its manager is told."""

from __future__ import annotations

import json
import logging
import re
import socket
from pathlib import Path

import pytest
import typer

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.cli.shared.command import log_on_stderr
from pulsar_on_kafka.cli.shared.service_log import LogFormat, ServiceLog, level, notify_systemd

LOG = logging.getLogger("pulsar_on_kafka.service.somewhere")


def test_a_line_has_its_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    with log_on_stderr(False, ServiceLog(LogFormat.TEXT), logging.INFO):
        LOG.info("topic=%s copied", "a")
        LOG.debug("unheard")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO topic=a copied\n", capsys.readouterr().err)


def test_as_json_a_line_is_one_object_also_with_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with log_on_stderr(False, ServiceLog(LogFormat.JSON), logging.INFO):
        try:
            raise ValueError("é\n")
        except ValueError:
            LOG.exception("topic=%s failed", "a")
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["level"], said["logger"], said["message"]) == ("ERROR", LOG.name, "topic=a failed")
    assert said["time"].endswith("Z")
    assert said["error"].endswith("ValueError: é\n")


def test_the_environment_says_the_level(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("POK_LOG_LEVEL", "error")
    with log_on_stderr(False, ServiceLog(LogFormat.TEXT), logging.INFO):
        LOG.warning("unheard")
        LOG.error("heard")
    assert capsys.readouterr().err.endswith("ERROR heard\n")
    monkeypatch.setenv("POK_LOG_LEVEL", "loud")
    with pytest.raises(typer.BadParameter, match="POK_LOG_LEVEL is 'LOUD', expected one of DEBUG, INFO"):
        level(logging.INFO)


def test_while_no_broker_answers_the_first_lines_are_shown_and_then_one_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now_s = [0.0]

    def said() -> list[str]:
        return [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]

    def away(seconds: float) -> None:
        """Two kinds of lines every second."""
        for _ in range(round(seconds)):
            LOG.warning("topic=%s is not copied: %s", "a", errors.DeadlineExceeded("no answer in time"))
            LOG.info("%s", errors.ConnectFailed("connection refused"))
            now_s[0] += 1.0

    with log_on_stderr(False, ServiceLog(LogFormat.TEXT, monotonic=lambda: now_s[0]), logging.INFO):
        away(1)
        assert said() == ["topic=a is not copied: no answer in time", "connection refused"]
        away(59)
        assert said() == []
        LOG.warning("topic=%s is refused: %s", "a", errors.NotAuthorized("no right"))
        assert said() == ["topic=a is refused: no right"]
        away(61)
        LOG.info("ready again")
        counted = "no broker answered: 120 more lines in 60 s, the last one: connection refused"
        assert said() == [counted, counted, "ready again"]
        now_s[0] += 60
        away(1)
        assert len(said()) == 2, "it is away anew"


def test_with_the_level_debug_every_line_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POK_LOG_LEVEL", "debug")
    with log_on_stderr(False, ServiceLog(LogFormat.TEXT), logging.INFO):
        for _ in range(3):
            LOG.warning("%s", errors.ConnectFailed("refused"))
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize("abstract", [False, True])
def test_a_manager_hears_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    path = f"@pok-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path[1:] if abstract else path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_systemd("READY=1", "STATUS=serving")
        assert manager.recv(100) == b"READY=1\nSTATUS=serving"


def test_without_a_manager_nothing_happens_and_one_that_is_away_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_systemd("READY=1")
    assert caplog.text == ""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify_systemd("READY=1")
    assert "does not listen" in caplog.text
