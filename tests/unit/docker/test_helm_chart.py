"""The Helm chart renders the manifests, where helm is there; its values, schema and templates agree in any case.

`helm` is that of the PATH, or of POK_HELM.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import jsonschema
import pytest
import yaml

from pulsar_on_kafka.cli.shared.gateway_options import GATEWAY_PORT, REST_PORT
from pulsar_on_kafka.cli.shared.http_options import CONSOLE_PORT
from pulsar_on_kafka.cli.shared.scaler_options import SCALER_PORT
from pulsar_on_kafka.service.health import LIVE, READY
from tests.unit.docker.test_kubernetes import MANIFESTS, STOPS_S, container, deployments, understood

CHART: Final = MANIFESTS.parent / "helm" / "pulsar-on-kafka"
ROOT: Final = MANIFESTS.parents[1]
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEMPLATES: Final = {path.name: path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir())}
TEXT: Final = "".join(TEMPLATES.values())
PARTS: Final = ("serve", "replication", "gateway", "scaler")
"""Components that are also manifests."""
FREE: Final = ("resources", "securityContext", "podSpec", "labels")
"""Values whose content is Kubernetes' own."""
HELM: Final = os.environ.get("POK_HELM") or shutil.which("helm")
ALL: Final = (
    *("gateway.enabled=true", "scaler.enabled=true", "console.enabled=true"),
    *("serviceMonitor.enabled=true", "alerts.enabled=true"),
)


def rendered(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects by kind and name; skips without helm."""
    if HELM is None:
        pytest.skip("helm is not installed")
    given = [word for value in values for word in ("--set", value)]
    done = subprocess.run(
        [HELM, "template", "pok", str(CHART), *given], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout) if each}


def without_release(found: Any) -> Any:
    """The object without the labels that Helm's objects have."""
    if isinstance(found, list):
        return [without_release(each) for each in found]
    if not isinstance(found, dict):
        return found
    kept = {
        key: without_release(value) for key, value in found.items() if not re.match(r"(app.kubernetes|helm)\.", key)
    }
    return {key: value for key, value in kept.items() if (key, value) != ("labels", {})}


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(values, dict) and values and path[-1:] not in [(name,) for name in FREE]:
        for name, value in values.items():
            yield from leaves(value, (*path, name))
    else:
        yield path


def test_it_renders_the_manifests() -> None:
    objects = rendered(*ALL)
    expected = {
        (each["kind"], each["metadata"]["name"]): each
        for file in ("serve.yaml", "gateway.yaml", "scaler.yaml")
        for each in yaml.safe_load_all((MANIFESTS / file).read_text(encoding="utf-8"))
    }
    assert {key: without_release(objects[key]) for key in expected} == expected
    more = {name for kind, name in objects.keys() - expected.keys() if kind != "PodDisruptionBudget"}
    assert more == {"pok-console", "pok-metrics", "pok-rules", "pok-alerts"}
    budgets = {name: each["spec"] for (kind, name), each in objects.items() if kind == "PodDisruptionBudget"}
    assert budgets == {
        f"pok-{part}": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": f"pok-{part}"}}} for part in PARTS
    }
    assert rendered().keys() == {
        (kind, f"pok-{part}") for part in ("serve", "replication") for kind in ("Deployment", "PodDisruptionBudget")
    }


def test_prometheus_gets_the_rules_and_every_pod() -> None:
    objects = rendered(*ALL)
    for name in ("rules", "alerts"):
        file = yaml.safe_load((MANIFESTS.parent / "prometheus" / f"{name}.yml").read_text(encoding="utf-8"))
        assert objects["PrometheusRule", f"pok-{name}"]["spec"] == file
    service = objects["Service", "pok-metrics"]
    selected = service["spec"]["selector"].items()
    for kind, name in objects:
        if kind in ("Deployment", "StatefulSet"):
            assert selected <= objects[kind, name]["spec"]["template"]["metadata"]["labels"].items()
    monitor = objects["ServiceMonitor", "pok-metrics"]["spec"]
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "pok-serve", "the job of the alerts"
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_options_reach_arguments_that_pok_takes() -> None:
    objects = rendered(
        *ALL, "scaler.tls.secretName=tls", "scaler.tls.requireClientCertificate=true", "scaler.intervalSeconds=2.5",
        "gateway.tokens.secretName=tokens", "gateway.tokens.superUsers={admin,ops}",
        "gateway.tokens.authorization=true", "gateway.domain=.default.svc",
        "gateway.extraArgs={--session-grace=30}", "image.tag=0.2.0", "namePrefix=eu",
        "console.operators=true",
    )  # fmt: skip

    def one(kind: str, name: str) -> dict[str, Any]:
        (found,) = objects[kind, f"eu-{name}"]["spec"]["template"]["spec"]["containers"]
        return dict(found)

    scaler, gateway, console = one("Deployment", "scaler"), one("StatefulSet", "gateway"), one("Deployment", "console")
    said = understood(*scaler["args"][:-1])
    assert (said["tls_certificate"], said["tls_key"]) == ("/etc/pok-tls/tls.crt", "/etc/pok-tls/tls.key")
    assert (said["scaler_tls_trust"], said["scaler_interval"]) == ("/etc/pok-tls/ca.crt", 2.5)
    assert {each["mountPath"] for each in scaler["volumeMounts"]} == {"/etc/pok", "/etc/pok-tls"}
    assert scaler["readinessProbe"]["httpGet"] == {"path": READY, "port": "http", "scheme": "HTTPS"}
    said = understood(*gateway["args"][:-1])
    assert (said["token_public_key"], said["super_users"]) == ("/etc/pok-tokens/public-key", ["admin", "ops"])
    assert (said["authorization"], said["session_grace"]) == (True, 30)
    assert said["advertised"] == "$(POD_NAME).eu-gateway.default.svc"
    said = understood(*console["args"][:-1])
    assert said["console_token_file"] == "/etc/pok-console/token"
    assert said["console_operators_file"] == "/etc/pok-console/operators"
    assert {each["image"] for each in (scaler, gateway, console)} == {"pulsar-on-kafka-serve:0.2.0"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 1},
        {"gateway": {"replicas": -1}},
        {"kafka": {"url": "pulsar://a:6650", "secretName": "b"}},
        {"scaler": {"tls": {"secretName": "", "requireClientCertificate": True}}},
        {"serve": {"podSpec": {"containers": []}}},
    ],
)
def test_the_schema_takes_the_values_and_refuses_others(wrong: dict[str, Any]) -> None:
    jsonschema.validate(VALUES, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, **wrong}, SCHEMA)


def test_every_value_is_used_and_every_used_one_is_there() -> None:
    named = {tuple(path.split(".")[1:]) for path in re.findall(r"[$\s(]\$?(?:root)?(\.Values(?:\.\w+)+)", TEXT)}
    named = {path[1:] if path[0] == "Values" else path for path in named}
    assert len(named) > 15
    for path in named:
        found: Any = VALUES
        for name in path:
            assert name in found, ".".join(path)
            found = found[name]
    for path in leaves(VALUES):
        assert re.search(rf'(\.{path[-1]}|"{path[-1]}")\b', TEXT), ".".join(path)


def test_defaults_are_those_of_the_manifests() -> None:
    for part in PARTS:
        manifest, values = deployments()[f"pok-{part}"], VALUES[part]
        assert (values["replicas"], values["resources"]) == (
            manifest["spec"]["replicas"],
            container(f"pok-{part}")["resources"],
        )
        assert VALUES["securityContext"] == container(f"pok-{part}")["securityContext"]
        file = TEMPLATES[f"{part}.yaml"]
        grace = manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert f'"grace" {grace} ' in file
        assert grace > STOPS_S
        for argument in container(f"pok-{part}")["args"][2:-2]:
            shown = argument.replace("pok-gateway", "{{ .Values.namePrefix }}-gateway")
            assert shown in file or f'"{argument.removeprefix("--without=")}"' in TEMPLATES["_helpers.tpl"], argument
    copies = deployments()["pok-replication"]["metadata"]["annotations"]["pok/copies"]
    assert str(VALUES["replication"]["copies"]) == copies
    assert f"path: {READY}," in TEXT
    assert f"path: {LIVE}," in TEXT
    ports = {int(port) for port in re.findall(r'"\w+" (\d{4})\b', TEXT)}
    assert ports == {GATEWAY_PORT, REST_PORT, CONSOLE_PORT, SCALER_PORT}


def test_the_chart_has_the_version_and_the_rules_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert project is not None
    assert (chart["version"], chart["appVersion"]) == (project[1], project[1])
    for copied in sorted((CHART / "files").iterdir()):
        original = MANIFESTS.parent / "prometheus" / copied.name
        assert copied.read_text() == original.read_text(), f"Helm reads its own folder: cp {original} {copied}"
