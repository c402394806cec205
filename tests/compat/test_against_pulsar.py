"""A few scenarios against a real Pulsar: that the harness itself holds there. `make compat` plays all of them."""

from __future__ import annotations

import psutil
import pytest

from tests.compat.harness.compare import ScenarioVerdict
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Side
from tests.compat.harness.java import JavaRuntime, JavaSdk, known_jars
from tests.compat.harness.runner import Session
from tests.compat.harness.scenario import choose, load
from tests.compat.pulsar_standalone import PulsarOptions, PulsarRelease, PulsarStandalone, PulsarStandaloneError
from tests.compat.pulsar_standalone.jars import pulsar_jars
from tests.compat.pulsar_standalone.releases import RELEASES

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(600)]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_start_that_takes_too_long_leaves_no_process(release: PulsarRelease) -> None:
    pulsar_jars(release)
    before = _children()
    with pytest.raises(PulsarStandaloneError, match="not healthy within 1 s"):
        PulsarStandalone(PulsarOptions(release=release, start_timeout_s=1)).start()
    assert _children() == before


def _children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_ids_and_cumulative_acknowledgements_agree(service_url: str) -> None:
    known = load()
    chosen = choose(known.values(), "ids.*") + choose(known.values(), "cumulative.*")
    with PulsarStandalone() as pulsar:
        session = Session(
            Target(Side.PULSAR, pulsar.service_url, pulsar.admin_url, clean=True),
            Target(Side.KAFKA, service_url, clean=True),
        )
        report = session.run(chosen, known, {})
    assert [
        (found.scenario.name, found.diff) for found in report.comparisons if found.verdict is not ScenarioVerdict.AGREE
    ] == []
    assert len(report.comparisons) >= 12


def test_the_java_client_drives_scenarios_and_transactions() -> None:
    with PulsarStandalone() as running, JavaRuntime(known_jars()) as java:
        sdk = JavaSdk(java.address)
        client = sdk.Client(running.service_url, enable_transaction=True)
        consumer = client.subscribe("results", "s", consumer_type=sdk.ConsumerType.Shared)
        producer = client.create_producer("results", send_timeout_millis=0)
        aborted, committed = client.new_transaction(60_000), client.new_transaction(60_000)
        producer.send(b"aborted", txn=aborted)
        producer.send(b"committed", txn=committed)
        aborted.abort()
        committed.commit()
        message = consumer.receive(20_000)
        assert message.data() == b"committed"
        acknowledging = client.new_transaction(60_000)
        consumer.acknowledge(message, txn=acknowledging)
        acknowledging.commit()
        with pytest.raises(sdk.ConsumerBusy):
            client.subscribe("results", "s")
        with pytest.raises(sdk.Timeout):
            consumer.receive(300)
        with pytest.raises(TypeError, match="does not know"):
            client.create_producer("results", no_such_option=True)
        client.close()
        sdk.end_jvm()
