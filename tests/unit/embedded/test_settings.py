from __future__ import annotations

import socket
import sys
from collections import deque

import pytest

from pulsar_on_kafka.embedded import EmbeddedBrokerError, readiness, settings
from pulsar_on_kafka.embedded.errors import PortBusy
from pulsar_on_kafka.embedded.settings import (
    free_port,
    hold_port,
    is_free,
    node_properties,
    parse_properties,
    render_properties,
)


def test_extra_properties_win() -> None:
    properties = node_properties(15_001, 15_002, "data", {"num.io.threads": "9", "log.retention.ms": "-1"})
    assert properties["num.io.threads"] == "9"
    assert properties["log.retention.ms"] == "-1"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:15001,CONTROLLER://127.0.0.1:15002"


def test_cursors_do_not_expire_and_topics_keep_their_own_retention() -> None:
    properties = node_properties(15_001, 15_002, "data", {})
    assert properties["offsets.retention.minutes"] == "2147483647"
    assert properties["auto.create.topics.enable"] == "false"
    assert "log.retention.ms" not in properties


def test_a_rendered_file_reads_back() -> None:
    properties = {"a.b": "1", "c": "x=y,z"}
    assert parse_properties(render_properties(properties)) == properties


def test_a_line_break_cannot_smuggle_in_another_setting() -> None:
    with pytest.raises(EmbeddedBrokerError, match="on one line"):
        render_properties({"a": "1\nb=2"})


def test_a_port_somebody_listens_on_is_not_free() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is held")
def test_a_port_that_is_held_is_not_given_out_and_a_server_can_listen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(settings, "_CHOICE", range(port, port + 1))
    monkeypatch.setattr(settings, "_ATTEMPTS", 1)
    monkeypatch.setattr(settings, "_given", deque())
    with hold_port(port):
        with pytest.raises(PortBusy, match="none of 1 random ports"):
            free_port()
        with socket.create_server(("127.0.0.1", port)), pytest.raises(PortBusy, match=f"port {port} of 127.0.0.1"):
            hold_port(port)
    assert free_port() == port


def test_a_server_that_says_nothing_does_not_serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert readiness.query_cluster("127.0.0.1", listener.getsockname()[1], timeout_s=0.05) is None
    assert readiness.query_cluster("127.0.0.1", 1, timeout_s=0.05) is None
