"""Official clients on a gateway see in each scenario what they saw on a real Pulsar (`tests/compat/histories`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_on_kafka.embedded import Broker
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Side
from tests.compat.harness.scenario import built_in
from tests.compat.replay import Group, Replay, chosen, groups, replay
from tests.compat.servers import gateway_to
from tests.steps import Missing

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
# A gateway has no rights by role.
SCENARIOS = [scenario for scenario in built_in().values() if not scenario.secured]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[Replay]:
    pytest.importorskip("pulsar", reason="the official client is not installed")
    kafka = f"kafka://{kafka_broker.bootstrap}"
    with gateway_to(kafka) as gateway:
        target = Target(Side.KAFKA, kafka, gateway=gateway)
        with replay(chosen(request), target, "a gateway has no rights by role") as made:
            yield made


@pytest.mark.parametrize("group", groups(SCENARIOS, "gateway", by_client=True))
def test_official_clients_see_what_they_saw_on_pulsar(group: Group, played: Replay, missing: Missing) -> None:
    if group.by_java and isinstance(played.java, str):
        missing("pulsar", played.java)
    if problems := played.problems(group):
        pytest.fail("\n\n".join(problems), pytrace=False)
