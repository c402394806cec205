"""`pok standalone`: a broker in the foreground that keeps its data between runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import platformdirs

from pulsar_on_kafka.base.lifetimes import told_to_stop
from pulsar_on_kafka.embedded.broker import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.download import last_lines
from pulsar_on_kafka.embedded.errors import BrokerDidNotStart
from pulsar_on_kafka.embedded.progress import Progress, to_stderr

DEFAULT_PORT: Final = 9092
_LOOK_EVERY_S: Final = 0.5


def default_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("pulsar-on-kafka", appauthor=False)) / "standalone"


def to_stdout(line: str) -> None:
    print(line, flush=True)


def run_standalone(
    data_dir: Path | None = None,
    port: int = DEFAULT_PORT,
    *,
    heap_mb: int = 1024,
    extra: Mapping[str, str] | None = None,
    announce: Callable[[str], None] = to_stdout,
    progress: Progress = to_stderr,
) -> None:
    """Run a broker until SIGINT or SIGTERM, then stop it in order. To be called from the main thread.

    Args:
        data_dir: None for one per user (`default_data_dir`).
        announce: gets `Kafka is ready: kafka://127.0.0.1:<port>` once, when the broker serves.
    Raises:
        EmbeddedBrokerError: it cannot start (a busy port, no Java, ...), or ended by itself.
    """
    options = BrokerOptions(data_dir=data_dir or default_data_dir(), port=port, heap_mb=heap_mb, extra=extra or {})
    with told_to_stop(interruptible=False) as stop, EmbeddedBroker(options, progress) as broker:
        announce(f"Kafka is ready: kafka://{broker.bootstrap}")
        while not stop.wait(_LOOK_EVERY_S):
            if not broker.is_running:
                raise BrokerDidNotStart(f"the broker ended by itself; its log ends: {last_lines(broker.log_file, 5)}")
        progress("stopping ...")
