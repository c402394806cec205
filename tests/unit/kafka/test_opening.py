"""What is made together where handles log in by token."""

from __future__ import annotations

import threading
import time

import pytest

from layer import errors
from layer.deadline import Deadline
from layer.kafka.opening import open_admin
from layer.kafka.security import Security, Token, TokenSource
from layer.kafka.settings import KafkaSettings
from layer.node import Node
from layer.waiting import wait_until

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
    assert wait_until(lambda: set(threading.enumerate()) <= before, Deadline.after(60))
