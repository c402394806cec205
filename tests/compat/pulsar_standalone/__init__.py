"""A real Apache Pulsar to compare with: fetched, started and stopped from Python."""

from __future__ import annotations

from tests.compat.pulsar_standalone.docker import PulsarContainer
from tests.compat.pulsar_standalone.errors import PulsarStandaloneError
from tests.compat.pulsar_standalone.releases import PULSAR_4, PULSAR_5, RELEASES, PulsarRelease, release_of
from tests.compat.pulsar_standalone.standalone import PulsarOptions, PulsarStandalone

__all__ = [
    "PULSAR_4",
    "PULSAR_5",
    "RELEASES",
    "PulsarContainer",
    "PulsarOptions",
    "PulsarRelease",
    "PulsarStandalone",
    "PulsarStandaloneError",
    "release_of",
]
