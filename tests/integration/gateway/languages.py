"""The programs below `programs`, built for this machine once for each state of their sources, in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pulsar_on_kafka.embedded.java import find_java
from tests.builds import Missing, built
from tests.compat.pulsar_standalone.jars import pulsar_jars
from tests.compat.pulsar_standalone.releases import PULSAR_4, PulsarRelease
from tests.programs import ROOT

_PROGRAMS: Final = Path(__file__).with_name("programs")
_RUN_S: Final = 150.0
SAID: Final = "> "


class Program(NamedTuple):
    language: str
    command: Sequence[str]

    def run(self, url: str, command: str, topic: str, *arguments: object) -> list[str]:
        """What it said that it saw."""
        told = [*self.command, url, command, topic, *map(str, arguments)]
        done = subprocess.run(told, capture_output=True, text=True, timeout=_RUN_S, check=False)
        assert done.returncode == 0, f"{self.language} {command}: {done.returncode}\n{done.stdout}\n{done.stderr}"[
            -4000:
        ]
        return [line.removeprefix(SAID) for line in done.stdout.splitlines() if line.startswith(SAID)]


def java_on_both(one: str, other: str) -> list[str]:
    """What the example `java_on_both` prints about two service URLs, with their difference as its last lines.

    Raises:
        Missing: the machine has no Java compiler.
    """
    script = str(ROOT / "examples" / "java_on_both" / "compare.sh")
    environment = {**os.environ, "JAVA": _compiling_java()}
    told = [script, str(pulsar_jars()), one, other]
    done = subprocess.run(
        told, env=environment, capture_output=True, text=True, timeout=2 * _RUN_S, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout.splitlines()


def program_in(language: str) -> Program:
    """Built now, if its sources are new here.

    Raises:
        Missing: the machine has no toolchain for it.
    """
    return Program(language, _MAKERS[language]())


def _go() -> list[str]:
    def command(out: Path) -> list[str]:
        return ["go", "build", "-C", str(out), "-o", "program", "."]

    return [str(built("go", _PROGRAMS / "go", ("go",), command) / "program")]


def _rust() -> list[str]:
    def command(out: Path) -> list[str]:
        return ["cargo", "build", "--manifest-path", str(out / "Cargo.toml"), "--target-dir", str(out / "target")]

    return [str(built("rust", _PROGRAMS / "rust", ("cargo", "protoc"), command) / "target" / "debug" / "program")]


def _js() -> list[str]:
    def command(out: Path) -> list[str]:
        return ["npm", "ci", "--prefix", str(out), "--ignore-scripts", "--no-audit", "--no-fund"]

    return ["node", str(built("js", _PROGRAMS / "js", ("node", "npm"), command) / "program.js")]


def _java() -> list[str]:
    return java_program(_PROGRAMS / "java" / "Program.java")


def java_program(source: Path, *options: str, release: PulsarRelease = PULSAR_4) -> list[str]:
    """With the jars of a release of Pulsar and these options of Java's, from its source. Raises Missing."""
    return [_compiling_java(), "-Xmx256m", *options, "-cp", f"{pulsar_jars(release)}/*", str(source)]


def _compiling_java() -> str:
    """A Java of the machine's has the compiler for programs that run from their sources, one without is not enough."""
    java = find_java().executable
    if shutil.which("javac") is None:
        raise Missing("javac is not installed: Java programs run from their sources")
    return java


_MAKERS: Final[dict[str, Callable[[], list[str]]]] = {"go": _go, "java": _java, "js": _js, "rust": _rust}
