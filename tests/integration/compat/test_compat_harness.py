"""The harness with our SDK on both sides: what it records, and that a crash or a hang is a result."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.cli.main import app
from tests.compat.harness.compare import CompatReport, ScenarioVerdict
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Ending, Side
from tests.compat.harness.runner import Session
from tests.compat.harness.scenario import load
from tests.waiting import until

SCENARIOS = """
import os
import threading

from tests.compat.harness import ScenarioRun, scenario


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


@pytest.mark.long
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


HANGING = """
import threading

from tests.compat.harness import ScenarioRun, scenario


@scenario(area="hanging", title="Hangs with topics of its own")
def hangs_with_topics(run: ScenarioRun) -> None:
    run.topic("left", partitions=1)
    run.topic("left", partitions=2, namespace=run.namespace("left"))
    threading.Event().wait()
"""


@pytest.mark.long
def test_an_interrupted_run_leaves_no_topics_behind(service_url: str, admin: AdminClient, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING, encoding="utf-8")
    target = Target(Side.KAFKA, service_url, clean=True)
    known = load([tmp_path])

    def left() -> tuple[list[str], list[str]]:
        topics = [topic for topic in admin.list_topics("public/default") if topic.endswith("-left")]
        return topics, [namespace for namespace in admin.list_namespaces("public") if namespace.endswith("-left")]

    def interrupt() -> None:
        until(lambda: len(left()[1]) == 2 and all(map(admin.list_topics, left()[1])), "both sides' topics")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        Session(target, target, (tmp_path,)).run([known["hanging.hangs_with_topics"]], known, {})
    interrupting.join()
    assert left() == ([], [])


def test_a_run_asks_both_sides_first(service_url: str) -> None:
    found = CliRunner().invoke(app, ["--url", service_url, "compat", "run", "--pulsar", "pulsar://127.0.0.1:1"])
    assert found.exit_code == 1
    assert found.stderr.startswith("pok: Pulsar does not answer at pulsar://127.0.0.1:1: ")
    assert len(found.stderr.splitlines()) == 1
