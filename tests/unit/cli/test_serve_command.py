"""`pok serve`: its options, and what it refuses before it needs a cluster."""

from __future__ import annotations

import socket

from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app


def _refused(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["serve", *arguments])
    return found.exit_code, " ".join(found.stderr.split())


def test_a_port_that_is_taken_ends_it_with_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, said = _refused("--host", "127.0.0.1", "--port", str(port))
    assert (code, said.startswith(f"pok: 127.0.0.1:{port} cannot be listened on: ")) == (1, True)


def test_something_must_be_left_to_do() -> None:
    code, said = _refused("--only", "maintenance", "--without", "maintenance")
    assert code == 2
    assert "nothing is left to be done" in said


def test_an_unknown_role_is_refused() -> None:
    code, said = _refused("--only", "cooking")
    assert code == 2
    assert "maintenance" in said
