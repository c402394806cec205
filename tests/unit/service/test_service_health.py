"""A service counts as alive and as ready; its HTTP server says so."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Gauge

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, InvalidOption
from pulsar_on_kafka.base.loop_timing import Turns, TurnsSeen
from pulsar_on_kafka.base.role_state import STALLED_S, RoleState, why_not_alive, why_not_ready
from pulsar_on_kafka.service.health import LIVE, READY, KafkaAnswers, ServiceHealth, ServiceServer
from tests.clocks import SetClock


class Brokers:
    def __init__(self) -> None:
        self.away = False
        self.asked = 0

    def cluster_id(self, deadline: Deadline) -> str:
        self.asked += 1
        if self.away:
            raise ConnectFailed("nobody answers")
        return "c"


def test_turns_tell_how_long_this_one_lasts_and_how_the_last_one_ended() -> None:
    now = [100.0]
    turns = Turns(lambda: now[0])
    assert turns.seen() == TurnsSeen()
    with turns.one():
        now[0] += 3
        assert turns.seen() == TurnsSeen(under_way_s=3)

    def fails() -> None:
        with turns.one():
            now[0] += 2
            raise ConnectFailed("away")

    with pytest.raises(ConnectFailed):
        fails()
    assert turns.seen() == TurnsSeen(1, 1, 0.0, 2, "ConnectFailed: away")
    with turns.one():
        assert turns.seen().failure == "ConnectFailed: away"
    assert turns.seen() == TurnsSeen(2, 1)


def test_dead_threads_and_hanging_turns_want_a_restart_and_failures_do_not() -> None:
    failing = RoleState("a", True, 3, turns=(("x", TurnsSeen(0, 50, 5.0, 1.0, "ConnectFailed: away")),))
    assert why_not_alive([failing]) == []
    dead = RoleState("b", True, 3, dead=("pok-maintenance",))
    hangs = RoleState("c", True, 0, turns=(("y", TurnsSeen(9, 0, STALLED_S + 1)),))
    assert why_not_alive([failing, dead, hangs]) == [
        "b: thread pok-maintenance has ended",
        "c: y has been at one turn for 601 s",
    ]
    assert why_not_ready([failing, dead], "") == []
    waits = RoleState("d", False, 0)
    assert why_not_ready([failing, waits], "away") == [
        "Kafka: away",
        "d: its Kafka group has not given it a share yet",
    ]


def test_kafka_is_asked_every_three_seconds_at_most() -> None:
    brokers, clock = Brokers(), SetClock()
    answers = KafkaAnswers(brokers, clock)
    assert [answers.failure() for _ in range(5)] == [""] * 5
    brokers.away = True
    clock.seconds += 2.9
    assert answers.failure() == ""
    clock.seconds += 0.2
    assert answers.failure() == answers.failure() == "nobody answers"
    assert brokers.asked == 2


@contextmanager
def _served(health: ServiceHealth) -> Iterator[ServiceServer]:
    registry = CollectorRegistry()
    Gauge("pok_test", "Of this test.", registry=registry).set(7)
    server = ServiceServer("127.0.0.1", 0, registry, health)
    yield server
    server.close()


def _get(server: ServiceServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_a_service_answers_from_before_it_reached_kafka_until_it_stops() -> None:
    health, brokers, clock = ServiceHealth(), Brokers(), SetClock()
    state = RoleState("maintenance", False, 0)
    with _served(health) as server:
        assert _get(server, LIVE)[0] == 200
        health.waits_for("refused by 127.0.0.1:9092")
        status, text = _get(server, READY)
        assert (status, json.loads(text)["reasons"]) == (503, ["Kafka: refused by 127.0.0.1:9092"])
        health.runs(lambda: [state], KafkaAnswers(brokers, clock))
        assert _get(server, READY)[0] == 503
        state = RoleState("maintenance", True, 16, turns=(("ledgers", TurnsSeen(4, 1, 0.0, 0.25, "")),))
        status, text = _get(server, READY)
        assert (status, json.loads(text)["status"]) == (200, "ok")
        assert json.loads(text)["duties"]["maintenance"]["turns"]["ledgers"]["done"] == 4
        assert "pok_test 7.0" in _get(server, "/metrics")[1]
        assert _get(server, "/")[0] == 404
        health.stops()
        assert (_get(server, READY)[0], _get(server, LIVE)[0]) == (503, 200)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InvalidOption, match=f"127.0.0.1:{port} cannot be listened on.*--port"):
            ServiceServer("127.0.0.1", port, CollectorRegistry(), ServiceHealth())
