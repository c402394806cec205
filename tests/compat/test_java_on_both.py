"""The example of one Java program on two services: a real Pulsar and a gateway on Kafka."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.builds import Missing
from tests.compat.pulsar_standalone import PulsarOptions, PulsarRelease, PulsarStandalone
from tests.compat.pulsar_standalone.releases import RELEASES
from tests.integration.gateway.languages import java_on_both

pytestmark = [pytest.mark.pulsar, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_java_program_prints_the_same_on_pulsar_and_on_kafka(release: PulsarRelease, admin: AdminClient) -> None:
    gateway = Gateway(admin.node, GatewaySettings(port=0))
    try:
        with PulsarStandalone(PulsarOptions(release=release, start_timeout_s=300)) as pulsar:
            said = java_on_both(pulsar.service_url, gateway.address())
    except Missing as missing:
        pytest.skip(str(missing))
    finally:
        gateway.close(Deadline.after(60))
    assert said[-1].endswith("lines, no difference"), "\n".join(said)
