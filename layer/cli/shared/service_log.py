"""The log of a service: each line has its time and level, for people or as JSON; and what systemd is told."""

from __future__ import annotations

import json
import logging
import os
import socket
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Final

import typer

LEVEL_VARIABLE: Final = "POK_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class LogFormat(str, Enum):
    """`json` is one object a line."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", help=f"The log on standard error, whose level {LEVEL_VARIABLE} says ({', '.join(LEVELS)})."
    ),
]


def level(default: int) -> int:
    """That of the environment's POK_LOG_LEVEL.

    Raises:
        typer.BadParameter: there is none of that name.
    """
    said = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
    if said and said not in LEVELS:
        raise typer.BadParameter(f"{LEVEL_VARIABLE} is {said!r:.40}, expected one of {', '.join(LEVELS)}")
    return int(getattr(logging, said)) if said else default


def formatter(form: LogFormat) -> logging.Formatter:
    return _Json() if form is LogFormat.JSON else _Text("%(asctime)s %(levelname)s %(message)s")


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


def tell_systemd(*states: str) -> None:
    """`READY=1`, `STOPPING=1`, `STATUS=...`, to a service manager that asked for them; nobody else hears.

    Source: sd_notify(3). Nothing is raised: the work goes on without a manager that listens.
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
