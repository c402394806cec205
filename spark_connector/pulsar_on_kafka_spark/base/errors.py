"""Errors of reads and writes: each message is one line, with the refusal and the expectation."""

from __future__ import annotations


class SparkConnectorError(Exception):
    """Nothing was read, or written."""


class InvalidReadOption(SparkConnectorError, ValueError):
    """An option is unknown, missing, contradicts another one, or has a value that cannot be."""


class SparkNotReady(SparkConnectorError):
    """Java, pyspark or a jar is missing, or the session is one that this connector cannot use."""


class NotReadable(SparkConnectorError):
    """The topic or subscription is not there, or holds what Spark cannot be given."""


class DataLoss(SparkConnectorError):
    """Messages that the read was to begin with are gone from Kafka."""


class InvalidWriteOption(SparkConnectorError, ValueError):
    """An option of a write is unknown, missing, contradicts another one or the columns, or has a value that is none."""


class NotWritten(SparkConnectorError):
    """A transactional write was undone: nothing of it is or becomes visible."""
