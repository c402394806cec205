"""`python -m tests.compat`: start a Pulsar and a Kafka, run `pok compat run` against them.

Arguments go to that command. With `--pulsar` or `--kafka` among them that cluster is used and none is started for it;
`--docker` starts them in containers. Clusters with TLS, logins and rights are started beside them for the scenarios
about security.

With `--broker-tests` Pulsar's own tests are run on a gateway instead (`broker_tests`), and with `--kombu-tests` those
of kombu on Celery's transport (`kombu_tests`). With `--record` scenarios are played on Pulsar alone, and what they
record becomes the histories of `make test` (`record`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType

from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.compat.broker_tests.run import ARGUMENT
from tests.compat.broker_tests.run import main as run_broker_tests
from tests.compat.kombu_tests import ARGUMENT as KOMBU
from tests.compat.kombu_tests import main as run_kombu_tests
from tests.compat.pulsar_standalone import PulsarStandaloneError
from tests.compat.record import ARGUMENT as RECORD
from tests.compat.record import main as record
from tests.compat.servers import start_servers


def main(arguments: Sequence[str]) -> int:
    if ARGUMENT in arguments:
        return run_broker_tests([argument for argument in arguments if argument != ARGUMENT])
    if KOMBU in arguments:
        return run_kombu_tests([argument for argument in arguments if argument != KOMBU])
    if RECORD in arguments:
        return record([argument for argument in arguments if argument != RECORD])
    with ExitStack() as stack:
        try:
            given = start_servers(stack, arguments)
        except KeyboardInterrupt:
            return 1
        except (PulsarStandaloneError, EmbeddedBrokerError) as error:
            print(error, file=sys.stderr)
            return 1
        try:
            app(["compat", "run", *given], prog_name="pok")
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    sys.exit(main(sys.argv[1:]))
