"""The manifests of `docker/kubernetes/` agree with the command line, the service and what the docs say of memory."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.broker.node import node
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.cli.processes import serve
from pulsar_on_kafka.cli.shared.on_demand import loaded
from pulsar_on_kafka.cli.shared.service_log import LEVEL_VARIABLE, LEVELS
from pulsar_on_kafka.client.connection.connection import STAND_IN_VARIABLE
from pulsar_on_kafka.scaler.trigger import parse_trigger
from pulsar_on_kafka.service.health import LIVE, READY
from pulsar_on_kafka_mapping.names.topic_name import TopicName

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "docker" / "kubernetes"
STOPS_S = 20 + node._CLOSE_S
"""How long `pok serve` takes to stop: --stop-timeout and its connections."""
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SAID = re.search(r"up to (\d+) MiB for each topic and cluster", (ROOT / "docs" / "replication.md").read_text())
_ITSELF = 150_000_000
"""docs/benchmarks/service.md: an idle service of 1,000 topics stays below that."""


def needed_bytes(copies: int) -> int:
    assert _SAID is not None
    return _ITSELF + copies * int(_SAID[1]) * 2**20


def understood(noun: str, *arguments: str) -> dict[str, Any]:
    """What `pok NOUN ...` makes of these arguments; fails where it refuses them."""
    group: Any = get_command(app)
    command = loaded(noun, group.on_demand[noun])
    return dict(command.make_context(noun, list(arguments)).params)


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / file).read_text(encoding="utf-8")))


def deployments() -> dict[str, dict[str, Any]]:
    found = {}
    for file in sorted(MANIFESTS.iterdir()):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if document["kind"] in ("Service", "ScaledObject"):
                continue
            assert document["apiVersion"] == "apps/v1"
            assert document["kind"] == ("StatefulSet" if "serviceName" in document["spec"] else "Deployment")
            found[document["metadata"]["name"]] = document
    return found


def container(name: str) -> dict[str, Any]:
    spec = deployments()[name]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (only,) = spec["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def memory(name: str) -> int:
    limit = container(name)["resources"]["limits"]["memory"]
    return int(limit[:-2]) * _UNITS[limit[-2:]]


def test_there_are_these_deployments() -> None:
    assert set(deployments()) == {"pok-serve", "pok-replication", "pok-gateway", "pok-scaler", "orders-worker"}


@pytest.mark.parametrize("name", ["pok-serve", "pok-replication"])
def test_the_service_understands_its_arguments_and_answers_its_probes(name: str) -> None:
    one, pod = container(name), deployments()[name]["spec"]["template"]["spec"]
    said = understood(*one["args"][:-1])  # without the file that is not here
    assert said["host"] == "0.0.0.0"  # noqa: S104 - what others are to ask
    mounted = {mount["mountPath"] for mount in one["volumeMounts"]}
    option, _, file = one["args"][-1].partition("=")
    assert (option, str(Path(file).parent) in mounted) == ("--kafka-config", True)
    assert [port["containerPort"] for port in one["ports"]] == [serve.DEFAULT_PORT]
    assert one["readinessProbe"]["httpGet"] == {"path": READY, "port": "http"}
    assert one["livenessProbe"]["httpGet"] == {"path": LIVE, "port": "http"}
    assert pod["terminationGracePeriodSeconds"] > STOPS_S
    environment = {each["name"]: each["value"] for each in one["env"]}
    assert environment["POK_URL"].startswith("kafka://")
    assert environment[LEVEL_VARIABLE] in LEVELS


def test_every_role_has_one_deployment() -> None:
    others, copying = (understood(*container(name)["args"][:-1]) for name in ("pok-serve", "pok-replication"))
    assert [role.value for role in others["without"]] == ["replication"]
    assert others["only"] in (None, [], ())
    assert [role.value for role in copying["only"]] == ["replication"]


def test_gateways_have_names_of_their_own_that_clients_reach() -> None:
    one, pod = container("pok-gateway"), deployments()["pok-gateway"]["spec"]["template"]["spec"]
    said = understood(*one["args"][:-1])  # without the file that is not here
    assert one["args"][-1] == "--kafka-config=/etc/pok/client.properties"
    assert set(said["without"]) == set(RoleName)
    ports = {each["name"]: each["containerPort"] for each in one["ports"]}
    assert ports == {"http": serve.DEFAULT_PORT, "pulsar": said["gateway_port"], "rest": said["http_port"]}
    assert pod["terminationGracePeriodSeconds"] > said["stop_timeout"] + STOPS_S
    (service,) = (
        each
        for each in yaml.safe_load_all((MANIFESTS / "gateway.yaml").read_text(encoding="utf-8"))
        if each["kind"] == "Service"
    )
    name = service["metadata"]["name"]
    assert deployments()["pok-gateway"]["spec"]["serviceName"] == name
    assert said["advertised"] == f"$(POD_NAME).{name}"
    assert "POD_NAME" in {each["name"] for each in one["env"]}
    assert service["spec"]["clusterIP"] == "None"  # headless
    assert service["spec"]["selector"] == deployments()["pok-gateway"]["spec"]["selector"]["matchLabels"]
    assert [each["targetPort"] for each in service["spec"]["ports"]] == ["pulsar", "rest"]


def test_keda_finds_the_scaler_and_the_scaler_takes_the_trigger() -> None:
    one, (_, service) = container("pok-scaler"), documents("scaler.yaml")
    said = understood(*one["args"][:-1])
    assert one["args"][-1] == "--kafka-config=/etc/pok/client.properties"
    assert set(said["without"]) == set(RoleName)
    assert {each["name"]: each["containerPort"] for each in one["ports"]} == {
        "http": serve.DEFAULT_PORT,
        "grpc": said["scaler_port"],
    }
    assert service["spec"]["selector"] == deployments()["pok-scaler"]["spec"]["selector"]["matchLabels"]
    (scaled,) = documents("scaled-workers.yaml")
    (trigger,) = scaled["spec"]["triggers"]
    (port,) = service["spec"]["ports"]
    assert trigger["metadata"]["scalerAddress"] == f"{service['metadata']['name']}:{port['port']}"
    assert scaled["spec"]["scaleTargetRef"]["name"] in deployments()
    arguments = container("orders-worker")["args"]
    checked = parse_trigger(trigger["metadata"])
    assert checked.subscription == arguments[arguments.index("--subscription") + 1]
    assert checked.topic == str(TopicName.parse(arguments[arguments.index("--topic") + 1]))
    assert (
        scaled["spec"]["cooldownPeriod"]
        == deployments()["orders-worker"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    )


def test_limits_hold_what_the_docs_say_is_needed() -> None:
    copies = int(deployments()["pok-replication"]["metadata"]["annotations"]["pok/copies"])
    assert copies >= 16
    assert memory("pok-replication") >= needed_bytes(copies)
    assert memory("pok-serve") >= needed_bytes(0)
    compose = yaml.safe_load((ROOT / "docker" / "compose.two-clusters.yaml").read_text())
    assert compose["x-serve"]["deploy"]["resources"]["limits"]["memory"] == "1G"
    assert needed_bytes(16) <= 2**30


def test_a_worker_is_the_example_with_options_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    one = container("orders-worker")
    worker = importlib.import_module("orders_worker")
    assert one["command"][1] == Path(str(worker.__file__)).name
    job = worker.options().parse_args(one["args"])
    assert (job.subscription, job.name, job.url) == (worker.SUBSCRIPTION, "$(POD_NAME)", "$(POK_URL)")
    named = {each["name"] for each in one["env"]}
    assert named == {"POK_URL", "POD_NAME", STAND_IN_VARIABLE}
    unit = (ROOT / "examples" / "systemd" / "orders-worker@.service").read_text()
    grace = deployments()["orders-worker"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert f"TimeoutStopSec={grace}\n" in unit
