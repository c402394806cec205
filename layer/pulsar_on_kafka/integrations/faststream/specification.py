"""The parts of subscribers and publishers in an AsyncAPI document. `asyncapi` adds Pulsar's bindings to them."""

from __future__ import annotations

from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from pulsar_on_kafka.integrations.faststream.config import PublisherDocument, PulsarBrokerConfig, SubscriberDocument


class TopicSubscriberSpecification(SubscriberSpecification[PulsarBrokerConfig, SubscriberDocument]):
    """The channel of one subscriber: its topic, and its handlers' types."""

    @property
    def topic(self) -> str:
        """The topic or pattern, with the prefix of the routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }


class TopicPublisherSpecification(PublisherSpecification[PulsarBrokerConfig, PublisherDocument]):
    """The channel of one publisher: its topic, and the types that it publishes."""

    @property
    def topic(self) -> str:
        """The topic, with the prefix of the routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads(), "Publisher"))
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
