"""A real Kafka broker for demos, tests and `pok standalone`: fetched, started and stopped from Python."""

from __future__ import annotations

from layer.embedded.broker import BrokerOptions, EmbeddedBroker
from layer.embedded.errors import EmbeddedBrokerError
from layer.embedded.security import SecureListeners
from layer.embedded.select import Broker, BrokerKind, ExternalBroker, open_broker
from layer.embedded.standalone import run_standalone

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
