"""The JVM in which Pulsar's Java client runs: py4j's own server, with Pulsar's jars on the class path."""

from __future__ import annotations

import importlib.util
import select
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final

from pulsar_on_kafka.base.shutdown import Startable
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.jar_cache import default_cache_dir
from pulsar_on_kafka.embedded.java import find_java
from tests.compat.pulsar_standalone.jars import jars_name
from tests.compat.pulsar_standalone.releases import PULSAR_4, PulsarRelease

_CLIENT_CLASS_JARS: Final = ("pulsar-client-original-*.jar", "pulsar-client-[0-9]*.jar", "*pulsar-client-all-*.jar")
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 10.0
_CHUNK: Final = 65536
_HEAP_MB: Final = 512
_OPENED: Final = ("java.base/java.util", "java.base/java.util.concurrent", "java.base/java.lang")
"""py4j calls the public methods of private classes, such as those of unmodifiable maps."""


class JavaUnavailable(Exception):
    """There is no Java client to be had; the message is one line and says what to do."""


@dataclass(frozen=True, slots=True)
class JavaAddress:
    """Port of a running JVM on this machine, and the token that it asks for."""

    port: int
    token: str = field(repr=False)


def known_jars(release: PulsarRelease = PULSAR_4) -> Path | None:
    """The folder of the release's jars in the user's cache, as `make compat` and `make bench` fetch them; None if the
    cache does not hold them."""
    home = default_cache_dir() / jars_name(release)
    # The manifest is written last: a folder with one is whole.
    return home / "libs" if (home / "manifest.json").exists() else None


class JavaRuntime(Startable):
    """A JVM for the length of a `with`; it ends with this process, however that ends.

    Memory: a heap of 512 MB for the clients of all scenarios that are played at the same time.
    """

    def __init__(self, jars: Path | None) -> None:
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self._address: JavaAddress | None = None

    @property
    def address(self) -> JavaAddress:
        """Raises JavaUnavailable when it does not run."""
        if self._address is None:
            raise JavaUnavailable("the JVM of the Java client is not running")
        return self._address

    def start(self) -> None:
        """Start and wait until it listens.

        Raises:
            JavaUnavailable: no Java, no py4j, no jars, or the JVM did not come up.
        """
        command = self._command()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end is the JVM's end
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # select, which waits for each line below, must see what was not read
            start_new_session=True,
        )
        try:
            self._address = JavaAddress(int(self._line()), self._line())
        except ValueError as error:
            self.stop()
            raise JavaUnavailable("the JVM of the Java client did not say where it listens") from error
        except BaseException:  # no JVM is left behind, also when it is interrupted
            self.stop()
            raise
        # What the client logs; a pipe that nobody reads would stop it when it is full.
        aside("java-output", partial(_drain, self._process.stdout))

    def stop(self) -> None:
        """Twice is fine."""
        process, self._process, self._address = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _command(self) -> list[str]:
        if importlib.util.find_spec("py4j") is None:
            raise JavaUnavailable("py4j is not installed: pip install 'pulsar-on-kafka[compat]'")
        from py4j.java_gateway import find_jar_path

        bridge = find_jar_path()
        if not bridge or not Path(bridge).is_file():
            raise JavaUnavailable("py4j is installed without its jar: install it anew")
        if self._jars is None:
            raise JavaUnavailable(
                "Pulsar's jars are not here: name the `lib` folder of a Pulsar distribution with --pulsar-jars"
            )
        if not any(True for pattern in _CLIENT_CLASS_JARS for _ in self._jars.glob(pattern)):
            raise JavaUnavailable(f"{self._jars} has no jar of Pulsar's Java client (pulsar-client-*.jar)")
        try:
            java = find_java().executable
        except EmbeddedBrokerError as error:
            raise JavaUnavailable(str(error)) from error
        opened = (option for package in _OPENED for option in ("--add-opens", f"{package}=ALL-UNNAMED"))
        return [
            java,
            f"-Xmx{_HEAP_MB}m",
            *opened,
            *("-classpath", f"{bridge}:{self._jars}/*"),
            *("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"),
        ]

    def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        # A JVM that dies closes the pipe, which is readable, too.
        if not select.select([self._process.stdout], [], [], _START_TIMEOUT_S)[0]:
            raise JavaUnavailable(f"the JVM of the Java client did not listen within {_START_TIMEOUT_S:.0f} s")
        return self._process.stdout.readline().decode().strip()


def _drain(output: IO[bytes] | None) -> None:
    with suppress(OSError, ValueError):  # closed while it is read
        while output is not None and output.read(_CHUNK):
            pass
