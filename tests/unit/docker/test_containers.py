"""`docker/` agrees with itself and with the code; no container engine is needed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.cli.processes import serve
from pulsar_on_kafka.cli.shared.gateway_options import GATEWAY_PORT, REST_PORT
from pulsar_on_kafka.cli.shared.http_options import CONSOLE_PORT
from pulsar_on_kafka.embedded.docker import IMAGE
from pulsar_on_kafka.embedded.settings import DEFAULT_VERSION
from pulsar_on_kafka.metrics import MetricsCollector
from pulsar_on_kafka.service.health import LIVE, READY
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS
from tests.command_lines import unknown
from tests.unit.docker.test_kubernetes import STOPS_S, understood

_ROOT = Path(__file__).resolve().parents[3]
_DOCKER = _ROOT / "docker"
_DOCKERFILE = (_DOCKER / "Dockerfile").read_text(encoding="utf-8")
_STAGES = set(re.findall(r"^FROM \S+ AS (\w+)$", _DOCKERFILE, re.MULTILINE))


def _read(name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load((_DOCKER / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return cast("dict[str, Any]", _read("compose.yaml")["services"])


def test_the_compose_file_names_what_is_there(services: dict[str, Any]) -> None:
    compose = _read("compose.yaml")
    assert set(services) == {"kafka", "serve", "console", "gateway", "spark", "prometheus", "grafana"}
    assert services["kafka"]["image"] == f"{IMAGE}:{DEFAULT_VERSION}"
    assert services["serve"]["deploy"]["replicas"] == 2
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        build = service.get("build")
        if build is not None:
            assert (_DOCKER / build["context"]).resolve() == _ROOT
            assert (_ROOT / build["dockerfile"]).samefile(_DOCKER / "Dockerfile")
            assert build["target"] in _STAGES
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (_DOCKER / source).exists(), source
            else:
                assert source in compose["volumes"], source
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the network: {port}"


def test_a_service_has_longer_to_stop_than_it_takes(services: dict[str, Any]) -> None:
    takes = float(re.findall(r'--stop-timeout".*?\n\s*\] = ([0-9.]+)', Path(serve.__file__).read_text())[0])
    closing = 10.0  # layer/pulsar_on_kafka/broker/node/node.py
    assert float(services["serve"]["stop_grace_period"].removesuffix("s")) > takes + closing


def test_the_image_copies_what_is_there_and_what_is_not_ignored() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", _DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    ignore = (_DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert copied == {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert all((_ROOT / source).exists() for source in copied)


def test_the_console_is_reached_where_it_listens_by_those_with_the_token(services: dict[str, Any]) -> None:
    console = services["console"]
    assert console["ports"] == [f"127.0.0.1:{CONSOLE_PORT}:{CONSOLE_PORT}"]
    assert unknown(shlex.join(["pok", *console["command"]])) == ""
    (secret,) = console["secrets"]
    assert f"--console-token-file=/run/secrets/{secret}" in console["command"]
    assert secret in _read("compose.yaml")["secrets"]
    assert "[console,gateway,scaler]" in _DOCKERFILE


def test_the_gateway_is_reached_where_it_says(services: dict[str, Any]) -> None:
    gateway = services["gateway"]
    said = understood(*gateway["command"])
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}" for port in (GATEWAY_PORT, REST_PORT)]
    assert (said["gateway_port"], said["advertised"]) == (GATEWAY_PORT, "127.0.0.1")
    assert set(said["without"]) == set(RoleName)
    assert float(gateway["stop_grace_period"].removesuffix("s")) > said["stop_timeout"] + STOPS_S


def test_ports_and_paths_are_those_of_the_service() -> None:
    assert f"EXPOSE {serve.DEFAULT_PORT} {GATEWAY_PORT} {REST_PORT}" in _DOCKERFILE
    assert f"http://127.0.0.1:{serve.DEFAULT_PORT}{READY}" in _DOCKERFILE
    (scraped,) = _read("prometheus/prometheus.yml")["scrape_configs"]
    assert scraped["dns_sd_configs"][0]["names"] == ["serve"]
    assert scraped["dns_sd_configs"][0]["port"] == serve.DEFAULT_PORT
    assert (LIVE, READY) == ("/health/live", "/health/ready")


def test_rules_speak_of_metrics_that_there_are() -> None:
    (group,) = _read("prometheus/rules.yml")["groups"]
    text = " ".join(rule["expr"] for rule in group["rules"])
    collected = {each.name + ("_total" if each.type == "counter" else "") for each in MetricsCollector().collect()}
    assert set(re.findall(r"\bpok_\w+", text)) <= collected
    assert f"< {LEDGERS.partitions}" in text
    assert {scrape["job_name"] for scrape in _read("prometheus/prometheus.yml")["scrape_configs"]} == {
        *re.findall(r'job="([^"]+)"', text)
    }
