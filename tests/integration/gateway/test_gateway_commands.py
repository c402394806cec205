"""`pok gateway` and `pok serve --with gateway` as people start them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app
from tests.programs import run_program
from tests.seeds import first_of
from tests.services import NO_ROLE, a_service
from tests.steps import Unique

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

_PATIENCE_MS: Final = 60_000
_GATEWAY: Final = ("gateway", "--port", "0", "--http-port", "0")
_SERVE: Final = (
    *("serve", "--port", "0", *NO_ROLE, "--with", "gateway"),
    *("--gateway-port", "0", "--http-port", "0", "--advertised", "localhost"),
)


_ADDRESS: Final = r"(pulsar\S*://\S+:\d+)"


@pytest.mark.kafka
@pytest.mark.parametrize("arguments", first_of(1, [_GATEWAY, _SERVE]), ids=["gateway", "serve"])
def test_a_client_is_served_and_the_process_ends_well(
    service_url: str, unique: Unique, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    topic = unique()
    with a_service(tmp_path / "log", service_url, _ADDRESS, *arguments, "--fleet", unique()) as address:
        client = pulsar.Client(address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer(topic).send(b"one")
        message = consumer.receive(_PATIENCE_MS)
        assert message.data() == b"one"
        consumer.acknowledge(message)
        client.close()


@pytest.mark.parametrize(
    ("arguments", "missing"), [("gateway", "google_crc32c"), ("serve --port 0 --with gateway", "uvicorn")]
)
def test_what_is_missing_is_named_with_its_extra(arguments: str, missing: str) -> None:
    status, _, told = run_program(
        f"""
        sys.modules[{missing!r}] = None
        from pulsar_on_kafka.cli.main import app
        app({arguments.split()})
        """
    )
    assert status == 1
    assert told.splitlines()[-1] == f"pok: a gateway needs {missing}: pip install 'pulsar-on-kafka[gateway]'"


def test_nobody_else_imports_its_libraries() -> None:
    status, out, told = run_program(
        """
        import pulsar_on_kafka.cli.processes.serve
        libraries = {"google_crc32c", "google", "jwt", "starlette", "uvicorn"}
        print(sorted(libraries & {name.partition(".")[0] for name in sys.modules}))
        """
    )
    assert (status, out.strip()) == (0, "[]"), told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--token-secret-key", "a", "--token-public-key", "b"], "tokens are proven by one key"),
        (["--tls-trust", "a"], "it goes with --tls-certificate"),
        (["--tls-key", "a"], "it goes with --tls-certificate"),
        (["--super-user", "me"], "no client logs in"),
        (["--authorization"], "no client logs in"),
        (["--anonymous-role", "anybody"], "no client logs in"),
        (["--max-message-size", "1023"], "equal to 1024, got '1023'"),
        (["--token-secret-key", "/nowhere/key"], "cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], said: str) -> None:
    for command in (["gateway"], ["serve", "--port", "0", "--with", "gateway"]):
        found = CliRunner().invoke(app, [*command, *arguments])
        assert found.exit_code in (1, 2)
        assert said in " ".join(found.stderr.replace("│", " ").split())
