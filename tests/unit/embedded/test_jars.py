"""Which Kafka the embedded broker is: the default, a version by name, an unpacked distribution."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.jar_cache import JarSet
from pulsar_on_kafka.embedded.jars import FEWEST_JARS, jars_of, kafka_jars
from pulsar_on_kafka.embedded.settings import DEFAULT_VERSION, Progress, kafka_version, silent


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POK_KAFKA_VERSION", "POK_KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)


def nobody(jars: JarSet, libs: Path, work: Path, progress: Progress) -> None:
    raise AssertionError("nothing is to be fetched")


def distribution(home: Path, *jars: str) -> Path:
    (home / "libs").mkdir(parents=True)
    for jar in jars:
        (home / "libs" / jar).touch()
    return home


def test_the_version_is_the_default_or_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kafka_version() == DEFAULT_VERSION
    monkeypatch.setenv("POK_KAFKA_VERSION", "")
    assert kafka_version() == DEFAULT_VERSION
    monkeypatch.setenv("POK_KAFKA_VERSION", "3.7.0")
    assert kafka_version() == "3.7.0"


@pytest.mark.parametrize("told", ["3.6.2", "4", "4.4", "latest", "4.4.0/..", "4.4.0 "])
def test_what_is_no_version_of_these_is_named(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POK_KAFKA_VERSION", told)
    with pytest.raises(EmbeddedBrokerError, match=r"POK_KAFKA_VERSION='.*': a version of Kafka from 3\.7\.0 on"):
        kafka_jars(fetch=nobody)


@pytest.mark.parametrize(("version", "logging"), [("3.9.2", "slf4j-reload4j-"), ("4.0.0", "log4j-core-")])
def test_a_version_brings_the_logging_of_its_time(version: str, logging: str) -> None:
    jars = jars_of(version)
    assert logging in jars.needed
    assert jars.fewest == FEWEST_JARS
    assert f"org.apache.kafka:kafka_2.13:{version}" in jars.with_dependencies


@pytest.mark.parametrize(
    ("jar", "logging"), [("log4j-core-2.24.3.jar", "log4j2.xml"), ("reload4j-1.2.25.jar", "log4j.properties")]
)
def test_a_distribution_is_used_as_it_is(
    jar: str, logging: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = distribution(tmp_path / "unpacked", "kafka_2.13-4.2.0.jar", "kafka_2.13-4.2.0-test.jar.asc", jar)
    monkeypatch.setenv("POK_KAFKA_HOME", str(home))
    jars = kafka_jars(tmp_path / "cache", silent, nobody)
    assert jars.libs == home / "libs"
    assert jars.home.parent == tmp_path / "cache"  # what is derived lies there, not in the distribution
    assert jars.home.is_dir()
    assert jars.log_by[0] == logging


def test_another_distribution_has_by_products_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = set()
    for name, jar in (("a", "kafka_2.13-4.2.0.jar"), ("b", "kafka_2.13-4.2.0.jar"), ("c", "kafka_2.12-3.9.2.jar")):
        monkeypatch.setenv("POK_KAFKA_HOME", str(distribution(tmp_path / name, jar)))
        homes.add(kafka_jars(tmp_path / "cache", silent, nobody).home)
    assert len(homes) == 3


def test_a_directory_without_kafka_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POK_KAFKA_HOME", str(distribution(tmp_path / "none", "kafka-clients-4.2.0.jar")))
    with pytest.raises(EmbeddedBrokerError, match=r"POK_KAFKA_HOME=.*none: no libs/kafka_2\.13-<version>\.jar in it"):
        kafka_jars(tmp_path / "cache", silent, nobody)


def test_a_distribution_of_another_version_than_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POK_KAFKA_HOME", str(distribution(tmp_path, "kafka_2.13-4.2.0.jar")))
    monkeypatch.setenv("POK_KAFKA_VERSION", "3.9.2")
    with pytest.raises(EmbeddedBrokerError, match=r"is Kafka 4\.2\.0, and POK_KAFKA_VERSION requires 3\.9\.2"):
        kafka_jars(tmp_path / "cache", silent, nobody)
