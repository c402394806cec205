"""While Kafka is away: no number is said to be newer than it is, pages fail at once, and a service ends in time."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.log_followers import FollowedLogs
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.embedded import EmbeddedBroker
from tests.consoles import a_console, text_of
from tests.integration.overview.terminals import pok_in_terminal
from tests.waiting import patience, until

pytestmark = [pytest.mark.kafka, pytest.mark.kills]
STOPPED_WITHIN_S = 30
"""What docs/cli.md states; the shipped units allow 35."""
PAGE_S = 30
"""The longest that a page takes: four seconds on a quiet machine."""


def test_no_pass_without_an_answer_counts(own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowedLogs, "complete", True)  # as where all state topics are there, and are not looked for
    url = f"kafka://{own_broker.bootstrap}"
    with AdminClient(url) as admin, a_console(url, every_s=0.5) as console:
        admin.create_topic("orders")
        admin.create_subscription("orders", "billing")
        gatherer = Gatherer(admin.node)
        assert gatherer.gather(patience()).incomplete == ()
        asking = AdminClient(url, operation_timeout_seconds=5)
        console.site.connect(asking, SharedGatherer(admin.node))
        console.says("billing")
        own_broker.pause()
        with pytest.raises(StoreError, match=r"none of [0-9]+ partitions replies"):
            gatherer.gather(patience())
        console.says("The cluster does not answer. Since ")
        seen = console.site.look()
        assert seen.overview is not None
        until(lambda: "does not answer" in console.text("/subscription", topic="orders", name="billing"), "the reason")
        assert console.site.look().overview is seen.overview, "nothing newer than before"
        own_broker.resume()
        until(
            lambda: console.site.look().failure == "",
            lambda: f"a pass that goes well, not {console.site.look().failure}",
        )
        until(lambda: "did not answer" not in console.text("/roles"), "answers again")
        gatherer.close()
        console.site.close(Deadline.after(30))
        asking.close()


def test_pages_and_pok_top_name_the_absence_and_its_begin(own_broker: EmbeddedBroker) -> None:
    url = f"kafka://{own_broker.bootstrap}"
    with (
        AdminClient(url) as admin,
        a_console(url, every_s=0.5) as console,
        pok_in_terminal(url, "top", "--every", "0.5") as terminal,
    ):
        admin.create_topic("orders")
        admin.create_subscription("orders", "billing")
        console.site.connect(admin, SharedGatherer(admin.node))
        console.says("billing")
        terminal.shows("orders/billing")
        own_broker.stop()
        for path in ("/", "/subscription", "/roles", "/transactions"):  # each waits for seconds, not for time-outs
            requests.get(console.at(path, topic="orders", name="billing"), timeout=PAGE_S).raise_for_status()
        assert "billing" in console.says("The cluster does not answer. Since ")
        terminal.shows("Kafka does not answer since ")
        terminal.press("\r")
        terminal.shows("reading ...")
        terminal.press("q")
        assert terminal.ends() == 0
        console.site.close(Deadline.after(30))


@pytest.mark.parametrize("absence", ["stops", "hangs"])
def test_a_service_ends_in_time(own_broker: EmbeddedBroker, tmp_path: Path, absence: str) -> None:
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "pulsar_on_kafka.cli",
        "--url",
        f"kafka://{own_broker.bootstrap}",
        "serve",
        "--port",
        "0",
        "--stop-timeout",
        "5",
        "--with",
        "gateway",
        "--gateway-port",
        "0",
    ]
    with log.open("w") as said:
        process = subprocess.Popen([*command, "--with", "console", "--console-port", "0"], stdout=said, stderr=said)
    try:
        until(lambda: "serving kafka" in log.read_text(), log.read_text)
        address = re.findall(r"console on (\S+)", log.read_text())[0]
        own_broker.stop() if absence == "stops" else own_broker.pause()
        until(lambda: "The cluster does not answer." in text_of(requests.get(address, timeout=PAGE_S).text), "the page")
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_WITHIN_S) == 0, log.read_text()
    finally:
        if absence == "hangs":
            own_broker.resume()
        process.kill()
        process.wait(60)
