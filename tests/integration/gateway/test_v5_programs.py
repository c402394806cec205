"""A program on Pulsar 5's V5 client in Java runs on two gateways of one fleet, and on one with TLS and tokens.

One JVM plays all steps; each test looks at what one of them said.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import jwt
import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.embedded import Broker
from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.builds import Missing
from tests.certificates import Authority
from tests.compat.pulsar_standalone.releases import PULSAR_5
from tests.integration.gateway.languages import SAID, java_program

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

PROGRAM: Final = Path(__file__).with_name("programs") / "java" / "V5Program.java"
ROLE: Final = "billing"
ASK: Final = "ask "

SEEN: Final = {
    "keyed": "[2, 1, 2, 2, 0, 0]",  # as by Pulsar 5.0.1: Murmur3 modulo the partitions
    "keyless": "[0, 1, 2, 3]",
    "exclusive": "ProducerBusyException",
    "acknowledged": "[of a/0, of k0/0, of k1/1, of order-1/0, of ä/0, of 日本/0, then null]",
    "delayed": "now, later",
    "dead": "[0, 1] bad",
    "restored": "3 and 3 of [v0, v1, v2, v3, v4, v5]",
    "json": "7seven",
    "refused": "IncompatibleSchemaException",
    "transactions": "COMMITTED ABORTED [committed 1, committed 2] null",
    "missing": "NotFoundException",
    "grown": "[0] [0, 1, 2]",
    "lost": "[before] [after]",
    "namespace": "[in team-1] [in team-2]",
    "drained": "all",
    "encrypted": "refused [sent]",
}
"""What each step says, in their order."""


class Played(NamedTuple):
    seen: Mapping[str, str]
    """What the program said, by step."""
    log: str


@pytest.fixture(scope="module")
def played(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    try:
        command = java_program(PROGRAM, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", release=PULSAR_5)
    except Missing as missing:
        pytest.skip(f"java: {missing}")
    folder = tmp_path_factory.mktemp("v5")
    namespace = f"public/{secrets.token_hex(4)}"
    authority = Authority(folder)
    server = authority.issue("server", address="127.0.0.1", host="localhost")
    key = folder / "secret.key"
    key.write_bytes(secrets.token_bytes(32))
    with ExitStack() as stack:
        admin = stack.enter_context(AdminClient(f"kafka://{kafka_broker.bootstrap}"))
        admin.create_namespace(namespace)
        admin.create_partitioned_topic(f"{namespace}/three", 3)
        admin.create_partitioned_topic(f"{namespace}/grows", 1)
        admin.create_topic(f"{namespace}/team-1", properties={"team": ROLE})

        def gateway(**settings: object) -> Gateway:
            made = Gateway(admin.node, GatewaySettings(port=0, **settings))  # type: ignore[arg-type]
            stack.callback(made.close, Deadline.after(300))
            return made

        fleet = [gateway(fleet=namespace) for _ in range(2)]
        encrypted = gateway(
            fleet=f"{namespace}-tls",
            access=GatewayAccess(TokenKey.secret(str(key))),
            tls=ServerTls(str(server.certificate), str(server.key)),
        )

        def drop() -> None:
            for each in fleet:
                for connection in each.connections.all():
                    each.context.soon(connection.abort)

        reactions: Mapping[str, Callable[[], object]] = {
            "grow": lambda: admin.update_partitions(f"{namespace}/grows", 3),
            "drop": drop,
            "create": lambda: admin.create_topic(f"{namespace}/team-2", properties={"team": ROLE}),
        }
        token = jwt.encode({"sub": ROLE}, key.read_bytes())
        arguments = [fleet[0].address(), namespace, encrypted.address(), str(authority.file), token]
        errors = folder / "errors"
        with (
            errors.open("w", encoding="utf-8") as file,
            subprocess.Popen(
                [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, encoding="utf-8"
            ) as program,
        ):
            assert program.stdin is not None
            assert program.stdout is not None
            stack.callback(program.kill)
            said: dict[str, str] = {}
            log: list[str] = []
            for line in program.stdout:
                log.append(line)
                if not line.startswith(SAID):
                    continue
                step, _, what = line.removeprefix(SAID).rstrip("\n").partition(" ")
                if step == ASK.strip():
                    reactions[what]()
                    program.stdin.write("done\n")
                    program.stdin.flush()
                else:
                    said[step] = what
        told = "".join(log)[-8000:] + errors.read_text(encoding="utf-8")[-8000:]
        assert list(said) == list(SEEN), told
        yield Played(said, told)


@pytest.mark.parametrize("step", SEEN)
def test_a_v5_program_sees(played: Played, step: str) -> None:
    assert played.seen[step] == SEEN[step], played.log
