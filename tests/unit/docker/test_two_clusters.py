"""`compose.two-clusters.yaml` agrees with itself, with `compose.yaml` and with the code, without a container engine."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from typer.testing import CliRunner

from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.cli.processes import serve
from pulsar_on_kafka.embedded.docker import IMAGE
from pulsar_on_kafka.embedded.settings import DEFAULT_VERSION, common_properties

_ROOT = Path(__file__).resolve().parents[3]
_DOCKER = _ROOT / "docker"
_CLUSTERS = ("eu", "us")
_KEYS = {
    "image", "build", "entrypoint", "command", "environment", "ports", "volumes", "healthcheck", "depends_on", "deploy",
    "restart", "stop_grace_period",
}  # fmt: skip
"""Of a service in the compose specification, those that are used here."""
_NOBODY = "kafka://127.0.0.1:1"


def _read(name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load((_DOCKER / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return _read("compose.two-clusters.yaml")


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", compose["services"])


def _registering(services: dict[str, Any]) -> list[list[str]]:
    """The commands of the one-shot service, without `pok`."""
    (script,) = services["clusters"]["command"]
    lines = [shlex.split(line) for line in script.splitlines()]
    assert {line[0] for line in lines} == {"pok"}
    return [line[1:] for line in lines]


def test_the_file_names_what_is_there(compose: dict[str, Any], services: dict[str, Any]) -> None:
    assert {key for key in compose if not key.startswith("x-")} == {"name", "services", "volumes"}
    assert compose["name"] != _read("compose.yaml")["name"]
    assert set(services) == {"clusters", *(f"{what}-{name}" for what in ("kafka", "serve") for name in _CLUSTERS)}
    single = _read("compose.yaml")["services"]["serve"]
    for name, service in services.items():
        assert set(service) <= _KEYS, name
        assert set(service.get("depends_on", ())) <= set(services), name
        if name.startswith("kafka-"):
            assert service["image"] == f"{IMAGE}:{DEFAULT_VERSION}"
        else:
            assert service["image"] == single["image"]
            assert service.get("build") == (single["build"] if name == "clusters" else None), "one builds for all"
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (_DOCKER / source).exists() if source.startswith(".") else source in compose["volumes"], source


def test_what_is_started_waits_for_what_it_needs(services: dict[str, Any]) -> None:
    assert services["clusters"]["depends_on"] == {
        f"kafka-{name}": {"condition": "service_healthy"} for name in _CLUSTERS
    }
    for name in _CLUSTERS:
        assert "healthcheck" in services[f"kafka-{name}"]
        assert services[f"serve-{name}"]["depends_on"] == {"clusters": {"condition": "service_completed_successfully"}}


def test_ports_of_this_machine_clash_neither_here_nor_with_the_other_file(services: dict[str, Any]) -> None:
    everywhere = [*services.values(), *_read("compose.yaml")["services"].values()]
    ports = [port.split(":") for service in everywhere for port in service.get("ports", ())]
    assert {host for host, _, _ in ports} == {"127.0.0.1"}, "open to the network"
    assert len({outside for _, outside, _ in ports}) == len(ports) >= 4


def test_each_kafka_is_a_cluster_of_its_own_and_told_where_it_is(services: dict[str, Any]) -> None:
    ids = set()
    for name in _CLUSTERS:
        kafka = services[f"kafka-{name}"]
        told = kafka["environment"]
        assert told["INSIDE"] == f"kafka-{name}:19092"
        ((outside, inner),) = (port.rsplit(":", 1) for port in kafka["ports"])
        assert (told["OUTSIDE"], inner) == (outside, "9092")
        assert len(base64.urlsafe_b64decode(told["CLUSTER_ID"] + "==")) == 16, "Kafka's form of a UUID"
        ids.add(told["CLUSTER_ID"])
        (script,) = kafka["command"]
        assert set(re.findall(r"\$\$(\w+)", script)) <= set(told)
        assert "$" not in script.replace("$$", ""), "compose would put in what this shell has"
        data = re.search(r"log\.dirs=([^\"]+)", script)
        assert data is not None
        assert f"kafka-{name}-data:{data[1]}" in kafka["volumes"]
    assert len(ids) == len(_CLUSTERS)


def test_both_files_start_kafka_alike(services: dict[str, Any]) -> None:
    (here,) = services["kafka-eu"]["command"]
    (there,) = _read("compose.yaml")["services"]["kafka"]["command"]
    assert here.replace("$$INSIDE", "kafka:19092").replace("$$OUTSIDE", "127.0.0.1:9092") == there
    listeners = set(re.findall(r"(\w+):PLAINTEXT", here))
    assert common_properties()["inter.broker.listener.name"] in listeners


def test_every_command_is_one_of_pok_and_says_what_it_takes(services: dict[str, Any]) -> None:
    assert services["clusters"]["entrypoint"] == ["/bin/sh", "-ec"], "a command that fails ends it"
    for option, url, *words in _registering(services):
        assert (option, url) in {("--url", f"kafka://kafka-{name}:19092") for name in _CLUSTERS}
        # Read in full, policies' values too, and then refused for want of a broker alone: 2 is "not understood".
        found = CliRunner().invoke(app, ["--url", _NOBODY, *words])
        assert found.exit_code == 1, (words, found.stdout, found.stderr)
        assert "no broker answers (127.0.0.1:1: " in found.stderr


def test_each_cluster_knows_its_name_the_other_and_what_to_copy(services: dict[str, Any]) -> None:
    said: dict[str, list[list[str]]] = {name: [] for name in _CLUSTERS}
    for _, url, *words in _registering(services):
        said[url.removeprefix("kafka://kafka-").removesuffix(":19092")].append(words)
    for name, other in (_CLUSTERS, _CLUSTERS[::-1]):
        assert said[name] == [
            ["clusters", "local", name],
            [
                "clusters",
                "create",
                other,
                "--service-url",
                f"kafka://{services[f'kafka-{other}']['environment']['INSIDE']}",
            ],
            ["namespaces", "policy", "set", "public/default", "replication_clusters", ",".join(_CLUSTERS)],
        ]


def test_a_service_for_each_cluster_replicates_and_has_the_time_to_stop(services: dict[str, Any]) -> None:
    assert {RoleName.REPLICATION, RoleName.SUBSCRIPTIONS} <= serve._chosen((), ()), "unless told otherwise"
    single = _read("compose.yaml")["services"]["serve"]
    for name in _CLUSTERS:
        service = services[f"serve-{name}"]
        assert service["environment"] == {"POK_URL": f"kafka://kafka-{name}:19092"}
        assert not {"command", "entrypoint"} & set(service), "the image's own: pok serve, with all roles"
        assert service["stop_grace_period"] == single["stop_grace_period"]
