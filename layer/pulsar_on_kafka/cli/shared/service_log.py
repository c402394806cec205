"""The log of a service: each line has its time and level, as text or as JSON; and notifications for systemd."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Final

import typer

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.text import counted

LEVEL_VARIABLE: Final = "POK_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class LogFormat(str, Enum):
    """`json` is one object a line."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", help=f"The log on standard error, with the level of {LEVEL_VARIABLE} ({', '.join(LEVELS)})."
    ),
]


def level(default: int) -> int:
    """The log level of the environment's POK_LOG_LEVEL.

    Raises:
        typer.BadParameter: the level is unknown.
    """
    reported = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
    if reported and reported not in LEVELS:
        raise typer.BadParameter(f"{LEVEL_VARIABLE} is {reported!r:.40}, expected one of {', '.join(LEVELS)}")
    return int(getattr(logging, reported)) if reported else default


_LOG: Final = logging.getLogger("pulsar_on_kafka")
_AWAY: Final = (
    errors.ConnectFailed,
    errors.NoLeaderNow,
    errors.NoCoordinatorNow,
    errors.AppendFailed,
    errors.AppendOutcomeUnknown,
    errors.CommitOutcomeUnknown,
    errors.TransactionCoordinatorNotFound,
    errors.TransactionOutcomeUnknown,
    errors.DeadlineExceeded,
    exceptions.ConnectError,
    exceptions.Timeout,
)
"""Errors that are raised while no broker replies."""


class ServiceLog(logging.Handler):
    """A service's log, on standard error. While no broker replies, each failed request logs a line: the first line of
    each kind is shown, and then one a minute that counts the others. After a minute without any the first ones are
    shown again. With the level DEBUG all are.

    Memory: the words of each kind of line that the code has.
    """

    def __init__(
        self, form: LogFormat, *, every_s: float = 60.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._stream = logging.StreamHandler(sys.stderr)
        self._stream.setFormatter(_Json() if form is LogFormat.JSON else _Text("%(asctime)s %(levelname)s %(message)s"))
        self._every_s = every_s
        self._monotonic = monotonic
        self._shown: set[tuple[str, str]] = set()
        self._held = 0
        self._latest = ""
        self._held_since_s = self._last_s = monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        now_s = self._monotonic()
        if self._held and now_s - self._held_since_s >= self._every_s:
            self._stream.emit(self._counted(now_s))
        if _LOG.isEnabledFor(logging.DEBUG) or not _reports_absence(record):
            self._stream.emit(record)
            return
        if now_s - self._last_s >= self._every_s:
            self._shown.clear()
        self._last_s = now_s
        kind = record.name, str(record.msg)
        if kind not in self._shown:
            self._shown.add(kind)
            self._stream.emit(record)
            return
        if not self._held:
            self._held_since_s = now_s
        self._held += 1
        self._latest = record.getMessage()

    def _counted(self, now_s: float) -> logging.LogRecord:
        text = "no broker answered: %s in %.0f s, the last one: %s"
        reported = counted(self._held, "more line"), now_s - self._held_since_s, self._latest
        self._held = 0
        return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, reported, None)


def _reports_absence(record: logging.LogRecord) -> bool:
    given = record.args if isinstance(record.args, tuple) else ()
    return any(isinstance(each, _AWAY) for each in given)


class _Text(logging.Formatter):
    """2026-11-25T16:20:16.123Z WARNING topic=... not copied"""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Json(_Text):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def notify_systemd(*states: str) -> None:
    """Sends `READY=1`, `STOPPING=1`, `STATUS=...` to a service manager that requested them.

    Source: sd_notify(3). Raises nothing: the work continues without a manager.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendto("\n".join(states).encode(), address)
    except OSError as away:
        logging.getLogger(__name__).warning("the service manager at NOTIFY_SOCKET does not listen: %s", away)
