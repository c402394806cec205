"""Official clients on a gateway see in each scenario what they saw on a real Pulsar (`tests/compat/histories`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import Broker
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Side
from tests.compat.harness.scenario import built_in
from tests.compat.replay import Group, Replay, chosen, groups, replay
from tests.compat.secured import Authorities, secured_gateway
from tests.compat.servers import gateway_to
from tests.steps import Missing

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[Replay]:
    pytest.importorskip("pulsar", reason="the official client is not installed")
    kafka = f"kafka://{kafka_broker.bootstrap}"
    scenarios = chosen(request)
    with ExitStack() as stack:
        plain = secured = Target(Side.KAFKA, kafka, gateway=stack.enter_context(gateway_to(kafka)))
        if any(scenario.secured for scenario in scenarios):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pok-secured-")))
            side = stack.enter_context(secured_gateway(Authorities(folder), kafka))
            secured = Target(Side.KAFKA, kafka, gateway=side.gateway, logins=side.logins)
        yield stack.enter_context(replay(scenarios, plain, secured))


@pytest.mark.parametrize("group", groups(built_in().values(), "gateway", by_client=True))
def test_official_clients_see_what_they_saw_on_pulsar(group: Group, played: Replay, missing: Missing) -> None:
    if group.by_java and isinstance(played.java, str):
        missing("pulsar", played.java)
    if problems := played.problems(group):
        pytest.fail("\n\n".join(problems), pytrace=False)
