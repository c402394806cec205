"""The harness with our SDK on both sides: what it records, and that a crash or a hang is a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.compat.compare import CompatReport, ScenarioVerdict
from pulsar_on_kafka.compat.driver import Target
from pulsar_on_kafka.compat.history import Ending, Side
from pulsar_on_kafka.compat.runner import Session
from pulsar_on_kafka.compat.scenario import load

SCENARIOS = """
import os
import threading

from pulsar_on_kafka.compat import ScenarioRun, scenario


@scenario(area="harness", title="Agrees")
def agrees(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    run.send(topic, ["a", "b"])
    run.record_messages("received", run.receive_acked(consumer, 2), "message_id", "topic_name")
    run.attempt("closed twice", lambda: (consumer.close(), consumer.close()))
    run.record("backlog", run.admin.backlog(topic, "sub"))


@scenario(area="harness", title="Crashes after an event")
def crashes(run: ScenarioRun) -> None:
    run.record("before")
    os._exit(7)


@scenario(area="harness", title="Hangs after an event", time_limit_s=20)
def hangs(run: ScenarioRun) -> None:
    run.record("before")
    threading.Event().wait()


@scenario(area="harness", title="Fails")
def fails(run: ScenarioRun) -> None:
    raise RuntimeError("of course")


@scenario(area="harness", title="Wants what is not there")
def wants(run: ScenarioRun) -> None:
    run.sdk.NoSuchThing()
"""


@pytest.fixture
def report(service_url: str, tmp_path: Path) -> CompatReport:
    (tmp_path / "harness.py").write_text(SCENARIOS, encoding="utf-8")
    target = Target(Side.KAFKA, service_url, clean=True)
    known = load([tmp_path])
    chosen = [found for found in known.values() if found.area == "harness"]
    return Session(target, target, [tmp_path], jobs=4).run(chosen, known, {})


def test_each_scenario_has_its_ending(report: CompatReport) -> None:
    diffs = [found.diff for found in report.comparisons]
    endings = {found.scenario.name: (found.verdict, found.kafka.ending) for found in report.comparisons}
    assert endings == {
        "harness.agrees": (ScenarioVerdict.AGREE, Ending.DONE),
        "harness.crashes": (ScenarioVerdict.DIFFER, Ending.CRASHED),
        "harness.fails": (ScenarioVerdict.DIFFER, Ending.FAILED),
        "harness.hangs": (ScenarioVerdict.DIFFER, Ending.TIMED_OUT),
        "harness.wants": (ScenarioVerdict.NOT_SUPPORTED, Ending.NOT_SUPPORTED),
    }, diffs
    by_name = {found.scenario.name: found.kafka for found in report.comparisons}
    first, second = (
        f'{{"message_id": "L0, entry {entry}, partition -1, batch index -1", "topic_name": "persistent://<topic>"}}'
        for entry in (0, 1)
    )
    assert by_name["harness.agrees"].lines() == [
        f"received: [{first}, {second}]",
        'closed twice: "error ValueError"',
        "backlog: 0",
    ]
    assert by_name["harness.crashes"].lines() == ["before: true", "crashed: the worker ended with exit status 7"]
    assert by_name["harness.hangs"].lines() == ["before: true", "timed out: not finished after 20 s"]
    assert "of course" in by_name["harness.fails"].detail
