"""A real Apache Pulsar standalone in a process of its own, as a context manager.

    with PulsarStandalone() as pulsar_standalone:
        pulsar.Client(pulsar_standalone.service_url)

It listens on a broker port and a web port that were free; its bookie takes one that the system chooses; there is no
ZooKeeper. So several may run beside each other.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

import pulsar_on_kafka.embedded
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.shutdown import Startable
from pulsar_on_kafka.embedded.java import find_java
from pulsar_on_kafka.embedded.settings import Progress, free_port, last_lines, to_stderr
from tests.compat.pulsar_standalone.errors import PulsarDidNotStart, PulsarNotRunning
from tests.compat.pulsar_standalone.jars import pulsar_jars
from tests.compat.pulsar_standalone.releases import PULSAR_4, PulsarRelease

_HOST: Final = "127.0.0.1"
_ASK_TIMEOUT_S: Final = 5.0
_PORT_ATTEMPTS: Final = 3
_FIRST_TOPIC: Final = "persistent/public/default/transaction-buffer-check"
_PACKAGES: Final = (
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.util.zip",
    "java.base/sun.net",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/java.io",
    "java.base/jdk.internal.platform",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
OPENED: Final = tuple(option for package in _PACKAGES for option in ("--add-opens", f"{package}=ALL-UNNAMED"))
"""Options of a JVM that runs Pulsar."""


@dataclass(frozen=True, slots=True)
class PulsarOptions:
    """Options of Pulsar standalone. `extra` are broker settings that win over ours and those of the release; the data
    always go with the process.

    With `tls_authority`, who signed the certificate that `extra` names (PEM), it listens with TLS only; `token` is for
    its health check then.
    """

    heap_mb: int = 1500
    direct_mb: int = 1024
    extra: Mapping[str, str] = field(default_factory=dict)
    cache_dir: Path | None = None
    start_timeout_s: float = 120.0
    stop_timeout_s: float = 30.0
    tls_authority: Path | None = None
    token: str = field(default="", repr=False)
    release: PulsarRelease = PULSAR_4


class PulsarStandalone(Startable):
    """One Pulsar node. For use from one thread. A constructor touches nothing; `start` or `with` starts it.

    The JVM ends with this program, however the program ends, and its data with it (see `embedded.lifeline`).
    """

    def __init__(self, options: PulsarOptions | None = None, progress: Progress = to_stderr) -> None:
        self._options = options or PulsarOptions()
        self._progress = progress
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._jvm_pid = 0
        self._broker_port = 0
        self._web_port = 0

    @property
    def service_url(self) -> str:
        """`pulsar://host:port`, or `pulsar+ssl://`. Raises `PulsarNotRunning`."""
        self._require_running()
        return f"pulsar{'+ssl' if self._options.tls_authority else ''}://{_HOST}:{self._broker_port}"

    @property
    def admin_url(self) -> str:
        """`http://host:port`, or `https://`. Raises `PulsarNotRunning`."""
        self._require_running()
        return f"http{'s' if self._options.tls_authority else ''}://{_HOST}:{self._web_port}"

    @property
    def pid(self) -> int:
        """The JVM's process id. Raises `PulsarNotRunning`."""
        self._require_running()
        return self._jvm_pid

    @property
    def log_file(self) -> Path:
        """Raises `PulsarNotRunning`."""
        if self._directory is None:
            raise PulsarNotRunning("Pulsar standalone has no log before its start and after its stop")
        return self._directory / "pulsar.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until the broker's own health check passes. Does nothing when it runs already.

        Raises:
            PulsarDidNotStart, EmbeddedBrokerError:
                one line each on what to do; nothing stays behind.
        """
        if self.is_running:
            return
        self.stop()
        libs = pulsar_jars(self._options.release, self._options.cache_dir, self._progress)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                self._start_once(libs)
                deadline = Deadline.after(self._options.start_timeout_s)
                self._await_health(deadline)
                self._await_transaction_buffer(deadline)
            except PulsarDidNotStart as failure:
                self._abandon()
                # Somebody took a port between our look and Pulsar's bind.
                if attempt == _PORT_ATTEMPTS or "Address already in use" not in str(failure):
                    raise
            except BaseException:
                self._abandon()
                raise
            else:
                return

    def stop(self) -> None:
        """Ask it to end, kill it if it does not in `stop_timeout_s`, remove its data. Twice is fine."""
        if self._process is not None and self.is_running:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(self._options.stop_timeout_s)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        self._abandon()

    def kill(self) -> None:
        """End it with SIGKILL and remove its data. Raises `PulsarNotRunning`."""
        self._require_running()
        self._signal(signal.SIGKILL)
        self._abandon()

    def wait(self) -> None:
        """Until it ends by itself."""
        if self._process is not None:
            self._process.wait()

    def _start_once(self, libs: Path) -> None:
        release = self._options.release
        java = find_java(release.oldest_java, f"Pulsar {release.version}")
        self._directory = Path(tempfile.mkdtemp(prefix="pok-pulsar-"))
        self._broker_port, self._web_port = free_port(), free_port()
        while self._web_port == self._broker_port:
            self._web_port = free_port()
        self._write_configuration(self._directory)
        lifeline = Path(pulsar_on_kafka.embedded.__file__).with_name("lifeline.py")
        watch = [sys.executable, "-I", "-S", str(lifeline), str(os.getpid()), str(self._directory)]
        with self.log_file.open("ab") as sink:
            # A session of its own: Ctrl-C in the terminal is for the program, which then stops Pulsar in order.
            self._process = subprocess.Popen(
                [*watch, *self._command(java.executable, libs, self._directory)],
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._jvm_pid = int(self._process.stdout.readline() or 0)

    def _write_configuration(self, directory: Path) -> None:
        tls = "Tls" if self._options.tls_authority else ""
        plain = {"brokerServicePort": "", "webServicePort": ""} if tls else {}
        settings = {
            **self._options.release.broker_settings(),
            "bindAddress": _HOST,
            "advertisedAddress": _HOST,
            **plain,
            f"brokerServicePort{tls}": str(self._broker_port),
            f"webServicePort{tls}": str(self._web_port),
            **self._options.extra,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (directory / "standalone.conf").write_text(text, encoding="utf-8")
        logging = resources.files(__package__).joinpath("log4j2.xml").read_text(encoding="utf-8")
        (directory / "log4j2.xml").write_text(logging, encoding="utf-8")

    def _command(self, java: str, libs: Path, directory: Path) -> list[str]:
        return [
            java,
            f"-Xmx{self._options.heap_mb}m",
            f"-XX:MaxDirectMemorySize={self._options.direct_mb}m",
            *OPENED,
            *self._options.release.jvm_options,
            "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Dlog4j2.configurationFile={directory / 'log4j2.xml'}",
            "-cp",
            f"{libs}/*",
            "org.apache.pulsar.PulsarStandaloneStarter",
            *("-c", str(directory / "standalone.conf")),
            *("--metadata-dir", str(directory / "metadata")),
            *("--bookkeeper-dir", str(directory / "bookkeeper")),
            "-nss",  # no stream storage
            "-nfw",  # no functions worker
        ]

    def _await_health(self, deadline: Deadline) -> None:
        wait_until(lambda: not self.is_running or self._is_healthy(), deadline)
        if not self.is_running:
            raise PulsarDidNotStart(f"Pulsar ended while starting; its log ends: {last_lines(self.log_file, 20)}")
        if deadline.passed():
            raise PulsarDidNotStart(
                f"Pulsar was not healthy within {self._options.start_timeout_s:.0f} s; "
                f"its log ends: {last_lines(self.log_file, 5)}"
            )

    def _is_healthy(self) -> bool:
        """The broker's own check: it writes a message to a topic and reads it back."""
        return self._reply("GET", "v2/brokers/health").strip() == b"ok"

    def _await_transaction_buffer(self, deadline: Deadline) -> None:
        """Wait for the buffer of a first topic. It takes a second or more, and later ones little. In 5.0.1, readers do
        not find messages that were sent to a topic before it had its buffer."""
        self._reply("PUT", f"v2/{_FIRST_TOPIC}")
        wait_until(lambda: self._transaction_buffer_state() in (b"Ready", b"NoSnapshot", b""), deadline)
        self._reply("DELETE", f"v2/{_FIRST_TOPIC}")

    def _transaction_buffer_state(self) -> bytes:
        """b"" without transactions."""
        name = _FIRST_TOPIC.removeprefix("persistent/")
        told = self._reply("GET", f"v3/transactions/transactionBufferStats/{name}")
        return re.sub(rb'.*"state"\s*:\s*"(\w+)".*', rb"\1", told, flags=re.DOTALL)

    def _reply(self, method: str, path: str) -> bytes:
        """b"" for an error."""
        authority = self._options.tls_authority
        context = ssl.create_default_context(cafile=str(authority)) if authority else None
        headers = {"Authorization": f"Bearer {self._options.token}"} if self._options.token else {}
        request = urllib.request.Request(  # noqa: S310 - our own address
            f"{self.admin_url}/admin/{path}", headers=headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_ASK_TIMEOUT_S, context=context) as answer:  # noqa: S310
                return bytes(answer.read())
        except OSError:
            return b""

    def _require_running(self) -> None:
        if not self.is_running:
            raise PulsarNotRunning("Pulsar standalone is not running")

    def _signal(self, number: signal.Signals) -> None:
        if self._jvm_pid and self.is_running:
            try:
                os.kill(self._jvm_pid, number)
            except ProcessLookupError:
                return

    def _abandon(self) -> None:
        """End what still lives, by closing the pipe it watches, and remove its data."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
