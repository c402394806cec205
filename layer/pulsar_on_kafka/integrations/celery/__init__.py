"""A transport of kombu, and so of Celery, on the SDK (docs/celery.md)."""

from pulsar_on_kafka.integrations import kombu_alias as _kombu_alias  # noqa: F401 - registers the scheme
from pulsar_on_kafka.integrations.celery.transport import Transport

__all__ = ["Transport"]
