"""Every command of Pulsar's Java admin client on the gateway: it works, or says with words that it is not served."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.compat.harness.java.bridge import Bridge
from tests.integration.gateway.admin_commands import Command, Commands
from tests.integration.gateway.rest import Rest
from tests.steps import Unique

protocol: Any = pytest.importorskip("py4j.protocol", reason="py4j is not installed")

pytestmark = [pytest.mark.kafka, pytest.mark.long]

MIN_WORKING: Final = 182
UNSERVED: Final = 501


@pytest.mark.timeout(300)
def test_each_command_works_or_says_why_not(
    bridge: Bridge, rest: Rest, unique: Unique, capsys: pytest.CaptureFixture[str]
) -> None:
    jvm, web = bridge.jvm, urlsplit(rest.url).netloc
    admin = jvm.org.apache.pulsar.client.admin.PulsarAdmin.builder().serviceHttpUrl(rest.url).build()
    client = bridge.api.PulsarClient.builder().serviceUrl(rest.url).build()
    outcomes = {each.name: _outcome(each) for each in Commands(jvm, admin, client, unique(), "standalone", web)}
    client.close()
    admin.close()
    counted = Counter(outcome.partition(":")[0] for outcome in outcomes.values())
    with capsys.disabled():
        print(f"\n{dict(counted)} of {len(outcomes)} commands")
        for name, outcome in outcomes.items():
            if outcome != "works":
                print(f"{name}: {outcome}")
    assert not {name: outcome for name, outcome in outcomes.items() if outcome.startswith("WRONG")}
    assert counted["works"] >= MIN_WORKING


def _outcome(command: Command) -> str:
    try:
        found = command.run()
        if command.status is not None:
            return f"WRONG: it is not refused with {command.status}"
        return "works" if command.expects(found) else f"WRONG: {found!s:.200}"
    except protocol.Py4JJavaError as thrown:
        failure = thrown.java_exception
        status = failure.getStatusCode() if hasattr(failure, "getStatusCode") else -1
        reason = str(failure.getMessage())
        if status == command.status:
            return "works"
        if status == UNSERVED:
            return f"refused: {reason:.160}"
        return f"WRONG: {status} {failure.getClass().getName()} {reason:.300}"
    except protocol.Py4JError as unknown:
        return f"WRONG: {unknown!s:.300}"
