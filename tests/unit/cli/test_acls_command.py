"""`pok acls print` says what docs/acls.md says; tests/integration/kafka/test_security.py grants and tries its rows."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.broker.metadata.acl_roles import RIGHTS, ROLES, ProgramFeature, command_line, rights_of
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.kafka.rights import Right
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.integration.secure_support import granted_by_the_page

ORDERS = TopicName.parse("orders")


@pytest.mark.parametrize("section", RIGHTS)
def test_the_tables_are_those_of_the_page(section: str) -> None:
    role = {sections[0]: role for role, sections in ROLES.items() if sections == (section,)}.get(section)
    if role is not None:
        found = rights_of(role, ORDERS, "billing")
    else:
        extra = next((each for each in ProgramFeature if each.section == section), None)
        found = rights_of("service" if extra is None else "reader", ORDERS, "billing", [] if extra is None else [extra])
    page = granted_by_the_page(section)
    assert page
    assert set(page) <= {tuple(right) for right in found}
    if role is not None:
        assert {tuple(right) for right in found} == set(page)


def test_lines_for_kafka_s_tool() -> None:
    found = CliRunner().invoke(
        app,
        [
            "acls",
            "print",
            "--role",
            "consumer",
            "--principal",
            "alice",
            "--topic",
            "shop/eu/orders",
            "--subscription",
            "s",
        ],
    )
    lines = found.stdout.splitlines()
    assert "kafka-acls --add --allow-principal 'User:alice' --operation Read --topic 'shop.eu.orders'" in lines
    assert "kafka-acls --add --allow-principal 'User:alice' --operation Read --group 'shop.eu.orders/s'" in lines
    assert (
        "kafka-acls --add --allow-principal 'User:alice' --operation Read --topic 'pulsar.system.namespaces'" in lines
    )
    prefixed = Right("Create", "topic", "pulsar.system.*")
    assert command_line(prefixed, "User:alice").endswith("--topic 'pulsar.system.' --resource-pattern-type prefixed")


def test_a_consumer_s_rights_are_about_a_subscription() -> None:
    found = CliRunner().invoke(app, ["acls", "print", "--role", "consumer", "--principal", "a", "--topic", "orders"])
    assert found.exit_code == 2
    assert "--subscription" in found.stderr


def test_json_for_programs() -> None:
    arguments = [
        "--output",
        "json",
        "acls",
        "print",
        "--role",
        "reader",
        "--principal",
        "User:CN=a",
        "--topic",
        "orders",
    ]
    said = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert {"operation": "Read", "kind": "topic", "name": "public.default.orders", "principal": "User:CN=a"} in said


def printed(*arguments: str) -> list[str]:
    return CliRunner().invoke(app, ["acls", "print", "--principal", "a", *arguments]).stdout.splitlines()


def test_an_instance_has_the_same_rights_under_its_own_prefix() -> None:
    role = ("--role", "consumer", "--topic", "shop/eu/orders", "--subscription", "s")
    everybodys, acmes = printed(*role), printed(*role, "--instance", "acme")
    assert acmes == [line.replace("'pulsar.system.", "'pulsar.system-x-acme.") for line in everybodys]
    assert len(set(acmes) & set(everybodys)) == 4  # the topic, and its subscription


def test_a_namespace_s_prefix_is_that_of_its_kafka_topics() -> None:
    lines = printed("--role", "admin", "--topic", "my_co/eu.west/orders")
    assert any("--topic 'my-x5f-co.eu-x2e-west.' --resource-pattern-type prefixed" in line for line in lines)
    assert not any("my_co" in line for line in lines)


@pytest.mark.parametrize("name", ["Acme", "a.b", "a--b"])
def test_a_name_that_no_instance_can_have_is_refused(name: str) -> None:
    found = CliRunner().invoke(app, ["topics", "list", "--instance", name])
    assert found.exit_code == 2
    assert "--instance" in found.stderr
    assert f"instance is {name!r}" in found.stderr
