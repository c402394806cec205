"""The entry point by which kombu learns the scheme `pulsar-on-kafka://`.

kombu has no entry points for transports. It loads those named `kombu.serializers` when a program imports its producers,
consumers or queues, as Celery does. Loading this module adds the alias; the serializer that the entry point names
neither encodes nor decodes.
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

SCHEME: Final = "pulsar-on-kafka"

TRANSPORT_ALIASES.setdefault(SCHEME, "pulsar_on_kafka.integrations.celery.transport.Transport")

no_serializer: Final = (None, None, f"application/x-{SCHEME}")
"""Encoder, decoder and content type, as kombu registers them."""
