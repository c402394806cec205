"""Errors that keep Pulsar standalone from running. Each message is one line and says what to do."""

from __future__ import annotations


class PulsarStandaloneError(Exception):
    """Pulsar cannot be had; the message says what to do about it."""


class PulsarDidNotStart(PulsarStandaloneError):
    """The process ended, or was not healthy in time; the message ends in its last log lines."""


class PulsarNotRunning(PulsarStandaloneError):
    """The call needs a running Pulsar."""
