"""The SDK on Kafka does in each scenario what a real Pulsar did (`tests/compat/histories`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import Broker
from tests.brokers import available
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Side
from tests.compat.harness.scenario import built_in
from tests.compat.replay import Group, Replay, chosen, groups, replay
from tests.compat.secured import Authorities, secured_kafka
from tests.steps import Missing

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, kafka_broker: Broker, missing: Missing) -> Iterator[Replay]:
    scenarios = chosen(request)
    plain = Target(Side.KAFKA, f"kafka://{kafka_broker.bootstrap}")
    with ExitStack() as stack:
        secured = plain
        if any(scenario.secured for scenario in scenarios):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pok-secured-")))
            side = stack.enter_context(available(missing, secured_kafka(Authorities(folder))))
            secured = Target(Side.KAFKA, side.url, logins=side.logins)
        yield stack.enter_context(replay(scenarios, plain, secured))


@pytest.mark.parametrize("group", groups(built_in().values(), "sdk"))
def test_the_sdk_does_what_pulsar_did(group: Group, played: Replay) -> None:
    if problems := played.problems(group):
        pytest.fail("\n\n".join(problems), pytrace=False)
