"""`python -m tests.compat.pulsar_standalone`: Pulsar in the foreground, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.compat.pulsar_standalone import PulsarStandalone, PulsarStandaloneError


def main() -> int:
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        with PulsarStandalone() as running:
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
    sys.exit(main())
