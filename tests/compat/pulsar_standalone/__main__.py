"""`python -m tests.compat.pulsar_standalone [VERSION]`: Pulsar (4.0.7, or 5) in the foreground, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.compat.pulsar_standalone import PULSAR_4, PulsarOptions, PulsarStandalone, PulsarStandaloneError, release_of


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        release = release_of(arguments[0]) if arguments else PULSAR_4
        with PulsarStandalone(PulsarOptions(release=release)) as running:
            print(f"service URL {running.service_url}\nadmin URL   {running.admin_url}\nCtrl-C stops it", flush=True)
            running.wait()
            print("Pulsar ended by itself", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except (PulsarStandaloneError, EmbeddedBrokerError) as error:
        print(error, file=sys.stderr)
        return 1


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
