from __future__ import annotations

import socket

import pytest

from pulsar_on_kafka.embedded import EmbeddedBrokerError, open_broker
from pulsar_on_kafka.embedded.broker import BrokerOptions
from pulsar_on_kafka.embedded.docker import container_environment
from pulsar_on_kafka.embedded.errors import CannotRestart, NoContainerEngine
from pulsar_on_kafka.embedded.settings import silent


def test_pok_bootstrap_is_used_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("POK_BOOTSTRAP", address)
        with open_broker("auto") as broker:
            assert broker.bootstrap == address
            assert not broker.can_restart
            with pytest.raises(CannotRestart, match="not ours to be killed"):
                broker.kill()


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POK_BOOTSTRAP", "127.0.0.1:1")
    with pytest.raises(EmbeddedBrokerError, match="no broker replies at POK_BOOTSTRAP=127"), open_broker("auto"):
        pass


def test_external_without_an_address_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POK_BOOTSTRAP", raising=False)
    with pytest.raises(EmbeddedBrokerError, match="set POK_BOOTSTRAP=host:port"), open_broker("external"):
        pass


def test_no_container_engine_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("testcontainers")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(NoContainerEngine, match="start Docker, or use `--broker embedded`") as refusal:  # noqa: SIM117
        with open_broker("docker", BrokerOptions(), silent):
            pass
    assert "\n" not in str(refusal.value)


def test_a_container_hears_the_common_settings_and_the_extra_ones() -> None:
    environment = container_environment(15_001, BrokerOptions(heap_mb=300, extra={"log.retention.ms": "-1"}))
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:15001"
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert environment["KAFKA_LOG_RETENTION_MS"] == "-1"
    assert environment["KAFKA_HEAP_OPTS"] == "-Xmx300m"
