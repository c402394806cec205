"""Servers that `make compat` starts. No container engine is needed: the test is that a missing one is told."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.embedded.settings import silent
from tests.compat.__main__ import main
from tests.compat.harness.secured import ROLES, BadSecured, read_secured
from tests.compat.pulsar_standalone import (
    PULSAR_5,
    PulsarContainer,
    PulsarOptions,
    PulsarStandaloneError,
    release_of,
)
from tests.compat.pulsar_standalone.docker import container_environment
from tests.compat.servers import start_servers, wants_secured


def test_what_is_named_is_not_started() -> None:
    named = ["--pulsar", "pulsar://p:6650", "--kafka=kafka://k:9092", "--scenario", "seek.*"]
    with ExitStack() as stack:
        assert start_servers(stack, named) == named


def test_an_unknown_version_is_not_started() -> None:
    for arguments in (["--pulsar", "3.0"], ["--pulsar=6"], ["--pulsar"]):
        with ExitStack() as stack, pytest.raises(PulsarStandaloneError, match="expected a version of Pulsar"):
            start_servers(stack, arguments)


def test_beside_clusters_of_others_the_secured_ones_are_not_started() -> None:
    with ExitStack() as stack:
        given = start_servers(stack, ["--pulsar", "pulsar://p:6650", "--kafka", "kafka://k:9092"])
    assert given[-2] == "--not-secured"
    assert "only beside" in given[-1]


def test_secured_clusters_are_for_scenarios_about_security() -> None:
    assert wants_secured([])
    assert wants_secured(["--scenario", "security.no_login"])
    assert wants_secured(["--scenario=security.*", "--json", "x"])
    assert not wants_secured(["--scenario", "seek.*"])
    assert not wants_secured(["--scenario", "nothing-like-it"])


def test_no_container_engine_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("testcontainers")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(PulsarStandaloneError, match="start Docker, or leave --docker out") as refusal:
        PulsarContainer(progress=silent).start()
    assert "\n" not in str(refusal.value)
    for named in (["--pulsar", "pulsar://p:6650"], ["--kafka", "kafka://k:9092"]):
        assert main(["--docker", *named, "--scenario", "seek.*"]) == 1
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert "cannot be started" in told
        assert "start Docker" in told


def test_the_image_hears_the_settings_of_the_standalone() -> None:
    environment = container_environment(15_001, 15_002, PulsarOptions(heap_mb=300, extra={"brokerDeduplication": "1"}))
    assert environment["PULSAR_PREFIX_brokerServicePort"] == "15001"
    assert environment["PULSAR_PREFIX_webServicePort"] == "15002"
    assert environment["PULSAR_PREFIX_transactionCoordinatorEnabled"] == "true"
    assert environment["PULSAR_PREFIX_brokerDeduplication"] == "1"
    assert environment["PULSAR_MEM"].startswith("-Xmx300m ")
    assert "PULSAR_PREFIX_allowLoopback" not in environment
    assert not any("#" in name for name in environment)
    of_5 = container_environment(15_001, 15_002, PulsarOptions(release=PULSAR_5, extra={"numIOThreads": "3"}))
    assert of_5["PULSAR_PREFIX_allowLoopback"] == "true"
    assert of_5["PULSAR_PREFIX_numIOThreads"] == "3"


def test_a_release_is_named_by_the_beginning_of_its_version() -> None:
    assert [release_of(text).version for text in ("4", "4.0", "5", "5.0.1")] == ["4.0.7", "4.0.7", "5.0.1", "5.0.1"]
    for text in ("", "3", "5.0.2", "5.0.10", "latest"):
        with pytest.raises(PulsarStandaloneError, match=r"4\.0\.7 or 5\.0\.1, got"):
            release_of(text)


def test_a_description_of_secured_clusters_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "secured.json"
    with pytest.raises(BadSecured, match="cannot be read"):
        read_secured(file)
    file.write_text("no json", encoding="utf-8")
    with pytest.raises(BadSecured, match="is no JSON"):
        read_secured(file)
    logins = {"authority": "ca.pem", "other_authority": "other.pem", "tokens": dict.fromkeys(ROLES, "secret")}
    whole = {"pulsar": {"url": "pulsar+ssl://p:1", "logins": logins}, "kafka": {"url": "kafka+ssl://k:1"}}
    file.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(BadSecured, match=r"pulsar names the file .*ca\.pem"):
        read_secured(file)
    for name in ("ca.pem", "other.pem"):
        (tmp_path / name).touch()
    with pytest.raises(BadSecured, match="kafka lacks 'logins'"):
        read_secured(file)
    file.write_text(json.dumps({**whole, "kafka": {"url": "kafka+ssl://k:1", "logins": logins}}), encoding="utf-8")
    pulsar, kafka = read_secured(file)
    assert (pulsar.url, kafka.url) == ("pulsar+ssl://p:1", "kafka+ssl://k:1")
    assert kafka.logins.authority == str(tmp_path / "ca.pem")
    assert "secret" not in repr((pulsar, kafka))
    assert kafka.gateway == ""
    behind = {"url": "kafka://k:1", "gateway": "pulsar+ssl://g:1", "logins": logins}
    file.write_text(json.dumps({**whole, "kafka": behind}), encoding="utf-8")
    assert read_secured(file)[1].gateway == "pulsar+ssl://g:1"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        urls = ["--pulsar", "pulsar://127.0.0.1:1", "--kafka", f"kafka://127.0.0.1:{listening.getsockname()[1]}"]
        done = CliRunner().invoke(app, ["compat", "run", *urls, "--secured", str(file)])
        assert "expected kafka.gateway beside --gateway, and only there" in done.stderr
        done = CliRunner().invoke(app, ["compat", "run", *urls, "--gateway", "pulsar://g:1", "--secured", str(file)])
        assert "Pulsar does not answer" in done.stderr
    file.write_text(json.dumps({"pulsar": [], "kafka": {}}), encoding="utf-8")
    with pytest.raises(BadSecured, match="expected objects"):
        read_secured(file)
