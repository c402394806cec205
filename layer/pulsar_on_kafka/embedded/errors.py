"""Errors that prevent an embedded broker from running. Each message is one line and names the remedy."""

from __future__ import annotations

from pulsar_on_kafka.base.errors import LayerError


class EmbeddedBrokerError(LayerError):
    """The broker cannot be started; the message names the remedy."""


class NoJava(EmbeddedBrokerError):
    """No Java runtime was found."""


class JavaTooOld(EmbeddedBrokerError):
    """The Java runtime that was found cannot run this Kafka."""


class NoDownloader(EmbeddedBrokerError):
    """The jars are not in the cache and what fetches them is not installed."""


class NoDiskSpace(EmbeddedBrokerError):
    """The cache or the data directory cannot hold what must be written."""


class DownloadFailed(EmbeddedBrokerError):
    """The jars could not be fetched, or were wrong; the message has the reason."""


class PortBusy(EmbeddedBrokerError):
    """Another process listens on the requested port."""


class DataDirBusy(EmbeddedBrokerError):
    """Another broker works on the same data directory."""


class BrokerDidNotStart(EmbeddedBrokerError):
    """The broker's process ended, or did not answer in time; the message ends in its last log lines."""


class NotRunning(EmbeddedBrokerError):
    """The call needs a running broker."""


class NoContainerEngine(EmbeddedBrokerError):
    """No container engine, or no testcontainers package to talk to it."""


class CannotRestart(EmbeddedBrokerError):
    """The broker is not ours to stop, kill or pause."""
