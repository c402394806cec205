"""A real Kafka broker for demos, tests and `pok standalone`: fetched, started and stopped from Python."""

from __future__ import annotations

from pulsar_on_kafka.embedded.broker import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.security import SecureListeners
from pulsar_on_kafka.embedded.select import Broker, BrokerKind, ExternalBroker, open_broker, run_standalone

__all__ = [
    "Broker",
    "BrokerKind",
    "BrokerOptions",
    "EmbeddedBroker",
    "EmbeddedBrokerError",
    "ExternalBroker",
    "SecureListeners",
    "open_broker",
    "run_standalone",
]
