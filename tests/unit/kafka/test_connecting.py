"""Handles are opened together where they log in by token."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.kafka.connecting import open_admin
from pulsar_on_kafka.kafka.security import Security, Token, TokenSource
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.waiting import until

NOBODY = "127.0.0.1:9"


def by_token() -> KafkaSettings:
    tokens = TokenSource(lambda: Token("t", time.time() + 600, "alice"), "test")
    return KafkaSettings(
        NOBODY, security=Security({"sasl.mechanisms": "OAUTHBEARER", "security.protocol": "SASL_PLAINTEXT"}, tokens)
    )


@pytest.mark.parametrize(("settings", "expected"), [(by_token(), {"one", "two"}), (KafkaSettings(NOBODY), set())])
def test_the_others_are_opened_where_that_saves_time(settings: KafkaSettings, expected: set[str]) -> None:
    opened: set[str] = set()
    open_admin(settings, lambda: opened.add("one"), lambda: opened.add("two")).close()
    assert opened == expected


def test_one_of_the_others_that_fails_keeps_nobody_from_the_admin_client() -> None:
    def refused() -> None:
        raise errors.ConnectFailed("no")

    open_admin(by_token(), refused).close()


def test_a_node_that_reaches_nobody_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with pytest.raises(errors.ConnectFailed):
        Node(by_token(), Deadline.after(0.2))
    until(lambda: set(threading.enumerate()) <= before, "the threads to end")


def test_a_connection_that_is_refused_is_told_before_the_deadline() -> None:
    with socket.socket() as reserved:  # bound, and nothing listens
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        admin, deadline = open_admin(KafkaSettings(f"{address},{address}")), Deadline.after(120)
        try:
            with pytest.raises(errors.ConnectFailed, match=f"{address}: connection refused"):
                admin.cluster_id(deadline)
        finally:
            admin.close()
    assert not deadline.passed()
