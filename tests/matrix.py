"""`python -m tests.matrix [--python 3.12] [--kafka 3.9] [--spark 4.1] [--quick-start]`: what `make matrix` runs.

Each Python that the project supports and this machine has, or uv can bring, in an environment of its own below
`.matrix/`: the pure tests, and the README's first steps on a broker. With `--quick-start`, as in CI, only the README's
page runs, with no more installed than the package and pytest, and the Python that runs the other tests is left out.
Each version of Kafka from the oldest on: the tests of clients, cursors and transactions on an embedded broker of that
version. Each minor version of Spark whose Kafka source can be had, in an environment of its own: the tests of Spark,
but those that kill or take a minute. One after the other; what pytest says goes to a file beside the environment. A
table of the results comes last, and the exit code is 1 if any of them failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pulsar_on_kafka.embedded import BrokerOptions, open_broker
from pulsar_on_kafka.embedded.select import BOOTSTRAP_VARIABLE
from pulsar_on_kafka.embedded.settings import VERSION_VARIABLE
from pulsar_on_kafka_spark.base.connector_jars import CONNECTORS
from tests.__main__ import ANY, PURE, PURE_FOLDERS
from tests.uv import ENVIRONMENTS, make_environment, uv

PYTHONS: Final = ("3.10", "3.11", "3.12", "3.13", "3.14")
KAFKAS: Final = ("3.7.2", "3.9.2", "4.3.1", "4.4.0")
SPARKS: Final = tuple(CONNECTORS)
_ROOT: Final = Path(__file__).parents[1]
_FILES: Final = ENVIRONMENTS
_FIRST_STEPS: Final = "tests/integration/examples/test_first_steps.py"
_QUICK_START: Final = "tests/integration/documents/test_pages.py::test_a_page_does_what_it_says[README.md]"
_FOR_THE_PAGE: Final = ("pytest", "pytest-timeout", "hypothesis", "markdown-it-py")
"""Beside the package: what the tests' common part and the page's reader import."""
_ON_KAFKA: Final = ("tests/integration/client", "tests/integration/cursor", "tests/integration/transactions")
_WITH_SPARK: Final = ("-m", f"{ANY} and (kafka or spark) and not kills and not long", "--require", "spark")
_ON_A_BROKER: Final = ("-m", f"{ANY} and kafka and not kills and not long", "--require", "kafka")
_PROCESSES: Final = ("-n", "auto", "--maxprocesses", "8")
_END: Final = re.compile(r"^=* ?(\d+ .* in [\d.]+s.*?) ?=*$", re.MULTILINE)
"""How a run of pytest ended, in its own words."""
FAILED, PASSED, SKIPPED = "failed", "passed", "skipped"


class Result(NamedTuple):
    subject: str
    tests: str
    state: str
    said: str
    """pytest's last line, or the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__.partition(":")[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, default=[], help="this one only (repeatable)")
    parser.add_argument("--kafka", action="append", type=_kafka, default=[], help="this one only, as 3.9 or 3.9.2")
    parser.add_argument("--spark", action="append", choices=SPARKS, default=[], help="this one only (repeatable)")
    parser.add_argument("--quick-start", action="store_true", help="only the README's page, on each other Python")
    asked = parser.parse_args(arguments)
    if asked.quick_start:
        return _reported(_quick_starts(asked.python))
    every = not asked.python and not asked.kafka and not asked.spark
    results: list[Result] = []
    for version in PYTHONS if every else asked.python:
        results += _on_python(version, required=not every)
    for version in KAFKAS if every else asked.kafka:
        results.append(
            _pytest(
                Path(sys.executable),
                f"Kafka {version}",
                "clients",
                [*_ON_A_BROKER, "-n", "2", "--dist", "loadfile", *_ON_KAFKA],
                {VERSION_VARIABLE: version},
            )
        )
    for version in SPARKS if every else asked.spark:
        results.append(_on_spark(version))
    return _reported(results)


def _reported(results: Sequence[Result]) -> int:
    """Prints the table, and returns the exit code."""
    print(_table(results))
    return int(any(result.state == FAILED for result in results))


def _kafka(told: str) -> str:
    """The version of the matrix that is meant, or any other in full."""
    found = next((version for version in KAFKAS if told in (version, version.rpartition(".")[0])), None)
    if found is None and re.fullmatch(r"\d+\.\d+\.\d+", told) is None:
        raise argparse.ArgumentTypeError(f"{told!r}: one of {', '.join(KAFKAS)}, or another version as 4.1.2")
    return found or told


def _on_python(version: str, *, required: bool) -> list[Result]:
    """`required`: a machine without it fails."""
    subject = f"Python {version}"
    found = _interpreter(version) or _brought(version)
    if isinstance(found, str):
        return [_absent(subject, found, required=required)]
    try:
        python = _environment(f"python-{version}", found)
    except subprocess.CalledProcessError as failure:
        return [_not_installed(subject, failure)]
    return [
        _pytest(python, subject, "pure", ["-m", f"{ANY} and {PURE} and not long", *_PROCESSES, *PURE_FOLDERS]),
        _pytest(python, subject, "first steps", [*_ON_A_BROKER, _FIRST_STEPS]),
    ]


def _quick_starts(asked: Sequence[str]) -> list[Result]:
    running = "{}.{}".format(*sys.version_info)
    with _one_broker() as environment:
        return [
            _quick_start(version, environment, required=bool(asked))
            for version in asked or PYTHONS
            if asked or version != running
        ]


@contextmanager
def _one_broker() -> Iterator[dict[str, str]]:
    """The variable that names the broker of all runs: the cluster that it names already, or an embedded one."""
    with open_broker("auto", BrokerOptions()) as broker:
        yield {BOOTSTRAP_VARIABLE: broker.bootstrap}


def _quick_start(version: str, environment: Mapping[str, str], *, required: bool) -> Result:
    subject = f"Python {version}"
    found = _interpreter(version) or _brought(version)
    if isinstance(found, str):
        return _absent(subject, found, required=required)
    try:
        place = _FILES / f"quick-start-{version}"
        python = make_environment(place, found, "-e", f"{_ROOT}[embedded]", *_FOR_THE_PAGE)
    except subprocess.CalledProcessError as failure:
        return _not_installed(subject, failure)
    return _pytest(python, subject, "quick start", [*_ON_A_BROKER, _QUICK_START], environment)


def _on_spark(version: str) -> Result:
    subject = f"Spark {version}"
    try:
        python = _environment(f"spark-{version}", Path(sys.executable), f"pyspark=={version}.*")
    except subprocess.CalledProcessError as failure:
        return _not_installed(subject, failure)
    return _pytest(python, subject, "spark", [*_WITH_SPARK, "tests/spark"])


def _not_installed(subject: str, failure: subprocess.CalledProcessError) -> Result:
    return Result(subject, "installation", FAILED, _last_line(failure))


def _absent(subject: str, reason: str, *, required: bool) -> Result:
    return Result(subject, "", FAILED if required else SKIPPED, f"not on this machine (PATH, pyenv); {reason}")


def _last_line(failure: subprocess.CalledProcessError) -> str:
    return (str(failure.stderr).strip().splitlines() or [f"exit code {failure.returncode}"])[-1].strip()


def _brought(version: str) -> Path | str:
    """A Python that uv downloads, below `.matrix/`; else the reason why there is none."""
    settings = {"UV_PYTHON_INSTALL_DIR": str(_FILES / "pythons"), "UV_HTTP_RETRIES": "1"}
    try:
        uv("python", "install", "--no-bin", version, environment=settings)
        return Path(uv("python", "find", "--managed-python", "--no-project", version, environment=settings).strip())
    except subprocess.CalledProcessError as failure:
        return f"uv cannot bring it: {_last_line(failure)}"


def _interpreter(version: str) -> Path | None:
    """The first of that version that runs: on the path, or of pyenv, whose commands on the path run only those that are
    switched on."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = shutil.which(f"python{version}")
    for candidate in (*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))):
        told = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"],
            check=False,
            capture_output=True,
            text=True,
        )
        if told.returncode == 0 and told.stdout.startswith(f"{version} "):
            return Path(told.stdout.partition(" ")[2].strip())
    return None


def _environment(name: str, interpreter: Path, *instead: str) -> Path:
    """The Python of an environment with what is locked, made where it is not there or older than the lock. `instead`:
    requirements that replace what the lock has of them.

    Raises CalledProcessError: something could not be installed.
    """
    place = _FILES / name
    python, installed = place / "bin" / "python", place / ".installed"
    locked = _ROOT / "requirements" / "dev.lock"
    if installed.exists() and installed.stat().st_mtime >= locked.stat().st_mtime:
        return python
    print(f"{name}: installing the locked dependencies (some minutes, once) ...", flush=True)
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands: list[list[str | Path]] = [
        [interpreter, "-m", "venv", "--clear", place],
        [*install, "--require-hashes", "-r", locked],
        *([[*install, *instead]] if instead else []),
        [*install, "--no-deps", "-e", _ROOT],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=_ROOT)
    installed.touch()
    return python


def _pytest(
    python: Path, subject: str, tests: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> Result:
    _FILES.mkdir(exist_ok=True)
    log = _FILES / f"{subject} {tests}.log".replace(" ", "-").lower()
    print(f"{subject}: {tests} ({log.relative_to(_ROOT)}) ...", flush=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            check=False,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=_ROOT,
            env={**os.environ, **(environment or {})},
        ).returncode
    ends = _END.findall(log.read_text(encoding="utf-8", errors="replace"))
    said = ends[-1] if ends else f"pytest's exit code {code} after {time.monotonic() - began:.0f} s"
    return Result(subject, tests, FAILED if code else PASSED, said)


def _table(results: Sequence[Result]) -> str:
    return "\n".join(["", *(f"{one.subject:<13} {one.tests:<13} {one.state:<8} {one.said}" for one in results)])


if __name__ == "__main__":
    raise SystemExit(main())
