"""AsyncAPI documents with Pulsar's bindings, which FastStream's own factory does not have."""

from __future__ import annotations

from typing import Any, Final

import faststream.specification.asyncapi.v2_6_0.schema.bindings as bindings_2
import faststream.specification.asyncapi.v3_0_0.schema.bindings as bindings_3
from faststream.specification import AsyncAPI as FastStreamAsyncAPI
from faststream.specification.asyncapi.utils import clear_key
from faststream.specification.base import Specification

from pulsar_on_kafka.integrations.faststream.broker import PulsarBroker
from pulsar_on_kafka_mapping.names.topic_name import TopicName

BINDING_VERSION: Final = "0.1.0"
"""The version of https://github.com/asyncapi/bindings/tree/master/pulsar. Its channel bindings name namespace and
persistence, and its server bindings the tenant."""


def channel_binding(name: TopicName) -> dict[str, Any]:
    """The binding of a topic's channel."""
    return {"namespace": name.namespace, "persistence": name.domain, "bindingVersion": BINDING_VERSION}


class AsyncAPI(FastStreamAsyncAPI):
    """FastStream's factory of AsyncAPI documents, with Pulsar's bindings for the channels and servers of
    `PulsarBroker`s.

    A server has a binding when all its topics are of one tenant. Channels of patterns have none.
    """

    def to_specification(self) -> Specification:
        document: Any = super().to_specification()
        is_3 = self.schema_version.startswith("3.")
        channel_bindings = bindings_3.ChannelBinding if is_3 else bindings_2.ChannelBinding
        tenants: set[str] = set()
        for broker in self.brokers:
            if not isinstance(broker, PulsarBroker):
                continue
            for topic, channel in broker.channels():
                if (found := document.channels.get(clear_key(channel) if is_3 else channel)) is not None:
                    name = TopicName.parse(topic)
                    tenants.add(name.tenant)
                    found.bindings = channel_bindings.model_validate({"pulsar": channel_binding(name)})
        if len(tenants) == 1 and all(isinstance(broker, PulsarBroker) for broker in self.brokers):
            for server in document.servers.values():
                server.bindings = {"pulsar": {"tenant": tenants.copy().pop(), "bindingVersion": BINDING_VERSION}}
        return document  # type: ignore[no-any-return]  # the document of either version
