"""Our errors become the exceptions that a Pulsar program catches (`sending/official_errors.py`)."""

from pulsar_on_kafka.sending.official_errors import as_pulsar, pulsar_errors

__all__ = ["as_pulsar", "pulsar_errors"]
