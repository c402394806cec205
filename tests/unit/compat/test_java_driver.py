"""The Java driver without a Pulsar: names of errors, options, what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_on_kafka
from tests.compat.harness.compare import ScenarioVerdict
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Ending, Side
from tests.compat.harness.java import JavaRuntime, JavaUnavailable, known_jars
from tests.compat.harness.java.bridge import Options, official_name
from tests.compat.harness.runner import Session
from tests.compat.harness.scenario import PulsarClient, load
from tests.compat.pulsar_standalone import PULSAR_5

_API = "org.apache.pulsar.client.api."


@pytest.mark.parametrize(
    ("java", "python"),
    [
        (f"{_API}PulsarClientException$ConsumerBusyException", "ConsumerBusy"),
        (f"{_API}PulsarClientException$AlreadyClosedException", "AlreadyClosed"),
        (f"{_API}PulsarClientException$ProducerQueueIsFullError", "ProducerQueueIsFull"),
        (f"{_API}PulsarClientException$TopicDoesNotExistException", "TopicNotFound"),
        (f"{_API}transaction.TransactionCoordinatorClientException$InvalidTxnStatusException", "InvalidTxnStatusError"),
        (f"{_API}PulsarClientException$TransactionConflictException", "TransactionConflict"),
        (f"{_API}PulsarClientException$TransactionHasOperationFailedException", "InvalidTxnStatusError"),
        (f"{_API}PulsarClientException", "UnknownError"),
        ("java.lang.IllegalArgumentException", "ValueError"),
        ("java.lang.OutOfMemoryError", "UnknownError"),
    ],
)
def test_exceptions_have_the_official_names(java: str, python: str) -> None:
    assert official_name(java) == python
    assert python == "ValueError" or issubclass(
        getattr(pulsar_on_kafka.exceptions, python), pulsar_on_kafka.PulsarException
    )


def test_an_unknown_option_is_an_error() -> None:
    options = Options("subscribe", {"consumer_name": "c", "no_such_option": 1})
    assert options.take("consumer_name") == "c"
    with pytest.raises(TypeError, match="subscribe does not know no_such_option"):
        options.done()


def test_without_jars_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JavaUnavailable, match="--pulsar-jars"), JavaRuntime(None):
        pass
    with pytest.raises(JavaUnavailable, match="has no jar of Pulsar's Java client"), JavaRuntime(tmp_path):
        pass
    with pytest.raises(JavaUnavailable, match="not running"):
        JavaRuntime(None).address  # noqa: B018 - the property raises


def test_a_jar_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "pulsar-client-original-4.0.7.jar").touch()
    runtime = JavaRuntime(tmp_path)
    try:
        runtime.start()  # the server is py4j's; Pulsar's classes are looked for by the first client
        assert runtime.address.port > 0
        assert runtime.address.token not in repr(runtime.address)
    except JavaUnavailable as unavailable:
        assert "Java" in str(unavailable)  # noqa: PT017 - a machine without Java
    finally:
        runtime.stop()
        runtime.stop()


def test_the_cache_counts_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert known_jars() is None
    home = tmp_path / "pulsar-on-kafka" / "pulsar-4.0.7"
    (home / "libs").mkdir(parents=True)
    assert known_jars() is None
    (home / "manifest.json").write_text("{}", encoding="utf-8")
    assert known_jars() == home / "libs"
    assert known_jars(PULSAR_5) is None


def test_scenarios_that_cannot_be_played_say_why_and_fail_nothing() -> None:
    known = load()
    java = [found for found in known.values() if found.client is PulsarClient.JAVA]
    secured = [found for found in known.values() if found.secured]
    assert len(java) >= 25
    targets = Target(Side.PULSAR, "pulsar://127.0.0.1:1"), Target(Side.KAFKA, "kafka://127.0.0.1:1")
    report = Session(*targets, secured="no certificates here", java_jars=None).run([*java, *secured], known, {})
    assert {found.verdict for found in report.comparisons} == {ScenarioVerdict.NOT_PLAYED}
    assert {found.pulsar.ending for found in report.comparisons} == {Ending.NOT_PLAYED}
    reasons = {found.scenario.name: found.reason for found in report.comparisons}
    assert all("--pulsar-jars" in reasons[found.name] for found in java)
    assert all("no certificates here" in reasons[found.name] for found in secured)
    assert report.ok
    assert report.agreement == 0
    assert report.driven() == {}
