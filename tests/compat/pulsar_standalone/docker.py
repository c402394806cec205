"""The same Pulsar in a container (the image apachepulsar/pulsar), by way of testcontainers."""

from __future__ import annotations

import gc
import urllib.request
import warnings
from typing import TYPE_CHECKING, Final

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.shutdown import Startable
from pulsar_on_kafka.embedded.settings import Progress, free_port, to_stderr
from tests.compat.pulsar_standalone.errors import PulsarDidNotStart, PulsarNotRunning, PulsarStandaloneError
from tests.compat.pulsar_standalone.standalone import PulsarOptions

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_HOST: Final = "127.0.0.1"
_ASK_TIMEOUT_S: Final = 5.0
_COMMAND: Final = "bash -c 'bin/apply-config-from-env.py conf/standalone.conf && exec bin/pulsar standalone -nss -nfw'"


class PulsarContainer(Startable):
    """One Pulsar node in a container, with the addresses of `PulsarStandalone`. For use from one thread."""

    def __init__(self, options: PulsarOptions | None = None, progress: Progress = to_stderr) -> None:
        self._options = options or PulsarOptions()
        self._progress = progress
        self._image = f"apachepulsar/pulsar:{self._options.release.version}"
        self._broker_port = 0
        self._web_port = 0
        self._container: DockerContainer | None = None

    @property
    def service_url(self) -> str:
        """`pulsar://host:port`. Raises `PulsarNotRunning`."""
        self._require_running()
        return f"pulsar://{_HOST}:{self._broker_port}"

    @property
    def admin_url(self) -> str:
        """`http://host:port`. Raises `PulsarNotRunning`."""
        self._require_running()
        return f"http://{_HOST}:{self._web_port}"

    def start(self) -> None:
        """Start and wait until the broker's own health check passes.

        Raises:
            PulsarStandaloneError, PulsarDidNotStart: no engine, no image, no right to use it; one line on what to do.
        """
        try:
            from testcontainers.core.container import DockerContainer
        except ImportError as error:
            raise PulsarStandaloneError(
                "testcontainers is not installed: `pip install 'pulsar-on-kafka[docker]'`, or leave --docker out"
            ) from error
        self._broker_port, self._web_port = free_port(), free_port()
        self._progress(f"starting {self._image} ...")
        failure = ""
        try:
            container = DockerContainer(self._image).with_command(_COMMAND)
            for port in (self._broker_port, self._web_port):
                container = container.with_bind_ports(port, port)
            for name, value in container_environment(self._broker_port, self._web_port, self._options).items():
                container = container.with_env(name, value)
            container.start()
        except Exception as error:  # the engine's own errors: no engine, no right to use it, no such image, no network
            failure = next(iter(str(error).splitlines()), type(error).__name__)
        else:
            self._container = container
        if failure:
            with warnings.catch_warnings():
                # testcontainers leaves the sockets of a client that found no engine to the garbage collector.
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
            raise PulsarStandaloneError(
                f"{self._image} cannot be started ({failure}): start Docker, or leave --docker out"
            )
        self._await_health()

    def stop(self) -> None:
        """Remove the container and its data. Twice is fine."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def _await_health(self) -> None:
        timeout_s = self._options.start_timeout_s
        if not wait_until(self._is_healthy, Deadline.after(timeout_s)):
            self.stop()
            raise PulsarDidNotStart(f"Pulsar in {self._image} was not healthy within {timeout_s:.0f} s")

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(  # noqa: S310 - our own address
                f"{self.admin_url}/admin/v2/brokers/health", timeout=_ASK_TIMEOUT_S
            ) as answer:
                return bool(answer.status == 200 and answer.read().strip() == b"ok")
        except OSError:
            return False

    def _require_running(self) -> None:
        if self._container is None:
            raise PulsarNotRunning("Pulsar's container is not running")


def container_environment(broker_port: int, web_port: int, options: PulsarOptions) -> dict[str, str]:
    """The release's settings as the image's environment, where `PULSAR_PREFIX_` sets what is not there yet.

    The ports inside are the ports outside, because the broker tells clients its own address.
    """
    settings = {
        **options.release.broker_settings(),
        "advertisedAddress": _HOST,
        "brokerServicePort": str(broker_port),
        "webServicePort": str(web_port),
        **options.extra,
    }
    memory = f"-Xmx{options.heap_mb}m -XX:MaxDirectMemorySize={options.direct_mb}m"
    return {**{f"PULSAR_PREFIX_{name}": value for name, value in settings.items()}, "PULSAR_MEM": memory}
