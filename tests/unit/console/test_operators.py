"""Operators: their file, and what the permissions of their roles refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.metadata.permissions import NO_PERMISSIONS, granted, granted_on_subscription
from pulsar_on_kafka.broker.node.role_rights import NamespaceRights, Requirement, on_topic
from pulsar_on_kafka.console.operators import read_operators, refuse
from pulsar_on_kafka.exceptions import AuthorizationError
from pulsar_on_kafka_mapping.names.topic_name import TopicName


def test_a_file_of_operators(tmp_path: Path) -> None:
    file = tmp_path / "operators"
    file.write_text("# of the shift\n\nanna 0perate\n  ben\tt0ken\n")
    assert read_operators(str(file)) == {"anna": "0perate", "ben": "t0ken"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no line NAME TOKEN"),
        ("anna", "line 1 .* has 1 words: NAME TOKEN"),
        ("anna a b", "line 1 .* has 3 words: NAME TOKEN"),
        ("anna a\nanna b", "line 2 .* names anna again"),
        ("anna a\nben a", "line 2 .* has the token of another operator"),
    ],
)
def test_a_bad_file_of_operators(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "operators"
    file.write_text(text)
    with pytest.raises(InvalidOption, match=reason) as refused:
        read_operators(str(file))
    assert str(file) in str(refused.value)


def test_a_missing_file_of_operators(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="cannot be read"):
        read_operators(str(tmp_path / "none"))


TOPIC = TopicName.parse("persistent://shop/eu/orders")
AUTH = granted_on_subscription(
    granted(granted(NO_PERMISSIONS, "anna", ["consume"]), "ben", ["consume"]), "audit", ["ben"]
)


@pytest.mark.parametrize(
    ("operator", "subscription", "reason"),
    [
        ("anna", "billing", None),
        ("boss", "audit", None),
        ("ben", "audit", None),
        ("anna", "audit", "operator anna: anna is not authorized to access subscription audit"),
        ("carl", "billing", "operator carl: the role may not consume"),
    ],
)
def test_an_operator_has_the_rights_of_the_role_of_that_name(
    operator: str, subscription: str, reason: str | None
) -> None:
    rights = {"shop/eu": NamespaceRights(AUTH, frozenset({"boss"}))}
    operation = on_topic(Requirement.CONSUME, TOPIC, "the role may not consume", subscription)
    if reason is None:
        refuse(operator, operation, rights)
        return
    with pytest.raises(AuthorizationError, match=reason):
        refuse(operator, operation, rights)
