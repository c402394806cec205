"""The client's log lines go to a `ConsoleLogger`, a `FileLogger`, or a logger of Python's own."""

from __future__ import annotations

import logging
from typing import Final

from pulsar_on_kafka.client.values.enums import LoggerLevel

_ROOT: Final = logging.getLogger("pulsar_on_kafka")
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS: Final = {
    LoggerLevel.Debug: logging.DEBUG,
    LoggerLevel.Info: logging.INFO,
    LoggerLevel.Warn: logging.WARNING,
    LoggerLevel.Error: logging.ERROR,
}


class ConsoleLogger:
    """Log to standard error. Source: `pulsar.ConsoleLogger`."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        self.log_level = LoggerLevel(log_level)


class FileLogger:
    """Log to a file. Source: `pulsar.FileLogger`."""

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        self.log_level = LoggerLevel(log_level)
        self.log_file = log_file


_installed: list[logging.Handler] = []


class _Forward(logging.Handler):
    def __init__(self, target: logging.Logger) -> None:
        super().__init__()
        self.target = target

    def emit(self, record: logging.LogRecord) -> None:
        if self.target.isEnabledFor(record.levelno):
            self.target.handle(record)


def install_logger(logger: object | None) -> None:
    """Send this package's log lines to `logger`; None leaves Python's logging configuration in charge.

    The last one wins, for the whole process.

    Raises:
        ValueError: no logger of the official kinds.
    """
    if logger is None:
        return
    handler: logging.Handler
    if isinstance(logger, ConsoleLogger):
        handler, level = logging.StreamHandler(), _LEVELS[logger.log_level]
    elif isinstance(logger, FileLogger):
        handler, level = logging.FileHandler(logger.log_file), _LEVELS[logger.log_level]
    elif isinstance(logger, logging.Logger):
        handler, level = _Forward(logger), logger.getEffectiveLevel()
    else:
        raise ValueError(f"logger must be a ConsoleLogger, a FileLogger or a logging.Logger, got {logger!r:.60}")
    handler.setFormatter(logging.Formatter(_FORMAT))
    while _installed:
        old = _installed.pop()
        _ROOT.removeHandler(old)
        old.close()
    _installed.append(handler)
    _ROOT.addHandler(handler)
    _ROOT.setLevel(level)
    _ROOT.propagate = False
