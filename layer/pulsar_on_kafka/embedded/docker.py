"""The same broker in a container (the image apache/kafka), by way of testcontainers."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Final

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.shutdown import Startable
from pulsar_on_kafka.embedded import readiness
from pulsar_on_kafka.embedded.broker import BrokerOptions
from pulsar_on_kafka.embedded.errors import BrokerDidNotStart, EmbeddedBrokerError, NoContainerEngine, NotRunning
from pulsar_on_kafka.embedded.settings import (
    HOST,
    Progress,
    common_properties,
    free_port,
    kafka_version,
    require_free,
    to_stderr,
)

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE: Final = "apache/kafka"
_CONTROLLER_PORT: Final = 9093  # inside the container
_ASK_TIMEOUT_S: Final = 1.0
_NO_ENGINE: Final = "start Docker, or use `--broker embedded`, which needs no engine"


class DockerBroker(Startable):
    """One Kafka node in a container; the interface of `EmbeddedBroker`. For use from one thread."""

    can_restart: Final = True

    def __init__(self, options: BrokerOptions | None = None, progress: Progress = to_stderr) -> None:
        self._options = options or BrokerOptions()
        self._progress = progress
        self._port = self._options.port
        self._container: DockerContainer | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, the same from the first start on. Raises `NotRunning` before it."""
        if not self._port:
            raise NotRunning("the broker has no address before its first start")
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start, or start again after `kill`, and wait until the broker serves.

        Raises:
            NoContainerEngine, PortBusy, BrokerDidNotStart: one line each on what to do.
        """
        if self._container is None:
            self._create()
        else:
            self._engine_call("start")
        self._await_ready()

    def stop(self) -> None:
        """Remove the container and its data. Twice is fine."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def kill(self) -> None:
        """SIGKILL; the data stay in the container and `start` brings it back. Raises `NotRunning`."""
        self._engine_call("kill")

    def pause(self) -> None:
        self._engine_call("pause")

    def resume(self) -> None:
        self._engine_call("unpause")

    def restart(self) -> None:
        self._engine_call("restart")
        self._await_ready()

    def _create(self) -> None:
        if self._options.data_dir is not None:
            raise EmbeddedBrokerError(
                "a broker in a container keeps its data there: use `--broker embedded` with a data directory"
            )
        try:
            from testcontainers.core.container import DockerContainer
        except ImportError as error:
            raise NoContainerEngine(
                "testcontainers is not installed: `pip install 'pulsar-on-kafka[docker]'`, or use `--broker embedded`"
            ) from error
        self._port = self._port or free_port()
        require_free(self._port)
        image = f"{IMAGE}:{kafka_version()}"
        self._progress(f"starting {image} ...")
        failure = ""
        try:
            container = DockerContainer(image).with_bind_ports(self._port, self._port)
            for name, value in container_environment(self._port, self._options).items():
                container = container.with_env(name, value)
            container.start()
        except Exception as error:  # the engine's own errors: no engine, no right to use it, no such image, no network
            failure = next(iter(str(error).splitlines()), type(error).__name__)
        else:
            self._container = container
        if failure:
            _collect_half_made_client()
            raise NoContainerEngine(f"{image} cannot be started ({failure}): {_NO_ENGINE}")

    def _engine_call(self, verb: str) -> None:
        if self._container is None:
            raise NotRunning("the broker's container is not running")
        getattr(self._container.get_wrapped_container(), verb)()

    def _await_ready(self) -> None:
        timeout_s = self._options.start_timeout_s

        def answers() -> bool:
            answer = readiness.query_cluster(HOST, self._port, _ASK_TIMEOUT_S)
            return answer is not None and answer.brokers > 0

        if not wait_until(answers, Deadline.after(timeout_s)):
            self.stop()
            raise BrokerDidNotStart(f"the broker in its container did not answer within {timeout_s:.0f} s")


def container_environment(port: int, options: BrokerOptions) -> dict[str, str]:
    """The broker's properties as the image's environment: `KAFKA_`, capitals, '.' as '_'.

    The port inside is the port outside, because the broker also calls itself by the address that it advertises.
    """
    properties = {
        **common_properties(),
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://localhost:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
        **options.extra,
    }
    settings = {"KAFKA_" + key.upper().replace(".", "_"): value for key, value in properties.items()}
    return {**settings, "KAFKA_HEAP_OPTS": f"-Xmx{options.heap_mb}m"}


def _collect_half_made_client() -> None:
    """testcontainers leaves the sockets of a client that found no engine to the garbage collector, which complains."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
