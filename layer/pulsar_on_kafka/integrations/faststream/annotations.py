"""Annotations of handlers' parameters that FastStream injects: the message, the broker, the SDK's client."""

from __future__ import annotations

from typing import Annotated

from faststream._internal.context import Context
from faststream.annotations import ContextRepo, Logger
from faststream.params import NoCast

from pulsar_on_kafka.asyncio.client import Client as AsyncClient
from pulsar_on_kafka.integrations.faststream.broker import PulsarBroker as Broker
from pulsar_on_kafka.integrations.faststream.message import StreamedMessage

__all__ = ["Client", "ContextRepo", "Logger", "NoCast", "PulsarBroker", "PulsarMessage"]

Client = Annotated[AsyncClient, Context("broker._connection")]
PulsarBroker = Annotated[Broker, Context("broker")]
PulsarMessage = Annotated[StreamedMessage, Context("message")]
