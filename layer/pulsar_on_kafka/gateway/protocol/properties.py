"""Properties of a client's producer or consumer are kept in memory, and are bounded."""

from __future__ import annotations

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka_mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, properties_bytes
from pulsar_on_kafka_mapping.wire.command_types import ProducerCommand, SubscribeCommand


def properties_of(command: ProducerCommand | SubscribeCommand) -> dict[str, str]:
    """Properties in a PRODUCER or SUBSCRIBE command.

    Raises:
        InvalidOption: they take more than `MAX_PROPERTIES_BYTES`.
    """
    properties = {each.key: each.value for each in command.metadata}
    size = properties_bytes(properties)
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidOption(f"{command.topic}: properties take {size} bytes, at most {MAX_PROPERTIES_BYTES} are kept")
    return properties
