"""Profiles: the file, what counts, secrets, and `pok profile`. Docs: docs/profiles.md."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.cli.shared.settings import Given, OutputFormat
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.profiles import Profiles

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
FILE, CONSOLE = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("POK_CONFIG", str(file))
    for name in ("POK_PROFILE", "POK_URL", "POK_INSTANCE"):
        monkeypatch.delenv(name, raising=False)
    return file


def pok(*arguments: str, exits: int = 0) -> str:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == exits, (found.stdout, found.stderr, found.exception)
    return found.stdout if exits == 0 else found.stderr


def test_the_page_shows_what_the_commands_print(config: Path) -> None:
    config.write_text(FILE)
    for said in re.split(r"^\$ ", CONSOLE, flags=re.MULTILINE)[1:]:
        command, _, printed = said.partition("\n")
        printed = printed.replace("/home/ada/.config/pok/config.toml", str(config))
        lines = [line.rstrip() for line in pok(*command.split()[1:]).splitlines()]
        assert [line.rstrip("─") for line in lines] == [line.rstrip("─") for line in printed.splitlines()], command
    assert config.read_text() == FILE.replace('default = "local"', 'default = "prod"')
    assert json.loads(pok("profile", "list", "--output", "json")) == [
        {"name": "local", "chosen": False, "url": "kafka://localhost:9092"},
        {"name": "prod", "chosen": True, "url": "kafka+ssl://kafka.example.com:9093"},
    ]


def test_without_a_file_everything_is_as_it_was(config: Path) -> None:
    assert pok("profile", "list", "--output", "json") == "[]\n"
    assert Given().settings().url == "kafka://localhost:9092"
    assert "profile 'prod' is not in" in pok("--profile", "prod", "topics", "list", exits=1)
    assert f"no profile counts here: {config} has no default" in pok("profile", "show", exits=1)
    assert f"profile 'prod' is not in {config}, which has none" in pok("profile", "use", "prod", exits=1)


def test_a_default_is_put_before_the_first_table_and_comments_stay(config: Path) -> None:
    config.write_text("# mine\n[profiles.a]\nurl = 'kafka://a:1'\n[profiles.b] # the other\nurl = 'kafka://b:1'\n")
    pok("profile", "use", "b")
    assert config.read_text().startswith('default = "b"\n# mine\n[profiles.a]\n')
    assert "[profiles.b] # the other" in config.read_text()
    assert Given().settings().url == "kafka://b:1"


BAD: list[tuple[str, str]] = [
    ("[profiles.p]\nulr = 'x'", "profiles.p.ulr: is unknown, expected one of url, instance, output, kafka, tls, sasl"),
    ("[profiles.p]\nurl = 7", "profiles.p.url: expected `str`, got `int`"),
    ("[profiles.p]\noutput = 'xml'", "profiles.p.output: invalid enum value 'xml'"),
    (
        "[profiles.p.tls]\nca = 'x'",
        "profiles.p.tls.ca: is unknown, expected one of ca_file, certificate_file, key_file",
    ),
    ("[profiles.p.sasl]\nmechanism = 'PLAIN'", "profiles.p.sasl: object missing required field `username`"),
    ("[profiles.p.kafka]\nx = 1", "profiles.p.kafka"),
    ("profile = 'p'", "profile is unknown, expected default or profiles"),
    ("default = 'p'", "default: profile 'p' is not in"),
    ("profiles = 3", "profiles: expected `object`, got `int`"),
    ("[", "cannot be read"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_what_cannot_be_is_refused_with_file_key_and_what_was_expected(config: Path, text: str, said: str) -> None:
    config.write_text(text)
    with pytest.raises(InvalidOption, match=re.escape(str(config))) as refused:
        Profiles()
    assert said in str(refused.value)
    assert said in " ".join(pok("profile", "list", exits=1).split())


def test_the_option_wins_then_the_environment_then_the_profile(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(FILE)
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("POK_PROFILE", "local")
    assert '"profile": "local"' in pok("profile", "show", "--output", "json")
    assert '"profile": "prod"' in pok("--profile", "prod", "profile", "show", "--output", "json")
    config.write_text(FILE.replace('{ command = ["pass", "kafka/billing"] }', '"${PASSWORD}"'))
    monkeypatch.setenv("PASSWORD", "secret")
    said = Given(profile="prod")
    settings = said.settings()
    assert (settings.url, settings.instance, settings.output) == (
        "kafka+ssl://kafka.example.com:9093", "team-a", OutputFormat.JSON,
    )  # fmt: skip
    assert settings.kafka_config == {
        "ssl.ca.location": "/etc/ssl/kafka-ca.pem", "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ada", "sasl.password": "secret",
        "security.protocol": "SASL_SSL", "client.rack": "eu-1",
    }  # fmt: skip
    assert "secret" not in repr(settings)
    over = said.overridden("kafka://here:1", ["client.rack=b"], OutputFormat.TABLE, instance="").settings()
    assert (over.url, over.instance, over.output) == ("kafka://here:1", "", OutputFormat.TABLE)
    assert over.kafka_config["client.rack"] == "b"
    assert over.kafka_config["sasl.username"] == "ada"


def test_a_program_takes_a_profile(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(FILE.replace('{ command = ["pass", "kafka/billing"] }', '{ env = "PASSWORD" }'))
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("PASSWORD", "secret")
    options = ClientOptions(profile="prod").profiled()
    assert options.service_url == "kafka+ssl://kafka.example.com:9093"
    assert options.instance == "team-a"
    assert options.kafka_config is not None
    assert options.kafka_config["sasl.password"] == "secret"
    monkeypatch.setenv("POK_INSTANCE", "team-b")
    assert ClientOptions(profile="prod").profiled().instance is None  # which the environment says
    here = ClientOptions(
        "kafka://here:1", pulsar.AuthenticationBasic("bob", "pass"), profile="prod", instance="mine",
        tls_trust_certs_file_path="/mine.pem", kafka_config={"client.rack": "b"},
    ).profiled()  # fmt: skip
    assert (here.service_url, here.instance) == ("kafka://here:1", "mine")
    assert here.kafka_config is not None
    assert here.kafka_config["client.rack"] == "b"
    assert not {"sasl.password", "sasl.username", "ssl.ca.location"} & here.kafka_config.keys()
    client = pulsar.Client(profile="prod")
    assert client.get_service_info().service_url == "kafka+ssl://kafka.example.com:9093"
    client.close()
    with pytest.raises(pulsar.exceptions.InvalidConfiguration, match=r"'stage' is not in .*, which has local, prod"):
        pulsar.Client(profile="stage")
    with pytest.raises(ValueError, match="Client needs a service_url, or a profile"):
        pulsar.Client()


def secret(config: Path, value: str) -> Any:
    config.write_text(f"[profiles.p.kafka]\n'sasl.password' = {value}\n")
    return Profiles().named("p").kafka_config()["sasl.password"]


def test_a_secret_comes_from_the_environment_or_from_a_command(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    python = json.dumps(sys.executable)
    assert secret(config, '{ env = "KAFKA_PASSWORD" }') == "s3cret"
    assert secret(config, '"a${KAFKA_PASSWORD}b"') == "as3cretb"
    assert secret(config, f"{{ command = [{python}, '-c', 'print(\"s3cret\")'] }}") == "s3cret"
    for value, said in (
        ('{ env = "NO_SUCH" }', "profiles.p.kafka.sasl.password: the environment has no NO_SUCH"),
        ('"${NO_SUCH}"', "the environment has no NO_SUCH"),
        (f"{{ command = [{python}, '-c', 'print(1); raise SystemExit(3)'] }}", "ended with 3"),
        ("{ command = ['/no/such/program'] }", "the command '/no/such/program' did not run"),
        ("{ env = 'A', command = ['b'] }", "expected either env or command"),
        ("{ }", "expected either env or command"),
        ("{ file = 'x' }", "is unknown, expected one of env, command"),
    ):
        with pytest.raises(InvalidOption, match=re.escape(said)):
            secret(config, value)
    config.write_text("[profiles.p.kafka]\n'group.id' = 'x'\n")
    with pytest.raises(InvalidOption, match=r"profiles.p.kafka: kafka_config may not set group.id"):
        Profiles().named("p").kafka_config()


def test_no_command_shows_a_secret(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(
        "default = 'p'\n[profiles.p]\nsasl = { mechanism = 'PLAIN', username = 'u', password = 's3cret' }\n"
        "tls = { key_password = 's3cret' }\nkafka = { 'sasl.jaas.config' = 's3cret', 'ssl.key.pem' = 's3cret', "
        "'sasl.oauthbearer.client.secret' = 's3cret', 'client.rack' = 'r' }\n"
    )
    for output in ("table", "json"):
        shown = pok("profile", "show", "--output", output)
        assert "s3cret" not in shown
        assert shown.count("***") == 5
        assert "r" in shown


def test_a_tenants_cluster_is_looked_up_for_commands_about_its_topics(config: Path, tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.json"
    tenants.write_text(json.dumps({"clusters": {"west": "kafka://localhost:1"}, "tenants": {"acme": "west"}}))
    url = f"pok+map://{tenants}"
    assert "no broker answers (localhost:1:" in pok("--url", url, "topics", "stats", "acme/a/orders", exits=1)
    assert "no broker answers (localhost:1:" in pok("--url", url, "topics", "list", "acme/a", exits=1)
    assert "no broker answers (localhost:1:" in pok("--url", url, "topics", "policy", "get", "acme/a/o", exits=1)
    assert "public" in pok("--url", url, "topics", "list", exits=1)
    refused = re.sub(r"[\s│]+", " ", pok("--url", url, "tenants", "list", exits=2))  # in a box, which folds it
    assert "this command has no tenant" in refused


def test_a_command_that_needs_no_cluster_asks_for_no_secret(config: Path) -> None:
    config.write_text("default = 'p'\n[profiles.p.kafka]\n'sasl.password' = { command = ['/no/such/program'] }\n")
    settings = Given().settings()
    assert settings.url == "kafka://localhost:9092"
    with pytest.raises(InvalidOption, match="did not run"):
        dict(settings.kafka_config)
